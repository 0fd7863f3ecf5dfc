package flux

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// is not is refused with ErrNotHeld, permanent; call Suspend first. A Live ask refuses a Kustomization that is
// suspended with ErrSuspended, permanent.
//
// An operation in progress is waited for: one of this host that has the Kustomization resumed, a suspend that is not
// handled yet, and for a Live ask a reconcile that somebody else asked for. All waiting for them together takes no
// longer than ask.Wait says, DefaultWait by default; then the error is ErrBusy. A fetch is waited for as long as ctx
// allows. Once ask.Record was called, half a minute is left for all of it, and a held Kustomization that is suspended anew in
// our name meanwhile is ErrStale: another process may have followed the record to its end.
//
// A CatchUp or a ForeignCommit asks nothing (OutcomeCurrent) of a held Kustomization that is Ready with the commit
// applied: nothing was applied since, and nothing will be until it is resumed. What others changed in its spec while
// it was held is not seen by that; ask for a Repair. A Live ask always runs.
//
// An artifact that ends on another commit is ErrStale when the decision no longer holds, and otherwise ErrNotFetched,
// with what was fetched: the commit was not pushed yet, or is no longer the newest of the branch.
//
// An empty commit has nothing to apply: the GitRepository is stamped, so that Flux reports the missing branch itself,
// and the outcome is OutcomeCurrent.
func (c *Client) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	r := &request{client: c, ref: ref, ask: ask, named: c.named("Kustomization", ref)}
	if err := ask.Validate(); err != nil {
		return applier.Started{}, fmt.Errorf("%s: %w", r.named, err)
	}
	v, err := r.awaitTurn(ctx)
	if err != nil {
		return applier.Started{}, err
	}
	if v.ks.requested == ask.Token || v.ks.handled == ask.Token {
		return applier.Started{}, applier.Permanent(fmt.Errorf("%s was asked with the token %s before: a token is used once", r.named, ask.Token))
	}
	r.first = v.ks.uid
	if ask.Commit == "" {
		return r.lookForMissingBranch(ctx, v.source)
	}
	if !v.source.holds(ask.Commit) {
		if err := r.fetch(ctx, v.source); err != nil {
			return applier.Started{}, err
		}
		if v, err = r.awaitTurn(ctx); err != nil {
			return applier.Started{}, err
		}
	}
	if err := r.stillStands(v); err != nil {
		return applier.Started{}, err
	}
	if !ask.Live && !ask.Reason.NeedsRun() && v.ks.hasApplied(ask.Commit) {
		return applier.Started{Outcome: applier.OutcomeCurrent, Commit: ask.Commit}, nil
	}
	r.recorded = v.ks.requested
	if ask.Record != nil {
		soon, cancel := context.WithTimeoutCause(ctx, startWithin, errLate)
		defer cancel()
		ctx = soon
	}
	if err := r.record(ctx, v.ks); err != nil {
		return applier.Started{}, err
	}
	return r.start(ctx)
}

// startWithin is how long after it began to record an operation a request may send the write that starts it. Whoever follows the
// record counts on it: a live stamp that was not seen that long, and a minute for the API server to make it, is never made.
const startWithin = 30 * time.Second

var errLate = fmt.Errorf("more than %s have passed since its record was begun: ask again", startWithin)

// request is one request on its way.
type request struct {
	client *Client
	ref    types.NamespacedName
	ask    applier.Ask
	named  string
	// first is the incarnation that was asked first.
	first types.UID
	// recorded is the token that was asked for when the operation was recorded.
	recorded string
	// until is when the waiting for operations in progress ends; zero before the first wait.
	until time.Time
}

// stillStands reports what no longer stands of what was asked for: the incarnation, the artifact, the decision.
func (r *request) stillStands(v view) error {
	switch {
	case v.ks.uid != r.first:
		return fmt.Errorf("%w: %s was replaced meanwhile", applier.ErrStale, r.named)
	case !v.source.holds(r.ask.Commit):
		return fmt.Errorf("%w: %s: %s holds %s now, not %s", applier.ErrStale, r.named, r.client.named("GitRepository", v.ks.source),
			describeArtifact(v.source.artifact), applier.DescribeCommit(r.ask.Commit))
	case !r.ask.IsCurrent():
		return r.stale()
	}
	return nil
}

// notStampedSince refuses a held Kustomization that was suspended anew in our name since the operation was recorded. Another process
// that followed the record has done so then, and reported that nothing ran.
func (r *request) notStampedSince(ks kustomization) error {
	if r.ask.Live || r.ask.Record == nil || ks.requested == r.recorded || !r.client.options.heldByUs(ks.stampers) {
		return nil
	}
	return fmt.Errorf("%w: %s was suspended anew since the operation was recorded", applier.ErrStale, r.named)
}

