package fluxtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

func TestReleaseHandsTheKustomizationBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(t *testing.T, s *subject) // the hold
		while  func(t *testing.T, s *subject) // it is held
		keeper string
		owners map[string]string
	}{
		"nobody else had a hand in it": {},
		"flux suspend was run before": {
			before: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) },
		},
		"flux suspend was run while it was held": {
			while: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) },
		},
		"two people suspended it before": {
			before: func(t *testing.T, s *subject) {
				s.as(t, "flux", suspendPatch)
				s.as(t, "kubectl-patch", suspendPatch)
			},
		},
		"flux resume was run while it was held": {
			while: func(t *testing.T, s *subject) { s.as(t, "flux", `{"spec":{"suspend":null}}`) },
		},
		"flux resume and suspend were run while it was held": {
			while: func(t *testing.T, s *subject) {
				s.as(t, "flux", `{"spec":{"suspend":null}}`)
				s.as(t, "flux", suspendPatch)
			},
			keeper: "flux", owners: map[string]string{"flux": "Update"},
		},
		"somebody applies the field": {
			while:  func(t *testing.T, s *subject) { s.applyAs(t, "parent", true) },
			keeper: "parent", owners: map[string]string{"parent": "Apply"},
		},
		"somebody applies it as resumed": {
			while:  func(t *testing.T, s *subject) { s.applyAs(t, "parent", false) },
			owners: map[string]string{"parent": "Apply"},
		},
		"somebody applies the field, and somebody updated it": {
			before: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) },
			while:  func(t *testing.T, s *subject) { s.applyAs(t, "parent", true) },
			keeper: "parent", owners: map[string]string{"parent": "Apply", "flux": "Update"},
		},
		"it is resumed for an operation": {
			while: func(t *testing.T, s *subject) {
				ask := s.ask(s.first)
				_, err := s.client.Request(t.Context(), s.ref, ask)
				require.NoError(t, err)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			if test.before != nil {
				test.before(t, s)
			}
			s.hold(t)
			if test.while != nil {
				test.while(t, s)
			}
			faults := lab.NewTransport()
			client := s.through(t, faults)

			keeper, err := client.Release(t.Context(), s.ref)

			require.NoError(t, err)
			assert.Equal(t, test.keeper, keeper)
			after := s.get(t)
			owners := test.owners
			if owners == nil {
				owners = map[string]string{}
			}
			assert.Equal(t, owners, managersOf(t, after, "f:spec", "f:suspend"))
			_, set, _ := unstructured.NestedBool(after.Object, "spec", "suspend")
			assert.Equal(t, len(owners) > 0, set, "spec.suspend is gone with its owners")
			requireUID(t, faults, after.GetUID())

			writes := faults.Count(lab.Writes)
			keeper, err = client.Release(t.Context(), s.ref)
			require.NoError(t, err)
			assert.Equal(t, test.keeper, keeper, "the same again")
			assert.Equal(t, writes, faults.Count(lab.Writes), "nothing is left to write")

			if test.keeper == "" {
				commit := s.push(t, "after the release")
				s.lookForCommits(t)
				s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Applied(commit))
			}
		})
	}
}

func TestReleaseOfAKustomizationThatNobodyHeldWritesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given  func(t *testing.T, s *subject)
		keeper string
	}{
		"ordinary":                     {},
		"suspended by flux suspend":    {given: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) }, keeper: "flux"},
		"suspended by its manifest":    {given: func(t *testing.T, s *subject) { s.applyAs(t, "parent", true) }, keeper: "parent"},
		"suspended under another host": {given: func(t *testing.T, s *subject) { s.applyAs(t, "lib2", true) }, keeper: "lib2"},
		"missing":                      {given: (func(t *testing.T, s *subject) { s.delete(t) })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			if test.given != nil {
				test.given(t, s)
			}
			faults := lab.NewTransport()

			keeper, err := s.through(t, faults).Release(t.Context(), s.ref)

			require.NoError(t, err)
			assert.Equal(t, test.keeper, keeper)
			assert.Zero(t, faults.Count(lab.Writes))
			if name == "missing" {
				s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Gone)
			}
		})
	}
}

func TestARenamedHostGoesOnWithWhatItHeldUnderItsFormerName(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(t *testing.T, s *subject)
		again  bool // suspended under the new name too
	}{
		"held under the former name":                           {},
		"held under both names":                                {again: true},
		"held under both names, suspended before by flux":      {again: true, before: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) }},
		"held under the former name, suspended before by flux": {before: func(t *testing.T, s *subject) { s.as(t, "flux", suspendPatch) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := live(t, lab.Start(t))
			if test.before != nil {
				test.before(t, s)
			}
			s.hold(t)
			var err error
			s.client, err = flux.New("lab", s.lab.Dynamic(), flux.Options{FieldManager: "renamed", FormerFieldManagers: []string{"other", manager}})
			require.NoError(t, err)
			s.requireHeld(t)
			assert.True(t, s.client.Validate(t.Context(), s.ref).OK)
			if test.again {
				s.hold(t)
			}

			end, err := s.apply(t, s.ask(s.push(t, "two")))
			require.NoError(t, err)
			assert.Equal(t, applier.StateSucceeded, end.State)
			s.requireHeld(t)
			keeper, err := s.client.Release(t.Context(), s.ref)

			require.NoError(t, err)
			assert.Empty(t, keeper)
			after := s.get(t)
			assert.Empty(t, managersOf(t, after, "f:spec", "f:suspend"))
			for _, entry := range after.GetManagedFields() {
				assert.NotContains(t, []string{manager, "renamed"}, entry.Manager, "both names dropped what they held")
			}
		})
	}
}
