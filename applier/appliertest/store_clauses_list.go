package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

var listClauses = []storeClause{
	{
		group: "Triggers", name: "are those that match each field",
		text:  "Triggers lists the triggers that match every field of TriggerMatch, whole, and no others",
		check: triggersMatch,
	},
	{
		group: "Triggers", name: "are all for the zero match",
		text:  "the zero value of TriggerMatch matches all triggers",
		check: triggersAreAll,
	},
	{
		group: "Triggers", name: "come by namespace and name",
		text:  "Triggers are listed by namespace and name",
		check: triggersAreSorted,
	},
	{
		group: "Triggers", name: "follow what the host's users do",
		text:  "a trigger that is changed or deleted is listed as it is now, in time",
		check: triggersFollow,
	},
	{
		group: "Targets", name: "are those that name the trigger",
		text:  "Targets lists the targets that name a trigger, whole, by namespace and name, and no others; the UID in ref is not compared",
		check: targetsName,
	},
	{
		group: "Targets", name: "that are being deleted are there",
		text:  "Targets lists those being deleted too",
		needs: []Capability{Terminate},
		check: targetsAreDeleting,
	},
}

// repo is the source object of some triggers.
var repo = types.NamespacedName{Namespace: "apps", Name: "repo"}

// crowd puts triggers that differ in what a match looks at, and returns them by namespace and name.
func (e *storeEnv) crowd(ctx context.Context) ([]applier.Trigger, error) {
	kinds := e.Kinds
	var all []applier.Trigger
	add := func(namespace, name string, source *applier.TriggerSource, change func(*applier.ApplierRef)) error {
		t, err := e.trigger(ctx, name, func(t *applier.Trigger) {
			t.Ref.Namespace = namespace
			change(&t.Applier)
		})
		if err != nil {
			return err
		}
		if source != nil {
			t.Status.Source = source
			if err = e.store.UpdateStatus(ctx, t.Ref, setStatus(t.Status)); err != nil {
				return fmt.Errorf("UpdateStatus: %w", err)
			}
		}
		all = append(all, t)
		return nil
	}
	from := func(name types.NamespacedName) *applier.TriggerSource {
		return &applier.TriggerSource{Source: applier.Source{GitRepository: name, URL: "https://git.example.com/acme/shop", Revision: "main"}}
	}
	same := func(*applier.ApplierRef) {}
	elsewhere := types.NamespacedName{Namespace: "other", Name: repo.Name}
	// They are made in an order that is not the one they are to be listed in.
	err := errors.Join(
		add(e.Namespaces[1], "b", from(repo), same),
		add(e.Namespaces[1], "a", nil, func(a *applier.ApplierRef) { a.Cluster = "dev" }),
		add(e.Namespaces[0], "e", from(repo), func(a *applier.ApplierRef) { a.Cluster = "dev" }),
		add(e.Namespaces[0], "d", from(elsewhere), func(a *applier.ApplierRef) { a.Name = "cart" }),
		add(e.Namespaces[0], "c", nil, func(a *applier.ApplierRef) {
			last := kinds[len(kinds)-1]
			a.Group, a.Kind = last.Group, last.Kind
		}),
		add(e.Namespaces[0], "b", from(repo), same),
		add(e.Namespaces[0], "a", nil, func(a *applier.ApplierRef) { a.Namespace = "other" }),
	)
	slices.SortFunc(all, func(a, b applier.Trigger) int { return compareRefs(a.Ref, b.Ref) })
	return all, err
}

func triggersMatch(ctx context.Context, e *storeEnv) error {
	all, err := e.crowd(ctx)
	if err != nil {
		return err
	}
	shop, last := e.shop(), e.Kinds[len(e.Kinds)-1]
	for _, match := range []applier.TriggerMatch{
		{Namespace: e.Namespaces[0]},
		{Namespace: e.Namespaces[1]},
		{Kind: shop.GroupKind()},
		{Kind: last},
		{Kind: schema.GroupKind{Group: "example.com", Kind: shop.Kind}},
		{Applier: shop},
		{Applier: applier.ApplierRef{Cluster: "dev", Group: shop.Group, Kind: shop.Kind, Namespace: shop.Namespace, Name: shop.Name}},
		{Applier: applier.ApplierRef{Cluster: "prod", Group: shop.Group, Kind: shop.Kind, Namespace: shop.Namespace, Name: "nothing"}},
		{Cluster: "prod", Source: repo},
		{Cluster: "dev", Source: repo},
		{Cluster: "prod", Source: types.NamespacedName{Namespace: "nothing", Name: repo.Name}},
		{Namespace: e.Namespaces[0], Kind: shop.GroupKind(), Applier: shop, Cluster: "prod", Source: repo},
	} {
		if err := e.wantTriggers(ctx, match, all); err != nil {
			return err
		}
	}
	return nil
}

func triggersAreAll(ctx context.Context, e *storeEnv) error {
	all, err := e.crowd(ctx)
	if err != nil {
		return err
	}
	return e.wantTriggers(ctx, applier.TriggerMatch{}, all)
}

