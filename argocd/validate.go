package argocd

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Validate says whether the Application ref exists, syncs one branch of one Git repository, does not sync on its own,
// and may be updated by this identity. The verdict's Source has its repoURL and targetRevision.
func (c *Client) Validate(ctx context.Context, ref types.NamespacedName) applier.Verdict {
	_, verdict := c.look(ctx, ref)
	if !verdict.OK {
		return verdict
	}
	allowed, err := c.options.Access(ctx, authorizationv1.ResourceAttributes{
		Verb: "update", Group: applications.Group, Version: applications.Version, Resource: applications.Resource,
		Namespace: ref.Namespace, Name: ref.Name,
	})
	denied := applier.Verdict{Source: verdict.Source}
	switch {
	case err != nil:
		denied.Reason = applier.ReasonCheckFailed
		denied.Err = fmt.Errorf("cannot tell whether this identity may update %s: %w", c.named(ref), err)
		denied.Message = denied.Err.Error()
		return denied
	case !allowed:
		denied.Reason = applier.ReasonForbidden
		denied.Message = fmt.Sprintf("this identity may not update %s: grant it the verb update on %s", c.named(ref), applications.GroupResource())
		return denied
	}
	return verdict
}

// look reads the Application ref and judges whether it can be asked.
func (c *Client) look(ctx context.Context, ref types.NamespacedName) (application, applier.Verdict) {
	app, err := c.get(ctx, ref)
	if err != nil {
		return app, c.unreadable(ref, err)
	}
	return app, c.judge(app)
}

func (c *Client) get(ctx context.Context, ref types.NamespacedName) (application, error) {
	u, err := c.resource(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return application{}, err
	}
	return parseApplication(u, c.options.InfoKey)
}

// unreadable is the verdict on an Application that could not be read.
func (c *Client) unreadable(ref types.NamespacedName, err error) applier.Verdict {
	switch applier.AbsenceOf(err) {
	case applier.AbsenceNotFound:
		return refuse(applier.ReasonApplierNotFound, "%s does not exist", c.named(ref))
	case applier.AbsenceNotServed:
		return refuse(applier.ReasonApplierNotFound, "%s: the cluster does not serve %s %s: is Argo CD installed there?",
			c.named(ref), applications.GroupResource(), applications.Version)
	case applier.AbsenceForbidden:
		return refuse(applier.ReasonForbidden, "this identity may not read %s: grant it the verb get on %s: %v", c.named(ref), applications.GroupResource(), err)
	default:
		err = fmt.Errorf("cannot read %s: %w", c.named(ref), err)
		return applier.Verdict{Reason: applier.ReasonCheckFailed, Message: err.Error(), Err: err}
	}
}

// judge says whether app can be asked for one commit.
func (c *Client) judge(app application) applier.Verdict {
	verdict := c.judgeObject(app)
	if verdict.OK {
		verdict = c.judgeSource(app)
	}
	if verdict.OK && app.policy.automated {
		verdict = refuse(applier.ReasonAutomatedSyncEnabled, "%s syncs on its own and would undo a sync of an older commit: "+
			"set spec.syncPolicy.automated.enabled to false, or remove automated", c.named(app.name))
	}
	verdict.Source = &applier.Source{URL: gitref.Redact(app.source.repository), Revision: app.source.targetRevision}
	return verdict
}

func (c *Client) judgeObject(app application) applier.Verdict {
	named := c.named(app.name)
	switch {
	case app.deleting:
		return refuse(applier.ReasonDeleting, "%s is being deleted", named)
	case app.skipped:
		return refuse(applier.ReasonReconcileSkipped, "%s is passed over by its controller: remove the annotation %s", named, skipReconcile)
	}
	return applier.Verdict{OK: true}
}

func (c *Client) judgeSource(app application) applier.Verdict {
	named := c.named(app.name)
	switch {
	case app.hydrated:
		return refuse(applier.ReasonUnsupportedSource, "%s syncs what its source hydrator writes, which no commit of its dry source names", named)
	case app.multiple:
		return refuse(applier.ReasonUnsupportedSource, "%s has spec.sources, of which one commit cannot name the state: use spec.source", named)
	case !app.source.present:
		return refuse(applier.ReasonUnsupportedSource, "%s has no spec.source", named)
	case app.source.chart != "":
		return refuse(applier.ReasonUnsupportedSource, "%s syncs the Helm chart %s, which no commit names", named, app.source.chart)
	case strings.HasPrefix(app.source.repository, "oci://"):
		return refuse(applier.ReasonUnsupportedSource, "%s syncs an OCI artifact, which no commit names", named)
	}
	if _, err := gitref.Branch(app.source.targetRevision); err != nil {
		return refuse(applier.ReasonUnsupportedSource, "the spec.source.targetRevision of %s: %v", named, err)
	}
	return applier.Verdict{OK: true, Reason: applier.ReasonSucceeded, Message: named + " can be asked to sync"}
}

// bound judges whether app syncs what is wanted.
func (c *Client) bound(app application, want applier.Binding) applier.Verdict {
	if gitref.SameBranch(app.source.targetRevision, want.Branch) && c.options.SameRepository(app.source.repository, want.Repository) {
		return applier.Verdict{OK: true}
	}
	return refuse(applier.ReasonSourceMismatch, "%s syncs %s of %s, not branch %s of %s", c.named(app.name),
		app.source.targetRevision, gitref.Redact(app.source.repository), want.Branch, gitref.Redact(want.Repository))
}

func refuse(reason, format string, args ...any) applier.Verdict {
	return applier.Verdict{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
