package fake

import (
	"context"
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
)

const sourceGroup = "source.toolkit.fluxcd.io"

// announce writes the Events of a fetch that succeeded: what is new, that a failure is over, that nothing has changed. Before is
// the artifact that there was.
func (c *sourceController) announce(ctx context.Context, g *managed, before map[string]any, found checkout) {
	stored, _ := g.status["artifact"].(map[string]any)
	unchanged := before["revision"] == found.revision
	// A commit that is named by its hash is always fetched; otherwise only the name of one that has not changed is looked at.
	looked := unchanged && refOf(g).commit == ""
	if unchanged && !looked {
		c.normal(ctx, g, nil, "ArtifactUpToDate", fmt.Sprintf("artifact up-to-date with remote revision: '%s'", found.revision))
	}
	what := found.subject
	if looked {
		what = found.revision
	}
	message := fmt.Sprintf("stored artifact for commit '%s'", what)
	switch {
	case before["digest"] != stored["digest"]:
		c.normal(ctx, g, stored, "NewArtifact", message)
	case conditionsOf(g.object).has(fetchFailedCondition):
		c.normal(ctx, g, stored, fluxmeta.SucceededReason, message)
	}
	if looked {
		c.normal(ctx, g, nil, "GitOperationSucceeded", fmt.Sprintf("no changes since last reconciliation: observed revision '%s'", found.revision))
	}
}

// normal writes an Event that nothing is wrong with, about an artifact if one is given.
func (c *sourceController) normal(ctx context.Context, g *managed, artifact map[string]any, reason, message string) {
	annotations := map[string]string{}
	for _, name := range []string{"revision", "digest"} {
		if value, ok := artifact[name].(string); ok {
			annotations[sourceGroup+"/"+name] = value
		}
	}
	c.events.event(ctx, g.object, annotations, corev1.EventTypeNormal, reason, message)
}
