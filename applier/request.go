package applier

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ApplyRequest is what a worker decided: one apply by the applier of one trigger.
type ApplyRequest struct {
	// Trigger is the trigger whose applier is to be asked. Give its UID: without one it is whichever has the name.
	Trigger TriggerRef
	// Applier is the applier that was decided on. Zero is the one that the trigger names when the attempt first reads it.
	Applier ApplierRef
	// Targets are the incarnations for whose sake it is asked. Required: at least one has to stand still.
	Targets []TargetRef
	// Want is the repository and branch that was decided on.
	Want Binding
	// Commit is the commit to apply, as in [Ask]. Empty says that the remote does not carry the branch: nothing is recorded
	// or applied then, and the attempt ends as EndAskedNothing without an error.
	Commit string
	// Reason is why.
	Reason ApplyReason
	// Current reports whether the decision still holds, as in [Ask]; nil always holds.
	Current func() bool
	// Recovered is the operation that Trigger records, as [Store].Trigger reads it, and that this attempt is to follow to its
	// end, after a restart. Nothing is asked then: the fields above but Trigger are not read. The record is read again first: one
	// that was completed meanwhile is the end, and one that was withdrawn, or replaced by another's, is EndAskedNothing. Nil makes a
	// request.
	Recovered *Operation
	// Report is told how the attempt goes, on the attempt's goroutine, one call at a time. It has to return soon: the
	// attempt waits for it, and an operation is taken no further meanwhile. Nil is told nothing.
	Report func(Report)
}

// validate reports what a request is refused for before anything is read. Its error is permanent.
func (r ApplyRequest) validate() error {
	switch {
	case r.Trigger.Name == "":
		return Permanent(errors.New("the request names no trigger: set ApplyRequest.Trigger"))
	case r.Recovered != nil && (r.Recovered.Started.Token == "" || r.Recovered.Applier == ApplierRef{}):
		return Permanent(fmt.Errorf("trigger %s: the recovered operation has no token or names no applier: hand over what the trigger records", r.Trigger))
	case r.Recovered != nil:
		return nil
	case len(r.Targets) == 0:
		return Permanent(fmt.Errorf("trigger %s: the request names no target: set ApplyRequest.Targets", r.Trigger))
	}
	const token = "not made yet"
	if err := (Ask{Want: r.Want, Commit: r.Commit, Reason: r.Reason, Token: token}).Validate(); err != nil {
		return fmt.Errorf("trigger %s: %w", r.Trigger, err)
	}
	return nil
}

// RequestApply starts one attempt and returns at once. The attempt reports to req.Report: once when it asked nothing or
// started nothing, or as its operation moves until it completes.
//
// The end of ctx abandons the attempt. It reports nothing more, but what is on its way just then, and starts nothing; an
// operation that it started is followed on to its end, and its record completed, and a Kustomization that it resumed is
// suspended at once. So ctx is to outlive the call that makes the request, such as a Reconcile. A process that stops need not
// end it: an attempt that is still out when the dispatcher stops is left to the next process, and reports nothing more
// either.
//
// A request that lacks what it needs fails for good (IsPermanent). Before Start, an attempt fails at once, except one with
// Recovered, which waits for Start: a worker recovers once, and the operation may have a Kustomization resumed. After the
// stop, both fail at once.
func (d *Dispatcher) RequestApply(ctx context.Context, req ApplyRequest) {
	req.Targets, req.Recovered = slices.Clone(req.Targets), req.Recovered.DeepCopy() // The caller's own may change.
	a := newAttempt(ctx, d, req)
	d.mu.Lock()
	defer d.mu.Unlock()
	recovers, stopped := req.Recovered != nil, d.running != nil && d.running.Err() != nil
	switch {
	case recovers && d.following[keyOf(req.Trigger, req.Recovered.Started.Token)] > 0:
		go a.report(Report{End: EndAskedNothing, Err: fmt.Errorf("%w: the operation %s of trigger %s is followed already",
			ErrStale, req.Recovered.Started.Token, req.Trigger)})
		return
	case stopped, d.running == nil && !recovers:
		go a.report(Report{End: EndNotStarted, Err: fmt.Errorf("trigger %s: %w", req.Trigger, errNotRunning)})
		return
	case recovers:
		d.countFollowerLocked(keyOf(req.Trigger, req.Recovered.Started.Token), 1)
	}
	if d.running == nil {
		d.waiting = append(d.waiting, a)
	} else {
		d.launch(a)
	}
}
