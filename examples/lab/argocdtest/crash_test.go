package argocdtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// death is how a process dies at a request.
type death struct {
	name string
	// processed is a request that the API server carried out.
	processed bool
}

var deaths = []death{{"before it is sent", false}, {"after it was processed", true}}

func (d death) on(a *attempt, die func()) lab.Action {
	if d.processed {
		return a.faults.CutAfter(die)
	}
	return a.faults.CutBefore(die)
}

func TestAnotherProcessTakesOverWhereverOneDies(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, d := range deaths {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			points := sweep(t, s, func(t *testing.T, a *attempt, n int) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				made := false
				a.faults.On(lab.Any, n, d.on(a, func() {
					u := a.get(t)
					made = a.ask.Token == tokenOf(u.Object["operation"]) || a.ask.Token == tokenOf(recordOf(u)["operation"])
					cancel(errDied)
				}))
				r := a.runWith(ctx)
				if ctx.Err() == nil {
					a.requireSucceeded(t, r) // it needed fewer requests than the one that was counted
					return
				}
				a.requireTakenOver(t, made)
			})
			t.Logf("%d points tried", points)
		})
	}
}

// requireTakenOver lets another process follow what is recorded, to the right end.
func (a *attempt) requireTakenOver(t *testing.T, made bool) {
	t.Helper()
	if a.recorded == nil {
		a.requireNotStarted(t)
		return
	}
	recovered := a.recovered(t)
	if made {
		a.requireSucceededEnd(t, a.follow(t, recovered))
		return
	}
	p, err := a.subject.client.Progress(t.Context(), a.ref, &recovered)
	require.NoError(t, err)
	if p.State != applier.StateFailed { // the controller may have written meanwhile
		assert.Equal(t, applier.StateRequested, p.State, "the update may still be on its way")
	}
	a.touch(t)
	end := a.follow(t, recovered)
	assert.Equal(t, applier.StateFailed, end.State, "%+v", end)
	assert.Equal(t, applier.ReasonNotRun, end.Reason)
	assert.Contains(t, end.Message, fmt.Sprintf("Application %s in cluster lab did not run for this request", a.ref))
	a.requireNotStarted(t)
}

// A process that is taken for dead has sent its update, which reaches the API server late: after another process followed the
// record to an end.
func TestALateUpdateOfADeadProcessStartsNothingThatWasReportedAsNotRun(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, test := range []struct {
		name string
		// changed is how often the Application changed between the record and the update.
		changed int
	}{
		{"the update is made from what was recorded", 0},
		{"the update is made from what was read after a conflict", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			a := s.attempt(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			for n := range test.changed {
				a.faults.On(toApplications, n+1, lab.Before(func() { s.patch(t, object{"status": object{"controllerNamespace": fmt.Sprint("changed-", n)}}) }))
			}
			var end applier.Progress
			a.faults.On(toApplications, test.changed+1, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				recovered := a.recovered(t)
				p, err := s.client.Progress(t.Context(), s.ref, &recovered)
				assert.NoError(t, err)
				if end = p; !p.State.Ended() {
					s.touch(t)
					end = s.follow(t, recovered)
				}
				resp, err := next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
				if assert.NoError(t, err) {
					resp.Body.Close()
				}
				a.faults.Cut()
				cancel(errDied)
				return nil, errDied
			})

			a.runWith(ctx)

			assert.Equal(t, applier.ReasonNotRun, end.Reason, "%+v", end)
			time.Sleep(time.Second)
			a.requireNotStarted(t)
		})
	}
}
