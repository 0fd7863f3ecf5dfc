package flux

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Prefetch asks source-controller to make the GitRepository checked fetch now, unless it holds commit already
// (ErrNotPrefetched), and returns without waiting. A Kustomization ref that applies another source now is
// ErrPrefetchHeld: nobody looked at that source's consumers. The fetch applies nothing to a held Kustomization, but
// to every other consumer of the source. A commit that is not a full hash is refused, permanent.
func (c *Client) Prefetch(ctx context.Context, ref, checked types.NamespacedName, commit string) error {
	if commit != "" && !gitref.IsCommit(commit) {
		return applier.Permanent(fmt.Errorf("%s is not asked to fetch: %q is not a full hash of 40 or 64 lower-case hex digits",
			c.named("GitRepository", checked), commit))
	}
	ks, verdict := c.lookAt(ctx, ref)
	if err := verdict.AsError(); err != nil {
		return err
	}
	if ks.source != checked {
		return fmt.Errorf("%w: %s applies %s now, not %s", applier.ErrPrefetchHeld, c.named("Kustomization", ref), ks.describeSource(), checked)
	}
	v, verdict := c.lookAtSource(ctx, ks)
	if err := verdict.AsError(); err != nil {
		return err
	}
	if v.source.holds(commit) {
		return fmt.Errorf("%w: %s holds %s", applier.ErrNotPrefetched, c.named("GitRepository", checked), applier.DescribeCommit(commit))
	}
	if _, err := c.stamp(ctx, v.source); err != nil {
		return fmt.Errorf("%s was not asked to fetch: %w", c.named("GitRepository", checked), err)
	}
	return nil
}
