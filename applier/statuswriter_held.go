package applier

import (
	"slices"
	"time"
)

// heldStatus is what is held for one trigger.
type heldStatus struct {
	// writing has room for the one who writes.
	writing chan struct{}
	// users counts those who write or wait to.
	users int
	// publication is what is not written yet.
	publication Publication
	// late is until when a publication that got no answer may still be written, over what is as it was then; zero for
	// none.
	late time.Time
	// withdrawn are the recorded operations that are to be replaced by what was there before them.
	withdrawn []withdrawal
	// recorded is the token of the operation recorded last, as long as it may be withdrawn, and before what the
	// status held before it. It is unconfirmed if it is not known whether it was recorded.
	recorded    string
	before      *Operation
	unconfirmed bool
}

// withdrawal is the withdrawal of one operation.
type withdrawal struct {
	token string
	// until is when a record that got no answer can no longer land; zero for one that was answered.
	until time.Time
}

// statusWrites is what one write is to change.
type statusWrites struct {
	publication Publication
	withdrawn   []withdrawal
	recorded    string
	before      *Operation
}

func (h *heldStatus) snapshot() statusWrites {
	return statusWrites{publication: h.publication, withdrawn: slices.Clone(h.withdrawn), recorded: h.recorded, before: h.before}
}

// publicationWritten takes note that the publication of writes is written, unless something newer is held.
func (h *heldStatus) publicationWritten(writes statusWrites) {
	if h.publication.Operation == writes.publication.Operation {
		h.publication.Operation = nil
	}
	if h.publication.RepairPending == writes.publication.RepairPending {
		h.publication.RepairPending = nil
	}
}

// withdrawalsWritten takes note of the withdrawals of writes that are over.
func (h *heldStatus) withdrawalsWritten(writes statusWrites, done func(withdrawal) bool) {
	over := func(w withdrawal) bool { return slices.Contains(writes.withdrawn, w) && done(w) }
	if last := len(h.withdrawn) - 1; last >= 0 && h.withdrawn[last].token == h.recorded && over(h.withdrawn[last]) {
		h.forget()
	}
	h.withdrawn = slices.DeleteFunc(h.withdrawn, over)
}

// drop forgets everything: the trigger is gone.
func (h *heldStatus) drop() {
	h.publication, h.withdrawn, h.late = Publication{}, nil, time.Time{}
	h.forget()
}

// closes reports whether what is held ends the operation with token, or withdraws it. A nil h holds nothing.
func (h *heldStatus) closes(token string) bool {
	if h == nil {
		return false
	}
	end := h.publication.Operation
	return end.Completed() && end.Started.Token == token || isWithdrawn(h.withdrawn, token)
}

func everyWithdrawal(withdrawal) bool { return true }

// forget makes what was recorded last no longer be one that can be withdrawn.
func (h *heldStatus) forget() { h.recorded, h.before, h.unconfirmed = "", nil, false }

func isWithdrawn(withdrawn []withdrawal, token string) bool {
	return slices.ContainsFunc(withdrawn, func(w withdrawal) bool { return w.token == token })
}

func (s statusWrites) empty() bool {
	return len(s.withdrawn) == 0 && s.publication == Publication{}
}

// writeOn changes status as s says, and reports whether it withdrew an operation.
func (s statusWrites) writeOn(status *TriggerStatus) (withdrew bool) {
	// One that was completed meanwhile was followed by another process: its end stays.
	if o := status.Operation; o != nil && !o.Completed() && isWithdrawn(s.withdrawn, o.Started.Token) {
		status.Operation, withdrew = s.before.record(), true
	}
	if operation := s.publication.Operation; operation != nil && operation.mayReplace(status.Operation) {
		status.Operation = operation.record()
	}
	if s.publication.RepairPending != nil {
		status.RepairPending = *s.publication.RepairPending
	}
	return withdrew
}

// mayReplace reports whether a status may show o in the place of shown: none, or the same operation at an earlier point.
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
