package applier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
)

// starting is a client whose request starts an operation of the ask's.
func starting(outcome applier.Outcome, progress func(context.Context, *applier.Started) (applier.Progress, error)) *scripted {
	return &scripted{
		request: func(_ context.Context, ask applier.Ask) (applier.Started, error) {
			return applier.Started{Outcome: outcome, Token: ask.Token, Commit: ask.Commit}, nil
		},
		progress: progress,
	}
}

func TestApplyReturnsNoErrorOnlyForTheCommitThatWasAskedFor(t *testing.T) {
	t.Parallel()
	commit := goodAsk().Commit
	other := "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	for name, test := range map[string]struct {
		end applier.Progress
		err error
	}{
		"applied":             {end: applier.Progress{State: applier.StateSucceeded, Reason: "Applied", AppliedCommit: commit}},
		"another one applied": {end: applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonAppliedOther, AppliedCommit: other}, err: applier.ErrAppliedOther},
		"something applied":   {end: applier.Progress{State: applier.StateSucceeded, Reason: "Applied"}, err: applier.ErrAppliedOther},
		"failed":              {end: applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", AppliedCommit: commit}, err: applier.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				progress, _ := answers(running, test.end)
				var reported []applier.Progress

				end, err := applier.Apply(t.Context(), starting(applier.OutcomeResumed, progress), ref, goodAsk(), func(p applier.Progress) { reported = append(reported, p) })

				assert.ErrorIs(t, err, test.err)
				assert.Equal(t, test.err == nil, err == nil)
				assert.Equal(t, test.end, end)
				assert.Equal(t, []applier.Progress{running, test.end}, reported)
			})
		})
	}
}

func TestApplyMakesATokenWhereTheAskHasNone(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "mine"} {
		ask := goodAsk()
		ask.Token = token
		var asked string
		client := &scripted{request: func(_ context.Context, ask applier.Ask) (applier.Started, error) {
			asked = ask.Token
			return applier.Started{}, errLost
		}}
		_, err := applier.Apply(t.Context(), client, ref, ask, nil)
		assert.ErrorIs(t, err, errLost)
		assert.NotEmpty(t, asked)
		assert.Equal(t, token != "", asked == token)
	}
}

func TestApplyOfWhatNeedsNoApplySucceedsAtOnce(t *testing.T) {
	t.Parallel()
	ask := goodAsk()
	var reported []applier.Progress
	for _, report := range []func(applier.Progress){nil, func(p applier.Progress) { reported = append(reported, p) }} {
		end, err := applier.Apply(t.Context(), starting(applier.OutcomeCurrent, nil), ref, ask, report)
		require.NoError(t, err)
		assert.Equal(t, applier.Progress{
			State: applier.StateSucceeded, Reason: applier.ReasonCurrent, Message: "commit aaaaaaaaaaaa needs no apply", AppliedCommit: ask.Commit,
		}, end)
	}
	assert.Len(t, reported, 1)
}

func TestApplyOfARequestThatWasRefusedFollowsNothing(t *testing.T) {
	t.Parallel()
	client := &scripted{request: func(context.Context, applier.Ask) (applier.Started, error) {
		return applier.Started{}, applier.Permanent(applier.ErrNotHeld)
	}}
	end, err := applier.Apply(t.Context(), client, ref, goodAsk(), func(applier.Progress) { t.Error("reported") })
	assert.Zero(t, end)
	assert.ErrorIs(t, err, applier.ErrNotHeld)
	assert.True(t, applier.IsPermanent(err))
}

// suspending is a client whose operation ends so long after it was suspended again.
func suspending(end applier.Progress, after time.Duration, fails error) func(context.Context, *applier.Started) (applier.Progress, error) {
	var suspendedAt time.Time
	return func(ctx context.Context, s *applier.Started) (applier.Progress, error) {
		if err := ctx.Err(); err != nil {
			return applier.Progress{}, err
		}
		if !s.Overdue {
			return running, nil
		}
		if fails != nil {
			return applier.Progress{}, fails
		}
		if s.SuspendToken == "" {
			s.SuspendToken, suspendedAt = "suspend", time.Now()
		}
		if time.Since(suspendedAt) < after {
			return applier.Progress{State: applier.StateSettling, SuspendToken: s.SuspendToken}, nil
		}
		end.SuspendToken = s.SuspendToken
		return end, nil
	}
}

func TestApplyThatIsCancelledSuspendsAgainWhatItResumed(t *testing.T) {
	t.Parallel()
	cause := errors.New("the host stops")
	applied := applier.Progress{State: applier.StateSucceeded, Reason: "Applied", AppliedCommit: goodAsk().Commit}
	failed := applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: "bad"}
	for name, test := range map[string]struct {
		outcome applier.Outcome
		end     applier.Progress
		after   time.Duration
		fails   error
		took    time.Duration
		state   applier.State
		is      error
		says    string
	}{
		"and it had applied the commit": {outcome: applier.OutcomeResumed, end: applied, state: applier.StateSucceeded},
		"and it ends in time":           {outcome: applier.OutcomeResumed, end: failed, after: 4 * time.Second, took: 4 * time.Second, state: applier.StateFailed, is: applier.ErrFailed},
		"and its run goes on": {
			outcome: applier.OutcomeResumed, end: applied, after: time.Minute, took: 10 * time.Second, state: applier.StateSettling,
			says: "ns/app: the operation token is suspended again, and its last run goes on: the host stops",
		},
		"and cannot": {
			outcome: applier.OutcomeResumed, fails: errLost, took: 10 * time.Second, state: applier.StateRunning, is: errLost,
			says: "ns/app: the operation token could not be suspended again and may have left it resumed: the host stops",
		},
		"but not a live one": {
			outcome: applier.OutcomeStamped, state: applier.StateRunning, says: "ns/app: the operation token goes on: the host stops",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Hour+time.Second, func() { cancel(cause) })
				start := time.Now()

				end, err := applier.Apply(ctx, starting(test.outcome, suspending(test.end, test.after, test.fails)), ref, goodAsk(), nil)

				assert.Equal(t, test.took, time.Since(start)-time.Hour-time.Second)
				assert.Equal(t, test.state, end.State)
				require.ErrorIs(t, err, cause)
				if test.is != nil {
					assert.ErrorIs(t, err, test.is)
				}
				assert.ErrorContains(t, err, test.says)
			})
		})
	}
}
