package appliertest

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

func (r *reference) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	changes := applier.WatchObject(ctx, r.objects(ref), ref.Name)
	var spoil func(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured)
	size := 0
	switch {
	case r.is("Watch shows nothing first"):
		spoil = func(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured) {
			<-in
			pass(ctx, in, out)
		}
	case r.is("Watch shows only the first"):
		spoil = func(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured) {
			send(ctx, out, <-in)
			<-ctx.Done()
		}
	case r.is("Watch queues each step"):
		size, spoil = 1000, pass
	case r.is("Watch hides that the applier is gone"):
		spoil = func(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured) {
			for object := range in {
				if object != nil {
					send(ctx, out, object)
				}
			}
		}
	case r.is("Watch ticks"):
		spoil = func(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured) {
			for ctx.Err() == nil {
				select {
				case object := <-in:
					send(ctx, out, object)
				case <-time.After(time.Second):
					send(ctx, out, nil)
				}
			}
		}
	case r.is("Watch does not close its channel"), r.is("Watch stays open when it is refused"):
		out := make(chan *unstructured.Unstructured)
		go func() { pass(ctx, changes, out) }()
		return out
	case r.is("Watch breaks for good"):
		return r.watchOnce(ctx, ref)
	default:
		return changes
	}
	out := make(chan *unstructured.Unstructured, size)
	go func() {
		defer close(out)
		spoil(ctx, changes, out)
	}()
	return out
}

func send(ctx context.Context, out chan<- *unstructured.Unstructured, object *unstructured.Unstructured) {
	select {
	case out <- object:
	case <-ctx.Done():
	}
}

func pass(ctx context.Context, in <-chan *unstructured.Unstructured, out chan<- *unstructured.Unstructured) {
	for object := range in {
		send(ctx, out, object)
	}
}

// watchOnce shows one watch alone, and nothing once it broke.
func (r *reference) watchOnce(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	out := make(chan *unstructured.Unstructured)
	go func() {
		defer close(out)
		watcher, err := r.objects(ref).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + ref.Name})
		if err != nil {
			return
		}
		defer watcher.Stop()
		for open := true; open; {
			select {
			case <-ctx.Done():
				return
			case _, open = <-watcher.ResultChan():
				if open {
					send(ctx, out, nil)
				}
			}
		}
		<-ctx.Done()
	}()
	return out
}
