package argocdtest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// hook is run before a sync, which waits for its end. Nobody runs it here.
const hook = `apiVersion: v1
kind: Pod
metadata:
  name: hook
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  restartPolicy: Never
  containers: [{name: hook, image: hook}]
`

// pushHooked commits a value, and a hook that runs before the sync.
func (s *subject) pushHooked(t testing.TB, value string) string {
	t.Helper()
	return s.repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value), "hook.yaml": hook})
}

// pushKeptHook commits a value, and a hook that a retry of the sync does not delete first. By the default policy,
// BeforeHookCreation, 3.2.11 deletes the hook of the attempt before and can take it for the new one while it lasts: then the
// operation waits for a hook that is not there.
func (s *subject) pushKeptHook(t testing.TB, value string) string {
	t.Helper()
	kept := strings.Replace(hook, "hook: PreSync}", "hook: PreSync, argocd.argoproj.io/hook-delete-policy: HookSucceeded}", 1)
	return s.repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value), "hook.yaml": kept})
}

// waitingForHook is what a record says that waits for the hook, and for nothing else.
const waitingForHook = "waiting for completion of hook /Pod/hook"

// waitForHook waits until an operation waits for the hook.
func (s *subject) waitForHook(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	return s.wait(t, func(u *unstructured.Unstructured) bool { return recordOf(u)["message"] == waitingForHook })
}

// endHook lets the hook succeed.
func (s *subject) endHook(t testing.TB) {
	t.Helper()
	assert.NoError(t, s.patchHook(`{"status":{"phase":"Succeeded"}}`, "status"))
}

func (s *subject) patchHook(patch string, subresources ...string) error {
	_, err := s.lab.Dynamic().Resource(pods).Namespace(s.ns).
		Patch(context.Background(), "hook", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// keepEndingHooks lets the hook succeed as often as it is made, until the test ends. It is deleted in the foreground, and no
// garbage collector runs here to finish that.
func (s *subject) keepEndingHooks(t *testing.T) {
	s.keep(t, func() {
		hook, err := s.lab.Dynamic().Resource(pods).Namespace(s.ns).Get(context.Background(), "hook", metav1.GetOptions{})
		switch {
		case err != nil:
		case hook.GetDeletionTimestamp() != nil:
			_ = s.patchHook(`{"metadata":{"finalizers":null}}`)
		default:
			_ = s.patchHook(`{"status":{"phase":"Succeeded"}}`, "status")
		}
	})
}

// wave is a ConfigMap that is applied in a wave. The controller pauses for two seconds between waves, within one pass.
func wave(name, value, number string) string {
	return strings.Replace(lab.ConfigMap(name, "key", value), "metadata:\n",
		"metadata:\n  annotations: {argocd.argoproj.io/sync-wave: \""+number+"\"}\n", 1)
}

// pushWaves commits a value for three waves.
func (s *subject) pushWaves(t testing.TB, value string) string {
	t.Helper()
	return s.repo.Commit(t, lab.Files{
		"cm.yaml": wave("cm", value, "0"), "second.yaml": wave("second", value, "1"), "third.yaml": wave("third", value, "2"),
	})
}

// waitForFirstWave waits until the first wave of a value is applied; the pass then pauses for two seconds.
func (s *subject) waitForFirstWave(t testing.TB, value string) {
	t.Helper()
	s.lab.WaitFor(t, lab.ConfigMaps, s.ns, "cm", func(u *unstructured.Unstructured) bool {
		return u != nil && at(u.Object, "data", "key") == value
	})
}

// only selects one object.
func only(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}
