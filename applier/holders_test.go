package applier_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var (
	shopApplier = applier.ApplierRef{
		Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "flux-system", Name: "shop",
	}
	shopSource  = applier.TriggerSource{Source: applier.Source{URL: "https://git.example.com/acme/shop", Revision: "main"}}
	shopBinding = applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"}
)

// triggerAt is a trigger of the shop's applier, created so many minutes after the hour.
func triggerAt(namespace string, minutes int, change ...func(*applier.Trigger)) applier.Trigger {
	t := applier.Trigger{
		Ref:     applier.TriggerRef{Namespace: namespace, Name: "shop"},
		Created: time.Date(2026, 1, 2, 15, minutes, 0, 0, time.UTC),
		Applier: shopApplier,
		Status:  applier.TriggerStatus{Source: &shopSource},
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

func thatIsDeleted(t *applier.Trigger) { t.Deleting = true }
func thatHolds(t *applier.Trigger)     { t.Holding = true }
func notRead(t *applier.Trigger)       { t.Status.Source = nil }

// applying has an operation open on the applier that the trigger names, applied one that completed.
func thatApplies(t *applier.Trigger) { operates(t, applier.StateRunning) }
func thatApplied(t *applier.Trigger) { operates(t, applier.StateSucceeded) }

func operates(t *applier.Trigger, state applier.State) {
	t.Status.Operation = &applier.Operation{
		Applier: t.Applier, Started: applier.Started{Token: "t"}, Progress: applier.Progress{State: state},
	}
}

func namesAnother(change func(*applier.ApplierRef)) func(*applier.Trigger) {
	return func(t *applier.Trigger) { change(&t.Applier) }
}

// targetOf names a trigger, is admitted, and writes what the shop's applier applies.
func targetOf(trigger applier.Trigger, change ...func(*applier.Target)) applier.Target {
	t := applier.Target{
		Ref:       applier.TargetRef{Namespace: trigger.Ref.Namespace, Name: "site"},
		Trigger:   applier.TriggerRef{Namespace: trigger.Ref.Namespace, Name: trigger.Ref.Name},
		Writes:    shopBinding,
		Admission: applier.Admission{State: applier.Admitted},
	}
	for _, c := range change {
		c(&t)
	}
	return t
}

func isRefused(t *applier.Target) {
	t.Admission = applier.Admission{State: applier.NotAdmitted, Reason: "NamespaceNotAuthorized", Message: "namespace team-a may not use cluster prod"}
}
func isUndecided(t *applier.Target) { t.Admission = applier.Admission{} }
func isDeleted(t *applier.Target)   { t.Deleting = true }
func writes(repository, branch string) func(*applier.Target) {
	return func(t *applier.Target) { t.Writes = applier.Binding{Repository: repository, Branch: branch} }
}

func TestHeldByAnother(t *testing.T) {
	t.Parallel()
	bound := []func(*applier.Target){}
	for name, test := range map[string]struct {
		own, other applier.Trigger
		// targets are what the other's only target is changed by; nil makes none.
		targets []func(*applier.Target)
		held    bool
	}{
		"one that has an apply in flight holds it": {
			triggerAt("team-a", 1), triggerAt("team-b", 2, thatApplies), nil, true},
		"one whose apply completed does not, by that": {
			triggerAt("team-a", 1), triggerAt("team-b", 2, thatApplied), bound, false},
		"an apply in flight comes before holding": {
			triggerAt("team-a", 1, thatHolds), triggerAt("team-b", 2, thatApplies), nil, true},
		"a trigger with an apply in flight holds it itself": {
			triggerAt("team-a", 2, thatApplies), triggerAt("team-b", 1, thatHolds), bound, false},
		"one that holds it already does": {
			triggerAt("team-a", 1), triggerAt("team-b", 2, thatHolds), nil, true},
		"one that holds it and is being deleted hands it back first": {
			triggerAt("team-a", 1), triggerAt("team-b", 2, thatHolds, thatIsDeleted), nil, true},
		"one that has an apply in flight and is being deleted holds it": {
			triggerAt("team-a", 1), triggerAt("team-b", 2, thatApplies, thatIsDeleted), nil, true},
		"a trigger that holds it already is not put off by an older one": {
			triggerAt("team-a", 2, thatHolds), triggerAt("team-b", 1), bound, false},
		"of two that hold it, the one created first does": {
			triggerAt("team-a", 2, thatHolds), triggerAt("team-b", 1, thatHolds), nil, true},
		"of two that hold it, the one created later does not": {
			triggerAt("team-a", 1, thatHolds), triggerAt("team-b", 2, thatHolds), nil, false},
		"one created first holds it": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), bound, true},
		"one created later does not": {
			triggerAt("team-a", 1), triggerAt("team-b", 2), bound, false},
		"of two created in one moment, the first by namespace does": {
			triggerAt("team-b", 1), triggerAt("team-a", 1), bound, true},
		"of two created in one moment, the second by namespace does not": {
			triggerAt("team-a", 1), triggerAt("team-b", 1), bound, false},
		"of two created in one moment in one namespace, the first by name does": {
			triggerAt("team-a", 1, func(t *applier.Trigger) { t.Ref.Name = "z" }), triggerAt("team-a", 1), bound, true},

		"an older one that is being deleted is not in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1, thatIsDeleted), bound, false},
		"an older one that no target names is not in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), nil, false},
		"an older one whose target is being deleted is not in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), []func(*applier.Target){isDeleted}, false},
		"an older one whose target is refused is not in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), []func(*applier.Target){isRefused}, false},
		"an older one whose target writes another branch is not in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), []func(*applier.Target){writes(shopBinding.Repository, "dev")}, false},
		"an older one whose target cannot be judged yet is in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1), []func(*applier.Target){isUndecided}, true},
		"an older one whose source was not read yet is in line": {
			triggerAt("team-a", 2), triggerAt("team-b", 1, notRead), bound, true},

		"one that names another object is no other": {
			triggerAt("team-a", 2), triggerAt("team-b", 1, namesAnother(func(a *applier.ApplierRef) { a.Name = "cart" }), thatApplies), bound, false},
		"one that names an object in another cluster is no other": {
			triggerAt("team-a", 2), triggerAt("team-b", 1, namesAnother(func(a *applier.ApplierRef) { a.Cluster = "dev" }), thatApplies), bound, false},
		"one that names an object of another kind is no other": {
			triggerAt("team-a", 2), triggerAt("team-b", 1, namesAnother(func(a *applier.ApplierRef) { a.Kind = "Application" }), thatApplies), bound, false},
		"an apply in flight on the applier that it named before counts for nothing": {
			triggerAt("team-a", 1),
			triggerAt("team-b", 2, func(t *applier.Trigger) { thatApplies(t); t.Status.Operation.Applier.Name = "cart" }), bound, false},
		"a trigger that names no applier is held by nobody": {
			applier.Trigger{Ref: shopRef, Created: time.Now()}, triggerAt("team-b", 1, thatHolds), bound, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store fake.Store
			own, other := store.PutTrigger(test.own), store.PutTrigger(test.other)
			if test.targets != nil {
				store.PutTarget(targetOf(other, test.targets...))
			}
			holder, err := applier.HeldByAnother(t.Context(), &store, own, nil)
			require.NoError(t, err)
			if test.held {
				require.NotNil(t, holder)
				assert.Equal(t, other.Ref, holder.Ref)
			} else {
				assert.Nil(t, holder)
			}
		})
	}
}

