package gitopsprovider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// WatchFailures reports every object of an engine that begins to fail: appliers, sources and generators. The channel
// is closed once ctx has ended and all watches have; a reader that stops reading holds up nobody.
//
// An object that fails is reported once, and again only if it was well in between, or fails for another reason, or with
// another message. A message that differs in numbers and hashes alone is the same one: controllers retry, and write
// their temporary folders, ports and revisions into it. What changes in the rest of the object, a resync, and a watch
// that was opened anew are no news. Being at work again is not being well; where an object said nothing of itself in
// between, the same failure is reported again if it began anew.
//
// What fails already at the start is reported with Standing set. A reader that falls behind misses no object: of each,
// the newest event waits for it, so that several failures of one object may have become one, and a failure that
// was over before it was read may be its recovery alone.
//
// It watches each kind once in the whole cluster, which needs the verbs list and watch there. A kind that may not
// be watched, or whose API server does not answer for half a minute, is reported as FailureUnwatched, and tried
// again until ctx ends; a kind that is not served is tried again every minute, in silence.
func (v *Views) WatchFailures(ctx context.Context, options FailureOptions) (<-chan FailureEvent, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	queue := newFailureQueue()
	var watches sync.WaitGroup
	for _, reader := range v.readers {
		for _, kind := range reader.Kinds() {
			watch := &failureWatch{views: v, reader: reader, kind: kind, options: options, queue: queue, failing: map[string]*failure{}, seen: map[string]bool{}}
			watches.Go(func() { reader.Watch(ctx, kind, watch.see) })
		}
	}
	out := make(chan FailureEvent)
	go func() {
		defer close(out)
		queue.deliver(ctx, out)
		watches.Wait()
	}()
	return out, nil
}

// failureWatch turns what is seen of one kind into events.
type failureWatch struct {
	views   *Views
	reader  Reader
	kind    Kind
	options FailureOptions
	queue   *failureQueue

	// failing are the subjects that fail, as they were reported; seen are all.
	failing map[string]*failure
	seen    map[string]bool
	blind   bool
}

// failure is an object that fails, and the event that reported it. It is doubtful once the object said nothing of itself:
// it may be over, but is not known to be.
type failure struct {
	FailureEvent
	doubtful bool
}

// is reports whether an object that fails now does so in the same way still.
func (f *failure) is(now Condition) bool {
	return sameFailure(f.Ready, now) && (!f.doubtful || f.Ready.Since.Equal(now.Since))
}

func (w *failureWatch) see(s Sighting) {
	switch {
	case s.Answer == AnswerFound && !s.Object.Workload.IsZero():
		w.stands(s.Object)
	case s.Answer == AnswerAbsent:
		w.gone(s.Object)
	default:
		w.watched(s)
	}
}

// stands judges an object as it stands.
func (w *failureWatch) stands(o Object) {
	subject := subjectOf(o)
	standing := !w.seen[subject]
	w.seen[subject] = true
	last, failing := w.failing[subject]
	switch o.Ready.State {
	case StateFailing:
		if failing && last.is(o.Ready) {
			last.doubtful = false
			return
		}
		event := w.event(FailureBegan, o)
		event.Standing = standing
		w.failing[subject] = &failure{FailureEvent: event}
		w.queue.put(subjectOf(o), event)
	case StateReady, StateSuspended:
		if failing {
			delete(w.failing, subject)
			w.over(FailureRecovered, o, last.FailureEvent)
		}
	case StateUnknown:
		if failing {
			last.doubtful = true
		}
	}
}

func (w *failureWatch) gone(o Object) {
	subject := subjectOf(o)
	delete(w.seen, subject)
	if last, failing := w.failing[subject]; failing {
		delete(w.failing, subject)
		w.over(FailureDeleted, o, last.FailureEvent)
	}
}

// over reports the end of a failure, if that is asked for.
func (w *failureWatch) over(what FailureType, o Object, last FailureEvent) {
	if !w.options.Recoveries {
		return
	}
	event := w.event(what, o)
	event.Key, event.Failure = last.Key, &last.Ready
	w.queue.put(subjectOf(o), event)
}

