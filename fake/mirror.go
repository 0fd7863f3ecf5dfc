package fake

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// A mirror follows all objects of a resource by a watch, as an informer does, and tells what changed.
type mirror struct {
	resource dynamic.ResourceInterface
	// changed is called for each change, one at a time. Old is nil for an object that came, current for one that went.
	changed func(old, current *unstructured.Unstructured)

	mu      sync.Mutex
	objects map[types.NamespacedName]*unstructured.Unstructured
	// synced is closed once all objects that there were at the start have been told.
	synced     chan struct{}
	markSynced sync.Once
}

func newMirror(resource dynamic.ResourceInterface, changed func(old, current *unstructured.Unstructured)) *mirror {
	return &mirror{
		resource: resource, changed: changed,
		objects: map[types.NamespacedName]*unstructured.Unstructured{},
		synced:  make(chan struct{}),
	}
}

// list returns the objects as last seen. They must not be changed.
func (m *mirror) list() []*unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*unstructured.Unstructured, 0, len(m.objects))
	for _, object := range m.objects {
		out = append(out, object)
	}
	return out
}

// run follows the objects until ctx ends. A watch that ends or is refused is opened again.
func (m *mirror) run(ctx context.Context) {
	const shortest, longest = 100 * time.Millisecond, 30 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		if m.watch(ctx) {
			pause = shortest
		}
		pauseFor(ctx, pause)
		pause = min(2*pause, longest)
	}
}

// watch holds one watch until it ends, and reports whether it was opened.
func (m *mirror) watch(ctx context.Context) bool {
	initial := true
	watcher, err := m.resource.Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &initial, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return false
	}
	defer watcher.Stop()
	seen := map[types.NamespacedName]bool{}
	for {
		select {
		case <-ctx.Done():
			return true
		case event, ok := <-watcher.ResultChan():
			object, typed := event.Object.(*unstructured.Unstructured)
			if !ok || !typed {
				return true
			}
			name := nameOf(object)
			switch event.Type {
			case watch.Bookmark:
				if object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
					m.dropUnseen(seen)
					seen = nil
				}
			case watch.Deleted:
				m.set(name, nil)
			default:
				if seen != nil {
					seen[name] = true
				}
				m.set(name, object)
			}
		}
	}
}

// dropUnseen ends the initial events: what they did not show is gone.
func (m *mirror) dropUnseen(seen map[types.NamespacedName]bool) {
	for _, object := range m.list() {
		if name := nameOf(object); !seen[name] {
			m.set(name, nil)
		}
	}
	m.markSynced.Do(func() { close(m.synced) })
}

func (m *mirror) set(name types.NamespacedName, current *unstructured.Unstructured) {
	m.mu.Lock()
	old := m.objects[name]
	if current == nil {
		delete(m.objects, name)
	} else {
		m.objects[name] = current
	}
	m.mu.Unlock()
	switch {
	case old != nil && current != nil && old.GetUID() != current.GetUID():
		m.changed(old, nil)
		m.changed(nil, current)
	case old != nil || current != nil:
		m.changed(old, current)
	}
}

func nameOf(object *unstructured.Unstructured) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// pauseFor waits, or until ctx ends, and reports whether it has not ended.
func pauseFor(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
