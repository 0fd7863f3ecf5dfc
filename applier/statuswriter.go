package applier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
)

// DefaultStatusRetryInterval is how soon a write of a trigger's status that failed is tried again.
const DefaultStatusRetryInterval = 5 * time.Second

// statusWriters is how many triggers are written at the same time.
const statusWriters = 16

// statusWriteTimeout bounds one write.
const statusWriteTimeout = 30 * time.Second

// statusFlushTimeout bounds the last writes, made while the StatusWriter stops.
const statusFlushTimeout = 5 * time.Second

// Publication is what is to be shown on a trigger. A nil field says nothing.
type Publication struct {
	// Operation is where the trigger's recorded operation stands.
	Operation *Operation
	// RepairPending is whether the host has yet to ask for a Repair.
	RepairPending *bool
}

// StatusWriter writes what is published on triggers: the operation and whether a repair is pending. A host makes one
// and hands it to its [Dispatcher], which publishes the operations; the host publishes RepairPending.
//
// A publication never blocks. It is pending until it is written, and a later one for the same trigger replaces it, field by
// field, so a trigger's status catches up with the latest view rather than replaying each step. A write that failed is
// tried again after RetryInterval, unless something newer is to be written before. What is pending for a trigger that is gone is
// dropped. Writes are made one at a time for each trigger, and for several triggers in parallel.
//
// An operation reaches its trigger first through RecordApplyOperation, right before the write that starts it. The
// trigger may hold an operation that somebody else recorded: an earlier process, or the host's reconciler for an apply
// started outside. So a published operation is written only on a status that holds none, or the same operation as
// long as that has not ended. A record is never written over one that is not its own.
//
// Make one with NewStatusWriter; the zero value cannot be used. A StatusWriter satisfies the Runnable and LeaderElectionRunnable of
// controller-runtime by shape. It is safe for concurrent use.
type StatusWriter struct {
	// RetryInterval is how soon a failed write is tried again; zero is DefaultStatusRetryInterval. Set before Start.
	RetryInterval time.Duration

	store Store
	log   logr.Logger

	mu sync.Mutex
	// pending has an entry for each trigger with something to write or to remember.
	pending map[TriggerRef]*pendingStatus
	// started is whether Start was called.
	started bool
	// queue has the triggers that are to be written; nil before Start and after it.
	queue workqueue.TypedDelayingInterface[TriggerRef]
}

// NewStatusWriter returns a StatusWriter that writes through store. It makes no request and starts nothing.
func NewStatusWriter(store Store, log logr.Logger) *StatusWriter {
	return &StatusWriter{store: store, log: log, pending: make(map[TriggerRef]*pendingStatus)}
}

// NeedLeaderElection is true: what is published is decided by the leader alone.
func (w *StatusWriter) NeedLeaderElection() bool { return true }

// Start writes what is published until ctx ends. Then it tries once more to write what is left, for five
// seconds at most, and returns nil. What was published before Start is written then. It is called once: a second call
// fails.
func (w *StatusWriter) Start(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("a StatusWriter is started once: make another")
	}
	w.started = true
	queue := workqueue.NewTypedDelayingQueue[TriggerRef]()
	w.queue = queue
	for trigger := range w.pending {
		queue.Add(trigger)
	}
	w.mu.Unlock()

	var writers sync.WaitGroup
	for range statusWriters {
		writers.Go(func() { w.writeQueued(ctx, queue) })
	}
	<-ctx.Done()
	w.mu.Lock()
	w.queue = nil
	w.mu.Unlock()
	queue.ShutDown()
	writers.Wait()
	w.flush(context.WithoutCancel(ctx))
	return nil
}

func (w *StatusWriter) writeQueued(ctx context.Context, queue workqueue.TypedDelayingInterface[TriggerRef]) {
	for {
		trigger, shutdown := queue.Get()
		if shutdown {
			return
		}
		again, err := w.write(ctx, trigger)
		if err != nil && ctx.Err() == nil {
			w.log.Error(err, "The status of a trigger could not be written and will be tried again", "trigger", trigger.String())
			again = true
		}
		if again {
			queue.AddAfter(trigger, w.retryInterval())
		}
		queue.Done(trigger)
	}
}

