package flux

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

// fetch makes the GitRepository source hold ask.Commit: it asks source-controller to fetch, and waits for that fetch.
func (c *Client) fetch(ctx context.Context, source gitRepository, ask applier.Ask) error {
	named := c.named("GitRepository", source.name)
	if source.suspended {
		return fmt.Errorf("%s is suspended and does not hold %s: resume it", named, applier.DescribeCommit(ask.Commit))
	}
	if !ask.IsCurrent() {
		return fmt.Errorf("%w: %s is no longer to fetch %s", applier.ErrStale, named, applier.DescribeCommit(ask.Commit))
	}
	token, err := c.stamp(ctx, source)
	if err != nil {
		return err
	}
	last := source
	err = c.await(ctx, gitRepositoryKind, source.name, func(u *unstructured.Unstructured) (bool, error) {
		var err error
		if last, err = parseGitRepository(u); err != nil {
			return false, fmt.Errorf("%s: %w", named, err)
		}
		if last.uid != source.uid {
			return false, fmt.Errorf("%s was replaced meanwhile", named)
		}
		return last.holds(ask.Commit) || last.fetched(token, source), nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s did not fetch %s: %w", named, applier.DescribeCommit(ask.Commit), err)
	case last.holds(ask.Commit):
		return nil
	case !ask.IsCurrent():
		return fmt.Errorf("%w: %s holds %s", applier.ErrStale, named, describeArtifact(last.artifact))
	case last.ready.is(metav1.ConditionFalse):
		return fmt.Errorf("%s could not fetch %s: %s: %s", named, applier.DescribeCommit(ask.Commit), last.ready.reason, last.ready.message)
	default:
		return fmt.Errorf("%s fetched %s, not %s: is it pushed to the branch, and is the branch still there?",
			named, describeArtifact(last.artifact), applier.DescribeCommit(ask.Commit))
	}
}

// fetched reports whether the fetch that token asked for, or one asked for over it, is over.
//
// A token that is handled is not enough: the first pass over a new GitRepository, which only adds the finalizer,
// handles it too, and leaves no Ready. Nor is Ready True, which the first fetch writes before the artifact
// (source-controller v1.9.4).
func (g gitRepository) fetched(token string, before gitRepository) bool {
	handled := g.handled == token || (g.requested != token && g.handledLatest() && g.handled != before.handled)
	return handled && (g.ready.is(metav1.ConditionFalse) || (g.ready.is(metav1.ConditionTrue) && g.artifact != ""))
}

// stamp asks source-controller to fetch now and returns the token it did so with. It sets nothing but the annotation.
func (c *Client) stamp(ctx context.Context, source gitRepository) (string, error) {
	token := c.options.Tokens()
	_, err := c.apply(ctx, gitRepositoryKind, patch{of: source.object, token: token})
	if apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		err = errors.Join(errors.New("it is gone or was replaced"), err)
	}
	if err != nil {
		return "", fmt.Errorf("%s was not asked to fetch: %w", c.named("GitRepository", source.name), err)
	}
	return token, nil
}

// lookForMissingBranch makes Flux look for a branch that the remote does not carry, and report it.
func (c *Client) lookForMissingBranch(ctx context.Context, v view, ask applier.Ask) error {
	if !ask.IsCurrent() {
		return fmt.Errorf("%w: %s is no longer to look for its branch", applier.ErrStale, c.named("GitRepository", v.source.name))
	}
	_, err := c.stamp(ctx, v.source)
	return err
}

func describeArtifact(revision string) string {
	if revision == "" {
		return "no artifact"
	}
	return revision
}
