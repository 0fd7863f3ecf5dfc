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
// A publication never blocks. It is held until it is written, and a later one for the same trigger replaces it, field by
// field, so a trigger's status catches up with the latest view rather than replaying each step. A write that failed is
// tried again after RetryInterval, unless something newer is to be written before. What is held for a trigger that is gone is
// dropped. Writes are made one at a time for each trigger, and for several triggers in parallel.
//
// An operation reaches its trigger first through RecordApplyOperation, right before the write that starts it. The
// trigger may hold an operation that somebody else recorded: an earlier process, or the host's reconciler for an apply
// started outside. So a published operation is written only on a status that holds none, or the same operation at
// an earlier point. A record is never written over one that is not its own.
//
// A StatusWriter satisfies the Runnable and LeaderElectionRunnable of controller-runtime by shape. It is safe for
// concurrent use.
type StatusWriter struct {
	// RetryInterval is how soon a failed write is tried again; zero is DefaultStatusRetryInterval. Set before Start.
	RetryInterval time.Duration

	store Store
	log   logr.Logger

	mu sync.Mutex
	// held has an entry for each trigger with something to write or to remember.
	held map[TriggerRef]*heldStatus
	// queue has the triggers that are to be written; nil before Start and after it.
	queue workqueue.TypedDelayingInterface[TriggerRef]
}

// NewStatusWriter returns a StatusWriter that writes through store. It makes no request and starts nothing.
func NewStatusWriter(store Store, log logr.Logger) *StatusWriter {
	return &StatusWriter{store: store, log: log, held: make(map[TriggerRef]*heldStatus)}
}

// NeedLeaderElection is true: what is published is decided by the leader alone.
func (w *StatusWriter) NeedLeaderElection() bool { return true }

