package appliertest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestAHarnessThatIsIncompleteFails(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Harness, *Applier)
		want   string
	}{
		"no name of the cluster":        {func(_ *Harness, a *Applier) { a.Cluster = "" }, "set Applier.Cluster"},
		"no branch":                     {func(_ *Harness, a *Applier) { a.Want.Branch = "" }, "Want"},
		"no client":                     {func(_ *Harness, a *Applier) { a.NewClient = nil }, "set Applier.NewClient"},
		"nothing to tell what applied":  {func(_ *Harness, a *Applier) { a.Applied = nil }, "Applied"},
		"an API without the kind in it": {func(_ *Harness, a *Applier) { a.Resource.Resource = "" }, "set Applier.Resource"},
		"a short hash": {func(_ *Harness, a *Applier) {
			a.Push = func(context.Context) (string, error) { return "abc", nil }
		}, "no full hash"},
		"a client that cannot be made": {func(_ *Harness, a *Applier) {
			a.NewClient = func(dynamic.Interface) (applier.Client, error) { return nil, errors.New("no field manager") }
		}, "no field manager"},
		"a capability that got lost": {func(_ *Harness, a *Applier) { a.PushBroken = nil }, "PushBroken is missing"},
		"a capability that is there after all": {func(h *Harness, _ *Applier) {
			h.Lacks = append(h.Lacks, Watcher)
		}, "Watcher is there"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := referenceHarness(false, "").withDefaults()
				a := h.New(t)
				test.change(&h, a)
				h.New = func(testing.TB) *Applier { return a }
				err := harnessIsComplete(t.Context(), &env{t: t, harness: h})
				require.ErrorContains(t, err, test.want)
			})
		})
	}
}

func TestWhatCannotBeCheckedIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := referenceHarness(true, "").withDefaults()
		var unchecked report
		for _, c := range clauses {
			missing := []Capability(nil)
			if len(c.needs) > 0 {
				var err error
				missing, err = (&env{t: t, harness: h}).lacks(c.needs)
				require.NoError(t, err)
			}
			if len(missing) > 0 {
				assert.Equal(t, []Capability{Holder}, missing, c.name)
				unchecked.add(c.group, c.name, missing)
			}
		}
		assert.Contains(t, strings.Join(unchecked.lines, "\n"), "Holder/suspends an overdue operation at once: for want of Holder")
	})
}
