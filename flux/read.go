package flux

import (
	"context"
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// object is what every Flux object shows of itself.
type object struct {
	name            types.NamespacedName
	uid             types.UID
	resourceVersion string
	deleting        bool
	suspended       bool
	// requested is the token that was last asked for, handled the one last handled.
	requested string
	handled   string
	ready     condition
}

// condition is a condition of an object; its zero value is one that is not there.
type condition struct {
	status             string
	reason             string
	message            string
	observedGeneration int64
	lastTransitionTime string
}

// reader reads fields of an object and keeps the first one that has the wrong type.
type reader struct {
	fields map[string]any
	err    error
}

// read returns the field at path, or the zero value where it is missing or has the wrong type, which r keeps.
func read[T any](r *reader, path ...string) T {
	value, found, err := unstructured.NestedFieldNoCopy(r.fields, path...)
	typed, ok := value.(T)
	if err == nil && found && value != nil && !ok {
		err = fmt.Errorf("field %s is %T, not %T", fieldPath(path), value, typed)
	}
	if err != nil && r.err == nil {
		r.err = err
	}
	return typed
}

func fieldPath(path []string) string {
	var joined string
	for _, name := range path {
		joined += "." + name
	}
	return joined
}

// within returns a reader of one entry of a list; an entry that is no object is kept as an error.
func (r *reader) within(entry any, path ...string) *reader {
	fields, ok := entry.(map[string]any)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("field %s has an entry that is %T, not an object", fieldPath(path), entry)
	}
	return &reader{fields: fields}
}

func (r *reader) object(u *unstructured.Unstructured) object {
	annotations := read[map[string]any](r, "metadata", "annotations")
	requested, _ := annotations[fluxmeta.ReconcileRequestAnnotation].(string)
	return object{
		name:            types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		uid:             u.GetUID(),
		resourceVersion: u.GetResourceVersion(),
		deleting:        u.GetDeletionTimestamp() != nil,
		suspended:       read[bool](r, "spec", "suspend"),
		requested:       requested,
		handled:         read[string](r, "status", "lastHandledReconcileAt"),
		ready:           r.ready(),
	}
}

func (r *reader) ready() condition {
	for _, entry := range read[[]any](r, "status", "conditions") {
		c := r.within(entry, "status", "conditions")
		if read[string](c, "type") != fluxmeta.ReadyCondition {
			continue
		}
		ready := condition{
			status:             read[string](c, "status"),
			reason:             read[string](c, "reason"),
			message:            read[string](c, "message"),
			observedGeneration: read[int64](c, "observedGeneration"),
			lastTransitionTime: read[string](c, "lastTransitionTime"),
		}
		if r.err == nil {
			r.err = c.err
		}
		return ready
	}
	return condition{}
}

func (c condition) is(status metav1.ConditionStatus) bool { return c.status == string(status) }

// get reads one object. The error is the API server's own.
func (c *Client) get(ctx context.Context, kind kind, ref types.NamespacedName) (*unstructured.Unstructured, error) {
	return c.dynamic.Resource(kind.resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}
