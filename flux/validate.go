package flux

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Validate says whether the Kustomization ref exists, applies a GitRepository that follows a branch, may be patched
// by this identity together with that GitRepository, and has no other field manager that applies its spec.suspend.
// The last is checked last: a host that only makes Live asks, which never write spec.suspend, may pass over
// ReasonSuspendOwnedElsewhere.
//
// The verdict's Source names the GitRepository, its URL and the branch that it follows.
func (c *Client) Validate(ctx context.Context, ref types.NamespacedName) applier.Verdict {
	v, verdict := c.look(ctx, ref)
	if !verdict.OK {
		return verdict
	}
	if denied := c.mayWrite(ctx, v); !denied.OK {
		denied.Source = verdict.Source
		return denied
	}
	if owned := c.suspendIsFree(v.ks); !owned.OK {
		owned.Source = verdict.Source
		return owned
	}
	return verdict
}

// view is a Kustomization and the GitRepository that it applies, as read one after the other.
type view struct {
	ks     kustomization
	source gitRepository
	branch string
}

// look reads the Kustomization ref and its source, and judges whether they can be driven.
func (c *Client) look(ctx context.Context, ref types.NamespacedName) (view, applier.Verdict) {
	ks, verdict := c.lookAt(ctx, ref)
	if !verdict.OK {
		return view{}, verdict
	}
	return c.lookAtSource(ctx, ks)
}

// lookAt reads the Kustomization ref alone.
func (c *Client) lookAt(ctx context.Context, ref types.NamespacedName) (kustomization, applier.Verdict) {
	ks, err := c.kustomization(ctx, ref)
	if err != nil {
		return ks, c.unreadable(kustomizationKind, ref, err, applier.ReasonApplierNotFound)
	}
	if ks.deleting {
		return ks, refuse(applier.ReasonDeleting, "%s is being deleted", c.named("Kustomization", ref))
	}
	return ks, applier.Verdict{OK: true}
}

// lookAtSource reads the source of ks.
func (c *Client) lookAtSource(ctx context.Context, ks kustomization) (view, applier.Verdict) {
	named := c.named("Kustomization", ks.name)
	if ks.sourceKind != gitRepositoryKind.name || (ks.sourceGroup != "" && ks.sourceGroup != gitRepositories.Group) {
		return view{ks: ks}, refuse(applier.ReasonUnsupportedSource,
			"%s applies %s: only a GitRepository of %s can be asked for a commit", named, ks.describeSource(), gitRepositories.Group)
	}
	repository, err := c.gitRepository(ctx, ks.source)
	if err != nil {
		return view{ks: ks}, about(named, c.unreadable(gitRepositoryKind, ks.source, err, applier.ReasonUnsupportedSource))
	}
	source := &applier.Source{GitRepository: ks.source, URL: gitref.Redact(repository.url)}
	branch, err := repository.ref.followed()
	if err != nil {
		verdict := refuse(applier.ReasonUnsupportedSource, "%s, which %s applies, follows no branch: %v. Set spec.ref.branch alone",
			c.named("GitRepository", ks.source), named, err)
		verdict.Source = source
		return view{ks: ks, source: repository}, verdict
	}
	source.Revision = branch
	return view{ks: ks, source: repository, branch: branch},
		applier.Verdict{OK: true, Reason: applier.ReasonSucceeded, Message: named + " can be asked to apply", Source: source}
}

// describeSource names the source of ks, of whatever kind.
func (ks kustomization) describeSource() string {
	if ks.sourceKind == "" {
		return "no source"
	}
	return fmt.Sprintf("%s %s", schema.GroupKind{Group: ks.sourceGroup, Kind: ks.sourceKind}, ks.source)
}

// bound judges whether v applies what is wanted.
func (c *Client) bound(v view, want applier.Binding) applier.Verdict {
	branch, err := gitref.Branch(want.Branch)
	if err == nil && branch == v.branch && c.options.SameRepository(v.source.url, want.Repository) {
		return applier.Verdict{OK: true}
	}
	return refuse(applier.ReasonSourceMismatch, "%s applies branch %s of %s, not branch %s of %s",
		c.named("Kustomization", v.ks.name), v.branch, gitref.Redact(v.source.url), want.Branch, gitref.Redact(want.Repository))
}

