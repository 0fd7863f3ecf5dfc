package applier

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// aloneAtMost is how many objects are watched one by one, without the traffic of all others, before a watch is shared.
const aloneAtMost = 3

// refusalKept is for how long a watch that was refused is not tried again. Rights may be granted meanwhile.
const refusalKept = 10 * time.Minute

// ObjectWatches shows objects of one kind in one cluster as they change, as [Watcher] asks for, any number of them by
// few watches. A backend's client keeps one, and its Watch is a call of [ObjectWatches.Watch].
//
// Up to three calls of Watch at a time each make a request of their own, like [WatchObject] does. From the fourth on, all share
// one watch of the whole cluster. It begins with a list of one object, and each object is then read once: more than a
// hundred at a time by a list in pages of 500, unless that has more than one page for ten of them. Nothing is asked while nothing
// changes, but that the watch is renewed every five minutes. What changes elsewhere in the kind is received too, and dropped. The shared watch ends with
// the last object.
//
// Sharing needs the verbs list and watch on the kind. Where one is refused for the whole cluster,
// a watch is shared in each namespace, from the fourth on there; where it is refused there too, each object has a watch of its own; where that
// is refused, the channel is closed. Rights that are withdrawn later have the same effect on what is watched already, each step once
// they have been missing for ten seconds. What was refused is tried again for an object that comes ten minutes later, or once
// nothing is watched any more.
//
// It also needs the verb get on each object. One whose reads have been forbidden for ten seconds leaves the shared watch to the others,
// and has a watch of its own until its call of Watch ends, which may be closed as [WatchObject] says. So a server that has just started,
// and refuses everything for a moment, ends nothing that is open.
//
// A watch that breaks goes on from where it was. While none is open for longer than a second, the objects are read
// every second, or every ten seconds where they are more than a hundred. An object may be watched more than
// once.
//
// Make one with [NewObjectWatches]. It is safe for concurrent use, and has no goroutine while nothing is watched.
type ObjectWatches struct {
	resource dynamic.NamespaceableResourceInterface

	mu      sync.Mutex
	viewers map[types.NamespacedName][]*viewer
	// counts has the number of viewers in each namespace, and of all under NamespaceAll.
	counts map[string]int
	// shared and refused are by namespace, and NamespaceAll is the whole cluster.
	shared  map[string]*sharedWatch
	refused map[string]time.Time
}

// viewer is one call of Watch.
type viewer struct {
	*sight
	ref types.NamespacedName
	// shared is the watch that it takes part in; nil is one of its own, which stop ends.
	shared *sharedWatch
	stop   context.CancelFunc
	// worked is whether it has left a shared watch that worked, and unread whether it shares none any more because its object
	// may not be read.
	worked, unread bool
	// release frees what waits for the end of the call's context.
	release func() bool
}

// NewObjectWatches returns the watches of a kind. It makes no request.
func NewObjectWatches(resource dynamic.NamespaceableResourceInterface) *ObjectWatches {
	return &ObjectWatches{
		resource: resource,
		viewers:  make(map[types.NamespacedName][]*viewer),
		counts:   make(map[string]int),
		shared:   make(map[string]*sharedWatch),
		refused:  make(map[string]time.Time),
	}
}

// Watch shows the object ref until ctx ends; see [Watcher] for what it promises. An object without a namespace is one
// of a kind that has none.
func (w *ObjectWatches) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	v := &viewer{sight: newSight(), ref: ref}
	if ctx.Err() != nil {
		v.close()
		return v.out
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.viewers[ref] = append(w.viewers[ref], v)
	w.count(ref.Namespace, 1)
	w.place(v)
	v.release = context.AfterFunc(ctx, func() { w.end(v) })
	return v.out
}

// count counts viewers in and out. The lock is held, here and in each method below that does not take it.
func (w *ObjectWatches) count(namespace string, n int) {
	for _, in := range slices.Compact([]string{metav1.NamespaceAll, namespace}) {
		if w.counts[in] += n; w.counts[in] == 0 {
			delete(w.counts, in)
		}
	}
}

