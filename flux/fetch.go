package flux

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

// lostStampWait is how long a fetch is waited for that may not have been asked for, because the answer was lost.
const lostStampWait = 10 * time.Second

// fetch makes the GitRepository source hold the commit: it asks source-controller to fetch, and waits for that fetch.
func (r *request) fetch(ctx context.Context, source gitRepository) error {
	named, commit := r.client.named("GitRepository", source.name), applier.DescribeCommit(r.ask.Commit)
	if source.suspended {
		return fmt.Errorf("%s is not asked: %s is suspended and does not hold %s: resume it", r.named, named, commit)
	}
	if !r.ask.IsCurrent() {
		return r.stale()
	}
	token, err := r.client.stamp(ctx, source)
	if errors.Is(err, applier.ErrUnconfirmed) {
		waiting, cancel := context.WithTimeout(ctx, lostStampWait)
		defer cancel()
		ctx, err = waiting, nil
	}
	last := source
	if err == nil {
		last, err = r.awaitFetch(ctx, source, token)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s is not asked: %s did not fetch %s: %w", r.named, named, commit, err)
	case last.holds(r.ask.Commit):
		return nil
	case !r.ask.IsCurrent():
		return fmt.Errorf("%w, and %s holds %s", r.stale(), named, describeArtifact(last.artifact))
	case last.ready.is(metav1.ConditionFalse):
		return fmt.Errorf("%s is not asked: %w: %s could not fetch %s: %s: %s",
			r.named, applier.ErrNotFetched, named, commit, last.ready.reason, last.ready.message)
	default:
		return fmt.Errorf("%s is not asked: %w: %s fetched %s, not %s: is it pushed to the branch, and still the newest there?",
			r.named, applier.ErrNotFetched, named, describeArtifact(last.artifact), commit)
	}
}

// awaitFetch waits until source holds the commit, or the fetch that token asked for is over.
func (r *request) awaitFetch(ctx context.Context, source gitRepository, token string) (last gitRepository, err error) {
	err = r.client.await(ctx, gitRepositoryKind, source.name, func(u *unstructured.Unstructured) (bool, error) {
		if applier.ResourceVersionBefore(u.GetResourceVersion(), source.resourceVersion) {
			return false, nil
		}
		var err error
		if last, err = parseGitRepository(u); err != nil {
			return false, err
		}
		if last.uid != source.uid {
			return false, errors.New("it was replaced meanwhile")
		}
		return last.holds(r.ask.Commit) || last.fetched(token, source), nil
	})
	return last, err
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
		err = fmt.Errorf("it is gone or was replaced: %w", err)
	}
	return token, c.forbidden(gitRepositoryKind, source.name, err)
}

// lookForMissingBranch makes Flux look for a branch that the remote does not carry, and report it.
func (r *request) lookForMissingBranch(ctx context.Context, source gitRepository) (applier.Started, error) {
	if !r.ask.IsCurrent() {
		return applier.Started{}, r.stale()
	}
	if _, err := r.client.stamp(ctx, source); err != nil {
		return applier.Started{}, fmt.Errorf("%s: %s was not made to look for its branch: %w", r.named, r.client.named("GitRepository", source.name), err)
	}
	return applier.Started{Outcome: applier.OutcomeCurrent}, nil
}

func describeArtifact(revision string) string {
	if revision == "" {
		return "no artifact"
	}
	return revision
}