var shopRef = applier.TriggerRef{Namespace: "team-a", Name: "shop"}

// Whatever the triggers of one applier are, exactly one of those in line is not held by another.
func TestExactlyOneTriggerHoldsAnApplier(t *testing.T) {
	t.Parallel()
	states := []func(*applier.Trigger){func(*applier.Trigger) {}, thatHolds, thatApplies, func(t *applier.Trigger) { thatHolds(t); thatApplies(t) }, func(t *applier.Trigger) { thatHolds(t); thatIsDeleted(t) }}
	for i := range len(states) * len(states) * len(states) {
		var store fake.Store
		var all []applier.Trigger
		for n, namespace := range []string{"team-a", "team-b", "team-c"} {
			state := states[[]int{i % len(states), i / len(states) % len(states), i / len(states) / len(states)}[n]]
			all = append(all, store.PutTrigger(triggerAt(namespace, i%2*n, state)))
			store.PutTarget(targetOf(all[n]))
		}
		var holders []applier.TriggerRef
		for _, trigger := range all {
			holder, err := applier.HeldByAnother(t.Context(), &store, trigger, nil)
			require.NoError(t, err)
			if holder == nil {
				holders = append(holders, trigger.Ref)
			}
		}
		assert.Len(t, holders, 1, "case %d", i)
	}
}

