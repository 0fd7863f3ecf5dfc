package flux

import (
	"context"
	"fmt"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/applier"
)

// explain completes a progress that the Kustomization alone does not tell, by what its GitRepository holds.
func (c *Client) explain(ctx context.Context, ks kustomization, o operation, p applier.Progress) (applier.Progress, error) {
	pathNotFound := p.Reason == fluxmeta.ArtifactFailedReason && strings.Contains(p.Message, "path not found")
	ranOther := p.Reason == applier.ReasonAppliedOther || p.Reason == applier.ReasonAttemptedOther
	runsAgain := ranOther && o.started.Outcome == applier.OutcomeStamped && !o.started.Overdue && !ks.suspended
	if !pathNotFound && !runsAgain {
		return p, nil
	}
	source, err := c.gitRepository(ctx, ks.source)
	switch {
	case applier.AbsenceOf(err) == applier.AbsenceNotFound:
		return p, nil
	case err != nil:
		return applier.Progress{}, fmt.Errorf("cannot read %s, whose artifact %s applied: %w", c.named("GitRepository", ks.source), o.named, err)
	case pathNotFound:
		return c.explainPath(ks, source, o, p), nil
	case source.holds(o.started.Commit):
		again := fmt.Sprintf("%s runs again: it had not seen the artifact of %s", o.named, applier.DescribeCommit(o.started.Commit))
		return o.progress(applier.StateRunning, again), nil
	}
	return p, nil
}

// explainPath tells apart what Flux calls ArtifactFailed. A path that the artifact does not have is the commit's
// fault, if the artifact is of the commit; lastAttemptedRevision does not name it yet then (kustomize-controller
// v1.9.6, kustomization_controller.go sets it after the path check).
func (c *Client) explainPath(ks kustomization, source gitRepository, o operation, p applier.Progress) applier.Progress {
	if source.holds(o.started.Commit) {
		p.Reason = applier.ReasonPathNotFound
		p.Message = fmt.Sprintf("%s: %s has no such path: %s", o.named, applier.DescribeCommit(o.started.Commit), ks.ready.message)
		return p
	}
	p.Reason = applier.ReasonAttemptedOther
	p.Message = fmt.Sprintf("%s may have run at another commit, because %s holds %s by now, not %s: %s",
		o.named, c.named("GitRepository", ks.source), describeArtifact(source.artifact), applier.DescribeCommit(o.started.Commit), ks.ready.message)
	return p
}
