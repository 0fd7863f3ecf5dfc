package fluxtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// askLive asks for a commit without holding the Kustomization.
func (s *subject) askLive(commit string) applier.Ask {
	ask := s.ask(commit)
	ask.Live = true
	return ask
}

// requireNeverHeld fails the test if the host laid hands on spec.suspend in one of the states.
func requireNeverHeld(t *testing.T, states []*unstructured.Unstructured) {
	t.Helper()
	for _, state := range states {
		require.NotContains(t, managersOf(t, state, "f:spec", "f:suspend"), manager)
	}
}

func TestALiveKustomizationIsMadeToApplyACommit(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name    string
		commit  func(*testing.T, *subject) string
		fetches int
	}{
		{"that is to be fetched", func(t *testing.T, s *subject) string { return s.push(t, "two") }, 1},
		{"that is fetched", func(t *testing.T, s *subject) string {
			commit := s.push(t, "two")
			s.moveTo(t, commit)
			return commit
		}, 0},
		{"that is applied", func(t *testing.T, s *subject) string {
			commit := s.push(t, "two")
			s.moveTo(t, commit)
			s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(commit))
			return commit
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			ask := s.askLive(c.commit(t, s))
			ask.Reason = applier.CatchUp // A live ask runs always.
			var records []applier.Started
			ask.Record = func(_ context.Context, started applier.Started) error {
				records = append(records, started)
				assert.Zero(t, tr.Count(toKustomizations))
				return nil
			}
			ask.Held = func(context.Context) error { return assert.AnError } // It is not asked.
			states := s.states(t)

			end, err := s.apply(t, ask)

			require.NoError(t, err)
			assert.Equal(t, "main@sha1:"+ask.Commit, end.AppliedRevision)
			assert.Equal(t, ask.Commit, end.AppliedCommit)
			assert.Equal(t, "ReconciliationSucceeded", end.Reason)
			assert.Empty(t, end.SuspendToken)
			assert.Equal(t, "two", s.value(t))
			seen := states()
			assert.Equal(t, []bool{false}, suspends(seen))
			requireNeverHeld(t, seen)
			requireLawfulWrites(t, s, tr, true)
			requireOneStart(t, tr, ask.Token)
			assert.Equal(t, c.fetches, tr.Count(lab.To("apply", "gitrepositories")))
			assert.Equal(t, ask.Token, requested(seen[len(seen)-1]))
			require.Len(t, records, 1)
			assert.Equal(t, applier.OutcomeStamped, records[0].Outcome)
			assert.Equal(t, s.get(t).GetUID(), records[0].UID)
			assert.LessOrEqual(t, len(records[0].Baseline), 1024)
		})
	}
}

func TestAFailedLiveApplyIsReportedInTheControllersWords(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range failures {
		if f.meanwhile != nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			states := s.states(t)

			end, err := s.fail(t, f, tr, true)

			s.requireFailure(t, f, end, err)
			seen := states()
			assert.Equal(t, []bool{false}, suspends(seen))
			requireNeverHeld(t, seen)
			requireLawfulWrites(t, s, tr, true)
			requireOneStart(t, tr, "")
		})
	}
}

// What happens between the stamp and the run that it asks for.
func TestALiveApplyWhoseSourceChangesBeforeItRunsIsReportedInTheControllersWords(t *testing.T) {
	l := lab.Alone(t)
	for _, f := range failures {
		if f.meanwhile == nil {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			s := live(t, l)
			if f.before != nil {
				f.before(t, s)
			}
			commit := s.repo.Commit(t, f.files)
			s.moveTo(t, commit)
			s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(commit))
			s.settled(t)
			l.KustomizeController.Stop(t)
			started, err := s.client.Request(t.Context(), s.ref, s.askLive(commit))
			require.NoError(t, err)
			f.meanwhile(t, s)
			l.KustomizeController.Start(t)

			end := s.follow(t, s.client, started)

			s.requireFailed(t, f, end)
			assert.False(t, suspended(s.get(t)))
			requireNeverHeld(t, []*unstructured.Unstructured{s.get(t)})
		})
	}
}

// Flux puts a new state on a Kustomization that is not suspended whenever it likes, so a stamp may have to be sent
// again; it is the same one.
func requireOneStart(t *testing.T, tr *lab.Transport, token string) {
	t.Helper()
	starts := 0
	for _, r := range tr.Requests() {
		if !toKustomizations(r) {
			continue
		}
		starts++
		sent := requestedIn(t, r)
		if token == "" {
			token = sent
		}
		assert.Equal(t, token, sent)
	}
	assert.NotZero(t, starts)
	assert.LessOrEqual(t, starts, 5)
}

func TestTheSameLiveFailureTwiceInARowIsReportedTwice(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range failures {
		if f.meanwhile != nil || f.reason == "HealthCheckFailed" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l)
			_, err := s.fail(t, f, nil, true)
			require.ErrorIs(t, err, applier.ErrFailed)

			end, err := s.apply(t, s.askLive(s.repo.Head(t, lab.DefaultBranch)))

			s.requireFailure(t, f, end, err)
		})
	}
}

func TestASuspendedKustomizationIsNotAskedLive(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name    string
		arrange func(*testing.T, *subject)
		message string
	}{
		{"flux suspend suspended it", func(t *testing.T, s *subject) {
			s.as(t, "flux", `{"spec":{"suspend":true}}`)
			s.settled(t)
		}, "resume it"},
		{"this host holds it", func(t *testing.T, s *subject) { s.hold(t) }, "is held by this host"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l)
			c.arrange(t, s)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)

			err := s.requireRefused(t, tr, s.askLive(s.push(t, "two")))

			require.ErrorIs(t, err, applier.ErrSuspended)
			assert.True(t, applier.IsPermanent(err))
			assert.ErrorContains(t, err, c.message)
			assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab")
			assert.Zero(t, tr.Count(lab.Writes))
		})
	}
}

