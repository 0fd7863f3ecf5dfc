package lab_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestAloneUnderStartFailsInsteadOfWaitingForEver(t *testing.T) {
	t.Parallel()
	lab.Start(t)
	message := failureOf(t, func(t testing.TB) { lab.Alone(t) })
	assert.Contains(t, message, "while "+t.Name()+" holds the control plane")
}

func TestSubtestsMayStartAgain(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	t.Run("under Alone", func(t *testing.T) {
		assert.Same(t, l, lab.Start(t))
	})
}
