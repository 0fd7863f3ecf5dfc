package lab_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// stamp asks source-controller to fetch.
func stamp(t *testing.T, l *lab.Lab, namespace, name, token string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": token},
	}})
	require.NoError(t, err)
	_, err = l.Dynamic().Resource(lab.GitRepositories).Namespace(namespace).
		Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// failing is a test that notes its failure instead of failing.
type failing struct {
	testing.TB
	message string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// failureOf runs something and returns with what message it failed the test.
func failureOf(t *testing.T, run func(testing.TB)) string {
	f := &failing{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(f)
	}()
	<-done
	return f.message
}
