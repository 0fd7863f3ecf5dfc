package appliertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
)

// Run checks every clause of the contract that package applier states, on the backend that harness describes. Each
// clause is a subtest; its failure says what the contract wants, and what happened instead.
//
// A clause that needs a [Capability] that is lacking is not checked. It is reported by name, in its subtest's log
// and in a list at the end.
//
// Run reports no failure where there is none, as long as an operation takes less than Harness.Timeout. It does not find
// every one: run it under the race detector.
func Run(t *testing.T, harness Harness) {
	t.Helper()
	if harness.New == nil {
		t.Fatal("the harness makes no applier: set Harness.New")
	}
	harness = harness.withDefaults()
	unchecked := report{of: len(clauses)}
	t.Run("clauses", func(t *testing.T) {
		for _, group := range groups() {
			t.Run(group, func(t *testing.T) {
				if harness.Parallel {
					t.Parallel()
				}
				for _, c := range clauses {
					if c.group == group {
						c.run(t, harness, &unchecked)
					}
				}
			})
		}
	})
	unchecked.log(t)
}

// clause is one sentence of the contract and its check.
type clause struct {
	// group and name make the subtest's name.
	group, name string
	// text is what the contract wants.
	text string
	// needs are the capabilities without which it cannot be checked.
	needs []Capability
	// check returns how the clause is broken. It makes what it needs from e, which it is given fresh.
	check func(ctx context.Context, e *env) error
}

// clauses are all clauses, in the order in which they are checked.
var clauses = slices.Concat(
	harnessClauses, validateClauses, requestClauses, decisionClauses, operationClauses, progressClauses, answerClauses, lateClauses,
	crashClauses, foreignClauses, waitClauses, holderClauses, watcherClauses, prefetcherClauses, applyClauses, quietClauses,
)

// groups returns the groups of the clauses in their order.
func groups() []string {
	var all []string
	for _, c := range clauses {
		if !slices.Contains(all, c.group) {
			all = append(all, c.group)
		}
	}
	return all
}

func (h Harness) withDefaults() Harness {
	if h.Wrap == nil {
		h.Wrap = func(t *testing.T, check func(t *testing.T)) { check(t) }
	}
	if h.Timeout <= 0 {
		h.Timeout = time.Minute
	}
	if h.Quiet <= 0 {
		h.Quiet = 10 * time.Second
	}
	return h
}

// run checks the clause as a subtest.
func (c clause) run(t *testing.T, harness Harness, unchecked *report) {
	t.Run(c.name, func(t *testing.T) {
		if harness.Parallel {
			t.Parallel()
		}
		harness.Wrap(t, func(t *testing.T) {
			missing, err := c.try(t, harness)
			switch {
			case err != nil:
				t.Errorf("this clause is broken: %s\n%s", c.text, indent(err))
			case len(missing) > 0:
				t.Logf("not checked, for want of %s: %s", join(missing), c.text)
				unchecked.add(c.group, c.name, missing)
			}
		})
	})
}

// try checks the clause. It returns the capabilities for want of which it cannot, or how it is broken.
func (c clause) try(t testing.TB, harness Harness) ([]Capability, error) {
	e := &env{t: t, harness: harness}
	if len(c.needs) > 0 {
		missing, err := e.lacks(c.needs)
		if err != nil || len(missing) > 0 {
			return missing, err
		}
	}
	// It ends a client that waits for ever, as long as that heeds its context.
	ctx, cancel := context.WithTimeout(t.Context(), maxRequests*harness.Timeout)
	defer cancel()
	return nil, c.check(ctx, e)
}

// lacks returns which of the capabilities are missing.
func (e *env) lacks(needs []Capability) ([]Capability, error) {
	a := e.harness.New(e.t)
	client, err := a.NewClient(a.reach())
	if err != nil {
		return nil, fmt.Errorf("the harness makes no client: %w", err)
	}
	e.untouched = a
	var missing []Capability
	for _, need := range needs {
		if !a.can(client, need) {
			missing = append(missing, need)
		}
	}
	return missing, nil
}

// reach returns what a client reaches the cluster through when nobody looks on.
func (a *Applier) reach() dynamic.Interface {
	if a.API == nil {
		return nil
	}
	return a.API
}

// report collects what was not checked.
type report struct {
	// of is how many clauses there are.
	of    int
	mu    sync.Mutex
	lines []string
}

func (r *report) add(group, name string, missing []Capability) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s/%s: for want of %s", group, name, join(missing)))
}

func (r *report) log(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.lines) > 0 {
		slices.Sort(r.lines)
		t.Logf("%d of %d clauses were not checked:\n\t%s", len(r.lines), r.of, strings.Join(r.lines, "\n\t"))
	}
}

func join(all []Capability) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = string(c)
	}
	return strings.Join(names, ", ")
}

func indent(err error) string {
	return "\t" + strings.ReplaceAll(err.Error(), "\n", "\n\t")
}
