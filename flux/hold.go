package flux

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Suspend holds the Kustomization ref: it is suspended under the client's field manager with a new token, which is
// returned. Once Suspension reports it as handled, nothing that started before is still running, and Request may
// resume it.
//
// A held Kustomization does what Flux does for a suspended one, which is nothing: drift is not corrected,
// Kustomizations that depend on it wait from the next revision of their source on, and deleting it leaves its objects
// in the cluster instead of pruning them (kustomize-controller v1.9.6). Release it before it is deleted, if they are
// to go with it.
//
// A suspend that somebody made by an update (flux suspend, kubectl patch) is taken over; Release takes it back. A
// spec.suspend that another manager applies is refused with ReasonSuspendOwnedElsewhere.
func (c *Client) Suspend(ctx context.Context, ref types.NamespacedName) (string, error) {
	named := c.named("Kustomization", ref)
	token := c.options.Tokens()
	var first types.UID
	for try := 0; ; try++ {
		ks, verdict := c.lookAt(ctx, ref)
		if verdict.OK {
			verdict = c.suspendIsFree(ks)
		}
		if err := verdict.AsError(); err != nil {
			return "", err
		}
		switch {
		case ks.requested == token:
			return token, nil
		case first != "" && ks.uid != first:
			return "", fmt.Errorf("%s was not suspended: it was replaced meanwhile", named)
		}
		first = ks.uid
		guarded := try < conflictTries
		_, err := c.apply(ctx, kustomizationKind, patch{of: ks.object, guarded: guarded, token: token, suspend: new(true)})
		switch {
		case err == nil:
			return token, nil
		case guarded && mayChange(err):
		default:
			return token, fmt.Errorf("%s was not suspended: %w", named, c.forbidden(kustomizationKind, ref, err))
		}
	}
}

// Suspension reads how the Kustomization ref stands.
func (c *Client) Suspension(ctx context.Context, ref types.NamespacedName) (applier.Suspension, error) {
	ks, err := c.kustomization(ctx, ref)
	if err != nil {
		return applier.Suspension{}, c.unreadable(kustomizationKind, ref, err, applier.ReasonApplierNotFound).AsError()
	}
	return applier.Suspension{
		Suspended: ks.suspended,
		Held:      c.options.holds(ks),
		Handled:   ks.handledLatest(),
		Applied:   ks.lastApply(),
	}, nil
}

// lastApply is what the last run reported, whoever asked for it.
func (ks kustomization) lastApply() applier.Progress {
	p := applier.Progress{Reason: ks.ready.reason, Message: ks.ready.message}
	switch {
	case ks.ready.is(metav1.ConditionTrue):
		p.State = applier.StateSucceeded
		p.AppliedRevision = ks.lastApplied
		p.AppliedCommit = gitref.CommitOf(ks.lastApplied)
	case ks.ready.is(metav1.ConditionFalse):
		p.State = applier.StateFailed
	case ks.ready.is(metav1.ConditionUnknown):
		p.State = applier.StateRunning
	}
	return p
}

// Release hands the Kustomization ref back to Flux: it drops what the client's field managers hold of it, so
// spec.suspend is unset, and Flux reconciles at once and then at its interval. It returns the field manager that
// still keeps the Kustomization suspended, or "". A Kustomization that is gone needs no release.
//
// Who applies spec.suspend keeps it. Whoever updated it loses it, because a field that an update and an apply share stays
// after the apply is dropped (measured on kube-apiserver 1.36): it is first set to false, which takes it from
// every owner, and then dropped. So a flux suspend from before, or from while the Kustomization was held, ends with the
// hold.
//
// A Suspend that got no answer is to be repeated until it is answered before the release, as after a crash: that moves the
// resourceVersion that the one before carried. Only one that met five conflicts carried none; it can be made for a minute.
func (c *Client) Release(ctx context.Context, ref types.NamespacedName) (string, error) {
	named := c.named("Kustomization", ref)
	for try := 0; ; try++ {
		ks, err := c.kustomization(ctx, ref)
		switch {
		case applier.AbsenceOf(err) == applier.AbsenceNotFound:
			return "", nil
		case err != nil:
			return "", c.unreadable(kustomizationKind, ref, err, applier.ReasonApplierNotFound).AsError()
		}
		p, more := c.releasing(ks)
		if !more {
			return keeper(ks), nil
		}
		if try == maxReleaseWrites {
			return "", fmt.Errorf("%s was not released: it changed at each of %d tries", named, try)
		}
		_, err = c.apply(ctx, kustomizationKind, p)
		if err != nil && !apierrors.IsConflict(err) {
			return "", fmt.Errorf("%s was not released: %w", named, c.forbidden(kustomizationKind, ref, err))
		}
	}
}

// maxReleaseWrites bounds the writes of a release: one to take the field back, one for each name that holds it, and as
// many again as a guarded write is tried.
const maxReleaseWrites = 2*conflictTries + 2

// releasing returns the next write of a release of ks, if it needs one.
func (c *Client) releasing(ks kustomization) (patch, bool) {
	p := patch{of: ks.object, guarded: true}
	for _, name := range slices.Concat(ks.owners.applied, ks.stampers.applied) {
		if !c.options.ours(name) {
			continue
		}
		if c.options.heldByUs(ks.owners) && ks.suspended && len(ks.owners.updated) > 0 && c.options.appliedElsewhere(ks.owners) == "" {
			p.suspend = new(false)
			return p, true
		}
		p.manager = name
		return p, true
	}
	return p, false
}

// keeper returns who keeps ks suspended, the one that applies the field first.
func keeper(ks kustomization) string {
	names := slices.Concat(ks.owners.applied, ks.owners.updated)
	switch {
	case !ks.suspended:
		return ""
	case len(names) == 0:
		return "(no field manager is recorded)"
	default:
		return names[0]
	}
}
