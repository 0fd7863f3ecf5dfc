package applier

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
)

// The reasons of the Events that a [Dispatcher] records on targets. They are stable.
const (
	// EventReasonApplyRequested is a request that reached the applier, or may have: the message says which.
	EventReasonApplyRequested = "ApplyRequested"
	// EventReasonApplyRequestFailed is the first attempt of a run of them that failed before it started anything. It is
	// not repeated until a request has reached the applier again.
	EventReasonApplyRequestFailed = "ApplyRequestFailed"
	// EventReasonApplyFailed is the first operation of a run of them that ended Failed. It is not repeated until one
	// has succeeded.
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
func (a *attempt) warnOnce(run map[TriggerRef]struct{}, warn func() bool) {
	if a.d.failing(run, a.req.Trigger, true) && !warn() {
		a.d.failing(run, a.req.Trigger, false)
	}
}
