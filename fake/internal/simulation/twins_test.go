package simulation

import "testing"

// Two processes that run at once, by mistake, break fewer laws than one might fear: no guarded write lands on what changed, every end that
// is reported is true, and a trigger holds one open operation. What is not promised is in docs/failure-modes.md.
func TestTwoProcessesAtOnceBreakNoLaw(t *testing.T) {
	t.Parallel()
	runSeeds(t, plan{processes: 2})
}
