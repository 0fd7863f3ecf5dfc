package flux

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
)

// whereLive says where a Live operation stands. Its Kustomization is not suspended, so it goes on reconciling for
// other reasons too: Ready Unknown under a handled token is the next run, whose outcome then stands in. So is a run
// at another revision while the source holds the commit (see explain): kustomize-controller learns of the token and
// of the artifact by two watches, and runs again once it has seen the other.
func (o operation) whereLive(ks kustomization) applier.Progress {
	known := ks.ready.is(metav1.ConditionTrue) || ks.ready.is(metav1.ConditionFalse) || (ks.ready.status == "" && o.started.Overdue)
	switch {
	case o.liveHandled(ks) && (known || ks.suspended):
		return o.liveOutcome(ks)
	case o.liveHandled(ks):
		// Without any Ready, what handled it is the first pass over a new object, which only adds the finalizer.
		return o.progress(applier.StateRunning, fmt.Sprintf("%s: %s", o.named, ks.ready.message))
	case o.liveLost(ks) && ks.requested == "" && (!o.known || o.before.ranSince(ks) || o.before.judgedSince(ks)):
		return o.failed(applier.ReasonSuperseded,
			"the token of this request was removed from %s, and whether a run since was for it is not known", o.named)
	case o.liveLost(ks):
		return o.failed(applier.ReasonNotRun, "%s did not run for this request: its token is no longer asked for", o.named)
	default:
		return o.beforeEnd(ks)
	}
}

// liveHandled reports whether the token was handled, or the one that was stamped over it and is asked for now. What
// was handled in between is not looked at: before a live stamp, runs for tokens nobody knows may have been going on.
// A token that stands where the record of another process's operation is all that is known may be from before its stamp, until that
// can no longer come.
func (o operation) liveHandled(ks kustomization) bool {
	switch {
	case ks.handled == o.started.Token:
		return true
	case o.started.Recovered && !o.started.Overdue:
		return false
	}
	return ks.requested != o.started.Token && ks.handledLatest() && (!o.known || fingerprint(ks.requested) != o.before.Requested)
}

// liveOutcome is that of a held operation, except that a failure needs no other sign of a run than the handled token,
// since stamping makes no new generation.
func (o operation) liveOutcome(ks kustomization) applier.Progress {
	if ks.ready.is(metav1.ConditionFalse) && !ks.suspended {
		return o.refused(ks)
	}
	return o.outcome(ks)
}

// liveLost reports whether the token is neither asked for nor ever will be handled.
func (o operation) liveLost(ks kustomization) bool {
	if ks.requested == o.started.Token {
		return false
	}
	if o.started.Overdue && ks.requested == "" {
		return true
	}
	if !o.doubtful() || !o.known || fingerprint(ks.requested) != o.before.Requested {
		return false
	}
	// Nobody stamped anything since. A stamp that got no answer carried the resourceVersion, so it can land no more once
	// that has moved. A record was made before the stamp read the object a last time, so there only time tells: no
	// request is on its way for as long as it takes to be overdue.
	return o.started.Overdue || (!o.started.Recovered && ks.resourceVersion != o.before.ResourceVersion)
}
