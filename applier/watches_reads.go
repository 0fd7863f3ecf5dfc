package applier

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// getAtMost is how many objects are read one by one, whatever a list takes.
const getAtMost = 100

// getsForPage is how many reads are rather made than one page of a list is asked for, most of which nobody waits for.
const getsForPage = 10

// getsAtOnce is how many of these reads are made at the same time.
const getsAtOnce = 8

// listPage is how many objects one answer of a list has.
const listPage = 500

// relistAfter is how long after a list the next one is made, where reads of few objects wait for rereadAfter.
const relistAfter = 10 * time.Second

// reads shows the members what stands when they are owed it, until ctx ends.
func (s *sharedWatch) reads(ctx context.Context) {
	for {
		var due <-chan time.Time
		if wait, owing := s.nextRound(); owing {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-due:
			s.round(ctx)
		}
	}
}

// nextRound returns how long it is to the next round of reads, if one is to come. While the watch is open, that is for
// who is owed a read. While it is not for longer than a moment, it is for all, again and again.
func (s *sharedWatch) nextRound() (wait time.Duration, owing bool) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	at := s.readAgain
	if !s.open {
		if moment := s.closedAt.Add(rereadAfter); at.Before(moment) {
			at = moment
		}
	}
	return time.Until(at), !s.open || len(s.owed) > 0
}

// round makes one round of reads. Who gets no answer is still owed one.
func (s *sharedWatch) round(ctx context.Context) {
	due, listed := s.takeOwed()
	if len(due) == 0 {
		return
	}
	read, again := s.get, rereadAfter
	if listed {
		read = s.relist
	}
	if len(due) > getAtMost {
		again = relistAfter
	}
	unanswered := read(ctx, due)

	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	for _, v := range unanswered {
		if v.shared == s {
			s.owe(v)
		}
	}
	if !s.open || len(unanswered) > 0 {
		s.readAgain = time.Now().Add(again)
	}
}

// takeOwed returns who a round is for, and whether to read by a list.
func (s *sharedWatch) takeOwed() (due []*viewer, listed bool) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if !s.open {
		s.owe(s.list()...)
	}
	due = make([]*viewer, 0, len(s.owed))
	for v := range s.owed {
		due = append(due, v)
	}
	s.owed = make(map[*viewer]struct{})
	pages := s.total/listPage + 1
	return due, len(due) > max(getAtMost, pages*getsForPage)
}

// get reads the objects of viewers one by one, and returns those without an answer. It ends early where the API server
// does not answer at all, or does not serve the kind: it would not do so for the next either.
func (s *sharedWatch) get(ctx context.Context, viewers []*viewer) (unanswered []*viewer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan *viewer)
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range min(getsAtOnce, len(viewers)) {
		readers.Go(func() {
			for v := range next {
				answered, more := s.getOne(ctx, v)
				if !more {
					cancel()
				}
				if !answered {
					mu.Lock()
					unanswered = append(unanswered, v)
					mu.Unlock()
				}
			}
		})
	}
	for _, v := range viewers {
		next <- v
	}
	close(next)
	readers.Wait()
	return unanswered
}

// getOne reads one object. It returns whether that was answered, and whether it makes sense to read more.
func (s *sharedWatch) getOne(ctx context.Context, v *viewer) (answered, more bool) {
	if ctx.Err() != nil {
		return false, false
	}
	absence, err := readSight(ctx, s.watches.resource.Namespace(v.ref.Namespace), v.ref.Name, v.sight)
	switch absence {
	case AbsenceNotServed:
		return false, false
	case AbsenceUnknown:
		var answer apierrors.APIStatus
		return false, errors.As(err, &answer)
	case AbsenceForbidden:
		return s.refusedRead(), true
	}
	return true, true
}

// refusedRead gives the shared watch up, since not all of what it needs is granted. While it is closed, that is not
// believed: all may be refused for a moment.
func (s *sharedWatch) refusedRead() (believed bool) {
	if !s.isOpen() {
		return false
	}
	s.watches.refuse(s)
	return true
}

// relist reads the objects of viewers by a list, and returns those without an answer.
func (s *sharedWatch) relist(ctx context.Context, viewers []*viewer) (unanswered []*viewer) {
	marks := make(map[*viewer]uint, len(viewers))
	for _, v := range viewers {
		marks[v] = v.mark()
	}
	err := s.listPages(ctx, func(object *unstructured.Unstructured) {
		s.watches.mu.Lock()
		defer s.watches.mu.Unlock()
		for _, v := range s.watches.viewers[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] {
			v.stands(object)
			delete(marks, v)
		}
	})
	switch {
	case isRefusal(err) && s.refusedRead():
	case err != nil:
		for v := range marks {
			unanswered = append(unanswered, v)
		}
	default:
		for v, mark := range marks {
			v.absent(mark)
		}
	}
	return unanswered
}

func (s *sharedWatch) isOpen() bool {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	return s.open
}

// listPages calls show with every object in the reach of the watch.
func (s *sharedWatch) listPages(ctx context.Context, show func(*unstructured.Unstructured)) error {
	options := metav1.ListOptions{Limit: listPage}
	for {
		page, err := s.listOne(ctx, options)
		if err != nil {
			return err
		}
		for _, object := range page.Items { // a copy each, that does not keep the others
			show(&object)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func (s *sharedWatch) listOne(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return s.resource.List(ctx, options)
}