func (r *request) stale() error {
	return fmt.Errorf("%w: %s is no longer to apply %s", applier.ErrStale, r.named, applier.DescribeCommit(r.ask.Commit))
}

// hasApplied reports whether ks stands Ready with commit applied.
func (ks kustomization) hasApplied(commit string) bool {
	return ks.ready.is(metav1.ConditionTrue) && gitref.CommitOf(ks.lastApplied) == commit
}

// record makes the operation durable before anything may start it.
func (r *request) record(ctx context.Context, ks kustomization) error {
	if r.ask.Held != nil && !r.ask.Live {
		if err := r.ask.Held(ctx); err != nil {
			return fmt.Errorf("%s is not asked: %w", r.named, err)
		}
	}
	if !r.ask.IsCurrent() {
		return r.stale()
	}
	if r.ask.Record == nil {
		return nil
	}
	if err := r.ask.Record(ctx, r.started(ks)); err != nil {
		return fmt.Errorf("%s is not asked, because the operation could not be recorded: %w", r.named, err)
	}
	return r.inTime(ctx)
}

// inTime reports that ctx has ended before anything was written.
func (r *request) inTime(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s was not asked: %w", r.named, err)
	}
	return nil
}

// started is the operation that the request starts on ks as read.
func (r *request) started(ks kustomization) applier.Started {
	outcome := applier.OutcomeResumed
	if r.ask.Live {
		outcome = applier.OutcomeStamped
	}
	return applier.Started{
		Outcome:     outcome,
		Token:       r.ask.Token,
		Commit:      r.ask.Commit,
		UID:         ks.uid,
		Baseline:    baselineOf(ks).String(),
		RequestedAt: metav1.NewMicroTime(r.client.options.Now()),
	}
}

// start makes the write that starts the apply. Before each try it reads both objects again and decides again.
func (r *request) start(ctx context.Context) (applier.Started, error) {
	var from kustomization
	var started applier.Started
	var resent bool
	var refused error
	for try := 0; ; try++ {
		if refused != nil {
			landed, unconfirmed := r.landed(ctx, from, refused, resent)
			switch {
			case landed:
				started.Unconfirmed = unconfirmed
				return started, nil
			case !mayChange(refused):
				return applier.Started{}, fmt.Errorf("%s was not asked: %w", r.named, r.client.forbidden(kustomizationKind, r.ref, refused))
			case try == conflictTries:
				return applier.Started{}, fmt.Errorf("%s was not asked: it changed at each of %d tries: %w", r.named, try, refused)
			}
			if err := pause(ctx, try); err != nil {
				return applier.Started{}, fmt.Errorf("%s was not asked: %w: %w", r.named, err, refused)
			}
		}
		v, err := r.awaitTurn(ctx)
		if err == nil {
			err = r.stillStands(v)
		}
		if err == nil {
			err = r.notStampedSince(v.ks)
		}
		if err == nil {
			err = r.inTime(ctx)
		}
		if err != nil {
			return applier.Started{}, err
		}
		from, started = v.ks, r.started(v.ks)
		resent, err = r.client.applyCounted(ctx, kustomizationKind, r.startingPatch(v.ks))
		switch {
		case err == nil:
			return started, nil
		case errors.Is(err, applier.ErrUnconfirmed):
			started.Unconfirmed = fmt.Errorf("%s: %w", r.named, err)
			return started, nil
		}
		refused = err
	}
}

// landed reports whether a write that was decided on from, and refused, was made all the same, or may have been or be
// yet: then unconfirmed says why that is not known. A refusal speaks only of the last time that the write was sent. One
// that was sent before it cannot have been made, nor be made any more, where the object changed and still has the token from before.
func (r *request) landed(ctx context.Context, from kustomization, refused error, resent bool) (landed bool, unconfirmed error) {
	ks, verdict := r.client.lookAt(ctx, r.ref)
	gone := ks.uid != from.uid
	switch {
	case verdict.Reason == applier.ReasonCheckFailed || verdict.Reason == applier.ReasonForbidden:
		return true, fmt.Errorf("%w: %w, and then: %w", applier.ErrUnconfirmed, refused, verdict.AsError())
	case !gone && (ks.requested == r.ask.Token || ks.handled == r.ask.Token):
		return true, nil
	case resent && (gone || ks.resourceVersion == from.resourceVersion || ks.requested != from.requested):
		return true, fmt.Errorf("%w: %s: %w, when it was sent again", applier.ErrUnconfirmed, r.named, refused)
	}
	return false, nil
}

// startingPatch resumes ks, or stamps it for a Live ask, with the ask's token.
func (r *request) startingPatch(ks kustomization) patch {
	p := patch{of: ks.object, guarded: true, token: r.ask.Token}
	if !r.ask.Live {
		p.suspend = new(false)
	}
	return p
}
