package flux

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	ownsSuspend    = `"fieldsV1": {"f:spec": {"f:suspend": {}}}`
	ownsAnnotation = `"fieldsV1": {"f:metadata": {"f:annotations": {"f:reconcile.fluxcd.io/requestedAt": {}}}}`
)

func TestOwnersAreTheManagersOfSpecSuspend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		entries   string
		owners    owners
		held      bool
		elsewhere string
	}{
		"nobody": {entries: ``},
		"us":     {entries: `{"manager": "lib", "operation": "Apply", ` + ownsSuspend + `}`, owners: owners{applied: []string{"lib"}}, held: true},
		"us under a former name": {
			entries: `{"manager": "old", "operation": "Apply", ` + ownsSuspend + `}`, owners: owners{applied: []string{"old"}}, held: true,
		},
		"us, by the annotation alone":      {entries: `{"manager": "lib", "operation": "Apply", ` + ownsAnnotation + `}`},
		"us, by an update that is no hold": {entries: `{"manager": "lib", "operation": "Update", ` + ownsSuspend + `}`, owners: owners{updated: []string{"lib"}}},
		"an updater":                       {entries: `{"manager": "flux", "operation": "Update", ` + ownsSuspend + `}`, owners: owners{updated: []string{"flux"}}},
		"an applier": {
			entries: `{"manager": "parent", "operation": "Apply", ` + ownsSuspend + `}`, owners: owners{applied: []string{"parent"}}, elsewhere: "parent",
		},
		"an applier of another case of our name": {
			entries: `{"manager": "Lib", "operation": "Apply", ` + ownsSuspend + `}`, owners: owners{applied: []string{"Lib"}}, elsewhere: "Lib",
		},
		"us, an updater and an applier": {
			entries: `{"manager": "lib", "operation": "Apply", ` + ownsSuspend + `}, {"manager": "flux", "operation": "Update", ` + ownsSuspend + `},
				{"manager": "parent", "operation": "Apply", ` + ownsSuspend + `}`,
			owners: owners{applied: []string{"lib", "parent"}, updated: []string{"flux"}}, held: true, elsewhere: "parent",
		},
		"a writer of the status subresource": {entries: `{"manager": "c", "operation": "Update", "subresource": "status", ` + ownsSuspend + `}`},
		"an applier of other fields of the spec": {
			entries: `{"manager": "parent", "operation": "Apply", "fieldsV1": {"f:spec": {".": {}, "f:interval": {}, "f:suspended": {}}}}`,
		},
		"an applier of a suspend that is not spec.suspend": {
			entries: `{"manager": "parent", "operation": "Apply", "fieldsV1": {"f:suspend": {}, "f:metadata": {"f:annotations": {"f:suspend": {}}}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ks, err := parseKustomization(fromJSON(t, `{"spec": {"suspend": true}, "metadata": {"managedFields": [`+test.entries+`]}}`))

			require.NoError(t, err)
			assert.Equal(t, test.owners, ks.owners)
			assert.Equal(t, test.held, judging.holds(ks))
			assert.Equal(t, test.elsewhere, judging.appliedElsewhere(ks.owners))
			ks.suspended = false
			assert.False(t, judging.holds(ks), "what is not suspended is not held")
		})
	}
}

func TestTheKeeperOfASuspendIsWhoAppliesItFirst(t *testing.T) {
	t.Parallel()
	for want, ks := range map[string]kustomization{
		"":                               {owners: owners{applied: []string{"parent"}}},
		"parent":                         {object: object{suspended: true}, owners: owners{applied: []string{"parent"}, updated: []string{"flux"}}},
		"flux":                           {object: object{suspended: true}, owners: owners{updated: []string{"flux"}}},
		"(no field manager is recorded)": {object: object{suspended: true}},
	} {
		assert.Equal(t, want, keeper(ks))
	}
}
