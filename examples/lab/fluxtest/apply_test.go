package fluxtest

import (
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
	assert.Equal(t, "two", s.value(t))
	s.requireHeld(t)
}
