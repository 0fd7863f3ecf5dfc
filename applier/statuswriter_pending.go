package applier

import (
	"context"
	"slices"
	"time"
)

// pendingStatus is what is pending for one trigger.
type pendingStatus struct {
	// writing has room for the one who writes.
	writing chan struct{}
	// users counts those who write or wait to.
	users int
	// publication is what is not written yet.
	publication Publication
	// withdrawn are the tokens of the recorded operations that are to be replaced by what was there before them.
	withdrawn []string
	// recorded is the token of the operation recorded last, as long as it may be withdrawn, and before what the
	// status held before it.
	recorded string
	before   *Operation
	// late is until when a write that got no answer may still be made, over a status that has not changed since; zero for
	// none.
	late time.Time
}

// statusWrites is what one write is to change.
type statusWrites struct {
	publication Publication
	withdrawn   []string
	recorded    string
	before      *Operation
	late        time.Time
}

// pendingOf returns what is pending for trigger. The lock is held.
func (w *StatusWriter) pendingOf(trigger TriggerRef) *pendingStatus {
	pending := w.pending[trigger]
	if pending == nil {
		pending = &pendingStatus{writing: make(chan struct{}, 1)}
		w.pending[trigger] = pending
	}
	return pending
}

// lock makes the caller the one who writes trigger.
func (w *StatusWriter) lock(ctx context.Context, trigger TriggerRef) (*pendingStatus, error) {
	w.mu.Lock()
	pending := w.pendingOf(trigger)
	pending.users++
	w.mu.Unlock()
	select {
	case pending.writing <- struct{}{}:
		return pending, nil
	case <-ctx.Done():
		w.leave(trigger, pending)
		return nil, context.Cause(ctx)
	}
}

func (w *StatusWriter) unlock(trigger TriggerRef, pending *pendingStatus) {
	<-pending.writing
	w.leave(trigger, pending)
}

// leave forgets what is pending for trigger if that is nothing.
func (w *StatusWriter) leave(trigger TriggerRef, pending *pendingStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending.users--
	if pending.users == 0 && pending.recorded == "" && pending.snapshot().empty() {
		delete(w.pending, trigger)
	}
}

func (p *pendingStatus) snapshot() statusWrites {
	return statusWrites{
		publication: p.publication, withdrawn: slices.Clone(p.withdrawn), recorded: p.recorded, before: p.before, late: p.late,
	}
}

// written takes note that writes are written for good, unless something newer is pending: no earlier write can be made any more.
func (p *pendingStatus) written(writes statusWrites) {
	p.late = time.Time{}
	if p.publication.Operation == writes.publication.Operation {
		p.publication.Operation = nil
	}
	if p.publication.RepairPending == writes.publication.RepairPending {
		p.publication.RepairPending = nil
	}
	if slices.Contains(writes.withdrawn, p.recorded) {
		p.forget()
	}
	p.withdrawn = slices.DeleteFunc(p.withdrawn, func(token string) bool { return slices.Contains(writes.withdrawn, token) })
}

// drop forgets everything: the trigger is gone.
func (p *pendingStatus) drop() {
	p.publication, p.withdrawn, p.late = Publication{}, nil, time.Time{}
	p.forget()
}

// concludes reports whether what is pending ends the operation with token, or withdraws it. Nothing is pending in a nil one.
func (p *pendingStatus) concludes(token string) bool {
	if p == nil {
		return false
	}
	end := p.publication.Operation
	return end.Completed() && end.Started.Token == token || slices.Contains(p.withdrawn, token)
}

// forget makes what was recorded last no longer be one that can be withdrawn.
func (p *pendingStatus) forget() { p.recorded, p.before = "", nil }

func (s statusWrites) empty() bool {
	return len(s.withdrawn) == 0 && s.publication == Publication{}
}

// mayYetLand returns the token of the operation whose record got no answer, and which is neither started nor withdrawn yet.
func (s statusWrites) mayYetLand() string {
	if !time.Now().Before(s.late) || slices.Contains(s.withdrawn, s.recorded) {
		return ""
	}
	return s.recorded
}

// writeOn changes status as s says.
func (s statusWrites) writeOn(status *TriggerStatus) {
	// One that was completed meanwhile was followed by another process: its end stays.
	if o := status.Operation; o != nil && !o.Completed() && slices.Contains(s.withdrawn, o.Started.Token) {
		status.Operation = s.before.record()
	}
	if operation := s.publication.Operation; operation != nil && operation.mayReplace(status.Operation) {
		status.Operation = operation.record()
	}
	if s.publication.RepairPending != nil {
		status.RepairPending = *s.publication.RepairPending
	}
}

// mayReplace reports whether a status may show o in the place of shown: none, or the same operation
// as long as that has not ended.
func (o *Operation) mayReplace(shown *Operation) bool {
	return shown == nil || o.IsSame(shown) && !shown.Completed()
}

// record returns a copy of o to keep, without what concerns the process that follows it alone.
func (o *Operation) record() *Operation {
	if o == nil {
		return nil
	}
	record := *o
	record.Targets = slices.Clone(o.Targets)
	record.Started.Recovered, record.Started.Overdue = false, false
	record.Started.Unconfirmed, record.Started.Observed = nil, nil
	return &record
}
