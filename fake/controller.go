package fake

import (
	"context"
	"sync"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// A Controller is one simulated controller, which a test stops and starts. It is safe for concurrent use.
type Controller struct {
	run func(ctx context.Context)

	mu      sync.Mutex
	cancel  context.CancelFunc
	stopped chan struct{}
}

// Start starts the controller, unless it runs. As a real one it first reconciles every object there is.
func (c *Controller) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	c.cancel, c.stopped = cancel, stopped
	go func() {
		defer close(stopped)
		c.run(ctx)
	}()
}

// Stop stops the controller, if it runs, wherever it is, and returns once it has. What it was doing is left half done: a
// reconcile that was going on writes no status any more, whether the real controller is killed or terminated (measured
// for both). A write that was under way is either made or not.
func (c *Controller) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel == nil {
		return
	}
	c.cancel()
	<-c.stopped
	c.cancel = nil
}

// Running reports whether the controller was started and not stopped since.
func (c *Controller) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cancel != nil
}

// A work is what a controller does while it runs: workers take names from a queue that mirrors of the cluster fill.
type work struct {
	queue     *queue
	mirrors   []*mirror
	workers   int
	reconcile func(ctx context.Context, name types.NamespacedName) (next, error)
}

// A next says when an object is to be reconciled again: after a time, or, where added is set, as the queue sees fit
// for an object whose finalizer was just added. The zero value leaves it to events.
type next struct {
	after time.Duration
	added bool
}

// run works until ctx ends and everything has stopped.
func (w *work) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, m := range w.mirrors {
		running.Go(func() { m.run(ctx) })
	}
	for range w.workers {
		running.Go(func() {
			if w.synced(ctx) {
				w.work(ctx)
			}
		})
	}
	<-ctx.Done()
	w.queue.close()
	running.Wait()
}

func (w *work) synced(ctx context.Context) bool {
	for _, m := range w.mirrors {
		select {
		case <-m.synced:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (w *work) work(ctx context.Context) {
	for {
		name, ok := w.queue.get()
		if !ok {
			return
		}
		again, err := w.reconcile(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			w.queue.retry(name)
		case again.added:
			w.queue.add(name, again.after)
		case again.after > 0:
			w.queue.forget(name)
			w.queue.add(name, again.after)
		default:
			w.queue.forget(name)
		}
		w.queue.done(name)
	}
}

// triggers reports whether a change of an object is one that Flux's controllers reconcile it for: it came or went, its
// generation changed, or the value of its reconcile request did. A request that was taken away is none.
func triggers(old, current *unstructured.Unstructured) bool {
	if old == nil || current == nil {
		return true
	}
	asked, is := current.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
	before, was := old.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
	return current.GetGeneration() != old.GetGeneration() || is && (!was || asked != before)
}
