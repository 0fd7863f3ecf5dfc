package argocdtest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// fault is what happens to one request.
type fault struct {
	name string
	do   lab.Action
	// silent is a fault after which the client cannot know whether the request was carried out.
	silent bool
	// sent is a request that was carried out.
	sent bool
}

var faults = []fault{
	{name: "not sent", do: lab.Fail(nil), silent: true},
	{name: "answer lost", do: lab.LoseResponse(), silent: true, sent: true},
	{name: "500", do: lab.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0), silent: true},
	{name: "500 after it was carried out", do: lab.AnswerAfter(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0), silent: true, sent: true},
	{name: "504 after it was carried out", do: lab.AnswerAfter(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0), silent: true, sent: true},
	{name: "503 after it was carried out, to be sent again", do: lab.AnswerAfter(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, time.Second), sent: true},
	{name: "503, to be sent again", do: lab.Answer(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, time.Second)},
	{name: "429", do: lab.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 0)},
	{name: "403", do: lab.Answer(http.StatusForbidden, metav1.StatusReasonForbidden, 0)},
	{name: "409", do: lab.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)},
	{name: "401", do: lab.Answer(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, 0)},
}

func TestAFaultAtAnyRequestStartsNothingTwiceAndHidesNothing(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			points := sweep(t, s, func(t *testing.T, a *attempt, n int) {
				a.faults.On(lab.Any, n, f.do)
				a.touchIfUnconfirmed(t)
				a.requireLawful(t, a.run(t))
			})
			t.Logf("%d points tried", points)
		})
	}
}

// touchIfUnconfirmed makes the controller write to the Application after a request that may not have: an update that
// was not made can then no longer come.
func (a *attempt) touchIfUnconfirmed(t *testing.T) {
	t.Helper()
	a.asked = func(started applier.Started) {
		if started.Unconfirmed != nil {
			a.touch(t)
		}
	}
}

// requireLawful fails the test unless the attempt told the truth about what was started.
func (a *attempt) requireLawful(t *testing.T, r result) {
	t.Helper()
	if r.refused != nil {
		assert.ErrorContains(t, r.refused, "Application "+a.ref.String()+" in cluster lab")
		assert.Zero(t, r.started)
		time.Sleep(300 * time.Millisecond) // nothing comes later either
		a.requireNotStarted(t)
		return
	}
	require.NoError(t, r.err)
	if r.end.State == applier.StateSucceeded {
		a.requireSucceeded(t, r)
		return
	}
	// Only an update that was never made, and of which the client could not know that.
	require.ErrorIs(t, r.started.Unconfirmed, applier.ErrUnconfirmed, "%+v", r.end)
	assert.Equal(t, applier.ReasonNotRun, r.end.Reason)
	a.requireNotStarted(t)
}

// answered passes a request on, and keeps the code of the API server's answer.
type answered struct {
	next http.RoundTripper
	code int
}

func (a *answered) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(req)
	if err == nil {
		a.code = resp.StatusCode
	}
	return resp, err
}

func TestAnUpdateWhoseAnswerIsLostIsUnconfirmedAndFollowed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range faults {
		if !f.silent {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			a := s.attempt(t)
			var answer answered
			a.faults.On(toApplications, 1, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				answer.next = next
				return f.do(&answer, req)
			})
			a.touchIfUnconfirmed(t)

			r := a.run(t)

			require.NoError(t, r.refused)
			require.ErrorIs(t, r.started.Unconfirmed, applier.ErrUnconfirmed)
			assert.ErrorContains(t, r.started.Unconfirmed, "Application "+s.ref.String()+" in cluster lab")
			assert.Equal(t, 1, a.faults.Count(toApplications), "it was sent again")
			if answer.code == http.StatusOK {
				a.requireSucceeded(t, r)
				return
			}
			if f.sent {
				assert.Equal(t, http.StatusConflict, answer.code, "the controller wrote first, and that answer was lost")
			}
			a.requireLawful(t, r)
		})
	}
}

// client-go sends a write again that was answered by 503 with a Retry-After. What was carried out before the answer must not
// be carried out twice, whatever became of it meanwhile.
func TestAnUpdateThatIsSentAgainIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	again := func(after func(*attempt)) func(a *attempt) lab.Action {
		return func(a *attempt) lab.Action {
			return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
				resp, err := lab.AnswerAfter(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, time.Second)(next, req)
				after(a)
				return resp, err
			}
		}
	}
	for _, test := range []struct {
		name  string
		after func(t *testing.T) func(a *attempt)
		// overtaken is a record that is another's by the time that the update is sent again.
		overtaken bool
	}{
		{name: "while it is asked for", after: func(*testing.T) func(*attempt) { return func(*attempt) {} }},
		{name: "when it is over", after: func(t *testing.T) func(*attempt) {
			return func(a *attempt) { a.wait(t, lab.Synced(a.commit)) }
		}},
		{name: "when it is over, and somebody else has synced since", overtaken: true, after: func(t *testing.T) func(*attempt) {
			return func(a *attempt) {
				a.wait(t, lab.Synced(a.commit))
				a.operate(t, syncOf(object{"revision": a.first}))
				a.wait(t, lab.Synced(a.first))
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			a := s.attempt(t)
			s.waitUntilQuiet(t) // or the first one would be refused
			a.faults.On(toApplications, 1, again(test.after(t))(a))

			r := a.run(t)

			assert.Equal(t, 2, a.faults.Count(toApplications), "the one and its echo")
			if !test.overtaken {
				a.requireSucceeded(t, r)
				return
			}
			require.NoError(t, r.refused)
			require.ErrorIs(t, r.started.Unconfirmed, applier.ErrUnconfirmed)
			assert.Equal(t, applier.ReasonSuperseded, r.end.Reason, "%+v", r.end)
			assert.Equal(t, a.synced+2, s.syncs(t), "it was synced twice for one request")
			assert.Equal(t, "one", s.value(t))
		})
	}
}

func TestAnUpdateThatHangsUntilTheContextEndsIsUnconfirmed(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	a := s.attempt(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a.faults.On(toApplications, 1, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		cancel()
		return lab.Hang()(next, req)
	})

	started, err := a.client.Request(ctx, s.ref, a.ask)

	require.NoError(t, err)
	require.ErrorIs(t, started.Unconfirmed, applier.ErrUnconfirmed)
	// It may still be on its way, until the Application is seen at another version.
	p, err := s.client.Progress(t.Context(), s.ref, &started)
	require.NoError(t, err)
	if p.State != applier.StateFailed { // the controller may have written meanwhile
		assert.Equal(t, applier.StateRequested, p.State)
	}
	s.touch(t)
	end := s.follow(t, started)
	assert.Equal(t, applier.ReasonNotRun, end.Reason, "%+v", end)
	a.requireNotStarted(t)
}
