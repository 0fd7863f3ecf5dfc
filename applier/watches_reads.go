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
	if len(s.owed) <= getAtMost {
		s.unlisted = refusal{} // no list is made for them
	}
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
			s.owed[v] = due[v]
		}
	}
	if !s.open || len(unanswered) > 0 {
		s.readAgain = time.Now().Add(again)
	}
}

// takeOwed returns who a round is for, and whether to read by a list.
func (s *sharedWatch) takeOwed() (due map[*viewer]*refusal, listed bool) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if !s.open {
		s.owe(s.list()...)
	}
	due, s.owed = s.owed, make(map[*viewer]*refusal)
	pages := s.total/listPage + 1
	return due, len(due) > max(getAtMost, pages*getsForPage)
}

// get reads the objects of viewers one by one, and returns those without an answer. It ends early where the API server
// does not answer at all, or does not serve the kind: it would not do so for the next either.
func (s *sharedWatch) get(ctx context.Context, viewers map[*viewer]*refusal) (unanswered []*viewer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan *viewer)
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range min(getsAtOnce, len(viewers)) {
		readers.Go(func() {
			for v := range next {
				answered, more := s.getOne(ctx, v, viewers[v])
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
	for v := range viewers {
		next <- v
	}
	close(next)
	readers.Wait()
	return unanswered
}

// getOne reads one object. It returns whether that was answered, and whether it makes sense to read more. A refusal is no answer. Once
// it is believed, the viewer leaves.
func (s *sharedWatch) getOne(ctx context.Context, v *viewer, refused *refusal) (answered, more bool) {
	if ctx.Err() != nil {
		return false, false
	}
	absence, err := readSight(ctx, s.watches.resource.Namespace(v.ref.Namespace), v.ref.Name, v.sight)
	if s.believed(refused, absence == AbsenceForbidden) {
		s.watches.isolate(s, v)
		return true, true
	}
	switch absence {
	case AbsenceForbidden:
		return false, true
	case AbsenceNotServed:
		return false, false
	case AbsenceUnknown:
		var answer apierrors.APIStatus
		return false, errors.As(err, &answer)
	}
	return true, true
}

// believed takes what became of a read. While the watch is closed no refusal counts: whether it opens decides then.
func (s *sharedWatch) believed(read *refusal, refused bool) bool {
	return read.believed(refused && s.isOpen(), true)
}

// relist reads the objects of viewers by a list, and returns those without an answer. Once it is believed that the list is refused, the
// shared watch is given up: it begins with a list, too.
func (s *sharedWatch) relist(ctx context.Context, viewers map[*viewer]*refusal) (unanswered []*viewer) {
	marks := make(map[*viewer]uint, len(viewers))
	for v := range viewers {
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
	switch refused := s.believed(&s.unlisted, isRefusal(err)); {
	case refused:
		s.watches.refuse(s)
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