func TestTheNextInLineTakesOver(t *testing.T) {
	t.Parallel()
	var store fake.Store
	first := store.PutTrigger(triggerAt("team-c", 1, thatHolds))
	second := store.PutTrigger(triggerAt("team-b", 2))
	third := store.PutTrigger(triggerAt("team-a", 3))
	for _, trigger := range []applier.Trigger{first, second, third} {
		store.PutTarget(targetOf(trigger))
	}
	holder := func() applier.TriggerRef {
		h, err := applier.HeldByAnother(t.Context(), &store, third, nil)
		require.NoError(t, err)
		if h == nil {
			return third.Ref
		}
		return h.Ref
	}
	assert.Equal(t, first.Ref, holder())
	store.DeleteTrigger(first.Ref)
	assert.Equal(t, second.Ref, holder())
	require.NoError(t, store.ChangeTrigger(second.Ref, func(t *applier.Trigger) { t.Applier.Name = "cart" }))
	assert.Equal(t, third.Ref, holder())
}

func TestHeldByAnotherComparesRepositoriesAsTheHostDoes(t *testing.T) {
	t.Parallel()
	var store fake.Store
	own, other := store.PutTrigger(triggerAt("team-a", 2)), store.PutTrigger(triggerAt("team-b", 1))
	store.PutTarget(targetOf(other, writes("https://mirror.example.com/shop", "main")))
	holder, err := applier.HeldByAnother(t.Context(), &store, own, nil)
	require.NoError(t, err)
	assert.Nil(t, holder, "its target is refused")
	holder, err = applier.HeldByAnother(t.Context(), &store, own, func(string, string) bool { return true })
	require.NoError(t, err)
	assert.NotNil(t, holder)
}

func TestHoldersAreNotKnownAfterAReadThatFailed(t *testing.T) {
	t.Parallel()
	down := errors.New("the API server is down")
	for _, method := range []string{"Triggers", "Targets"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var store fake.Store
			own, other := store.PutTrigger(triggerAt("team-a", 2)), store.PutTrigger(triggerAt("team-b", 1))
			store.PutTarget(targetOf(other))
			store.Inject(fake.StoreFault{Method: method, Err: down})
			holder, err := applier.HeldByAnother(t.Context(), &store, own, nil)
			require.ErrorIs(t, err, down)
			require.ErrorContains(t, err, map[string]string{
				"Triggers": "list the triggers of Kustomization flux-system/shop in cluster prod: ",
				"Targets":  "list the targets of trigger team-b/shop: ",
			}[method])
			assert.Nil(t, holder)
		})
	}
}

func TestHeldByAnotherReadsTheTargetsOnlyOfWhoWaits(t *testing.T) {
	t.Parallel()
	var store fake.Store
	own := store.PutTrigger(triggerAt("team-b", 2))
	store.PutTrigger(triggerAt("team-c", 3))
	store.PutTrigger(triggerAt("team-a", 1, thatHolds))
	_, err := applier.HeldByAnother(t.Context(), &store, own, nil)
	require.NoError(t, err)
	assert.Len(t, store.Calls(), 1, "one list of triggers")
}