// place finds a watch for a viewer that has none: the widest that is not refused.
func (w *ObjectWatches) place(v *viewer) {
	for _, namespace := range []string{metav1.NamespaceAll, v.ref.Namespace} {
		switch shared := w.shared[namespace]; {
		case shared != nil:
			shared.join(v)
			return
		case w.isRefused(namespace):
		case w.counts[namespace] <= aloneAtMost:
			w.watchAlone(v)
			return
		default:
			w.share(namespace).join(v)
			return
		}
	}
	w.watchAlone(v)
}

func (w *ObjectWatches) isRefused(namespace string) bool {
	at, refused := w.refused[namespace]
	return refused && time.Since(at) < refusalKept
}

// watchAlone gives a viewer a watch of its own. Where that is refused, nothing is left.
func (w *ObjectWatches) watchAlone(v *viewer) {
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	alone := &objectWatch{resource: w.resource.Namespace(v.ref.Namespace), name: v.ref.Name, sight: v.sight, worked: v.worked}
	go func() {
		defer stop()
		if !alone.run(ctx) {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if ctx.Err() == nil {
			w.remove(v)
		}
	}()
}

// share opens a shared watch.
func (w *ObjectWatches) share(namespace string) *sharedWatch {
	ctx, stop := context.WithCancel(context.Background())
	s := newSharedWatch(w, namespace, stop)
	w.shared[namespace] = s
	go s.run(ctx)
	go s.reads(ctx)
	return s
}

// gather takes the viewers in the reach of a shared watch that has just been opened out of narrower ones.
func (w *ObjectWatches) gather(s *sharedWatch) {
	for _, viewers := range w.viewers {
		for _, v := range viewers {
			wider := v.shared == nil || s.namespace == metav1.NamespaceAll
			if s.reaches(v.ref) && v.shared != s && wider && !v.unread {
				w.part(v)
				s.join(v)
			}
		}
	}
}

// part takes a viewer out of the watch that it has.
func (w *ObjectWatches) part(v *viewer) {
	s := v.shared
	if s == nil {
		v.stop()
		return
	}
	v.shared, v.worked = nil, v.worked || s.worked
	delete(s.owed, v)
	if s.members--; s.members == 0 {
		w.unshare(s)
	}
}

// unshare ends a shared watch.
func (w *ObjectWatches) unshare(s *sharedWatch) {
	s.stop()
	if w.shared[s.namespace] == s {
		delete(w.shared, s.namespace)
	}
}

// refuse takes note that a shared watch was refused, and finds others for its members.
func (w *ObjectWatches) refuse(s *sharedWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shared[s.namespace] != s {
		return
	}
	w.unshare(s)
	w.refused[s.namespace] = time.Now()
	for _, v := range s.list() {
		w.part(v)
		w.place(v)
	}
}

// isolate gives a member of a shared watch one of its own for good: its object may not be read.
func (w *ObjectWatches) isolate(s *sharedWatch, v *viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.shared != s {
		return
	}
	w.part(v)
	v.unread = true
	w.watchAlone(v)
}

// end ends a call of Watch.
func (w *ObjectWatches) end(v *viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(v)
}

// remove forgets a viewer, unless that was done.
func (w *ObjectWatches) remove(v *viewer) {
	viewers := w.viewers[v.ref]
	i := slices.Index(viewers, v)
	if i < 0 {
		return
	}
	if len(viewers) == 1 {
		delete(w.viewers, v.ref)
	} else {
		w.viewers[v.ref] = slices.Delete(viewers, i, i+1)
	}
	w.count(v.ref.Namespace, -1)
	w.part(v)
	v.release()
	v.close()
	if len(w.viewers) == 0 {
		clear(w.refused)
	}
}