// subjectOf tells an object from every other, also from a later one of its name.
func subjectOf(o Object) string { return o.String() + "/" + o.UID }

// keyOf tells a failure of an object from every other that is reported. Two of them may have begun in the same second, for one
// reason.
func keyOf(o Object) string {
	message := sha256.Sum256([]byte(gist(o.Ready.Message)))
	return fmt.Sprintf("%s/%s/%s/%x", o.UID, o.Ready.Since.UTC().Format(time.RFC3339), o.Ready.Reason, message[:6])
}

func (w *failureWatch) event(what FailureType, o Object) FailureEvent {
	event := FailureEvent{
		Type: what, Engine: w.reader.Engine(), Workload: o.Workload, UID: o.UID, Ready: o.Ready, Observed: time.Now(),
		Key: keyOf(o),
	}
	for _, use := range o.Sources {
		event.Revision = cmp.Or(event.Revision, use.failed())
	}
	return event
}

// watched reports that the kind cannot be watched, or can be again.
func (w *failureWatch) watched(s Sighting) {
	blind := s.Answer == AnswerForbidden || s.Answer == AnswerUnknown
	if !blind && !w.blind {
		return
	}
	w.blind = blind
	event := FailureEvent{
		Type: FailureWatched, Engine: w.reader.Engine(), Workload: Workload{Group: w.kind.Group, Kind: w.kind.Kind}, Observed: time.Now(),
	}
	if blind {
		event.Type = FailureUnwatched
		event.Message = describeRead("watch", "list and watch", "the objects of kind "+w.kind.Kind+" in cluster "+w.views.cluster, s.Err)
	}
	w.queue.put(w.kind.GroupKind.String(), event)
}

// varying is what differs between two messages of one failure: numbers, hashes, and what a temporary folder's name ends in.
var varying = regexp.MustCompile(`\b[0-9a-f]{7,64}\b|[0-9]+`)

// gist is what stays the same of a message when a failure is tried again.
func gist(message string) string { return varying.ReplaceAllString(message, "#") }

// sameFailure compares two failures by their reasons and messages.
func sameFailure(a, b Condition) bool {
	return a.Reason == b.Reason && gist(a.Message) == gist(b.Message)
}

// failureQueue holds the newest event of each subject until it is read. The subjects keep the order in which they came in.
type failureQueue struct {
	mu     sync.Mutex
	order  []string
	newest map[string]queuedEvent
	puts   int
	filled chan struct{}
}

// queuedEvent is an event, and the number of its put.
type queuedEvent struct {
	FailureEvent
	put int
}

func newFailureQueue() *failureQueue {
	return &failureQueue{newest: map[string]queuedEvent{}, filled: make(chan struct{}, 1)}
}

// put never waits for the reader.
func (q *failureQueue) put(subject string, event FailureEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, waits := q.newest[subject]; !waits {
		q.order = append(q.order, subject)
	}
	q.puts++
	q.newest[subject] = queuedEvent{event, q.puts}
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// first returns the newest event of the subject that waits longest.
func (q *failureQueue) first() (subject string, event queuedEvent, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		return "", queuedEvent{}, false
	}
	return q.order[0], q.newest[q.order[0]], true
}

// sent takes an event out, unless a newer one has replaced it.
func (q *failureQueue) sent(subject string, event queuedEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.order = q.order[1:]
	if q.newest[subject].put != event.put {
		q.order = append(q.order, subject)
		return
	}
	delete(q.newest, subject)
}

// deliver sends what is put until ctx ends.
func (q *failureQueue) deliver(ctx context.Context, out chan<- FailureEvent) {
	for {
		subject, event, ok := q.first()
		var ready chan<- FailureEvent
		if ok {
			ready = out
		}
		select {
		case ready <- event.FailureEvent:
			q.sent(subject, event)
		case <-q.filled:
		case <-ctx.Done():
			return
		}
	}
}
