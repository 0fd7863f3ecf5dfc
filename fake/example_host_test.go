package fake_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// A host's unit test over the whole: a commit is decided on, its apply is asked for, and how it ended is on the trigger, and
// an Event on the target.
func ExampleHost() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	shop := applier.ApplierRef{Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "team-a", Name: "shop"}
	main := applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"}

	store, client, events := &fake.Store{}, &fake.Client{}, record.NewFakeRecorder(10)
	client.Answers = []fake.Answer{fake.Fails("BuildFailed", "no kustomization.yaml")}
	trigger := store.PutTrigger(applier.Trigger{
		Ref: applier.TriggerRef{Namespace: "team-a", Name: "shop"}, Applier: shop, Status: applier.TriggerStatus{Held: true},
	})
	target := store.PutTarget(applier.Target{
		Ref: applier.TargetRef{Namespace: "team-a", Name: "web"}, Trigger: trigger.Ref, Writes: main,
		Admission: applier.Admission{State: applier.Admitted}, Object: &corev1.ConfigMap{},
	})
	host := fake.NewHost(store, nil, client.Backend(shop.GroupKind()))
	host.Dispatcher.Events = events
	wait := host.Start(ctx)

	host.Dispatcher.RequestApply(ctx, applier.ApplyRequest{
		Trigger: trigger.Ref, Applier: trigger.Applier, Targets: []applier.TargetRef{target.Ref}, Want: main,
		Commit: "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", Reason: applier.Commit,
	})
	fmt.Println(<-events.Events)
	fmt.Println(<-events.Events)
	cancel()
	_ = wait()
	shown, _ := store.Trigger(context.Background(), trigger.Ref)
	fmt.Println(shown.Status.Operation.Progress.State, shown.Status.Operation.Progress.Reason)
	// Output:
	// Normal ApplyRequested Kustomization team-a/shop in cluster prod is asked to apply commit 0a1b2c3d4e5f
	// Warning ApplyFailed BuildFailed: no kustomization.yaml
	// Failed BuildFailed
}
