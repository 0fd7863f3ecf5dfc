package flux

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Watch shows the Kustomization ref as it changes; see applier.WatchObject for what it costs.
func (c *Client) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	return c.watch(ctx, kustomizationKind, ref)
}

func (c *Client) watch(ctx context.Context, k kind, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	return applier.WatchObject(ctx, c.dynamic.Resource(k.resource).Namespace(ref.Namespace), ref.Name)
}

// watchUntil waits until done says so of the object ref as it changes, fails, or ctx ends. Where the object may not be
// watched, it is read every poll interval.
func (c *Client) watchUntil(ctx context.Context, k kind, ref types.NamespacedName, done func(*unstructured.Unstructured) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := c.watch(ctx, k, ref)
	for {
		object, ok, err := c.next(ctx, changes, k, ref)
		if err != nil {
			return err
		}
		if !ok {
			changes = nil
			continue
		}
		if object == nil {
			return fmt.Errorf("%s is gone", c.named(k.name, ref))
		}
		if over, err := done(object); over || err != nil {
			return err
		}
	}
}

// next returns the next state of the object ref: from changes, or by a read after the poll interval where
// changes is nil. It is not ok once changes is closed.
func (c *Client) next(ctx context.Context, changes <-chan *unstructured.Unstructured, k kind, ref types.NamespacedName) (*unstructured.Unstructured, bool, error) {
	var poll <-chan time.Time
	if changes == nil {
		timer := time.NewTimer(c.options.PollInterval)
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	case object, ok := <-changes:
		if !ok && ctx.Err() != nil {
			return nil, false, context.Cause(ctx)
		}
		return object, ok, nil
	case <-poll:
		object, err := c.get(ctx, k, ref)
		if applier.AbsenceOf(err) == applier.AbsenceNotFound {
			return nil, true, nil
		}
		return object, true, err
	}
}
