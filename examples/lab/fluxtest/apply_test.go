package fluxtest

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestANewCommitIsAppliedAndTheKustomizationIsHeldAgain(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	commit := s.push(t, "two")

	end, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	assert.Equal(t, applier.StateSucceeded, end.State)
	assert.Equal(t, "main@sha1:"+commit, end.AppliedRevision)
	assert.Equal(t, commit, end.AppliedCommit)
	assert.Equal(t, "ReconciliationSucceeded", end.Reason)
	assert.Equal(t, "two", s.value(t))
	assert.NotEmpty(t, end.SuspendToken)
	assert.Equal(t, end.SuspendToken, requested(s.get(t)))
	s.requireHeld(t)
}

func TestAKustomizationIsResumedOnceForOneApplyAndIsTheHostsThroughout(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	commit := s.push(t, "two")
	states := s.states(t)

	_, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	seen := states()
	assert.Equal(t, []bool{true, false, true}, suspends(seen))
	assertHeldInEach(t, seen)
	assert.Equal(t, map[string]string{manager: "Apply"},
		managersOf(t, s.get(t), "f:metadata", "f:annotations", "f:reconcile.fluxcd.io/requestedAt"))
	assert.Equal(t, 2, tr.Count(toKustomizations), "one resume and one suspend")
	requireLawfulWrites(t, s, tr, false)
}

func TestAnOperationIsRecordedOnceAndBeforeTheResume(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask(s.push(t, "two"))
	var records []applier.Started
	ask.Record = func(_ context.Context, started applier.Started) error {
		records = append(records, started)
		assert.Zero(t, tr.Count(toKustomizations), "a write came before the record")
		return nil
	}

	started, err := s.client.Request(t.Context(), s.ref, ask)

	require.NoError(t, err)
	require.Len(t, records, 1)
	record := records[0]
	assert.Equal(t, applier.OutcomeResumed, record.Outcome)
	assert.Equal(t, ask.Token, record.Token)
	assert.Equal(t, ask.Commit, record.Commit)
	assert.Equal(t, s.get(t).GetUID(), record.UID)
	assert.NotEmpty(t, record.Baseline)
	assert.LessOrEqual(t, len(record.Baseline), 1024)
	assert.False(t, record.RequestedAt.IsZero())
	assert.Empty(t, record.SuspendToken)
	assert.Equal(t, record.Baseline, started.Baseline, "nothing changed between the record and the resume")
	assert.Equal(t, 1, tr.Count(toKustomizations))

	end := s.follow(t, s.client, started)
	assert.Equal(t, applier.StateSucceeded, end.State, end.Message)
	s.requireHeld(t)
}

func TestARecordedOperationIsFollowedByItsRecordAlone(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	ask := s.ask(s.push(t, "two"))
	var record applier.Started
	ask.Record = func(_ context.Context, started applier.Started) error {
		record = started
		return nil
	}
	_, err := s.client.Request(t.Context(), s.ref, ask)
	require.NoError(t, err)

	record.Recovered = true
	end := s.follow(t, client(t, s.lab.RESTConfig()), record)

	assert.Equal(t, applier.StateSucceeded, end.State, end.Message)
	assert.Equal(t, ask.Commit, end.AppliedCommit)
	s.requireHeld(t)
}

func TestAnOperationThatCannotBeRecordedIsNotStarted(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask(s.push(t, "two"))
	ask.Record = func(context.Context, applier.Started) error { return assert.AnError }

	_, err := s.client.Request(t.Context(), s.ref, ask)

	require.ErrorIs(t, err, assert.AnError)
	assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab")
	assert.Zero(t, tr.Count(toKustomizations))
	s.requireHeld(t)
}

func TestTheStatesOfAnOperationAreReportedInTheirOrder(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	var seen []applier.State

	_, err := applier.Apply(t.Context(), s.client, s.ref, s.ask(s.push(t, "two")), func(p applier.Progress) {
		if len(seen) == 0 || seen[len(seen)-1] != p.State {
			seen = append(seen, p.State)
		}
	})

	require.NoError(t, err)
	order := []applier.State{applier.StateRequested, applier.StateRunning, applier.StateSettling, applier.StateSucceeded}
	require.NotEmpty(t, seen)
	assert.Equal(t, applier.StateSucceeded, seen[len(seen)-1])
	assert.Subset(t, order, seen)
	for i := 1; i < len(seen); i++ {
		assert.Less(t, slices.Index(order, seen[i-1]), slices.Index(order, seen[i]), "%v", seen)
	}
}
