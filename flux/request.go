package flux

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Request starts one apply of ask.Commit by the Kustomization ref: it makes the GitRepository hold the commit, and then
// resumes the Kustomization with ask.Token, in one server-side apply of spec.suspend and
// reconcile.fluxcd.io/requestedAt that carries the UID and the resourceVersion last read. A Live ask stamps the token
// alone.
//
// The Kustomization has to be held: suspended under the client's field manager, with that suspend handled. One that
// is not is refused with ErrNotHeld, permanent; call Suspend first. Where an operation of the same identity is still in
// progress, Request waits for it as long as ask.Wait says, DefaultWait by default. A Live ask refuses a Kustomization that
// is suspended with ErrSuspended, permanent.
//
// A CatchUp or a ForeignCommit asks nothing (OutcomeCurrent) of a held Kustomization that is Ready with the commit applied:
// nothing was applied since, and nothing will be until it is resumed. What others changed in its spec while it was
// held is not seen by that; ask for a Repair. A Live ask always runs.
//
// An artifact that ends on another commit is ErrStale when the decision no longer holds, and otherwise an error that
// names what was fetched: the branch does not lead to the commit, or it was not pushed yet.
//
// An empty commit has nothing to apply: the GitRepository is stamped, so that Flux reports the missing branch itself, and the
// outcome is OutcomeCurrent.
func (c *Client) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	if err := ask.Validate(); err != nil {
		return applier.Started{}, fmt.Errorf("%s: %w", c.named("Kustomization", ref), err)
	}
	v, err := c.awaitHold(ctx, ref, ask)
	if err != nil {
		return applier.Started{}, err
	}
	first := v.ks.uid
	if ask.Commit == "" {
		if err := c.lookForMissingBranch(ctx, v, ask); err != nil {
			return applier.Started{}, err
		}
		return applier.Started{Outcome: applier.OutcomeCurrent}, nil
	}
	if !v.source.holds(ask.Commit) {
		if err := c.fetch(ctx, v.source, ask); err != nil {
			return applier.Started{}, err
		}
		if v, err = c.awaitHold(ctx, ref, ask); err != nil {
			return applier.Started{}, err
		}
	}
	if err := c.stillStands(v, first, ask); err != nil {
		return applier.Started{}, err
	}
	if !ask.Live && !ask.Reason.NeedsRun() && v.ks.hasApplied(ask.Commit) {
		return applier.Started{Outcome: applier.OutcomeCurrent, Commit: ask.Commit}, nil
	}
	if err := c.record(ctx, v.ks, ask); err != nil {
		return applier.Started{}, err
	}
	return c.start(ctx, ref, first, ask)
}

