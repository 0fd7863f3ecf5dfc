package fluxtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestAnAppliedCommitIsAskedForAgainOnlyWhereTheReasonNeedsARun(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for reason, runs := range map[applier.ApplyReason]bool{
		applier.CatchUp:       false,
		applier.ForeignCommit: false,
		applier.Commit:        true,
		applier.Refusal:       true,
		applier.Repair:        true,
		"":                    true,
	} {
		t.Run("reason "+string(reason), func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			states := s.states(t)
			ask, recorded := s.ask(s.first), 0
			ask.Reason = reason
			ask.Record = func(context.Context, applier.Started) error { recorded++; return nil }

			end, err := s.apply(t, ask)

			require.NoError(t, err)
			assert.Equal(t, applier.StateSucceeded, end.State)
			assert.Equal(t, s.first, end.AppliedCommit)
			s.requireHeld(t)
			if runs {
				assert.Equal(t, "main@sha1:"+s.first, end.AppliedRevision)
				assert.Equal(t, []bool{true, false, true}, suspends(states()))
				assert.Equal(t, 1, recorded)
			} else {
				assert.Equal(t, applier.ReasonCurrent, end.Reason)
				assert.Len(t, states(), 1, "the Kustomization changed")
				assert.Zero(t, tr.Count(lab.Writes))
				assert.Zero(t, recorded)
			}
		})
	}
}

func TestARefusalRevertsWhatWasChangedInTheCluster(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	s.patch(t, lab.ConfigMaps, "cm", "kubectl-edit", `{"data":{"key":"changed by hand"}}`)
	ask := s.ask(s.first)
	ask.Reason = applier.Refusal

	_, err := s.apply(t, ask)

	require.NoError(t, err)
	assert.Equal(t, "one", s.value(t))
}

func TestACatchUpAppliesANewCommit(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	ask := s.ask(s.push(t, "two"))
	ask.Reason = applier.CatchUp

	end, err := s.apply(t, ask)

	require.NoError(t, err)
	assert.Equal(t, "main@sha1:"+ask.Commit, end.AppliedRevision)
	s.requireHeld(t)
}

// After a failure, lastAppliedRevision still names the commit before it; the failure may have changed the cluster all the
// same.
func TestACatchUpAfterAFailedApplyOfAnotherCommitRuns(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	broken := s.repo.Commit(t, lab.Files{"broken.yaml": "kind: [\n"})
	_, err := s.apply(t, s.ask(broken))
	require.ErrorIs(t, err, applier.ErrFailed)
	s.moveTo(t, s.first)
	states := s.states(t)
	ask := s.ask(s.first)
	ask.Reason = applier.CatchUp

	end, err := s.apply(t, ask)

	require.NoError(t, err)
	assert.Equal(t, "main@sha1:"+s.first, end.AppliedRevision)
	assert.Equal(t, []bool{true, false, true}, suspends(states()))
	s.requireHeld(t)
}

// The artifact decides, not only what was applied: a CatchUp for an applied commit whose source has moved on is not current.
func TestACatchUpIsNotCurrentWhereTheSourceHasMovedOn(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	newer := s.push(t, "two")
	s.moveTo(t, newer)
	ask := s.ask(s.first)
	ask.Reason = applier.CatchUp

	_, err := s.apply(t, ask)

	require.ErrorContains(t, err, "main@sha1:"+newer)
	assert.False(t, applier.IsPermanent(err))
	s.requireHeld(t)
}