func TestALiveKustomizationThatIsSuspendedWhileItsCommitIsFetchedIsNotStamped(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	tr.On(lab.To("apply", "gitrepositories"), 1, lab.Before(func() { s.as(t, "flux", `{"spec":{"suspend":true}}`) }))

	_, err := s.client.Request(t.Context(), s.ref, s.askLive(s.push(t, "two")))

	require.ErrorIs(t, err, applier.ErrSuspended)
	assert.Zero(t, tr.Count(toKustomizations))
}

// What somebody does between the stamp and the end of the run that is waiting for health.
func TestALiveApplyIsFollowedToTheRightEndThroughForeignHands(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	const (
		fluxSuspend = `{"spec":{"suspend":true}}`
		fluxResume  = `{"spec":{"suspend":null}}`
	)
	suspendIt := func(t *testing.T, s *subject) { s.as(t, "flux", fluxSuspend) }
	resumeIt := func(t *testing.T, s *subject) { s.as(t, "flux", fluxResume) }
	stampIt := func(t *testing.T, s *subject) { s.annotate(t, lab.Kustomizations, s.ref.Name, stampedNow()) }
	for _, c := range []struct {
		name  string
		hands []func(*testing.T, *subject)
		// suspended is how it is left; the host neither suspends nor resumes it.
		suspended bool
	}{
		{name: "flux suspend", hands: []func(*testing.T, *subject){suspendIt}, suspended: true},
		{name: "flux resume", hands: []func(*testing.T, *subject){resumeIt}},
		{name: "flux reconcile", hands: []func(*testing.T, *subject){stampIt}},
		{name: "flux reconcile twice", hands: []func(*testing.T, *subject){stampIt, stampIt}},
		{name: "flux suspend and flux resume", hands: []func(*testing.T, *subject){suspendIt, resumeIt}},
		{name: "flux reconcile and flux suspend", hands: []func(*testing.T, *subject){stampIt, suspendIt}, suspended: true},
		{name: "a spec that changes", hands: []func(*testing.T, *subject){edit(`{"spec":{"retryInterval":"7m"}}`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l, waits)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			ask := s.askLive(s.repo.Commit(t, lab.Files{"web.yaml": deployment, "cm.yaml": lab.ConfigMap("cm", "key", "two")}))
			started, err := s.client.Request(t.Context(), s.ref, ask)
			require.NoError(t, err)
			// A run at the commit before may have waited for health too, so the Deployment has to be there first.
			s.lab.WaitFor(t, deployments, s.ns, "unready", func(u *unstructured.Unstructured) bool { return u != nil })
			s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, checking)

			for _, hand := range c.hands {
				hand(t, s)
			}
			s.becomeReady(t)
			end := s.follow(t, s.client, started)

			assert.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
			assert.Equal(t, ask.Commit, end.AppliedCommit)
			assert.Equal(t, "two", s.value(t))
			assert.Equal(t, c.suspended, suspended(s.get(t)))
			requireLawfulWrites(t, s, tr, true)
			requireOneStart(t, tr, ask.Token)
		})
	}
}

// A suspend that comes before the run: the token is handled without one.
func TestALiveApplyThatSomebodySuspendedBeforeItRanDidNotRun(t *testing.T) {
	l := lab.Alone(t)
	s := live(t, l)
	commit := s.push(t, "two")
	s.moveTo(t, commit)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(commit))
	s.settled(t)
	l.KustomizeController.Stop(t)
	started, err := s.client.Request(t.Context(), s.ref, s.askLive(commit))
	require.NoError(t, err)
	s.as(t, "flux", `{"spec":{"suspend":true}}`)
	l.KustomizeController.Start(t)

	end := s.follow(t, s.client, started)

	assert.Equal(t, applier.StateFailed, end.State)
	assert.Equal(t, applier.ReasonNotRun, end.Reason)
	assert.True(t, suspended(s.get(t)))
	requireNeverHeld(t, []*unstructured.Unstructured{s.get(t)})
}

func TestALiveApplyWhoseSourceMovesOnBeforeTheStampIsStale(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	var newer string
	tr.On(toKustomizations, 1, lab.Before(func() {
		newer = s.push(t, "three")
		s.moveTo(t, newer)
		s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(newer))
	}))

	_, err := s.apply(t, s.askLive(s.push(t, "two")))

	// The write met a Kustomization that had changed, and the decision was made anew.
	require.ErrorIs(t, err, applier.ErrStale)
	assert.ErrorContains(t, err, "main@sha1:"+newer)
}

func TestALiveApplyThatRanAtANewerCommitSaysSo(t *testing.T) {
	t.Parallel()
	s := live(t, lab.Start(t))
	commit := s.push(t, "two")
	s.moveTo(t, commit)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(commit))
	s.settled(t)
	started, err := s.client.Request(t.Context(), s.ref, s.askLive(commit))
	require.NoError(t, err)
	newer := s.push(t, "three")
	s.moveTo(t, newer)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(newer))

	end := s.follow(t, s.client, started)

	assert.Equal(t, applier.StateSucceeded, end.State)
	assert.Equal(t, applier.ReasonAppliedOther, end.Reason)
	assert.Equal(t, "main@sha1:"+newer, end.AppliedRevision)
	assert.Equal(t, newer, end.AppliedCommit)
}
