package lab_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestWaitForThatFailsShowsTheObjectAndTheLog(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns := l.Namespace(t)
	l.Kustomization(t, ns, "app", "missing")
	judged := func(object *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		return len(conditions) > 0
	}
	l.WaitFor(t, lab.Kustomizations, ns, "app", judged)

	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("no patience"))
	defer cancel()
	message := failureOf(t, func(t testing.TB) {
		l.WaitFor(impatient{t, ctx}, lab.Kustomizations, ns, "app", lab.Applied("never"))
	})
	assert.Contains(t, message, "waiting for kustomizations "+ns+"/app: no patience")
	assert.Contains(t, message, "reason: ArtifactFailed")
	assert.Contains(t, message, "kustomize-controller about "+ns)
	assert.Contains(t, message, "Source 'GitRepository/missing' not found")

	message = failureOf(t, func(t testing.TB) {
		l.WaitFor(impatient{t, ctx}, lab.Kustomizations, ns, "absent", lab.Applied("never"))
	})
	assert.Contains(t, message, "It does not exist.")
}

// impatient is a test whose context ends early.
type impatient struct {
	testing.TB
	ctx context.Context
}

func (i impatient) Context() context.Context { return i.ctx }