// suspendIsFree judges whether spec.suspend is nobody else's to apply.
func (c *Client) suspendIsFree(ks kustomization) applier.Verdict {
	manager := c.options.appliedElsewhere(ks.owners)
	if manager == "" {
		return applier.Verdict{OK: true}
	}
	return refuse(applier.ReasonSuspendOwnedElsewhere,
		"the spec.suspend of %s is applied by field manager %s, which would set it again: remove spec.suspend from the manifest that it applies; "+
			"if it is another program that holds it, let that release it; if it is a former name of this one, list it in FormerFieldManagers",
		c.named("Kustomization", ks.name), manager)
}

// mayWrite judges whether this identity may write what a request writes.
func (c *Client) mayWrite(ctx context.Context, v view) applier.Verdict {
	if verdict := c.mayPatch(ctx, kustomizationKind, v.ks.name); !verdict.OK {
		return verdict
	}
	if verdict := c.mayPatch(ctx, gitRepositoryKind, v.ks.source); !verdict.OK {
		return about(c.named("Kustomization", v.ks.name), verdict)
	}
	return applier.Verdict{OK: true}
}

func (c *Client) mayPatch(ctx context.Context, k kind, ref types.NamespacedName) applier.Verdict {
	allowed, err := c.options.Access(ctx, authorizationv1.ResourceAttributes{
		Verb:      "patch",
		Group:     k.resource.Group,
		Version:   k.resource.Version,
		Resource:  k.resource.Resource,
		Namespace: ref.Namespace,
		Name:      ref.Name,
	})
	named := c.named(k.name, ref)
	switch {
	case err != nil:
		return unchecked(fmt.Errorf("cannot tell whether this identity may patch %s: %w", named, err))
	case !allowed:
		return refuse(applier.ReasonForbidden, "this identity may not patch %s: grant it the verb patch on %s", named, k.resource.GroupResource())
	}
	return applier.Verdict{OK: true}
}

// unreadable is the verdict on an object that could not be read; absent is the reason where it is not there.
func (c *Client) unreadable(k kind, ref types.NamespacedName, err error, absent string) applier.Verdict {
	named := c.named(k.name, ref)
	switch applier.AbsenceOf(err) {
	case applier.AbsenceNotFound:
		return refuse(absent, "%s does not exist", named)
	case applier.AbsenceNotServed:
		return refuse(absent, "%s: the cluster does not serve %s %s: is Flux 2.7 or later installed there?",
			named, k.resource.GroupResource(), k.resource.Version)
	case applier.AbsenceForbidden:
		return refuse(applier.ReasonForbidden, "this identity may not read %s: grant it the verb get on %s: %v", named, k.resource.GroupResource(), err)
	default:
		return unchecked(fmt.Errorf("cannot read %s: %w", named, err))
	}
}

// about makes a verdict on a source name the Kustomization that applies from it.
func about(named string, verdict applier.Verdict) applier.Verdict {
	verdict.Message = named + ": " + verdict.Message
	if verdict.Err != nil {
		verdict.Err = fmt.Errorf("%s: %w", named, verdict.Err)
	}
	return verdict
}

// forbidden makes the answer to a write that this identity may not make, or that an admission webhook forbids, the verdict
// that Validate gives. Any other error is returned as it is.
func (c *Client) forbidden(k kind, ref types.NamespacedName, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	verdict := refuse(applier.ReasonForbidden, "this identity may not patch %s: grant it the verb patch on %s: %v",
		c.named(k.name, ref), k.resource.GroupResource(), err)
	verdict.Err = err
	return verdict.AsError()
}

func refuse(reason, format string, args ...any) applier.Verdict {
	return applier.Verdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// unchecked is a check that could not complete.
func unchecked(err error) applier.Verdict {
	return applier.Verdict{Reason: applier.ReasonCheckFailed, Message: err.Error(), Err: err}
}
