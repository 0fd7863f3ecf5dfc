package flux

import (
	"context"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
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

func objectOf(f *applier.Fields, u *unstructured.Unstructured) object {
	return object{
		name:            types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		uid:             u.GetUID(),
		resourceVersion: u.GetResourceVersion(),
		deleting:        u.GetDeletionTimestamp() != nil,
		suspended:       applier.Field[bool](f, "spec", "suspend"),
		requested:       applier.Field[string](f, "metadata", "annotations", fluxmeta.ReconcileRequestAnnotation),
		handled:         applier.Field[string](f, "status", "lastHandledReconcileAt"),
		ready:           readyOf(f),
	}
}

func readyOf(f *applier.Fields) condition {
	for _, c := range f.Each("status", "conditions") {
		if applier.Field[string](c, "type") != fluxmeta.ReadyCondition {
			continue
		}
		return condition{
			status:             applier.Field[string](c, "status"),
			reason:             applier.Field[string](c, "reason"),
			message:            applier.Field[string](c, "message"),
			observedGeneration: applier.Field[int64](c, "observedGeneration"),
			lastTransitionTime: applier.Field[string](c, "lastTransitionTime"),
		}
	}
	return condition{}
}

func (c condition) is(status metav1.ConditionStatus) bool { return c.status == string(status) }

func (c *Client) resource(k kind, ref types.NamespacedName) dynamic.ResourceInterface {
	return c.dynamic.Resource(k.resource).Namespace(ref.Namespace)
}

// get reads one object. The error is the API server's own.
func (c *Client) get(ctx context.Context, k kind, ref types.NamespacedName) (*unstructured.Unstructured, error) {
	return c.resource(k, ref).Get(ctx, ref.Name, metav1.GetOptions{})
}

// await waits until done says so of an object, fails, or ctx ends.
func (c *Client) await(
	ctx context.Context, k kind, ref types.NamespacedName, done func(*unstructured.Unstructured) (bool, error),
) error {
	return applier.AwaitObject(ctx, c.resource(k, ref), ref.Name, c.options.PollInterval, done)
}

// Watch shows the Kustomization ref as it changes. Up to three are watched one by one; from the fourth on, all
// share one watch of the cluster's Kustomizations, each for one read more, where the identity may list and watch them in
// the whole cluster. See applier.ObjectWatches for what it costs, and where it may not.
func (c *Client) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	return c.watches.Watch(ctx, ref)
}
