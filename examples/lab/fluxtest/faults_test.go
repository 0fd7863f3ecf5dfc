package fluxtest

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// fault is what happens once to one request.
type fault struct {
	name   string
	action lab.Action
}

var (
	conflict      = fault{"409", lab.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)}
	internalError = fault{"500", lab.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)}
	responseLost  = fault{"response lost", lab.LoseResponse()}
	// processedThenSentAgain makes a guarded write conflict with itself.
	processedThenSentAgain = fault{"processed, then 500, to be sent again",
		lab.AnswerAfter(http.StatusInternalServerError, metav1.StatusReasonInternalError, time.Second)}

	faults = []fault{
		conflict, internalError, responseLost, processedThenSentAgain,
		{"403", lab.Answer(http.StatusForbidden, metav1.StatusReasonForbidden, 0)},
		{"429, to be sent again", lab.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second)},
		{"504", lab.Answer(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0)},
		{"processed, then 504", lab.AnswerAfter(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0)},
		{"connection refused", lab.Fail(syscall.ECONNREFUSED)},
	}
)

func TestTheLawsHoldWhicheverRequestFailsOnce(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	tests := map[flow][]fault{
		heldFlow: {internalError, responseLost}, heldFetchFlow: faults, // which makes the same requests and more
		liveFlow: faults, liveFetchFlow: {internalError, responseLost},
	}
	for f, faults := range tests {
		for _, fault := range faults {
			t.Run(f.name+", "+fault.name, func(t *testing.T) {
				t.Parallel()
				s := f.subject(t, l)
				sweep(t, s, f, func(t *testing.T, a *attempt, n int) {
					a.faults.On(lab.Any, n, fault.action)
					a.requireLawful(t, a.run(t))
				})
			})
		}
	}
}

// A write of which nothing is known is followed by a request that fails too.
func TestTheLawsHoldWhicheverTwoRequestsFail(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, first := range []fault{conflict, responseLost, processedThenSentAgain} {
		for gap := 1; gap <= 2; gap++ {
			t.Run(fmt.Sprintf("%s, and 500 %d requests later", first.name, gap), func(t *testing.T) {
				t.Parallel()
				s := held(t, l)
				sweep(t, s, heldFlow, func(t *testing.T, a *attempt, n int) {
					a.faults.On(lab.Any, n, first.action)
					a.faults.On(lab.Any, n+gap, internalError.action)
					a.requireLawful(t, a.run(t))
				})
			})
		}
	}
}

// requireLawful fails the test unless the end is the right one: an error that started nothing, a success that is one, or
// a request of which nothing is known and that nothing ran for.
func (a *attempt) requireLawful(t *testing.T, r result) {
	t.Helper()
	a.requireLeft(t)
	switch {
	case r.refused != nil:
		assert.ErrorContains(t, r.refused, "in cluster lab")
		assert.NotErrorIs(t, r.refused, applier.ErrNotHeld)
		a.requireNotStarted(t)
	case r.end.State == applier.StateFailed:
		require.NoError(t, r.err)
		assert.ErrorIs(t, r.started.Unconfirmed, applier.ErrUnconfirmed)
		assert.Equal(t, applier.ReasonNotRun, r.end.Reason, "%+v", r.end)
		assert.Equal(t, 1, a.records)
		a.requireNotStarted(t)
	default:
		a.requireSucceeded(t, r)
		assert.Equal(t, 1, a.records)
	}
}

// The write that starts the operation is made, is answered by 500, is sent again by client-go after a second, and conflicts
// with itself.
func TestAStartingWriteThatWasSentAgainIsRecognizedAsMade(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range []flow{heldFlow, liveFlow} {
		for _, h := range append([]hand{{"nobody", func(*testing.T, *subject) {}}}, hands...) {
			t.Run(f.name+", "+h.name+" in between", func(t *testing.T) {
				t.Parallel()
				a := f.subject(t, l).attempt(t, f)
				write := lab.To("apply", "kustomizations")
				a.faults.On(write, 1, processedThenSentAgain.action)
				a.faults.On(write, 2, lab.Before(func() { h.lay(t, a.subject) }))

				r := a.run(t)

				require.NoError(t, r.refused)
				require.NoError(t, r.err)
				assert.Equal(t, 1, a.records)
				assert.Equal(t, applier.StateSucceeded, r.end.State, "%+v", r.end)
				assert.Equal(t, a.commit, r.end.AppliedCommit)
				assert.Equal(t, a.value, a.subject.value(t))
				if !f.live {
					a.requireHeld(t)
				}
			})
		}
	}
}
