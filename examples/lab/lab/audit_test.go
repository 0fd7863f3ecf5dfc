package lab_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestTheAPIServerKeepsAnAuditLogByThePolicy(t *testing.T) {
	t.Parallel()
	l, err := lab.Up(t.Context(), lab.Options{Parts: lab.Bare, AuditPolicy: `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [create]
  resources: [{group: "", resources: [namespaces]}]
- level: None
`})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Stop()) })
	before := l.Namespace(t)
	l.APIServer.Stop(t)
	l.APIServer.Start(t)
	after := l.Namespace(t)

	log, err := os.ReadFile(l.AuditLog())
	require.NoError(t, err)
	assert.Contains(t, string(log), `"name":"`+before+`"`)
	assert.Contains(t, string(log), `"name":"`+after+`"`)
	assert.NotContains(t, string(log), `"verb":"list"`)
}
