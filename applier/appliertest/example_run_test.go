package appliertest_test

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/applier/appliertest"
)

// The scripted Client of package fake keeps what it claims of the contract.
func TestFakeClient(t *testing.T) {
	t.Parallel()
	appliertest.Run(t, harness)
}
