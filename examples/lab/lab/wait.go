package lab

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"
)

// WaitTimeout is how long WaitFor waits. A health check alone takes 30 s, and application-controller may see an operation
// that was just set only after 120 s; see its --app-resync.
const WaitTimeout = 150 * time.Second

// Condition judges one state of an object, nil when it does not exist.
type Condition func(*unstructured.Unstructured) bool

// WaitFor watches one object, sees every state of it from the present one on,
// and returns the first that satisfies the condition. It fails the test after
// WaitTimeout, with the object's last state and what the controllers logged.
func (l *Lab) WaitFor(t testing.TB, gvr schema.GroupVersionResource, namespace, name string, condition Condition) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), WaitTimeout, fmt.Errorf("not within %s", WaitTimeout))
	defer cancel()
	last, err := l.waitFor(ctx, gvr, namespace, name, condition)
	if err != nil {
		t.Fatalf("waiting for %s %s/%s: %v\n%s%s", gvr.Resource, namespace, name, err, describe(last), l.logs(namespace))
	}
	return last
}

func (l *Lab) waitFor(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string, condition Condition) (*unstructured.Unstructured, error) {
	client := l.dynamic.Resource(gvr).Namespace(namespace)
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	var last *unstructured.Unstructured
	for {
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return last, failed(ctx, err)
		}
		last = nil
		if len(list.Items) > 0 {
			last = &list.Items[0]
		}
		if condition(last) {
			return last, nil
		}
		changes, err := client.Watch(ctx, metav1.ListOptions{
			FieldSelector: selector, ResourceVersion: list.GetResourceVersion(),
		})
		if err != nil {
			return last, failed(ctx, err)
		}
		for change := range changes.ResultChan() {
			object, ok := change.Object.(*unstructured.Unstructured)
			if !ok || change.Type == watch.Error {
				break // the watch has ended: start over
			}
			last = object
			if change.Type == watch.Deleted {
				last = nil
			}
			if condition(last) {
				changes.Stop()
				return last, nil
			}
		}
		changes.Stop()
		if ctx.Err() != nil {
			return last, failed(ctx, nil)
		}
	}
}

// failed prefers the reason why the wait was given up to its consequence.
func failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// describe prints what a reader of a failed test asks for first.
func describe(object *unstructured.Unstructured) string {
	if object == nil {
		return "It does not exist.\n"
	}
	shown := map[string]any{"spec": object.Object["spec"], "status": object.Object["status"]}
	if operation, asked := object.Object["operation"]; asked {
		shown["operation"] = operation
	}
	text, err := yaml.Marshal(shown)
	if err != nil {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("Its generation is %d, its annotations %v.\n%s", object.GetGeneration(), object.GetAnnotations(), text)
}

// logs returns the controllers' last lines about a namespace.
func (l *Lab) logs(namespace string) string {
	var b strings.Builder
	for _, p := range l.controllers() {
		var about []string
		for line := range strings.Lines(p.Log(100_000)) {
			if strings.Contains(line, namespace) {
				about = append(about, line)
			}
		}
		fmt.Fprintf(&b, "%s about %s, last lines:\n%s", p.name, namespace, strings.Join(about[max(0, len(about)-10):], ""))
	}
	return b.String()
}

// Applied is satisfied by a Kustomization whose last applied revision is the
// given commit.
func Applied(commit string) Condition {
	return func(object *unstructured.Unstructured) bool {
		return after(field(object, "status", "lastAppliedRevision"), ":") == commit
	}
}

// Fetched is satisfied by a GitRepository whose artifact holds the given commit.
func Fetched(commit string) Condition {
	return func(object *unstructured.Unstructured) bool {
		return after(field(object, "status", "artifact", "revision"), ":") == commit
	}
}

// after is what follows the last separator, "" where there is none.
func after(s, separator string) string {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return ""
	}
	return s[i+len(separator):]
}

// Ready is satisfied by an object whose controller has observed its generation
// and says in the condition Ready that it is.
func Ready(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	observed, _, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	status, _ := readyCondition(object)
	return observed == object.GetGeneration() && status == "True"
}

// Failed is satisfied by an object whose condition Ready says False, for the
// given reason.
func Failed(reason string) Condition {
	return func(object *unstructured.Unstructured) bool {
		status, because := readyCondition(object)
		return status == "False" && because == reason
	}
}

func readyCondition(object *unstructured.Unstructured) (status, reason string) {
	if object == nil {
		return "", ""
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			status, _ = c["status"].(string)
			reason, _ = c["reason"].(string)
		}
	}
	return status, reason
}

// Handled is satisfied by an object whose controller has handled the given
// reconcile request.
func Handled(token string) Condition {
	return func(object *unstructured.Unstructured) bool {
		return field(object, "status", "lastHandledReconcileAt") == token
	}
}

// Gone is satisfied when the object does not exist.
func Gone(object *unstructured.Unstructured) bool { return object == nil }

func field(object *unstructured.Unstructured, path ...string) string {
	if object == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}
