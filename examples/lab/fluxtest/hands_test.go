package fluxtest

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// reconcile stamps the Kustomization as flux reconcile does.
func (s *subject) reconcile(t *testing.T) {
	t.Helper()
	s.annotate(t, lab.Kustomizations, s.ref.Name, stampedNow())
}