func (w *StatusWriter) retryInterval() time.Duration {
	if w.RetryInterval > 0 {
		return w.RetryInterval
	}
	return DefaultStatusRetryInterval
}

// flush writes what is left, several triggers at a time.
func (w *StatusWriter) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, statusFlushTimeout)
	defer cancel()
	w.mu.Lock()
	left := make(chan TriggerRef, len(w.pending))
	for trigger := range w.pending {
		left <- trigger
	}
	w.mu.Unlock()
	close(left)
	var writers sync.WaitGroup
	for range min(statusWriters, len(left)) {
		writers.Go(func() {
			for trigger := range left {
				if _, err := w.write(ctx, trigger); err != nil {
					w.log.Error(err, "The status of a trigger could not be written before the stop", "trigger", trigger.String())
				}
			}
		})
	}
	writers.Wait()
}

// PublishTriggerStatus keeps a publication for trigger until it is written, and replaces what it says anew of one not
// yet written. It does not block. Give the trigger's UID, by which it is told from others of its name.
func (w *StatusWriter) PublishTriggerStatus(trigger TriggerRef, publication Publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending := w.pendingOf(trigger)
	if operation := publication.Operation; operation != nil {
		pending.publication.Operation = operation.record()
		if pending.recorded == operation.Started.Token {
			pending.forget()
		}
	}
	if publication.RepairPending != nil {
		pending.publication.RepairPending = new(*publication.RepairPending)
	}
	w.enqueue(trigger)
}

// WithdrawApplyOperation keeps the withdrawal of the operation with token, which RecordApplyOperation recorded on trigger and
// which was then not started: the status gets back what it held before. It does not block. A record that got no answer is
// looked for until it can no longer land. A process that stops before it is written leaves the record, which the next one
// finds never to have run.
func (w *StatusWriter) WithdrawApplyOperation(trigger TriggerRef, token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending := w.pending[trigger]
	if token == "" || pending == nil || pending.recorded != token || slices.Contains(pending.withdrawn, token) {
		return
	}
	pending.withdrawn = append(pending.withdrawn, token)
	w.enqueue(trigger)
}

// RecordApplyOperation writes operation on trigger now, and returns nil once it is written. With it goes what is pending for
// the trigger, so that the operation it replaces is the latest view of that. An end or a withdrawal
// that is pending is written before, so that each is to be seen on the trigger.
//
// It fails, so that nothing starts the apply, when the trigger is gone or being deleted (ErrRecordGone), when it
// names another applier by now (ErrStale), and when its status holds another operation that has not completed
// (ErrOperationOpen): one started outside, which the host's reconciler recorded, one that an earlier process
// recorded and that is to be followed first, or one whose record got no answer and which is not withdrawn yet. After
// an error, withdraw the operation: the record may be there.
func (w *StatusWriter) RecordApplyOperation(ctx context.Context, trigger TriggerRef, operation *Operation) error {
	pending, err := w.lock(ctx, trigger)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	defer w.unlock(trigger, pending)
	record := operation.record()
	if err := w.concludePending(ctx, trigger, pending); err != nil {
		return err
	}
	writes := w.snapshot(pending)
	if other := writes.mayYetLand(); other != "" && other != record.Started.Token {
		return fmt.Errorf("trigger %s: %w: %s, whose record may yet be written", trigger, ErrOperationOpen, other)
	}
	before, mayBeThere := writes.before, writes.recorded == record.Started.Token
	err = w.store.UpdateStatus(ctx, trigger, func(t *Trigger) error {
		writes.writeOn(&t.Status)
		current := t.Status.Operation
		switch {
		case t.Deleting:
			return fmt.Errorf("%w: it is being deleted", ErrRecordGone)
		case t.Applier != record.Applier:
			return fmt.Errorf("%w: the trigger names %s now, not %s", ErrStale, t.Applier, record.Applier)
		case current.IsSame(record) && mayBeThere: // It is recorded anew, or the answer to the first try got lost.
		case current.IsSame(record):
			return fmt.Errorf("%w: the token %s was recorded before", ErrOperationOpen, record.Started.Token)
		case current != nil && !current.Completed():
			return fmt.Errorf("%w: %s of %s, requested at %s", ErrOperationOpen, current.Started.Token, current.Applier,
				current.Started.RequestedAt.Format(time.RFC3339))
		default:
			before = current.record()
		}
		t.Status.Operation, mayBeThere = record.record(), true
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		pending.written(writes) // The trigger has changed.
	}
	if errors.Is(err, ErrUnconfirmed) {
		pending.late = time.Now().Add(lateWrite)
	}
	if mayBeThere { // Also after an error.
		pending.recorded, pending.before = record.Started.Token, before
		pending.withdrawn = slices.DeleteFunc(pending.withdrawn, func(token string) bool { return token == pending.recorded })
	}
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	return nil
}

// concludeLast writes what became of the last operation of trigger, if that is pending, and waits for what is just being written.
func (w *StatusWriter) concludeLast(ctx context.Context, trigger TriggerRef) error {
	pending, err := w.lock(ctx, trigger)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	defer w.unlock(trigger, pending)
	return w.concludePending(ctx, trigger, pending)
}

// concludePending is concludeLast for the one who holds the trigger's lock.
func (w *StatusWriter) concludePending(ctx context.Context, trigger TriggerRef, pending *pendingStatus) error {
	writes := w.snapshot(pending)
	if !writes.publication.Operation.Completed() && len(writes.withdrawn) == 0 {
		return nil
	}
	if _, err := w.writePending(ctx, trigger, pending); err != nil {
		return fmt.Errorf("trigger %s: what became of its last operation: %w", trigger, err)
	}
	return nil
}

// write writes what is pending for trigger, if anything is. It reports whether to look again later: what is to be written stands
// already, and a write that got no answer may yet be made over it.
func (w *StatusWriter) write(ctx context.Context, trigger TriggerRef) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusWriteTimeout)
	defer cancel()
	pending, err := w.lock(ctx, trigger)
	if err != nil {
		return false, err
	}
	defer w.unlock(trigger, pending)
	return w.writePending(ctx, trigger, pending)
}

