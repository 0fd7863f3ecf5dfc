package fluxtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// hand is what somebody does to the Kustomization with the flux CLI.
type hand struct {
	name string
	lay  func(*testing.T, *subject)
}

var (
	fluxSuspend = hand{"flux suspend", func(t *testing.T, s *subject) { s.as(t, "flux", `{"spec":{"suspend":true}}`) }}
	fluxResume  = hand{"flux resume", func(t *testing.T, s *subject) { s.as(t, "flux", `{"spec":{"suspend":null}}`) }}
	fluxStamp   = hand{"flux reconcile", func(t *testing.T, s *subject) { s.reconcile(t) }}

	hands = []hand{fluxSuspend, fluxResume, fluxStamp}
)

// reconcile stamps the Kustomization as flux reconcile does.
func (s *subject) reconcile(t *testing.T) {
	t.Helper()
	s.annotate(t, lab.Kustomizations, s.ref.Name, stampedNow())
}

func TestTheOutcomeIsRightWhicheverHandIsLaidOnTheKustomizationBetweenAnyTwoRequests(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range flows {
		for _, h := range hands {
			t.Run(f.name+", "+h.name, func(t *testing.T) {
				t.Parallel()
				s := f.subject(t, l)
				between(t, s, f, func(t *testing.T, a *attempt, p point) {
					before := s.value(t)
					a.at(p, func() { h.lay(t, s) })
					r := a.run(t)
					if !f.live && r.end.SuspendToken != "" && !suspended(a.get(t)) {
						// Laid after our suspend was handled, and so after the end.
						assert.Equal(t, fluxResume.name, h.name)
						assert.Equal(t, point{n: len(a.faults.Requests()), after: true}, p)
						s.hold(t)
					}
					a.requireRight(t, r, before, h)
				})
			})
		}
	}
}

func TestTheOutcomeIsRightWhicheverTwoHandsFollowEachOtherAtAnyRequest(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, first := range hands {
		for _, second := range hands {
			for gap, when := range []string{"at once", "a request later"} {
				t.Run(first.name+", then "+second.name+" "+when, func(t *testing.T) {
					t.Parallel()
					s := held(t, l)
					sweep(t, s, heldFlow, func(t *testing.T, a *attempt, n int) {
						if gap == 0 {
							a.faults.On(lab.Any, n, lab.Before(func() { first.lay(t, s); second.lay(t, s) }))
						} else {
							a.faults.On(lab.Any, n, lab.Before(func() { first.lay(t, s) }))
							a.faults.On(lab.Any, n+gap, lab.Before(func() { second.lay(t, s) }))
						}
						before := s.value(t)
						a.requireRight(t, a.run(t), before, first, second)
					})
				})
			}
		}
	}
}

// A token that is stamped while a run waits for the health of what it applied, and is stamped over before that run ends, is never
// handled (kustomize-controller v1.9.6).
func TestForeignStampsDuringARunDoNotHideItsEnd(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t), waits)
	started := s.startUnready(t)
	states := s.states(t)
	lost := s.stampTwice(t)
	s.becomeReady(t)

	end := s.followed(t, &started, nil)

	require.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
	assert.Equal(t, started.Commit, end.AppliedCommit)
	s.requireHeld(t)
	handled := handledIn(states())
	assert.Contains(t, handled, started.Token)
	assert.NotContains(t, handled, lost)
}

// A live ask may come while a run is going on, and then its own token is the one that is lost.
func TestAForeignStampOverALiveOneStandsInForIt(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t), waits)
	commit := s.pushUnready(t)
	s.fetch(t, commit)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, checking)
	ask := s.ask(commit)
	ask.Live = true
	started, err := s.client.Request(t.Context(), s.ref, ask)
	require.NoError(t, err)
	states := s.states(t)
	s.stampTwice(t)
	s.becomeReady(t)

	end := s.followed(t, &started, nil)

	require.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
	assert.Equal(t, commit, end.AppliedCommit)
	assert.NotContains(t, handledIn(states()), started.Token)
}

// stampTwice stamps the Kustomization twice as flux reconcile does, and returns the token that was stamped over.
func (s *subject) stampTwice(t *testing.T) string {
	t.Helper()
	first := stampedNow()
	s.annotate(t, lab.Kustomizations, s.ref.Name, first)
	s.reconcile(t)
	return first
}

// handledIn returns the tokens that are handled in the states.
func handledIn(states []*unstructured.Unstructured) []string {
	var tokens []string
	for _, u := range states {
		token, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
		tokens = append(tokens, token)
	}
	return tokens
}

// requireRight fails the test unless the end tells what really happened under the hands that were laid on the Kustomization. Before is
// what the ConfigMap held when the attempt began.
func (a *attempt) requireRight(t *testing.T, r result, before string, laid ...hand) {
	t.Helper()
	laidOn := func(name string) bool {
		for _, h := range laid {
			if h.name == name {
				return true
			}
		}
		return false
	}
	u := a.get(t)
	if r.refused != nil {
		assert.True(t, applier.IsPermanent(r.refused), "%v", r.refused)
		assert.ErrorContains(t, r.refused, "Kustomization "+a.ref.String()+" ")
		assert.NotEqual(t, a.ask.Token, requested(u))
		assert.NotContains(t, managersOf(t, u, "f:spec", "f:suspend"), manager)
		if a.flow.live {
			assert.ErrorIs(t, r.refused, applier.ErrSuspended)
			assert.True(t, laidOn(fluxSuspend.name), "%v", r.refused)
		} else {
			assert.ErrorIs(t, r.refused, applier.ErrNotHeld)
			assert.True(t, laidOn(fluxResume.name), "%v", r.refused)
		}
		return
	}
	require.NoError(t, r.err)
	if a.flow.live {
		assert.NotContains(t, managersOf(t, u, "f:spec", "f:suspend"), manager)
	} else {
		a.awaitHandled(t) // a stamp that came after our suspend was handled
		a.requireHeld(t)
	}
	if a.ranBefore(r.end) { // Somebody's hand kept the run for the artifact from following, unless it is live.
		if !a.flow.live {
			assert.Equal(t, before, a.subject.value(t))
		}
		return
	}
	if r.end.State == applier.StateSucceeded {
		assert.Equal(t, a.commit, r.end.AppliedCommit, "%+v", r.end)
		assert.Equal(t, a.value, a.subject.value(t))
		return
	}
	assert.Equal(t, applier.ReasonNotRun, r.end.Reason, "%+v", r.end)
	assert.True(t, laidOn(fluxSuspend.name), "%+v", r.end)
	if !a.flow.live {
		assert.Equal(t, history(a.before), history(u), "something ran: %+v", r.end)
	}
}
