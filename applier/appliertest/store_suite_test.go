package appliertest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
)

// storeMutants are, for each clause, broken stores that it must catch.
var storeMutants = map[string][]mutation{
	"Trigger/is read whole":                                         {"Live is forgotten", "Holding is forgotten", "the cluster is forgotten", "Created is forgotten"},
	"Trigger/is as new as every write that was answered":            {"reads are cached"},
	"Trigger/that does not exist is gone":                           {"what is gone is empty", "what is gone is any error"},
	"Trigger/of another UID is gone":                                {"UIDs are not compared", "a ref without a UID is no trigger"},
	"Trigger/that is being deleted is there":                        {"what is being deleted is gone"},
	"Trigger/is the caller's own":                                   {"values are shared", "values of lists are shared"},
	"Target/is read whole":                                          {"the admission is forgotten", "what is written is forgotten"},
	"Target/is as new as every write that was answered":             {"reads are cached"},
	"Target/that does not exist is gone":                            {"what is gone is empty"},
	"Target/of another UID is gone":                                 {"UIDs are not compared"},
	"Target/that is being deleted is there":                         {"what is being deleted is gone"},
	"Triggers/are those that match each field":                      {"the namespace is not matched", "the kind is not matched", "the group is not matched", "the applier is not matched", "the cluster is not matched", "the source is not matched", "lists have no status"},
	"Triggers/are all for the zero match":                           {"the zero match matches none"},
	"Triggers/come by namespace and name":                           {"lists are not sorted", "lists are sorted by one string"},
	"Triggers/follow what the host's users do":                      {"lists are never renewed"},
	"Targets/are those that name the trigger":                       {"targets are of the UID", "targets are not sorted", "targets of any namespace name the trigger"},
	"Targets/that are being deleted are there":                      {"targets that are being deleted are left out"},
	"UpdateStatus/writes what mutate left":                          {"times are whole seconds", "Held is not written", "Prefetch is not written", "messages are cut at a line's end"},
	"UpdateStatus/takes away what mutate took away":                 {"a nil field is left as it was", "empty fields are left as they were"},
	"UpdateStatus/reads past any cache":                             {"updates read a cache"},
	"UpdateStatus/writes nothing but the status":                    {"the trigger is written"},
	"UpdateStatus/writes nothing that does not differ":              {"every call writes"},
	"UpdateStatus/returns the error of mutate":                      {"the error of mutate is wrapped", "the error of mutate is ignored"},
	"UpdateStatus/of what is gone is gone":                          {"UIDs are not compared", "mutate is called for what is gone"},
	"UpdateStatus/of what is being deleted is written":              {"what is being deleted is not written"},
	"Race/loses no update":                                          {"the last writer wins", "a conflict is an error", "mutate is called once"},
	"Race/with another's status is decided afresh":                  {"the last writer wins", "a conflict is an error", "mutate is called once"},
	"Race/with a changed trigger is decided afresh":                 {"the last writer wins", "only a status makes a conflict"},
	"Race/with a trigger made anew writes nothing on it":            {"a new incarnation is written"},
	"Race/between reads and writes is safe":                         {"two calls at once fail"},
	"Unanswered/writes that were made are unconfirmed":              {"unconfirmed is any error"},
	"Unanswered/writes that were not made are unconfirmed":          {"unconfirmed is any error", "unconfirmed is no error"},
	"Unanswered/writes that were made and sent again are made once": {"a conflict is an error"},
	"Unanswered/calls end with their context":                       {"calls ignore their context"},
	"Context/that has ended is no wait":                             {"a cancelled write is made"},
	"Context/that ends in the middle leaves the answer true":        {"a cancelled write is an error"},
}

// A store that keeps the contract passes.
func TestStoreReference(t *testing.T) {
	t.Parallel()
	h := storeReference("")
	h.Parallel = true
	t.Run("in a bubble", func(t *testing.T) {
		t.Parallel()
		h := h
		h.Wrap = synctest.Test
		RunStore(t, h)
	})
	t.Run("outside one", func(t *testing.T) {
		t.Parallel()
		h := h
		h.Timeout = time.Second
		RunStore(t, h)
	})
	t.Run("whatever the order of its namespaces", func(t *testing.T) {
		t.Parallel()
		h := h
		h.Wrap = synctest.Test
		inOrder := h.New
		h.New = func(t testing.TB) *Records {
			records := inOrder(t)
			slices.Reverse(records.Namespaces[:])
			return records
		}
		RunStore(t, h)
	})
}

// Each clause catches each store that breaks it.
func TestStoreMutants(t *testing.T) {
	t.Parallel()
	for _, c := range storeClauses {
		name := c.group + "/" + c.name
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, m := range storeMutants[name] {
				t.Run(string(m), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						missing, err := c.try(t, storeReference(m).withDefaults())
						assert.Empty(t, missing, "not checked")
						if assert.Error(t, err, "this clause does not catch a broken store: %s", c.text) {
							t.Log(err)
						}
						<-time.After(2 * time.Hour) // A call that a mutant left behind ends meanwhile.
					})
				})
			}
		})
	}
}

// A clause that no broken store proves would be a claim.
func TestEveryStoreClauseHasAMutant(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, c := range storeClauses {
		name := c.group + "/" + c.name
		assert.NotEmpty(t, c.text, name)
		assert.False(t, names[name], "two clauses have the name %s", name)
		names[name] = true
		if c.group != "Harness" {
			assert.NotEmpty(t, storeMutants[name], "%s has no mutant", name)
		}
	}
	for name := range storeMutants {
		assert.True(t, names[name], "mutants of a clause that is not there: %s", name)
	}
}

func TestAStoreHarnessThatIsIncompleteFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*StoreHarness, *Records)
		want   string
	}{
		"one namespace twice": {func(_ *StoreHarness, r *Records) { r.Namespaces[1] = r.Namespaces[0] }, "set two Records.Namespaces"},
		"no kind":             {func(_ *StoreHarness, r *Records) { r.Kinds = nil }, "set Records.Kinds"},
		"no store":            {func(_ *StoreHarness, r *Records) { r.NewStore = nil }, "set Records.NewStore"},
		"no way to delete":    {func(_ *StoreHarness, r *Records) { r.DeleteTarget = nil }, "set Records.PutTrigger, DeleteTrigger, PutTarget and DeleteTarget"},
		"a store that cannot be made": {func(_ *StoreHarness, r *Records) {
			r.NewStore = func() (applier.Store, error) { return nil, errors.New("no client") }
		}, "no client"},
		"a capability that got lost":           {func(_ *StoreHarness, r *Records) { r.TerminateTarget = nil }, "Terminate is missing"},
		"a capability that is there after all": {func(h *StoreHarness, _ *Records) { h.Lacks = []Capability{Hang} }, "Hang is there"},
		"a trigger that names something else": {func(_ *StoreHarness, r *Records) {
			r.PutTrigger = func(context.Context, applier.Trigger) (applier.Trigger, error) { return applier.Trigger{}, nil }
		}, "PutTrigger was to make a trigger of Kustomization apps/shop in cluster prod"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := storeReference("").withDefaults()
			r := h.New(t)
			test.change(&h, r)
			h.New = func(testing.TB) *Records { return r }
			_, err := storeHarnessClauses[0].try(t, h)
			require.ErrorContains(t, err, test.want)
		})
	}
}
