package applier

import (
	"errors"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
)

// The reasons of a Verdict. They are stable: a host shows them as condition reasons.
const (
	// ReasonSucceeded is an applier that exists, applies a source that can be driven, and may be asked.
	ReasonSucceeded = fluxmeta.SucceededReason
	// ReasonApplierNotFound is no such object in the cluster, or a kind that is not served there; the
	// message says which. One that is being deleted is ReasonDeleting.
	ReasonApplierNotFound = "ApplierNotFound"
	// ReasonUnsupportedSource is a source that cannot be driven: no GitRepository, one that is missing or
	// follows no branch, or an Application with several sources.
	ReasonUnsupportedSource = "UnsupportedSource"
	// ReasonSourceMismatch is a source of another repository or branch than was asked for.
	ReasonSourceMismatch = "SourceMismatch"
	// ReasonAutomatedSyncEnabled is an Argo CD Application that syncs on its own.
	ReasonAutomatedSyncEnabled = "AutomatedSyncEnabled"
	// ReasonSuspendOwnedElsewhere is a Flux Kustomization whose spec.suspend another field manager
	// applies, and would set again after every write of ours.
	ReasonSuspendOwnedElsewhere = "SuspendOwnedElsewhere"
	// ReasonReconcileSkipped is an applier that its controller is told to pass over.
	ReasonReconcileSkipped = "ReconcileSkipped"
	// ReasonForbidden is an identity that may not read or write what a request needs. Credentials that
	// the API server does not accept (401) are ReasonCheckFailed: they may only have expired. kube-apiserver answers it to
	// everybody for a second after each start, until it has read its roles (measured with 1.36.3).
	ReasonForbidden = "Forbidden"
	// ReasonCheckFailed is a check that could not complete. It says nothing about the applier.
	ReasonCheckFailed = fluxmeta.FailedReason
)

// Verdict is the answer of [Client.Validate].
type Verdict struct {
	// OK is whether the applier may be asked.
	OK bool
	// Reason is one of the constants, or a word of a custom backend's own.
	Reason string
	// Message is for people, whatever the verdict. It names the object and its cluster, and says what is wrong and
	// what would mend it.
	Message string
	// Err is set with ReasonCheckFailed: the read that failed. A host may prefer to keep the verdict it
	// already shows over replacing a known answer with "could not tell". It is nil with every other reason, also with
	// ReasonForbidden for a read that the API server forbade: that is an answer, which Message repeats. Only in the VerdictError of a
	// Request whose write the API server forbade is it that answer.
	Err error
	// Source is what the applier applies from, where Validate could read it, whatever the verdict.
	Source *Source
}

// VerdictError is a request that was refused for a reason that Validate gives too.
//
// It is permanent (see [IsPermanent]) unless the reason is ReasonCheckFailed.
type VerdictError struct {
	Verdict Verdict
}

// Error returns the verdict's message.
func (e *VerdictError) Error() string { return e.Verdict.Message }

// Unwrap returns the read that failed, or the answer to a write that was forbidden, if that is the reason.
func (e *VerdictError) Unwrap() error { return e.Verdict.Err }

// AsError returns nil for a verdict that is OK, and otherwise a [VerdictError], marked as permanent unless the
// check could not complete.
func (v Verdict) AsError() error {
	switch {
	case v.OK:
		return nil
	case v.Reason == ReasonCheckFailed:
		return &VerdictError{Verdict: v}
	default:
		return Permanent(&VerdictError{Verdict: v})
	}
}

// VerdictReason returns the reason of the [VerdictError] in err, or "" when it holds none.
func VerdictReason(err error) string {
	var refused *VerdictError
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.Verdict.Reason
}
