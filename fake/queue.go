package fake

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A queue holds the names of objects that are to be reconciled, as controller-runtime's does: a name is in it at most once,
// at the earliest time that it was asked for, and is not handed out while it is being worked on.
type queue struct {
	minRetry, maxRetry time.Duration

	mu       sync.Mutex
	changed  *sync.Cond
	waiting  map[types.NamespacedName]ticket
	working  map[types.NamespacedName]bool
	failures map[types.NamespacedName]int
	issued   int
	wake     *time.Timer
	closed   bool
}

// A ticket is a name's place in the queue. Those that are due at one time are handed out in the order they came.
type ticket struct {
	due    time.Time
	number int
}

func (t ticket) before(other ticket) bool {
	if !t.due.Equal(other.due) {
		return t.due.Before(other.due)
	}
	return t.number < other.number
}

func newQueue(minRetry, maxRetry time.Duration) *queue {
	q := &queue{
		minRetry: minRetry, maxRetry: maxRetry,
		waiting:  map[types.NamespacedName]ticket{},
		working:  map[types.NamespacedName]bool{},
		failures: map[types.NamespacedName]int{},
	}
	q.changed = sync.NewCond(&q.mu)
	return q
}

// add asks for name after a delay.
func (q *queue) add(name types.NamespacedName, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(name, after)
}

func (q *queue) put(name types.NamespacedName, after time.Duration) {
	q.issued++
	t := ticket{due: time.Now().Add(after), number: q.issued}
	if had, ok := q.waiting[name]; ok && !t.due.Before(had.due) {
		return
	}
	q.waiting[name] = t
	q.changed.Broadcast()
}

// retry asks for name after a delay that doubles with each retry since forget was called last.
func (q *queue) retry(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	after := q.minRetry << q.failures[name]
	if after > q.maxRetry || after < q.minRetry {
		after = q.maxRetry
	}
	q.failures[name]++
	q.put(name, after)
}

func (q *queue) forget(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.failures, name)
}

// get waits for a name that is due, and returns false once the queue is closed. The name is to be handed to done.
func (q *queue) get() (types.NamespacedName, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed {
			return types.NamespacedName{}, false
		}
		name, next, ok := q.next()
		if wait := time.Until(next.due); ok && wait <= 0 {
			delete(q.waiting, name)
			q.working[name] = true
			return name, true
		} else if ok {
			q.wakeAfter(wait)
		}
		q.changed.Wait()
	}
}

// next is the first name in the queue that nobody is working on.
func (q *queue) next() (first types.NamespacedName, at ticket, found bool) {
	for name, t := range q.waiting {
		if !q.working[name] && (!found || t.before(at)) {
			first, at, found = name, t, true
		}
	}
	return first, at, found
}

func (q *queue) wakeAfter(d time.Duration) {
	if q.wake != nil {
		q.wake.Stop()
	}
	q.wake = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
}

func (q *queue) done(name types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.working, name)
	q.changed.Broadcast()
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	if q.wake != nil {
		q.wake.Stop()
	}
	q.changed.Broadcast()
}
