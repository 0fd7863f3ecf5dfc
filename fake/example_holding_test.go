package fake_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// triggers is a host's reconciler of triggers: it holds the Kustomization that a trigger names, and hands it back.
type triggers struct {
	store      *fake.Store
	dispatcher *applier.Dispatcher
	client     applier.Client // A host gets it from Backends.Client, for the trigger's cluster and kind.
	holder     applier.Holder
	report     func(applier.Report)
	suspended  map[applier.TriggerRef]time.Time // Guard it where several workers reconcile.
}

var errOperation = errors.New("an operation began meanwhile")

// reconcile takes the next step for one trigger. It is to be called again soon if it says so or fails, and else when the trigger
// or a target changes, and every few minutes: somebody may have resumed the Kustomization.
func (r *triggers) reconcile(ctx context.Context, ref applier.TriggerRef) (soon bool, err error) {
	trigger, err := r.store.Trigger(ctx, ref)
	if errors.Is(err, applier.ErrRecordGone) {
		return false, nil
	} else if err != nil {
		return true, err
	}
	// 1. While an operation is open, nothing is held, released or shown: whoever follows it suspends the Kustomization again.
	if open(trigger) {
		o := trigger.Status.Operation
		if !r.dispatcher.Following(trigger.Ref, o.Started.Token) {
			// Not ctx: it ends with this call or this process, and its end would abandon the operation.
			r.dispatcher.RequestApply(context.Background(), applier.ApplyRequest{Trigger: trigger.Ref, Recovered: o, Report: r.report})
		}
		return true, nil
	}
	// 2. A trigger that is being deleted hands back.
	if trigger.Deleting {
		return r.handBack(ctx, trigger)
	}
	// 3. What the applier applies from.
	app := trigger.Applier.NamespacedName()
	verdict := r.client.Validate(ctx, app)
	if verdict.Source != nil {
		source := &applier.TriggerSource{Source: *verdict.Source}
		if err := r.show(ctx, trigger.Ref, func(s *applier.TriggerStatus) { s.Source = source }); err != nil {
			return true, err
		}
	}
	// 4. Whether a target speaks for this trigger. A host shows what references and the verdict say as conditions.
	targets, err := applier.NamingTargets(ctx, r.store, trigger)
	if err != nil {
		return true, err
	}
	references := applier.JudgeReferences(trigger, targets, verdict.Source, nil)
	switch err := verdict.AsError(); {
	case trigger.Live, !references.Named(), references.Refused():
		return r.handBack(ctx, trigger)
	case err != nil, !references.Eligible():
		return true, err // All stays as it is.
	}
	// 5. Whether it is this trigger's turn.
	if other, err := applier.HeldByAnother(ctx, r.store, trigger, nil); err != nil || other != nil {
		return true, err
	}
	// 6. The finalizer comes before the first suspend, or a deleted trigger would leave a Kustomization suspended.
	if !trigger.Holding {
		return true, r.store.ChangeTrigger(trigger.Ref, func(t *applier.Trigger) { t.Holding = true })
	}
	// 7. Held is what Suspension says. It is cleared before a suspend.
	suspension, err := r.holder.Suspension(ctx, app)
	if err != nil {
		return true, err
	}
	held := suspension.Held && suspension.Handled
	if err := r.show(ctx, trigger.Ref, func(s *applier.TriggerStatus) { s.Held = held }); err != nil {
		return true, err
	}
	// 8. A suspend is handled in a moment, and is waited for by coming again. Somebody may have removed the token of one that is not.
	if !suspension.Held || !held && time.Since(r.suspended[trigger.Ref]) > time.Minute {
		r.suspended[trigger.Ref] = time.Now()
		_, err = r.holder.Suspend(ctx, app)
	}
	return !held, err
}

// handBack lets Flux apply the Kustomization again by itself.
func (r *triggers) handBack(ctx context.Context, trigger applier.Trigger) (soon bool, err error) {
	if !trigger.Holding {
		return false, nil
	}
	if err := r.show(ctx, trigger.Ref, func(s *applier.TriggerStatus) { s.Held = false }); err != nil {
		return true, err
	}
	app := trigger.Applier.NamespacedName()
	// A suspend that got no answer may still be on its way. Once another is answered, it can no longer land.
	if !trigger.Status.Held {
		if _, err := r.holder.Suspend(ctx, app); err != nil && !applier.IsPermanent(err) {
			return true, err
		}
	}
	keeper, err := r.holder.Release(ctx, app)
	if err != nil {
		return true, err
	}
	if keeper != "" {
		fmt.Println("still suspended by", keeper)
	}
	// An operation that began meanwhile suspends it once more: then it is released again after that.
	return true, r.store.ChangeTrigger(trigger.Ref, func(t *applier.Trigger) { t.Holding = open(*t) })
}

