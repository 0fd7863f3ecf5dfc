package applier

import (
	"context"
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// The reasons of the Events that a [Dispatcher] records on targets. They are stable.
const (
	// EventReasonApplyRequested is a request that reached the applier, or may have: the message says which.
	EventReasonApplyRequested = "ApplyRequested"
	// EventReasonApplyRequestFailed is the first attempt of a run of them that failed before it started anything. It is
	// not repeated until a request has reached the applier again, or it needed none, or none has failed for a day.
	EventReasonApplyRequestFailed = "ApplyRequestFailed"
	// EventReasonApplyFailed is the first operation of a run of them that ended Failed, abandoned ones included. It is not
	// repeated until one has succeeded, or none has failed for a day.
	EventReasonApplyFailed = "ApplyFailed"
	// EventReasonApplyUnresolved is an operation that did not complete within UnresolvedAfter. It is still followed.
	EventReasonApplyUnresolved = "ApplyUnresolved"
)

// Events records Events on objects of the host's. The EventRecorder of k8s.io/client-go/tools/record is one. It is
// called from several goroutines and must not block.
type Events interface {
	// Event records one. The type is Normal or Warning, as in the Kubernetes API.
	Event(object runtime.Object, eventtype, reason, message string)
}

// The types of an Event; k8s.io/api/core/v1 has the same.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)

// event records an Event on targets, and reports whether there was any to record it on.
func (a *attempt) event(targets []Target, eventtype, reason, message string) (told bool) {
	if a.d.Events == nil {
		return false
	}
	for _, target := range targets {
		if target.Object != nil {
			a.d.Events.Event(target.Object, eventtype, reason, message)
			told = true
		}
	}
	return told
}

// eventOnRecorded records a warning on the targets that the operation was asked for, as they are now, and reports whether
// there was any.
func (a *attempt) eventOnRecorded(reason, message string) (told bool) {
	if a.d.Events == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(a.running, orDefault(a.d.AttemptTimeout, DefaultAttemptTimeout))
	defer cancel()
	var targets []Target
	for _, ref := range a.operation.Targets {
		target, err := a.d.store.Target(ctx, ref)
		switch {
		case errors.Is(err, ErrRecordGone):
		case err != nil:
			a.log.V(1).Info("An Event could not be recorded", "target", ref.String(), "reason", err.Error())
		default:
			targets = append(targets, target)
		}
	}
	return a.event(targets, eventWarning, reason, message)
}

// warnOnce warns, unless the trigger is in a run of failures that was warned of. Warn reports whether anybody was told.
func (a *attempt) warnOnce(run map[TriggerRef]time.Time, warn func() bool) {
	if a.d.failing(run, a.req.Trigger, true) && !warn() {
		a.d.failing(run, a.req.Trigger, false)
	}
}

// runLasts is for how long after its last failure a run of failures goes on. Nobody says so when a trigger is gone.
const runLasts = 24 * time.Hour

// failing records whether a trigger is in a run of failures of one sort, and reports whether that is news.
func (d *Dispatcher) failing(run map[TriggerRef]time.Time, trigger TriggerRef, failed bool) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, before := run[trigger]
	if failed {
		run[trigger] = time.Now()
	} else {
		delete(run, trigger)
	}
	return failed != before
}

// forgetRuns forgets the runs of failures that are over.
func (d *Dispatcher) forgetRuns() {
	d.mu.Lock()
	defer d.mu.Unlock()
	over := func(_ TriggerRef, last time.Time) bool { return time.Since(last) > runLasts }
	maps.DeleteFunc(d.requestFailed, over)
	maps.DeleteFunc(d.applyFailed, over)
}
