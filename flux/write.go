package flux

import (
	"context"
	"errors"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

// conflictTries is how often a guarded write is decided afresh after a conflict. A reconcile writes status up to seven
// times, within 0.2 s of each other (kustomize-controller v1.9.6).
const conflictTries = 5

// firstPause is how long a write that starts an apply waits after its first conflict. Each further wait is twice as
// long, so that the tries span 0.3 s: a live Kustomization that was just given an artifact reconciles meanwhile.
const firstPause = 20 * time.Millisecond

// pause waits before the try after so many conflicts, or returns the cause of ctx's end.
func pause(ctx context.Context, conflicts int) error {
	timer := time.NewTimer(firstPause << (conflicts - 1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// patch is one server-side apply. It carries the UID of what was read, without which an apply to a
// deleted name would create an object (measured on kube-apiserver 1.36: a resourceVersion does not prevent that).
type patch struct {
	of object
	// guarded carries the resourceVersion too, so that the write fails on an object that changed since.
	guarded bool
	// token is the requestedAt to set; "" leaves it out.
	token string
	// suspend is the spec.suspend to set; nil leaves it out.
	suspend *bool
	// manager is the field manager; "" is the host's own.
	manager string
}

// body is what is applied. Whatever of the manager's fields it leaves out, the API server removes.
func (p patch) body(k kind) *unstructured.Unstructured {
	metadata := map[string]any{
		"name":      p.of.name.Name,
		"namespace": p.of.name.Namespace,
		"uid":       string(p.of.uid),
	}
	if p.guarded {
		metadata["resourceVersion"] = p.of.resourceVersion
	}
	if p.token != "" {
		metadata["annotations"] = map[string]any{fluxmeta.ReconcileRequestAnnotation: p.token}
	}
	body := map[string]any{
		"apiVersion": k.resource.GroupVersion().String(),
		"kind":       k.name,
		"metadata":   metadata,
	}
	if p.suspend != nil {
		body["spec"] = map[string]any{"suspend": *p.suspend}
	}
	return &unstructured.Unstructured{Object: body}
}

// mayChange reports whether a write that was refused can be decided afresh: the object changed, or the API server is
// busy.
func mayChange(refused error) bool {
	return apierrors.IsConflict(refused) || apierrors.IsTooManyRequests(refused)
}

// apply makes one write and returns what it left. The error is that of applier.WriteError.
func (c *Client) apply(ctx context.Context, k kind, p patch) (*unstructured.Unstructured, error) {
	if p.of.uid == "" {
		return nil, errors.New("field .metadata.uid is missing, without which a write could create the object")
	}
	manager := p.manager
	if manager == "" {
		manager = c.options.FieldManager
	}
	written, err := c.dynamic.Resource(k.resource).Namespace(p.of.name.Namespace).
		Apply(ctx, p.of.name.Name, p.body(k), metav1.ApplyOptions{FieldManager: manager, Force: true})
	return written, applier.WriteError(err)
}

// applyCounted makes one write. It reports whether client-go sent it more than once, as it does by itself after an answer
// of 429, or 5xx, with a Retry-After: the last answer then speaks only of the last time.
func (c *Client) applyCounted(ctx context.Context, k kind, p patch) (resent bool, err error) {
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
	_, err = c.apply(ctx, k, p)
	return sent.Load() > 1, err
}
