package applier

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// ErrObjectGone is an object that was deleted while it was awaited.
var ErrObjectGone = errors.New("it no longer exists")

// AwaitObject waits until done says so of one object, fails, or ctx ends, whose cause it then returns. It calls done with what
// stands and with each change, by [WatchObject]; where the object may not be watched, with what it reads every poll
// interval. An object that is gone is ErrObjectGone. It is for backends, which wait for more than an applier's own changes.
func AwaitObject(ctx context.Context, resource dynamic.ResourceInterface, name string, poll time.Duration, done func(*unstructured.Unstructured) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := WatchObject(ctx, resource, name)
	for {
		object, err := nextState(ctx, &changes, resource, name, poll)
		switch {
		case err != nil:
			return err
		case object == nil:
			return ErrObjectGone
		}
		if over, err := done(object); over || err != nil {
			return err
		}
	}
}

// nextState returns the next state of an object, nil if it is gone, from changes, or by a read after the poll interval once changes is
// closed, which it sets to nil then.
func nextState(ctx context.Context, changes *<-chan *unstructured.Unstructured, resource dynamic.ResourceInterface, name string, poll time.Duration) (*unstructured.Unstructured, error) {
	for {
		var due <-chan time.Time
		if *changes == nil {
			due = time.After(poll)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case object, ok := <-*changes:
			if ok {
				return object, nil
			}
			*changes = nil
		case <-due:
			object, err := resource.Get(ctx, name, metav1.GetOptions{})
			if AbsenceOf(err) == AbsenceNotFound {
				return nil, nil
			}
			return object, err
		}
	}
}
