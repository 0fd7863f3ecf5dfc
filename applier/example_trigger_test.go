package applier_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// Two teams name one Kustomization. A host's reconciler asks for each trigger whether another one holds it.
func ExampleHeldByAnother() {
	shop := applier.ApplierRef{
		Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "flux-system", Name: "shop",
	}
	var store fake.Store
	for i, namespace := range []string{"team-a", "team-b"} {
		trigger := store.PutTrigger(applier.Trigger{
			Ref:     applier.TriggerRef{Namespace: namespace, Name: "shop"},
			Created: time.Date(2026, 1, 2, 15, 4, i, 0, time.UTC),
			Applier: shop,
		})
		store.PutTarget(applier.Target{
			Ref:     applier.TargetRef{Namespace: namespace, Name: "site"},
			Trigger: applier.TriggerRef{Namespace: namespace, Name: trigger.Ref.Name},
		})
	}

	ctx := context.Background()
	triggers, err := applier.ListTriggers(ctx, &store, shop.GroupKind(), "")
	if err != nil {
		panic(err)
	}
	for _, trigger := range triggers {
		switch holder, err := applier.HeldByAnother(ctx, &store, trigger, nil); {
		case err != nil:
			panic(err) // A reconciler keeps what it shows, and tries again.
		case holder != nil:
			fmt.Println(trigger.Ref, applier.ReasonHeldByAnotherTrigger+":", applier.HeldByAnotherMessage(trigger, *holder))
		default:
			fmt.Println(trigger.Ref, "holds it")
		}
	}
	// Output:
	// team-a/shop holds it
	// team-b/shop HeldByAnotherTrigger: Kustomization flux-system/shop in cluster prod is held by trigger team-a/shop, which names it too and was created first, at 2026-01-02T15:04:00Z; this trigger takes over once the other no longer comes first, such as when it names another applier or is deleted
}

func ExampleJudgeReferences() {
	trigger := applier.Trigger{
		Ref:     applier.TriggerRef{Namespace: "team-a", Name: "shop"},
		Applier: applier.ApplierRef{Cluster: "prod", Group: "argoproj.io", Kind: "Application", Namespace: "argocd", Name: "shop"},
	}
	target := applier.Target{
		Ref:       applier.TargetRef{Namespace: "team-a", Name: "site"},
		Writes:    applier.Binding{Repository: "git@git.example.com:acme/shop.git", Branch: "dev"},
		Admission: applier.Admission{State: applier.Admitted},
	}
	source := &applier.Source{URL: "https://git.example.com/acme/shop", Revision: "main"} // from Verdict.Source
	references := applier.JudgeReferences(trigger, []applier.Target{target}, source, nil)
	if !references.Eligible() {
		fmt.Println(references.Reason())
		fmt.Println(references.Message())
	}
	// Output:
	// SourceMismatch
	// target team-a/site: Application argocd/shop in cluster prod applies branch main of https://git.example.com/acme/shop, not branch dev of git.example.com:acme/shop.git: make them the same
}
