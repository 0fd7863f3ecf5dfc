package flux

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// A smaller apply of the same manager drops the fields that it leaves out, and one without a UID may create an object.
func TestABodyStatesAllThatItsManagerIsToHold(t *testing.T) {
	t.Parallel()
	of := object{name: types.NamespacedName{Namespace: "ns", Name: "app"}, uid: "uid", resourceVersion: "7"}
	metadata := func(more map[string]any) map[string]any {
		m := map[string]any{"namespace": "ns", "name": "app", "uid": "uid"}
		for key, value := range more {
			m[key] = value
		}
		return m
	}
	token := map[string]any{"reconcile.fluxcd.io/requestedAt": "t"}
	held := kustomization{object: of}
	for name, test := range map[string]struct {
		patch          patch
		metadata, spec map[string]any
	}{
		"a resume": {
			patch: (&request{ask: applier.Ask{Token: "t"}}).startingPatch(held), spec: map[string]any{"suspend": false},
			metadata: metadata(map[string]any{"resourceVersion": "7", "annotations": token}),
		},
		"a live stamp": {
			patch: (&request{ask: applier.Ask{Token: "t", Live: true}}).startingPatch(held), metadata: metadata(map[string]any{"resourceVersion": "7", "annotations": token}),
		},
		"a suspend": {
			patch: patch{of: of, token: "t", suspend: new(true), guarded: true}, spec: map[string]any{"suspend": true},
			metadata: metadata(map[string]any{"resourceVersion": "7", "annotations": token}),
		},
		"a suspend that has to land": {
			patch: patch{of: of, token: "t", suspend: new(true)}, spec: map[string]any{"suspend": true}, metadata: metadata(map[string]any{"annotations": token}),
		},
		"a stamp of a source": {patch: patch{of: of, token: "t"}, metadata: metadata(map[string]any{"annotations": token})},
		"a release":           {patch: patch{of: of, guarded: true}, metadata: metadata(map[string]any{"resourceVersion": "7"})},
	} {
		want := map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": test.metadata}
		if test.spec != nil {
			want["spec"] = test.spec
		}
		assert.Equal(t, want, test.patch.body(kustomizationKind).Object, name)
	}
}

func TestAReleaseTakesTheFieldBackFromUpdatersAndThenDropsIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		since   []change
		manager string // "" and no suspend: nothing is written
		suspend *bool
	}{
		"held":                         {manager: "lib"},
		"held under a former name":     {since: []change{appliedBy("old")}, manager: "old"},
		"held under both":              {since: []change{appliedBy("old", "lib")}, manager: "old"},
		"shared with an updater":       {since: []change{ownedBy("lib")("flux")}, suspend: new(false)},
		"resumed, and an updater":      {since: []change{ownedBy("lib")("flux"), resumed}, manager: "lib"},
		"shared with an applier":       {since: []change{appliedBy("parent", "lib")}, manager: "lib"},
		"shared with both":             {since: []change{ownedBy("lib", "parent")("flux")}, manager: "lib"},
		"resumed for an operation":     {since: []change{resumed}, manager: "lib"},
		"nobody's":                     {since: []change{appliedBy()}},
		"an updater's":                 {since: []change{ownedBy()("flux")}},
		"another's":                    {since: []change{appliedBy("parent")}},
		"another's, with an updater's": {since: []change{ownedBy("parent")("flux")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ks := after(test.since...)
			p, more := (&Client{options: judging}).releasing(ks)
			assert.Equal(t, test.manager != "" || test.suspend != nil, more)
			assert.True(t, p.guarded)
			if more {
				assert.Equal(t, patch{of: ks.object, guarded: true, manager: test.manager, suspend: test.suspend}, p)
			}
		})
	}
}

// ownedBy is managers that apply spec.suspend, and managers that updated it.
func ownedBy(applied ...string) func(updated ...string) change {
	return func(updated ...string) change {
		return func(ks *kustomization) { ks.owners = owners{applied: applied, updated: updated} }
	}
}

func TestWhatIsNotHeldIsNotAskedAndWhatIsHeldIsNoLiveOne(t *testing.T) {
	t.Parallel()
	c := &Client{cluster: "prod", options: judging}
	for name, test := range map[string]struct {
		since           []change
		held, pending   bool // a held ask is made, or waits
		live            bool // a live ask is made
		heldSays, lives string
	}{
		"held":                        {held: true, lives: "is held by this host: ask without Live, or release it"},
		"held under a former name":    {since: []change{appliedBy("old")}, held: true, lives: "is held by this host"},
		"resumed for an operation":    {since: []change{resumed}, pending: true, heldSays: "lib has Kustomization", lives: "is held by this host"},
		"suspended, and not handled":  {since: []change{stamped("new")}, pending: true, heldSays: "is not handled yet: is kustomize-controller running?", lives: "is held by this host"},
		"suspended without any token": {since: []change{stamped(""), handled("")}, heldSays: "call Suspend again", lives: "is held by this host"},
		"ordinary":                    {since: []change{fluxResume}, live: true, heldSays: "is not suspended under the name lib"},
		"suspended by somebody":       {since: []change{fluxSuspend}, heldSays: "is not suspended under the name lib", lives: "resume it, or hold it by Suspend and ask without Live"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ks := after(test.since...)
			held := c.held(ks)
			assert.Equal(t, test.held, held == nil)
			if held != nil {
				assert.Equal(t, test.pending, errors.Is(held, applier.ErrBusy))
				assert.Equal(t, !test.pending, errors.Is(held, applier.ErrNotHeld))
				assert.ErrorContains(t, held, test.heldSays)
				assert.Equal(t, !test.pending, applier.IsPermanent(held))
			}
			live := c.live(ks)
			assert.Equal(t, test.live, live == nil)
			if live != nil {
				assert.ErrorIs(t, live, applier.ErrSuspended)
				assert.ErrorContains(t, live, test.lives)
				assert.True(t, applier.IsPermanent(live))
			}
		})
	}
}
