package applier

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// sight is what one receiver is shown of one object. Events and reads may come to it in any order and from several
// goroutines: an older state is not shown after a newer one.
type sight struct {
	out chan *unstructured.Unstructured

	mu sync.Mutex
	// newest is the resourceVersion last shown, and gone whether the object was shown to be gone since.
	newest string
	gone   bool
	closed bool
	// shown counts what was shown.
	shown uint
}

func newSight() *sight { return &sight{out: make(chan *unstructured.Unstructured, 1)} }

// changed shows what an event says.
func (s *sight) changed(kind watch.EventType, object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := object.GetResourceVersion()
	if ResourceVersionBefore(version, s.newest) {
		return
	}
	s.newest = version
	if kind == watch.Deleted {
		object = nil
	}
	s.show(object)
}

// stands shows what was read, unless it was shown already.
func (s *sight) stands(object *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version := object.GetResourceVersion()
	known := version != "" && version == s.newest && !s.gone
	if known || ResourceVersionBefore(version, s.newest) {
		return
	}
	s.newest = version
	s.show(object)
}

// mark is what to give to absent. It is taken before the read.
func (s *sight) mark() uint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown
}

// absent shows that a read found no object. What was shown since the mark may be newer than the read, which has no
// resourceVersion to tell.
func (s *sight) absent(mark uint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == mark && !s.gone {
		s.show(nil)
	}
}

// show replaces what was not received yet. The lock is held.
func (s *sight) show(object *unstructured.Unstructured) {
	s.gone = object == nil
	s.shown++
	if s.closed {
		return
	}
	select {
	case <-s.out:
	default:
	}
	s.out <- object
}

func (s *sight) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.out)
	}
}

// readSight reads one object and shows what was found.
func readSight(ctx context.Context, resource dynamic.ResourceInterface, name string, s *sight) (Absence, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	mark := s.mark()
	object, err := resource.Get(ctx, name, metav1.GetOptions{})
	absence := AbsenceOf(err)
	switch absence {
	case AbsenceNone:
		s.stands(object)
	case AbsenceNotFound:
		s.absent(mark)
	}
	return absence, err
}