// writePending is write for the one who holds the trigger's lock.
func (w *StatusWriter) writePending(ctx context.Context, trigger TriggerRef, pending *pendingStatus) (again bool, err error) {
	writes := w.snapshot(pending)
	if writes.empty() {
		return false, nil
	}
	changed := false
	now := time.Now() // Before the read: what that does not show may have come since.
	err = w.store.UpdateStatus(ctx, trigger, func(t *Trigger) error {
		before := encode(t.Status)
		writes.writeOn(&t.Status)
		changed = encode(t.Status) != before
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil && !changed && now.Before(pending.late):
		return true, nil
	case err == nil:
		pending.written(writes)
		return false, nil
	case errors.Is(err, ErrRecordGone):
		pending.drop()
		return false, nil
	case errors.Is(err, ErrUnconfirmed):
		pending.late = time.Now().Add(lateWrite)
	}
	return false, err
}

// encode returns what a store keeps of a status, to tell whether a write changes it.
func encode(status TriggerStatus) string {
	encoded, err := json.Marshal(status)
	if err != nil {
		return ""
	}
	return string(encoded)
}

// isPending reports whether the end of the operation with token, or its withdrawal, is not written on trigger yet.
func (w *StatusWriter) isPending(trigger TriggerRef, token string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if trigger.UID != "" {
		nameless := TriggerRef{Namespace: trigger.Namespace, Name: trigger.Name}
		return w.pending[trigger].concludes(token) || w.pending[nameless].concludes(token)
	}
	for ref, pending := range w.pending {
		if ref.Namespace == trigger.Namespace && ref.Name == trigger.Name && pending.concludes(token) {
			return true
		}
	}
	return false
}

// forgetOperation drops what is pending of the operation with token, and waits for what is just being written: once it returns, no record of
// the operation is written any more.
func (w *StatusWriter) forgetOperation(ctx context.Context, trigger TriggerRef, token string) {
	pending, err := w.lock(ctx, trigger)
	if err != nil {
		return
	}
	defer w.unlock(trigger, pending)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := pending.publication.Operation; o != nil && o.Started.Token == token {
		pending.publication.Operation = nil
	}
}

func (w *StatusWriter) snapshot(pending *pendingStatus) statusWrites {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pending.snapshot()
}

// enqueue makes what is pending for trigger be written. The lock is held.
func (w *StatusWriter) enqueue(trigger TriggerRef) {
	if w.queue != nil {
		w.queue.Add(trigger)
	}
}