func TestHeldByAnotherMessage(t *testing.T) {
	t.Parallel()
	own := triggerAt("team-a", 2)
	for name, test := range map[string]struct {
		holder applier.Trigger
		want   string
	}{
		"in flight":     {triggerAt("team-b", 1, thatHolds, thatApplies), "has an apply in flight"},
		"holding":       {triggerAt("team-b", 1, thatHolds), "holds it already"},
		"created first": {triggerAt("team-b", 1), "was created first, at 2026-01-02T15:01:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, "Kustomization flux-system/shop in cluster prod is held by trigger team-b/shop, which names it too and "+test.want+
				"; this trigger takes over once the other no longer comes first, such as when it names another applier or is deleted", applier.HeldByAnotherMessage(own, test.holder))
		})
	}
}

func TestHolding(t *testing.T) {
	t.Parallel()
	assert.True(t, applier.Holding(triggerAt("team-a", 1, thatHolds)))
	assert.True(t, applier.Holding(triggerAt("team-a", 1, thatHolds, thatIsDeleted)), "it hands it back")
	assert.False(t, applier.Holding(triggerAt("team-a", 1)))
}

func TestTriggersOfApplier(t *testing.T) {
	t.Parallel()
	var store fake.Store
	own := store.PutTrigger(triggerAt("team-b", 1))
	first := store.PutTrigger(triggerAt("team-a", 2))
	second := store.PutTrigger(triggerAt("team-c", 0, thatIsDeleted))
	store.PutTrigger(triggerAt("team-d", 0, namesAnother(func(a *applier.ApplierRef) { a.Cluster = "dev" })))

	others, err := applier.TriggersOfApplier(t.Context(), &store, own)
	require.NoError(t, err)
	assert.Equal(t, []applier.TriggerRef{first.Ref, second.Ref}, refsOf(others))

	own.Applier = applier.ApplierRef{}
	others, err = applier.TriggersOfApplier(t.Context(), &store, own)
	require.NoError(t, err)
	assert.Empty(t, others, "it names no applier")
}

func TestListTriggers(t *testing.T) {
	t.Parallel()
	var store fake.Store
	argo := store.PutTrigger(triggerAt("team-a", 1, namesAnother(func(a *applier.ApplierRef) { a.Group, a.Kind = "argoproj.io", "Application" })))
	flux := store.PutTrigger(triggerAt("team-b", 1))
	other := store.PutTrigger(triggerAt("team-c", 1))
	kustomization := schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}
	for name, test := range map[string]struct {
		kind      schema.GroupKind
		namespace string
		want      []applier.TriggerRef
	}{
		"everywhere":        {kustomization, "", []applier.TriggerRef{flux.Ref, other.Ref}},
		"in a namespace":    {kustomization, "team-b", []applier.TriggerRef{flux.Ref}},
		"of another kind":   {schema.GroupKind{Group: "argoproj.io", Kind: "Application"}, "", []applier.TriggerRef{argo.Ref}},
		"of no known kind":  {schema.GroupKind{Group: "example.com", Kind: "Kustomization"}, "", nil},
		"of whatever kinds": {schema.GroupKind{}, "", []applier.TriggerRef{argo.Ref, flux.Ref, other.Ref}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := applier.ListTriggers(t.Context(), &store, test.kind, test.namespace)
			require.NoError(t, err)
			assert.Equal(t, test.want, refsOf(got))
		})
	}
	failing := store.Process()
	failing.Inject(fake.StoreFault{Err: errors.New("the API server is down")})
	_, err := applier.ListTriggers(t.Context(), failing, kustomization, "")
	require.EqualError(t, err, "list the triggers for Kustomization.kustomize.toolkit.fluxcd.io: the API server is down")
}

func refsOf(triggers []applier.Trigger) []applier.TriggerRef {
	var refs []applier.TriggerRef
	for _, t := range triggers {
		refs = append(refs, t.Ref)
	}
	return refs
}