// awaitHold reads the Kustomization ref and its source until ask may be made of them, or never may: it waits for a hold
// that is not handled yet.
func (c *Client) awaitHold(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (view, error) {
	v, err := c.askable(ctx, ref, ask)
	wait := ask.Wait
	if wait == 0 {
		wait = DefaultWait
	}
	if !isPending(err) || wait < 0 {
		return v, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	pending := err
	err = c.await(waiting, kustomizationKind, ref, func(u *unstructured.Unstructured) (bool, error) {
		ks, err := parseKustomization(u)
		return !isPending(c.ready(ks, ask)), err
	})
	if err != nil && waiting.Err() != nil {
		return v, fmt.Errorf("%w, and waiting for it took too long: %w", pending, err)
	}
	return c.askable(ctx, ref, ask)
}

func (c *Client) askable(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (view, error) {
	ks, verdict := c.lookAt(ctx, ref)
	if err := verdict.AsError(); err != nil {
		return view{}, err
	}
	return c.judge(ctx, ks, ask)
}

// judge reads the source of ks and refuses what ask may not be made of.
func (c *Client) judge(ctx context.Context, ks kustomization, ask applier.Ask) (view, error) {
	v, verdict := c.lookAtSource(ctx, ks)
	if err := verdict.AsError(); err != nil {
		return v, err
	}
	if err := c.bound(v, ask.Want).AsError(); err != nil {
		return v, err
	}
	return v, c.ready(ks, ask)
}

// ready refuses a Kustomization that does not stand as ask needs it. The error is pending where that will change by itself.
func (c *Client) ready(ks kustomization, ask applier.Ask) error {
	if ask.Live {
		return c.live(ks)
	}
	if err := c.suspendIsFree(ks).AsError(); err != nil {
		return err
	}
	return c.held(ks)
}

// pendingError is a Kustomization on which an operation is in progress.
type pendingError struct{ error }

func (e pendingError) Unwrap() error { return e.error }

func isPending(err error) bool {
	var pending pendingError
	return errors.As(err, &pending)
}

// held refuses a Kustomization that is not held.
func (c *Client) held(ks kustomization) error {
	named := c.named("Kustomization", ks.name)
	switch {
	case !c.options.heldByUs(ks.owners):
		return applier.Permanent(fmt.Errorf("%w: %s is not suspended under the name %s, and asking it would leave it suspended: hold it by Suspend first, or ask with Live",
			applier.ErrNotHeld, named, c.options.FieldManager))
	case !ks.suspended:
		return pendingError{fmt.Errorf("%w: an operation of %s has %s resumed", applier.ErrNotHeld, c.options.FieldManager, named)}
	case !ks.handledLatest():
		return pendingError{fmt.Errorf("%w yet: the suspend of %s is not handled: is kustomize-controller running?", applier.ErrNotHeld, named)}
	}
	return nil
}

// live refuses a Kustomization that is suspended, or on which an operation is in progress: one of ours that has it resumed, or
// one that somebody stamped and that is not handled, which our stamp could make nobody ever hear of.
func (c *Client) live(ks kustomization) error {
	named := c.named("Kustomization", ks.name)
	switch {
	case c.options.heldByUs(ks.owners):
		return applier.Permanent(fmt.Errorf("%w: %s is held by this host: ask without Live, or release it", applier.ErrSuspended, named))
	case ks.suspended:
		return applier.Permanent(fmt.Errorf("%w: %s: resume it, or hold it by Suspend and ask without Live", applier.ErrSuspended, named))
	case ks.requested != "" && !ks.handledLatest():
		return pendingError{fmt.Errorf("%s was not asked: a reconcile that somebody asked for is not handled: is kustomize-controller running?", named)}
	}
	return nil
}

// stillStands reports what no longer stands of what was asked for: the incarnation, the artifact, the decision.
func (c *Client) stillStands(v view, first types.UID, ask applier.Ask) error {
	named := c.named("Kustomization", v.ks.name)
	switch {
	case v.ks.uid != first:
		return fmt.Errorf("%w: %s was replaced meanwhile", applier.ErrStale, named)
	case !v.source.holds(ask.Commit):
		return fmt.Errorf("%w: %s holds %s now, not %s", applier.ErrStale,
			c.named("GitRepository", v.ks.source), describeArtifact(v.source.artifact), applier.DescribeCommit(ask.Commit))
	case !ask.IsCurrent():
		return fmt.Errorf("%w: %s is no longer to apply %s", applier.ErrStale, named, applier.DescribeCommit(ask.Commit))
	}
	return nil
}

// hasApplied reports whether ks stands Ready with commit applied.
func (ks kustomization) hasApplied(commit string) bool {
	return ks.ready.is(metav1.ConditionTrue) && gitref.CommitOf(ks.lastApplied) == commit
}

// record makes the operation durable before anything may start it.
func (c *Client) record(ctx context.Context, ks kustomization, ask applier.Ask) error {
	named := c.named("Kustomization", ks.name)
	if ask.Held != nil && !ask.Live {
		if err := ask.Held(ctx); err != nil {
			return fmt.Errorf("%s is not asked: %w", named, err)
		}
	}
	if !ask.IsCurrent() {
		return fmt.Errorf("%w: %s is no longer to apply %s", applier.ErrStale, named, applier.DescribeCommit(ask.Commit))
	}
	if ask.Record == nil {
		return nil
	}
	if err := ask.Record(ctx, c.started(ks, ask)); err != nil {
		return fmt.Errorf("%s is not asked, because the operation could not be recorded: %w", named, err)
	}
	return nil
}

// started is the operation that ask starts on ks as read.
func (c *Client) started(ks kustomization, ask applier.Ask) applier.Started {
	outcome := applier.OutcomeResumed
	if ask.Live {
		outcome = applier.OutcomeStamped
	}
	return applier.Started{
		Outcome:     outcome,
		Token:       ask.Token,
		Commit:      ask.Commit,
		UID:         ks.uid,
		Baseline:    baselineOf(ks).String(),
		RequestedAt: c.options.Now(),
	}
}

// start makes the write that starts the apply. Before each try it reads both objects again and decides again; where
// somebody stamped the Kustomization meanwhile, it waits until that is handled.
func (c *Client) start(ctx context.Context, ref types.NamespacedName, first types.UID, ask applier.Ask) (applier.Started, error) {
	named := c.named("Kustomization", ref)
	var started applier.Started
	var refused error
	for try := 0; ; try++ {
		if refused != nil {
			if c.landed(ctx, ref, &started, refused) {
				return started, nil
			}
			if try == conflictTries {
				return applier.Started{}, fmt.Errorf("%s was not asked: it changed at each of %d tries: %w", named, try, refused)
			}
			if err := pause(ctx, try); err != nil {
				return applier.Started{}, fmt.Errorf("%s was not asked: %w: %w", named, err, refused)
			}
		}
		v, err := c.awaitHold(ctx, ref, ask)
		if err == nil {
			err = c.stillStands(v, first, ask)
		}
		if err != nil {
			return applier.Started{}, err
		}
		started = c.started(v.ks, ask)
		_, err = c.apply(ctx, kustomizationKind, startingPatch(v.ks, ask))
		switch {
		case err == nil:
			return started, nil
		case errors.Is(err, applier.ErrUnconfirmed):
			started.Unconfirmed = fmt.Errorf("%s: %w", named, err)
			return started, nil
		case !mayBeEcho(err):
			return applier.Started{}, fmt.Errorf("%s was not asked: %w", named, err)
		}
		refused = err
	}
}

// landed reports whether the refused write that starts s was made all the same, or may have been, which s.Unconfirmed
// then says.
//
// A Kustomization that stands resumed under our name was resumed by us or by another request of ours. The latter's
// token is our manager's. One that somebody else stamped hides whose it was.
func (c *Client) landed(ctx context.Context, ref types.NamespacedName, s *applier.Started, refused error) bool {
	ks, verdict := c.lookAt(ctx, ref)
	switch {
	case verdict.Reason == applier.ReasonCheckFailed || verdict.Reason == applier.ReasonForbidden:
		s.Unconfirmed = fmt.Errorf("%w: %w, and then: %w", applier.ErrUnconfirmed, refused, verdict.AsError())
		return true
	case !verdict.OK || ks.uid != s.UID:
		return false
	case ks.requested == s.Token || ks.handled == s.Token:
		return true
	case s.Outcome == applier.OutcomeResumed && c.options.heldByUs(ks.owners) && !ks.suspended && !slices.ContainsFunc(ks.stampers.applied, c.options.ours):
		s.Unconfirmed = fmt.Errorf("%w: %w, and then somebody stamped %s", applier.ErrUnconfirmed, refused, c.named("Kustomization", ref))
		return true
	}
	return false
}

// mayBeEcho reports whether a refused write may have been made after all: client-go resends a write that was
// answered by 429 or 5xx with a Retry-After, and the last answer speaks only of the last try.
func mayBeEcho(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err)
}

// startingPatch resumes ks, or stamps it for a Live ask, with the ask's token.
func startingPatch(ks kustomization, ask applier.Ask) patch {
	p := patch{of: ks.object, guarded: true, token: ask.Token}
	if !ask.Live {
		p.suspend = new(false)
	}
	return p
}
