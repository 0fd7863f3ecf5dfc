package fake

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// A managed is an object in one reconcile of its controller: as it was read at the start, with what the controller
// makes of its status. It is not read again until the reconcile ends.
//
// Its patches are those of fluxcd/pkg/runtime/patch v0.110: first the conditions, stamped with the generation that the
// object has by then, then finalizers, then the rest of the status.
type managed struct {
	resource dynamic.ResourceInterface
	manager  string

	object     *unstructured.Unstructured
	status     map[string]any // without conditions
	conditions conditions
	finalizers []string

	// before is what was patched last.
	before struct {
		status     map[string]any
		conditions conditions
		finalizers []string
	}
}

func newManaged(resource dynamic.ResourceInterface, manager string, object *unstructured.Unstructured) *managed {
	m := &managed{resource: resource, manager: manager, object: object, conditions: conditionsOf(object), finalizers: object.GetFinalizers()}
	m.status, _, _ = unstructured.NestedMap(object.Object, "status")
	if m.status == nil {
		m.status = map[string]any{}
	}
	delete(m.status, "conditions")
	m.remember()
	return m
}

func (m *managed) remember() {
	m.before.status = (&unstructured.Unstructured{Object: m.status}).DeepCopy().Object
	m.before.conditions = slices.Clone(m.conditions)
	m.before.finalizers = slices.Clone(m.finalizers)
}

func (m *managed) generation() int64 { return m.object.GetGeneration() }

func (m *managed) name() types.NamespacedName { return nameOf(m.object) }

func (m *managed) deleting() bool { return m.object.GetDeletionTimestamp() != nil }

// spec returns a field of the spec as read at the start, or the zero value.
func spec[T any](m *managed, path ...string) T {
	value, _, _ := unstructured.NestedFieldNoCopy(m.object.Object, append([]string{"spec"}, path...)...)
	typed, _ := value.(T)
	return typed
}

// duration returns a field of the spec that is a duration, or the given one where it is not set.
func (m *managed) duration(unset time.Duration, path ...string) time.Duration {
	if d, err := time.ParseDuration(spec[string](m, path...)); err == nil {
		return d
	}
	return unset
}

func (m *managed) mark(kind string, status metav1.ConditionStatus, reason, format string, args ...any) {
	m.conditions.mark(m.generation(), kind, status, reason, format, args...)
}

// markReconciling marks a reconcile that is going on.
func (m *managed) markReconciling(reason, format string, args ...any) {
	m.conditions.remove(fluxmeta.StalledCondition)
	m.mark(fluxmeta.ReconcilingCondition, metav1.ConditionTrue, reason, format, args...)
}

// handleRequest notes the reconcile request that the object carried at the start.
func (m *managed) handleRequest() {
	if token, ok := m.object.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]; ok {
		m.status["lastHandledReconcileAt"] = token
	}
}

// patch writes what changed since the last patch.
func (m *managed) patch(ctx context.Context) error {
	if err := m.patchConditions(ctx); err != nil {
		return err
	}
	if !slices.Equal(m.finalizers, m.before.finalizers) {
		var finalizers any
		if len(m.finalizers) > 0 {
			finalizers = m.finalizers
		}
		if err := m.send(ctx, map[string]any{"metadata": map[string]any{"finalizers": finalizers}}); err != nil {
			return err
		}
	}
	if diff := mergeDiff(m.before.status, m.status); len(diff) > 0 {
		if err := m.send(ctx, map[string]any{"status": diff}, "status"); err != nil {
			return err
		}
	}
	m.remember()
	return nil
}

// patchConditions puts the conditions that changed onto the object as it is now. Somebody else's write in between makes it try
// again, five times at most.
func (m *managed) patchConditions(ctx context.Context) error {
	set, gone := m.conditions.changed(m.before.conditions)
	if len(set) == 0 && len(gone) == 0 {
		return nil
	}
	const tries, pause = 5, 100 * time.Millisecond
	for try := 1; ; try++ {
		latest, err := m.resource.Get(ctx, m.object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		merged := conditionsOf(latest)
		for _, condition := range set {
			merged.set(latest.GetGeneration(), condition)
		}
		for _, kind := range gone {
			merged.remove(kind)
		}
		if reflect.DeepEqual(merged, conditionsOf(latest)) {
			return nil
		}
		err = m.send(ctx, map[string]any{
			"metadata": map[string]any{"resourceVersion": latest.GetResourceVersion()},
			"status":   map[string]any{"conditions": merged.plain()},
		}, "status")
		if !apierrors.IsConflict(err) || try == tries || !pauseFor(ctx, pause) {
			return err
		}
	}
}

func (m *managed) send(ctx context.Context, patch map[string]any, subresources ...string) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = m.resource.Patch(ctx, m.object.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: m.manager}, subresources...)
	return err
}

// mergeDiff is the merge patch that turns one object into another.
func mergeDiff(from, to map[string]any) map[string]any {
	diff := map[string]any{}
	for key := range maps.Keys(from) {
		if _, ok := to[key]; !ok {
			diff[key] = nil
		}
	}
	for key, value := range to {
		had, found := from[key]
		if found && reflect.DeepEqual(had, value) {
			continue
		}
		fromMap, isFrom := had.(map[string]any)
		toMap, isTo := value.(map[string]any)
		if isFrom && isTo {
			diff[key] = mergeDiff(fromMap, toMap)
			continue
		}
		diff[key] = value
	}
	return diff
}
