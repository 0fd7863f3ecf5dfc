// Package conformance_test checks the contract of package applier on the real controllers, by the suite of package appliertest: the clauses
// that the backends' own tests check on a cluster in memory, by the same names.
package conformance_test

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestMain(m *testing.M) { lab.Main(m, lab.All) }
