package flux

import (
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// operation is one operation to be judged by what its Kustomization shows. It reads and writes nothing.
type operation struct {
	named   string
	options Options
	started applier.Started
	// before is what stood before the request, if it is known.
	before baseline
	known  bool
}

// where says where the operation stands, and whether the Kustomization is to be suspended now.
func (o operation) where(ks kustomization) (p applier.Progress, suspend bool) {
	if o.started.Outcome == applier.OutcomeStamped {
		return o.whereLive(ks), false
	}
	if manager := o.options.appliedElsewhere(ks.owners); manager != "" {
		return o.leftTo(manager, ks), false
	}
	if o.takenOver(ks) {
		return o.superseded(ks), false
	}
	switch {
	case !o.suspendedAfter(ks):
		if o.started.SuspendToken != "" || o.started.Overdue || o.runEnded(ks) || o.untraceable(ks) {
			return applier.Progress{}, true
		}
		return o.beforeEnd(ks), false
	case ks.requested == "" && ks.handled != o.started.SuspendToken:
		return applier.Progress{}, true
	case !ks.handledLatest() && ks.handled != o.started.SuspendToken:
		return o.progress(applier.StateSettling, o.named+" is suspended again; that is not handled yet"), false
	default:
		return o.outcome(ks), false
	}
}

// takenOver reports whether another request of this host has ks resumed. It found ks held, so this operation was over
// by then, or never began; and the resumed Kustomization is the other's to suspend.
func (o operation) takenOver(ks kustomization) bool {
	mine := ks.requested == o.started.Token || ks.requested == o.started.SuspendToken
	return !ks.suspended && !mine && o.options.heldByUs(ks.owners) && o.options.heldByUs(ks.stampers)
}

// superseded judges an operation that another request of this host followed before its end was read. Until the
// other's run is over, status.history is still that of this one's.
func (o operation) superseded(ks kustomization) applier.Progress {
	settled := o.started.SuspendToken != "" && ks.handled == o.started.SuspendToken
	if settled && o.known && o.before.ranSince(ks) && ks.ready.is(metav1.ConditionTrue) {
		return o.succeeded(ks)
	}
	return o.failed(applier.ReasonSuperseded,
		"%s was resumed by another request before the end of this one was read, and what it applied is not known", o.named)
}

// suspendedAfter reports whether a suspend of ours came after the resume, or came instead of it so that the resume
// can no longer land. The annotation tells: it differs from what stood before, also where somebody stamped it since,
// and whoever changed it moved the resourceVersion that an unanswered resume carries.
//
// A record tells less: it was made before the resume was decided a last time, and what was stamped in between is not
// after it. So a Recovered operation is suspended once more, guarded by what was just read, and no resume can come
// after that.
func (o operation) suspendedAfter(ks kustomization) bool {
	if !o.options.holds(ks) || ks.requested == o.started.Token {
		return false
	}
	return o.started.SuspendToken != "" || (!o.started.Recovered && o.known && fingerprint(ks.requested) != o.before.Requested)
}

// runEnded reports whether the run that read the token, or one stamped over it, has ended. The resume landed when the
// token last asked for was handled, so a handled token that is neither ours nor what stood before was stamped after
// the resume.
func (o operation) runEnded(ks kustomization) bool {
	switch {
	case ks.handled == o.started.Token:
		return true
	case o.known:
		return ks.handled != "" && fingerprint(ks.handled) != o.before.Handled && fingerprint(ks.handled) != o.before.Requested
	default:
		return ks.requested != o.started.Token && ks.handledLatest()
	}
}

// untraceable reports whether nothing on ks will tell when the run has ended: the annotation was removed, or the
// write that would have set the token may not have been made.
func (o operation) untraceable(ks kustomization) bool {
	return ks.requested == "" || (o.doubtful() && ks.requested != o.started.Token)
}

// doubtful reports whether the write that starts the operation may not have been made.
func (o operation) doubtful() bool { return o.started.Recovered || o.started.Unconfirmed != nil }

// beforeEnd is where an operation stands whose run has not ended, with Flux's own message once there is one.
func (o operation) beforeEnd(ks kustomization) applier.Progress {
	taken := ks.ready.is(metav1.ConditionUnknown)
	if o.known {
		taken = o.before.judgedSince(ks) || o.before.ranSince(ks)
	}
	if taken {
		return o.progress(applier.StateRunning, fmt.Sprintf("%s: %s", o.named, ks.ready.message))
	}
	return o.progress(applier.StateRequested, fmt.Sprintf("%s is asked to apply %s", o.named, applier.DescribeCommit(o.started.Commit)))
}

// outcome judges the operation once nothing of it can be running any more.
func (o operation) outcome(ks kustomization) applier.Progress {
	ran, judged := o.known && o.before.ranSince(ks), !o.known || o.before.judgedSince(ks)
	switch {
	case ks.ready.is(metav1.ConditionTrue) && ran:
		return o.succeeded(ks)
	case ks.ready.is(metav1.ConditionTrue) && !o.known:
		return o.failed(applier.ReasonInterrupted, "%s stands at %s, and whether it was applied for this request is not known", o.named, ks.lastApplied)
	case ks.ready.is(metav1.ConditionFalse) && (ran || judged):
		return o.refused(ks)
	case ran || (judged && ks.ready.status != ""):
		// Also with Ready True: it is written before the revision and the history (kustomize-controller v1.9.6).
		return o.failed(applier.ReasonInterrupted, "the run of %s was interrupted, and what it applied is not known", o.named)
	default:
		return o.failed(applier.ReasonNotRun, "%s did not run for this request", o.named)
	}
}

// succeeded is a run that Flux reports as a success, at whatever revision.
func (o operation) succeeded(ks kustomization) applier.Progress {
	p := o.progress(applier.StateSucceeded, "")
	p.AppliedRevision = ks.lastApplied
	p.AppliedCommit = gitref.CommitOf(ks.lastApplied)
	if p.AppliedCommit == o.started.Commit {
		p.Reason, p.Message = ks.ready.reason, ks.ready.message
		return p
	}
	p.Reason = applier.ReasonAppliedOther
	p.Message = fmt.Sprintf("%s applied %s instead of %s", o.named, ks.lastApplied, applier.DescribeCommit(o.started.Commit))
	return p
}

// refused is a run that Flux reports as a failure, in its own words. One that failed at another revision says nothing
// about the commit.
func (o operation) refused(ks kustomization) applier.Progress {
	switch ks.ready.reason {
	case fluxmeta.BuildFailedReason, fluxmeta.ReconciliationFailedReason, fluxmeta.HealthCheckFailedReason, fluxmeta.PruneFailedReason:
		// Set after lastAttemptedRevision (kustomize-controller v1.9.6, kustomization_controller.go).
		if gitref.CommitOf(ks.lastAttempted) != o.started.Commit {
			return o.failed(applier.ReasonAttemptedOther, "%s ran at %s instead of %s, and failed: %s: %s",
				o.named, ks.lastAttempted, applier.DescribeCommit(o.started.Commit), ks.ready.reason, ks.ready.message)
		}
	}
	return o.failed(ks.ready.reason, "%s: %s", o.named, ks.ready.message)
}

// leftTo is an operation whose Kustomization another manager suspends and resumes by now. Nothing is written.
func (o operation) leftTo(manager string, ks kustomization) applier.Progress {
	note := fmt.Sprintf("%s is not suspended again: field manager %s applies its spec.suspend", o.named, manager)
	switch {
	case o.runEnded(ks) && !ks.ready.is(metav1.ConditionUnknown):
		p := o.outcome(ks)
		p.Message = note + "; " + p.Message
		return p
	case o.untraceable(ks), o.started.Overdue:
		return o.failed(applier.ReasonSuspendOwnedElsewhere, "%s; what was applied for this request is not known", note)
	default:
		p := o.beforeEnd(ks)
		p.Message = note + "; " + p.Message
		return p
	}
}

func (o operation) progress(state applier.State, message string) applier.Progress {
	return applier.Progress{State: state, Message: message, SuspendToken: o.started.SuspendToken}
}

func (o operation) failed(reason, format string, args ...any) applier.Progress {
	p := o.progress(applier.StateFailed, fmt.Sprintf(format, args...))
	p.Reason = reason
	return p
}