// wantTriggers wants those of all that match, in time. Triggers of other namespaces are not looked at.
func (e *storeEnv) wantTriggers(ctx context.Context, match applier.TriggerMatch, all []applier.Trigger) error {
	var want []applier.Trigger
	for _, t := range all {
		if match.Matches(t) {
			want = append(want, t)
		}
	}
	return e.eventually(ctx, func() error {
		got, err := e.ours(ctx, match)
		if err != nil {
			return err
		}
		byName := func(a, b applier.Trigger) int { return compareRefs(a.Ref, b.Ref) }
		slices.SortStableFunc(got, byName) // Their order is another clause's.
		if len(got) != len(want) {
			return fmt.Errorf("the triggers that match %+v were to be %s, and are %s", match, refs(want), refs(got))
		}
		for i := range want {
			if err := errors.Join(sameTrigger(got[i], want[i]), sameStatus(got[i].Status, want[i].Status)); err != nil {
				return fmt.Errorf("the triggers that match %+v: %w", match, err)
			}
		}
		return nil
	})
}

// ours lists the triggers that match, those of the suite's namespaces.
func (e *storeEnv) ours(ctx context.Context, match applier.TriggerMatch) ([]applier.Trigger, error) {
	got, err := e.store.Triggers(ctx, match)
	if err != nil {
		return nil, fmt.Errorf("Triggers: %w", err)
	}
	return slices.DeleteFunc(got, func(t applier.Trigger) bool { return !slices.Contains(e.Namespaces[:], t.Ref.Namespace) }), nil
}

func triggersAreSorted(ctx context.Context, e *storeEnv) error {
	all, err := e.crowd(ctx)
	if err != nil {
		return err
	}
	return e.eventually(ctx, func() error {
		got, err := e.store.Triggers(ctx, applier.TriggerMatch{})
		if err != nil {
			return fmt.Errorf("Triggers: %w", err)
		}
		if len(got) < len(all) || !slices.IsSortedFunc(got, func(a, b applier.Trigger) int { return compareRefs(a.Ref, b.Ref) }) {
			return fmt.Errorf("the triggers were to be %s, in this order, and are %s", refs(all), refs(got))
		}
		return nil
	})
}

func triggersFollow(ctx context.Context, e *storeEnv) error {
	all, err := e.crowd(ctx)
	if err != nil {
		return err
	}
	if err = e.wantTriggers(ctx, applier.TriggerMatch{Applier: e.shop()}, all); err != nil {
		return err
	}
	first := all[0].Ref
	changed, err := e.trigger(ctx, first.Name, func(t *applier.Trigger) { t.Ref.Namespace = first.Namespace })
	if err != nil {
		return err
	}
	all[0].Applier = changed.Applier
	if err = e.wantTriggers(ctx, applier.TriggerMatch{Applier: e.shop()}, all); err != nil {
		return fmt.Errorf("one was changed: %w", err)
	}
	if err = e.DeleteTrigger(ctx, all[0].Ref); err != nil {
		return err
	}
	if err = e.wantTriggers(ctx, applier.TriggerMatch{Applier: e.shop()}, all[1:]); err != nil {
		return fmt.Errorf("one was deleted: %w", err)
	}
	return nil
}

func targetsName(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	other, err := e.trigger(ctx, "other")
	if err != nil {
		return err
	}
	elsewhere, err := e.trigger(ctx, "shop", func(t *applier.Trigger) { t.Ref.Namespace = e.Namespaces[1] })
	if err != nil {
		return err
	}
	second, err := e.target(ctx, "second", trigger)
	if err != nil {
		return err
	}
	first, err := e.target(ctx, "first", trigger)
	if err != nil {
		return err
	}
	theirs, err := e.target(ctx, "other", other)
	if err != nil {
		return err
	}
	far, err := e.target(ctx, "first", elsewhere)
	if err != nil {
		return err
	}
	nameless := applier.TriggerRef{Namespace: trigger.Ref.Namespace, Name: trigger.Ref.Name}
	formerly := nameless
	formerly.UID = "0b5d1e88-0000-4000-8000-000000000001"
	return errors.Join(
		e.wantTargets(ctx, trigger.Ref, first, second),
		e.wantTargets(ctx, nameless, first, second),
		e.wantTargets(ctx, formerly, first, second),
		e.wantTargets(ctx, other.Ref, theirs),
		e.wantTargets(ctx, elsewhere.Ref, far),
		e.wantTargets(ctx, applier.TriggerRef{Namespace: trigger.Ref.Namespace, Name: "nothing"}),
	)
}

func (e *storeEnv) wantTargets(ctx context.Context, ref applier.TriggerRef, want ...applier.Target) error {
	return e.eventually(ctx, func() error {
		got, err := e.store.Targets(ctx, ref)
		if err != nil {
			return fmt.Errorf("Targets: %w", err)
		}
		if len(got) != len(want) {
			return fmt.Errorf("the targets of trigger %s with UID %q were to be %+v, and are %+v", ref, ref.UID, want, got)
		}
		for i := range want {
			if err := sameTarget(got[i], want[i]); err != nil {
				return fmt.Errorf("the targets of trigger %s with UID %q, by name: %w", ref, ref.UID, err)
			}
		}
		return nil
	})
}

func targetsAreDeleting(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	put, err := e.target(ctx, "site", trigger)
	if err == nil {
		err = e.TerminateTarget(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	put.Deleting = true
	return e.wantTargets(ctx, trigger.Ref, put)
}

func compareRefs(a, b applier.TriggerRef) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

func refs(triggers []applier.Trigger) string {
	names := make([]string, len(triggers))
	for i, t := range triggers {
		names[i] = t.Ref.String()
	}
	return fmt.Sprint(names)
}