// show changes the status, unless an operation has begun since the trigger was read.
func (r *triggers) show(ctx context.Context, ref applier.TriggerRef, change func(*applier.TriggerStatus)) error {
	return r.store.UpdateStatus(ctx, ref, func(t *applier.Trigger) error {
		if open(*t) {
			return errOperation
		}
		change(&t.Status)
		return nil
	})
}

// open is whether the trigger records an operation that has not ended.
func open(t applier.Trigger) bool {
	return t.Status.Operation != nil && !t.Status.Operation.Completed()
}

// until reconciles the trigger again and again, as a work queue does, until done.
func (r *triggers) until(ctx context.Context, ref applier.TriggerRef, done func(applier.Trigger) bool) applier.Trigger {
	for {
		if _, err := r.reconcile(ctx, ref); err != nil && !errors.Is(err, errOperation) {
			fmt.Println(err)
		}
		if t, err := r.store.Trigger(ctx, ref); err == nil && done(t) {
			return t
		}
		<-time.After(10 * time.Millisecond)
	}
}

// A host holds a Kustomization and asks it. The process ends while the operation is open; the next one follows it to its end, and
// hands the Kustomization back when the trigger is deleted.
func ExampleHost_holding() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	repository := fake.StartFlux(cluster, fake.FluxOptions{}).Remote().Repository("https://git.example.com/acme/shop")
	commit := repository.Commit(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}}"})
	_, _ = cluster.Resource(gitRepositories).Namespace("team-a").Create(ctx, fake.NewGitRepository("team-a", "shop", repository.URL()), metav1.CreateOptions{})
	_, _ = cluster.Resource(kustomizations).Namespace("team-a").Create(ctx, fake.NewKustomization("team-a", "shop", "shop"), metav1.CreateOptions{})

	var records fake.Store
	main := applier.Binding{Repository: repository.URL(), Branch: "main"}
	trigger := records.PutTrigger(applier.Trigger{
		Ref:     applier.TriggerRef{Namespace: "team-a", Name: "shop"},
		Applier: applier.ApplierRef{Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "team-a", Name: "shop"},
	})
	target := records.PutTarget(applier.Target{
		Ref: applier.TargetRef{Namespace: "team-a", Name: "web"}, Trigger: applier.TriggerRef{Namespace: "team-a", Name: "shop"},
		Writes: main, Admission: applier.Admission{State: applier.Admitted},
	})
	ended := make(chan applier.Report, 1)
	start := func() (r *triggers, stop context.CancelFunc, wait func() error) {
		ctx, stop := context.WithCancel(ctx)
		options := flux.Options{FieldManager: "acme-operator"}
		clients := func(context.Context, string) (dynamic.Interface, error) { return cluster, nil }
		host := fake.NewHost(records.Process(), clients, flux.Backend(options))
		client, _ := flux.New("prod", cluster, options)
		return &triggers{
			store: host.Store, dispatcher: host.Dispatcher, client: client, holder: client, suspended: make(map[applier.TriggerRef]time.Time),
			report: func(report applier.Report) {
				if report.End != "" {
					ended <- report
				}
			},
		}, stop, host.Start(ctx)
	}

	host, stop, wait := start()
	host.until(ctx, trigger.Ref, func(t applier.Trigger) bool { return t.Status.Held })
	host.dispatcher.RequestApply(context.Background(), applier.ApplyRequest{
		Trigger: trigger.Ref, Applier: trigger.Applier, Targets: []applier.TargetRef{target.Ref}, Want: main, Commit: commit, Reason: applier.Commit,
		Report: func(applier.Report) { stop() }, // Right after it was started.
	})
	_ = wait()
	left, _ := records.Trigger(ctx, trigger.Ref)
	fmt.Println("completed:", left.Status.Operation.Completed(), "held:", left.Status.Held)

	host, stop, wait = start()
	host.until(ctx, trigger.Ref, func(t applier.Trigger) bool { return t.Status.Operation.Completed() })
	report := <-ended
	fmt.Println(report.End, report.Operation.Progress.State, report.Operation.Progress.AppliedCommit == commit)

	_ = records.ChangeTrigger(trigger.Ref, func(t *applier.Trigger) { t.Deleting = true })
	host.until(ctx, trigger.Ref, func(t applier.Trigger) bool { return !t.Holding })
	suspension, _ := host.holder.Suspension(ctx, trigger.Applier.NamespacedName())
	fmt.Println("suspended:", suspension.Suspended)
	stop()
	_ = wait()
	// Output:
	// completed: false held: true
	// Completed Succeeded true
	// suspended: false
}
