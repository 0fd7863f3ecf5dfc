package applier

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchOverdue is how long after its time a watch is given up that the API server should have ended.
const watchOverdue = 10 * time.Second

// sharedWatch is one watch of a kind, in a namespace or the whole cluster, for many viewers.
//
// A viewer that joins is owed a read made after the watch was opened: what changes later comes as an event, so nothing is
// lost between the two, and sights put them in order. A watch that ended is resumed from the resourceVersion it had
// come to. Where that cannot be, everybody is owed a read again.
type sharedWatch struct {
	watches   *ObjectWatches
	namespace string
	resource  dynamic.ResourceInterface
	stop      context.CancelFunc
	// wake has room for one signal: that there may be something to read.
	wake chan struct{}

	// version is the resourceVersion that the watch has come to, "" while it is not known. It is run's alone.
	version string
	// unlisted is for how long the lists that members are read by are refused. It is reads' alone.
	unlisted refusal

	// The lock of watches is for these.
	members int
	// owed has who is owed a read, and for how long that is refused.
	owed map[*viewer]*refusal
	open bool
	// worked is whether it was ever open, or has had members from one that was.
	worked bool
	// total is about how many objects a list has.
	total int
	// missed is whether something may have changed that no event told of.
	missed bool
	// closedAt is when the watch was last open, or asked for.
	closedAt time.Time
	// readAgain is when the next round of reads may begin, after one that has to be repeated.
	readAgain time.Time
}

func newSharedWatch(w *ObjectWatches, namespace string, stop context.CancelFunc) *sharedWatch {
	return &sharedWatch{
		watches: w, namespace: namespace, resource: w.resource.Namespace(namespace), stop: stop,
		wake: make(chan struct{}, 1), owed: make(map[*viewer]*refusal), missed: true, closedAt: time.Now(),
	}
}

// run keeps the watch open until ctx ends or the API server refuses it.
func (s *sharedWatch) run(ctx context.Context) {
	restart := restartBackoff()
	var refusal refusal
	for ctx.Err() == nil {
		began := time.Now()
		if err := s.once(ctx); refusal.believed(isRefusal(err), s.hasWorked()) {
			s.watches.refuse(s)
			return
		}
		if time.Since(began) >= steadyAfter {
			restart = restartBackoff()
		}
		sleep(ctx, restart.Step())
	}
}

// once opens the watch and holds it until it ends. The error is why it did not open, or ended too soon.
func (s *sharedWatch) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchRenewal+watchOverdue)
	defer cancel()
	if s.version == "" {
		s.setMissed()
		list, err := s.resource.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		s.version = list.GetResourceVersion()
		s.setTotal(list)
	}
	seconds := int64(watchRenewal / time.Second)
	watcher, err := s.resource.Watch(ctx, metav1.ListOptions{
		ResourceVersion: s.version, AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
	})
	if err != nil {
		if isVersionUnusable(err) {
			s.version = ""
		}
		return err
	}
	defer watcher.Stop()
	s.opened()
	defer s.broke()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-watcher.ResultChan():
			if !ok {
				return nil
			}
			if err := s.take(event); err != nil {
				return err
			}
		}
	}
}

// isVersionUnusable reports whether a watch cannot go on from where it was: the API server has forgotten that, or has not come to it since
// its store was restored. kube-apiserver v1.36 does not say the latter: it opens the watch, and holds back all events until it has
// (apiserver's storage/cacher/cache_watcher.go).
func isVersionUnusable(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// take shows an event to whom it is for. After one that is an error, such as that of a resourceVersion that is too old, it is
// not known what was missed.
func (s *sharedWatch) take(event watch.Event) error {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Error {
		s.version = ""
		return apierrors.FromObject(event.Object)
	}
	if event.Type != watch.Bookmark {
		s.watches.changed(event.Type, object)
	}
	s.version = object.GetResourceVersion()
	return nil
}

// changed shows an event to the viewers of its object.
func (w *ObjectWatches) changed(kind watch.EventType, object *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.viewers[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] {
		v.changed(kind, object)
	}
}

// setTotal takes note of how many objects there are, from a list of one.
func (s *sharedWatch) setTotal(list *unstructured.UnstructuredList) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	s.total = len(list.Items)
	if more := list.GetRemainingItemCount(); more != nil {
		s.total += int(*more)
	}
}

func (s *sharedWatch) hasWorked() bool {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return s.worked
}

func (s *sharedWatch) setMissed() {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	s.missed = true
}

// opened begins the time in which events tell all.
func (s *sharedWatch) opened() {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if s.watches.shared[s.namespace] != s {
		return // it was given up meanwhile
	}
	s.open, s.worked, s.readAgain = true, true, time.Time{}
	if s.missed {
		s.missed = false
		s.watches.gather(s)
		s.owe(s.list()...)
	}
	s.signal()
}

// broke ends it.
func (s *sharedWatch) broke() {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	s.open, s.closedAt = false, time.Now()
	s.signal()
}

// The lock is held in each method from here on.

// join makes a viewer without a watch a member.
func (s *sharedWatch) join(v *viewer) {
	v.shared = s
	s.members++
	s.worked = s.worked || v.worked
	s.owe(v)
	s.signal()
}

func (s *sharedWatch) owe(viewers ...*viewer) {
	for _, v := range viewers {
		s.owed[v] = &refusal{}
	}
}

// list returns the members.
func (s *sharedWatch) list() []*viewer {
	members := make([]*viewer, 0, s.members)
	for _, viewers := range s.watches.viewers {
		for _, v := range viewers {
			if v.shared == s {
				members = append(members, v)
			}
		}
	}
	return members
}

func (s *sharedWatch) reaches(ref types.NamespacedName) bool {
	return s.namespace == metav1.NamespaceAll || s.namespace == ref.Namespace
}

func (s *sharedWatch) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
