package applier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// settleTimeout bounds how long Apply goes on after its context ended to suspend again what it resumed.
const settleTimeout = 10 * time.Second

// Apply asks client to apply and follows the operation to its end: the shortest way from a commit to the knowledge
// that it is applied. It makes ask.Token where that is empty, and reports each Progress to report, which may be nil
// and is called on Apply's own goroutine.
//
// A nil error means that ask.Commit is applied, by this request or before it (reason Current). An ask without a
// commit is refused. The errors are those of [Client.Request], an [OperationError] that is ErrFailed or
// ErrAppliedOther, and, once ctx ended, its cause. With the latter, Apply has gone on for up to ten seconds to
// suspend a Flux Kustomization that it resumed; the Progress tells how far it came, and an operation that did not end
// is named in the error; it may also have ended by then, and the Progress be Succeeded. A host that must not lose it
// sets ask.Record and follows the recorded operation itself.
func Apply(ctx context.Context, client Client, ref types.NamespacedName, ask Ask, report func(Progress)) (Progress, error) {
	return Follower{}.Apply(ctx, client, ref, ask, report)
}

// Apply is the function Apply with the follower's poll interval.
func (f Follower) Apply(
	ctx context.Context, client Client, ref types.NamespacedName, ask Ask, report func(Progress),
) (Progress, error) {
	if ask.Token == "" {
		ask.Token = NewToken()
	}
	if ask.Commit == "" {
		return Progress{}, Permanent(fmt.Errorf("%s: the ask names no commit: set Ask.Commit", ref))
	}
	s, err := client.Request(ctx, ref, ask)
	if err != nil {
		return Progress{}, err
	}
	if s.Outcome == OutcomeCurrent {
		progress := Progress{
			State: StateSucceeded, Reason: ReasonCurrent,
			Message: DescribeCommit(ask.Commit) + " needs no apply", AppliedCommit: ask.Commit,
		}
		if report != nil {
			report(progress)
		}
		return progress, nil
	}
	progress, err := f.Follow(ctx, client, ref, &s, report)
	if err != nil {
		return f.settle(ctx, client, ref, &s, progress, report, err)
	}
	return progress, endError(s.Commit, progress)
}

// settle suspends again what the operation s resumed, although ctx has ended.
func (f Follower) settle(
	ctx context.Context, client Client, ref types.NamespacedName, s *Started, last Progress, report func(Progress), cause error,
) (Progress, error) {
	if s.Outcome != OutcomeResumed {
		return last, fmt.Errorf("%s: the operation %s goes on: %w", ref, s.Token, cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	s.Overdue = true
	progress, err := f.Follow(ctx, client, ref, s, report)
	if err == nil {
		return progress, errors.Join(cause, endError(s.Commit, progress))
	}
	if progress.State == "" {
		progress = last
	}
	if s.SuspendToken == "" {
		return progress, fmt.Errorf("%s: the operation %s could not be suspended again and may have left it resumed: %w",
			ref, s.Token, errors.Join(cause, err))
	}
	return progress, fmt.Errorf("%s: the operation %s is suspended again, and its last run goes on: %w", ref, s.Token, cause)
}

// endError returns what is wrong with an end, or nil when the commit is applied.
func endError(commit string, end Progress) error {
	if end.State == StateSucceeded && end.AppliedCommit == commit {
		return nil
	}
	return &OperationError{Commit: commit, Progress: end}
}
