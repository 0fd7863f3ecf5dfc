package applier

import (
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// State is where an operation stands. The zero value is no state: a Progress with it says nothing.
type State string

// The states of an operation. It may skip any but an end, and return to an earlier one until then.
const (
	// StateRequested is a request that the applier has not taken up, as far as it shows.
	StateRequested State = "Requested"
	// StateRunning is an apply that has started or may have.
	StateRunning State = "Running"
	// StateSettling is an apply that is over, and a suspend after it that is not handled yet (Flux).
	StateSettling State = "Settling"
	// StateSucceeded is an end: the applier applied Progress.AppliedRevision.
	StateSucceeded State = "Succeeded"
	// StateFailed is an end: the applier failed, or what it did for this request cannot be known.
	StateFailed State = "Failed"
)

// Ended reports whether an operation in this state is over. Nothing more is to be asked about it.
func (s State) Ended() bool { return s == StateSucceeded || s == StateFailed }

// Reasons of a Progress that are ours. Any other is the applier's own: Flux's Ready reason, Argo CD's phase.
const (
	// ReasonCurrent is Succeeded, in the Progress of Apply, because there was nothing to ask for.
	ReasonCurrent = "Current"
	// ReasonAppliedOther is Succeeded at another revision than the commit asked for.
	ReasonAppliedOther = "AppliedOther"
	// ReasonAttemptedOther is Failed while the applier was at another revision than the commit asked
	// for.
	ReasonAttemptedOther = "AttemptedOther"
	// ReasonPathNotFound is Failed because the commit asked for does not have the applier's path.
	ReasonPathNotFound = "PathNotFound"
	// ReasonNotRun is Failed because the applier did nothing for this request: the write that
	// should start it never took effect, or was undone before the applier saw it.
	ReasonNotRun = "NotRun"
	// ReasonInterrupted is Failed because a run was cut off, and what it applied is unknown.
	ReasonInterrupted = "Interrupted"
	// ReasonSwallowed is Failed because an Argo CD operation that ended in the same moment took the
	// request's place.
	ReasonSwallowed = "Swallowed"
	// ReasonSuperseded is Failed because another operation followed before the end of this one was read, or its
	// record was removed: what it applied is unknown.
	ReasonSuperseded = "Superseded"
	// ReasonGone is Failed because the applier no longer exists.
	ReasonGone = "Gone"
	// ReasonReplaced is Failed because another object has the applier's name now.
	ReasonReplaced = "Replaced"
	// ReasonDeleting is Failed because the applier is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonHealthCheckCanceled is Failed because something newer cancelled the wait for health.
	ReasonHealthCheckCanceled = fluxmeta.HealthCheckCanceledReason
)

// AskAgain reports whether p is a failure that says nothing about the commit: the same request, made anew, may succeed, at once
// or once what Flux waited for is there (DependencyNotReady, ArtifactFailed). A failure without it is the applier's verdict on
// the commit, or needs a change of something else, or leaves nothing to ask.
func (p Progress) AskAgain() bool {
	switch p.Reason {
	case ReasonAttemptedOther, ReasonNotRun, ReasonInterrupted, ReasonSwallowed, ReasonSuperseded, ReasonHealthCheckCanceled,
		fluxmeta.DependencyNotReadyReason, fluxmeta.ArtifactFailedReason:
		return p.State == StateFailed
	}
	return false
}

// Progress is where an operation stands, as the applier's own status shows it.
type Progress struct {
	// State is where it stands.
	State State `json:"state,omitempty"`
	// Reason is a word that a host can act on: one of the constants, or the applier's own. Every end has one.
	Reason string `json:"reason,omitempty"`
	// Message is for people: why an operation failed, what it applied instead of the commit, what it left undone. It names the
	// applier, since it is shown on other objects.
	Message string `json:"message,omitempty"`
	// SuspendToken is that of Started, once it is written.
	SuspendToken string `json:"suspendToken,omitempty"`
	// AppliedRevision is what the applier reports to have applied, in its own spelling, for an
	// operation that Succeeded.
	AppliedRevision string `json:"appliedRevision,omitempty"`
	// AppliedCommit is the commit that AppliedRevision names; empty if it names none.
	AppliedCommit string `json:"appliedCommit,omitempty"`
}
