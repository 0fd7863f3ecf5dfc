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

// AwaitObject waits until done says so of one object, fails, or ctx ends, whose cause it then returns. It calls done
// with what stands and with each change, by [WatchObject]; where the object may not be watched, with what it reads
// every poll interval, DefaultPollInterval if that is zero. A read that gets no answer is made again. What done gets
// can be older than what was read or written before. An object that is gone is ErrObjectGone.
//
// It is for backends, which wait for more than an applier's own changes.
func AwaitObject(ctx context.Context, resource dynamic.ResourceInterface, name string, poll time.Duration,
	done func(*unstructured.Unstructured) (bool, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if poll <= 0 {
		poll = DefaultPollInterval
	}
	changes := WatchObject(ctx, resource, name)
	var due <-chan time.Time
	for {
		var object *unstructured.Unstructured
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case shown, ok := <-changes:
			if !ok {
				changes, due = nil, time.After(0)
				continue
			}
			object = shown
		case <-due:
			due = time.After(poll)
			var err error
			object, err = resource.Get(ctx, name, metav1.GetOptions{})
			switch AbsenceOf(err) {
			case AbsenceUnknown, AbsenceNotServed:
				continue
			case AbsenceForbidden:
				return err
			case AbsenceNotFound:
				return ErrObjectGone
			}
		}
		if object == nil {
			return ErrObjectGone
		}
		if over, err := done(object); over || err != nil {
			return err
		}
	}
}
