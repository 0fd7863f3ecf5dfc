package flux

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Progress reports how far the operation s has come, and suspends a Kustomization that it resumed once its run is
// over, so that it is never left resumed:
//
//   - Requested, then Running, until the run that read the token has ended. Flux reports the token as handled at the end of
//     that run, however it ended, and runs of one object never overlap. A token that somebody stamped over it stands in
//     for it: its run began after the resume.
//   - Settling once the Kustomization is suspended again, with a token of its own (Started.SuspendToken).
//   - Succeeded or Failed once that suspend, or a token stamped over it, is handled. What stands then is the
//     outcome: Ready, its reason, and lastAppliedRevision, if status.history or Ready show that something ran since the
//     request. A newer artifact may have been applied before the suspend landed; then that is what is reported.
//
// An Overdue operation is suspended at once. That stops no run that is going on, but what would follow it. So is a
// Recovered or Unconfirmed one whose token is nowhere to be seen: it was never resumed, or its token was stamped
// over, and what ran since tells. A Kustomization that somebody resumed after the suspend is suspended again.
//
// The operation ends without a suspend if the Kustomization is gone, replaced or being deleted, or if another manager
// applies its spec.suspend; the reason says which.
//
// A Live operation (OutcomeStamped) ends once its token, or one stamped over it, is handled and Ready is known. A Recovered one
// whose own token is not the one handled ends once it is Overdue: the process that recorded it may live, and stamp it yet.
// Nothing is written for it.
func (c *Client) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	named := c.named("Kustomization", ref)
	switch {
	case s.Outcome == applier.OutcomeCurrent:
		return applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonCurrent, AppliedCommit: s.Commit}, nil
	case s.Outcome != applier.OutcomeResumed && s.Outcome != applier.OutcomeStamped:
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: the operation's outcome %q is not one of package flux", named, s.Outcome))
	case s.Token == "":
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: the operation has no token: it is not one of Request", named))
	}
	before, known, err := parseBaseline(s.Baseline)
	if err != nil {
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: %w", named, err))
	}
	o := operation{named: named, options: c.options, started: *s, before: before, known: known}
	shown := s.Observed != nil
	ks, end, err := c.observe(ctx, ref, s, o)
	token := ""
	for try := 0; ; try++ {
		if err != nil || end.State.Ended() {
			return end, err
		}
		progress, suspend := o.where(ks)
		if shown && o.mayHaveBegun(ks, progress) {
			shown = false
			ks, end, err = c.observe(ctx, ref, s, o)
			continue
		}
		if !suspend {
			return c.explain(ctx, ks, o, progress)
		}
		if try > conflictTries {
			return applier.Progress{}, fmt.Errorf("%s could not be suspended again in %d tries", o.named, try)
		}
		if token == "" {
			token = c.options.Tokens()
		}
		p := patch{of: ks.object, guarded: try < conflictTries, token: token, suspend: new(true)}
		written, refused := c.apply(ctx, kustomizationKind, p)
		switch {
		case refused == nil:
			if ks, err = parseKustomization(written); err != nil {
				err = fmt.Errorf("%s: %w", o.named, err)
			}
		case mayChange(refused), apierrors.IsInvalid(refused):
			ks, end, err = c.observe(ctx, ref, s, o)
		default:
			err = fmt.Errorf("%s was not suspended again: %w", o.named, refused)
		}
		if err == nil && ks.requested == token {
			s.SuspendToken, o.started.SuspendToken = token, token
		}
	}
}

// observe returns the Kustomization ref as s.Observed shows it, unless that may be older than a write of this
// operation, or as read, or the end of an operation whose Kustomization is no more.
func (c *Client) observe(
	ctx context.Context, ref types.NamespacedName, s *applier.Started, o operation,
) (kustomization, applier.Progress, error) {
	u := s.Observed
	s.Observed = nil
	if u == nil || o.outdated(u) {
		var err error
		u, err = c.get(ctx, kustomizationKind, ref)
		switch {
		case applier.AbsenceOf(err) == applier.AbsenceNotFound:
			return kustomization{}, o.failed(applier.ReasonGone, "%s no longer exists", o.named), nil
		case err != nil:
			return kustomization{}, applier.Progress{}, fmt.Errorf("cannot read %s: %w", o.named, err)
		}
	}
	ks, err := parseKustomization(u)
	switch {
	case err != nil:
		return ks, applier.Progress{}, fmt.Errorf("%s: %w", o.named, err)
	case s.UID != "" && ks.uid != s.UID:
		return ks, o.failed(applier.ReasonReplaced, "%s is another object of that name now", o.named), nil
	case ks.deleting:
		return ks, o.failed(applier.ReasonDeleting, "%s is being deleted: it is not suspended again, which would keep its objects", o.named), nil
	}
	return ks, applier.Progress{}, nil
}

// outdated reports whether what a watch showed may be older than a write of this operation: a watch begins with what
// an API server has in its cache. It is read again then, because what stood before the request could pass for its
// end.
func (o operation) outdated(u *unstructured.Unstructured) bool {
	version := u.GetResourceVersion()
	if o.known && (version == o.before.ResourceVersion || applier.ResourceVersionBefore(version, o.before.ResourceVersion)) {
		return true
	}
	if o.started.SuspendToken == "" {
		return false
	}
	ks, err := parseKustomization(u)
	return err == nil && ks.requested != o.started.SuspendToken && ks.handled != o.started.SuspendToken
}

// mayHaveBegun reports whether an end that a watch showed of an operation that may not have been started can be from before
// it was. It is read again then: the record of an operation does not tell from which state on it may stand.
func (o operation) mayHaveBegun(ks kustomization, end applier.Progress) bool {
	return end.State.Ended() && o.doubtful() && o.started.SuspendToken == "" && ks.handled != o.started.Token
}