// Start writes what is published until ctx ends. Then it tries once more to write what is left, for five
// seconds at most, and returns nil. What was published before Start is written then. It is called once.
func (w *StatusWriter) Start(ctx context.Context) error {
	queue := workqueue.NewTypedDelayingQueue[TriggerRef]()
	w.mu.Lock()
	w.queue = queue
	for trigger := range w.held {
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
	left := make(chan TriggerRef, len(w.held))
	for trigger := range w.held {
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

// PublishTriggerStatus holds a publication for trigger until it is written, and replaces what it says anew of one not
// yet written. It does not block.
func (w *StatusWriter) PublishTriggerStatus(trigger TriggerRef, publication Publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.hold(trigger)
	if operation := publication.Operation; operation != nil {
		held.publication.Operation = operation.record()
		if held.recorded == operation.Started.Token {
			held.forget()
		}
	}
	if publication.RepairPending != nil {
		held.publication.RepairPending = new(*publication.RepairPending)
	}
	w.enqueue(trigger)
}

// WithdrawApplyOperation holds the withdrawal of the operation with token, which RecordApplyOperation recorded on trigger and
// which was then not started: the status gets back what it held before. It does not block. A record that got no answer is
// looked for until it can no longer land. A process that stops before it is written leaves the record, which the next one
// finds never to have run.
func (w *StatusWriter) WithdrawApplyOperation(trigger TriggerRef, token string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.held[trigger]
	if token == "" || held == nil || held.recorded != token || slices.Contains(held.withdrawn, token) {
		return
	}
	held.withdrawn = append(held.withdrawn, token)
	w.enqueue(trigger)
}

// RecordApplyOperation writes operation on trigger now, and returns nil once it is written. With it goes what is held for
// the trigger, so that the operation it replaces is the latest view of that. An end or a withdrawal
// that is held is written before, so that each is to be seen on the trigger.
//
// It fails, so that nothing starts the apply, when the trigger is gone or being deleted (ErrRecordGone), when it
// names another applier by now (ErrStale), and when its status holds another operation that has not completed
// (ErrOperationOpen): one started outside, which the host's reconciler recorded, or one that an earlier process
// recorded and that is to be followed first. After an error, withdraw the operation: the record may be there.
func (w *StatusWriter) RecordApplyOperation(ctx context.Context, trigger TriggerRef, operation *Operation) error {
	held, err := w.lock(ctx, trigger)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	defer w.unlock(trigger, held)
	record := operation.record()
	if err := w.closeLast(ctx, trigger, held); err != nil {
		return err
	}
	writes := w.snapshot(held)
	before, left := writes.before, writes.recorded == record.Started.Token
	err = w.store.UpdateStatus(ctx, trigger, func(t *Trigger) error {
		writes.writeOn(&t.Status)
		current := t.Status.Operation
		switch {
		case t.Deleting:
			return fmt.Errorf("%w: it is being deleted", ErrRecordGone)
		case t.Applier != record.Applier:
			return fmt.Errorf("%w: the trigger names %s now, not %s", ErrStale, t.Applier, record.Applier)
		case current.IsSame(record) && left: // It is recorded anew, or the answer to the first try got lost.
		case current.IsSame(record):
			return fmt.Errorf("%w: the token %s was recorded before", ErrOperationOpen, record.Started.Token)
		case current != nil && !current.Completed():
			return fmt.Errorf("%w: %s of %s, requested at %s", ErrOperationOpen, current.Started.Token, current.Applier,
				current.Started.RequestedAt.Format(time.RFC3339))
		default:
			before = current.record()
		}
		t.Status.Operation, left = record.record(), true
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		held.written(writes) // The trigger has changed.
	}
	if errors.Is(err, ErrUnconfirmed) {
		held.late = time.Now().Add(lateWrite)
	}
	if left { // Also after an error: it may be there.
		held.recorded, held.before = record.Started.Token, before
		held.withdrawn = slices.DeleteFunc(held.withdrawn, func(token string) bool { return token == held.recorded })
	}
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	return nil
}

// closeOperation writes what became of the last operation of trigger, if that is held, and waits for what is just being written.
func (w *StatusWriter) closeOperation(ctx context.Context, trigger TriggerRef) error {
	held, err := w.lock(ctx, trigger)
	if err != nil {
		return fmt.Errorf("trigger %s: %w", trigger, err)
	}
	defer w.unlock(trigger, held)
	return w.closeLast(ctx, trigger, held)
}

// closeLast is closeOperation for the one who holds the trigger's lock.
func (w *StatusWriter) closeLast(ctx context.Context, trigger TriggerRef, held *heldStatus) error {
	writes := w.snapshot(held)
	if !writes.publication.Operation.Completed() && len(writes.withdrawn) == 0 {
		return nil
	}
	if _, err := w.writeHeld(ctx, trigger, held); err != nil {
		return fmt.Errorf("trigger %s: what became of its last operation: %w", trigger, err)
	}
	return nil
}

// write writes what is held for trigger, if anything is. It reports whether to look again later: what is to be written stands
// already, and a write that got no answer may yet be made over it.
func (w *StatusWriter) write(ctx context.Context, trigger TriggerRef) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusWriteTimeout)
	defer cancel()
	held, err := w.lock(ctx, trigger)
	if err != nil {
		return false, err
	}
	defer w.unlock(trigger, held)
	return w.writeHeld(ctx, trigger, held)
}

// writeHeld is write for the one who holds the trigger's lock.
func (w *StatusWriter) writeHeld(ctx context.Context, trigger TriggerRef, held *heldStatus) (again bool, err error) {
	writes := w.snapshot(held)
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
	case err == nil && !changed && now.Before(held.late):
		return true, nil
	case err == nil:
		held.written(writes)
		return false, nil
	case errors.Is(err, ErrRecordGone):
		held.drop()
		return false, nil
	case errors.Is(err, ErrUnconfirmed):
		held.late = time.Now().Add(lateWrite)
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

// holds reports whether the end of the operation with token, or its withdrawal, is not written on trigger yet.
func (w *StatusWriter) holds(trigger TriggerRef, token string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if held := w.held[trigger]; held != nil || trigger.UID != "" {
		return held.closes(token)
	}
	for ref, held := range w.held {
		if ref.Namespace == trigger.Namespace && ref.Name == trigger.Name && held.closes(token) {
			return true
		}
	}
	return false
}

// forgetOperation drops what is held of the operation with token, and waits for what is just being written: once it returns, no record of
// the operation is written any more.
func (w *StatusWriter) forgetOperation(ctx context.Context, trigger TriggerRef, token string) {
	held, err := w.lock(ctx, trigger)
	if err != nil {
		return
	}
	defer w.unlock(trigger, held)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := held.publication.Operation; o != nil && o.Started.Token == token {
		held.publication.Operation = nil
	}
}

func (w *StatusWriter) snapshot(held *heldStatus) statusWrites {
	w.mu.Lock()
	defer w.mu.Unlock()
	return held.snapshot()
}

// hold returns what is held for trigger. The lock is held.
func (w *StatusWriter) hold(trigger TriggerRef) *heldStatus {
	held := w.held[trigger]
	if held == nil {
		held = &heldStatus{writing: make(chan struct{}, 1)}
		w.held[trigger] = held
	}
	return held
}

// enqueue makes what is held for trigger be written. The lock is held.
func (w *StatusWriter) enqueue(trigger TriggerRef) {
	if w.queue != nil {
		w.queue.Add(trigger)
	}
}

// lock makes the caller the one who writes trigger.
func (w *StatusWriter) lock(ctx context.Context, trigger TriggerRef) (*heldStatus, error) {
	w.mu.Lock()
	held := w.hold(trigger)
	held.users++
	w.mu.Unlock()
	select {
	case held.writing <- struct{}{}:
		return held, nil
	case <-ctx.Done():
		w.leave(trigger, held)
		return nil, context.Cause(ctx)
	}
}

func (w *StatusWriter) unlock(trigger TriggerRef, held *heldStatus) {
	<-held.writing
	w.leave(trigger, held)
}

// leave forgets what is held for trigger if that is nothing.
func (w *StatusWriter) leave(trigger TriggerRef, held *heldStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held.users--
	if held.users == 0 && held.recorded == "" && held.snapshot().empty() {
		delete(w.held, trigger)
	}
}
