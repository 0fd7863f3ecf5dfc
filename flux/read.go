package flux

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

	// parent reads the object that holds this one, at a path.
	parent *reader
	path   []string
}

// read returns the field at path, or the zero value where it is missing or has the wrong type, which r keeps.
func read[T any](r *reader, path ...string) T {
	value, found, err := unstructured.NestedFieldNoCopy(r.fields, path...)
	typed, ok := value.(T)
	switch {
	case err != nil:
		r.fail(path, "is inside something that is no object")
	case found && value != nil && !ok:
		r.fail(path, fmt.Sprintf("is %T, not %T", value, typed))
	}
	return typed
}

// fail keeps what is wrong with the field at path.
func (r *reader) fail(path []string, wrong string) {
	for ; r.parent != nil; r = r.parent {
		path = slices.Concat(r.path, path)
	}
	if r.err == nil {
		r.err = fmt.Errorf("field .%s %s", strings.Join(path, "."), wrong)
	}
}

// within returns a reader of one entry of the list at path.
func (r *reader) within(entry any, path ...string) *reader {
	fields, ok := entry.(map[string]any)
	if !ok {
		r.fail(path, fmt.Sprintf("has an entry that is %T, not an object", entry))
	}
	return &reader{fields: fields, parent: r, path: path}
}

func (r *reader) object(u *unstructured.Unstructured) object {
	return object{
		name:            types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		uid:             u.GetUID(),
		resourceVersion: u.GetResourceVersion(),
		deleting:        u.GetDeletionTimestamp() != nil,
		suspended:       read[bool](r, "spec", "suspend"),
		requested:       read[string](r, "metadata", "annotations", fluxmeta.ReconcileRequestAnnotation),
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
		return condition{
			status:             read[string](c, "status"),
			reason:             read[string](c, "reason"),
			message:            read[string](c, "message"),
			observedGeneration: read[int64](c, "observedGeneration"),
			lastTransitionTime: read[string](c, "lastTransitionTime"),
		}
	}
	return condition{}
}

func (c condition) is(status metav1.ConditionStatus) bool { return c.status == string(status) }

// get reads one object. The error is the API server's own.
func (c *Client) get(ctx context.Context, kind kind, ref types.NamespacedName) (*unstructured.Unstructured, error) {
	return c.dynamic.Resource(kind.resource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}
