package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

const (
	commit = "1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6"
	other  = "2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d"
)

var shop = types.NamespacedName{Namespace: "team-a", Name: "shop"}

func ask() applier.Ask {
	return applier.Ask{
		Want:   applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Commit: commit,
		Token:  applier.NewToken(),
	}
}

func states(seen *[]applier.State) func(applier.Progress) {
	return func(p applier.Progress) { *seen = append(*seen, p.State) }
}

func TestZeroClientAppliesWhatIsAsked(t *testing.T) {
	t.Parallel()
	var client fake.Client
	var seen []applier.State
	end, err := applier.Apply(t.Context(), &client, shop, ask(), states(&seen))

	require.NoError(t, err)
	assert.Equal(t, []applier.State{applier.StateRequested, applier.StateRunning, applier.StateSettling, applier.StateSucceeded}, seen)
	assert.Equal(t, commit, end.AppliedCommit)
	assert.Equal(t, "main@sha1:"+commit, end.AppliedRevision)
	assert.NotEmpty(t, end.SuspendToken, "a resumed operation is suspended again")

	verdict := client.Validate(t.Context(), shop)
	assert.True(t, verdict.OK)
	assert.Equal(t, applier.ReasonSucceeded, verdict.Reason)
}

func TestEveryStepHasAMessage(t *testing.T) {
	t.Parallel()
	client := &fake.Client{Answers: []fake.Answer{
		{},
		{Steps: []applier.Progress{{State: applier.StateSucceeded, AppliedRevision: "main@sha1:" + other}}},
		{Steps: []applier.Progress{{State: applier.StateRunning, Message: "it downloads"}, {State: applier.StateFailed, Reason: "BuildFailed"}}},
	}}
	var messages []string
	report := func(p applier.Progress) { messages = append(messages, p.Message) }
	_, err := applier.Apply(t.Context(), client, shop, ask(), report)
	require.NoError(t, err)
	_, err = applier.Apply(t.Context(), client, shop, ask(), report)
	require.ErrorIs(t, err, applier.ErrAppliedOther)
	_, err = applier.Apply(t.Context(), client, shop, ask(), report)
	require.ErrorIs(t, err, applier.ErrFailed)
	assert.Equal(t, []string{
		"applier team-a/shop in cluster fake is asked to apply commit 1f0e1d2c3b4a",
		"applier team-a/shop in cluster fake applies commit 1f0e1d2c3b4a",
		"applier team-a/shop in cluster fake is suspended again; that is not handled yet",
		"Applied revision: main@sha1:" + commit,
		"applier team-a/shop in cluster fake applied main@sha1:" + other + " instead of commit 1f0e1d2c3b4a",
		"it downloads",
		"applier team-a/shop in cluster fake: BuildFailed",
	}, messages)
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection reset")
	steps := func(step applier.Progress) []applier.Progress { return []applier.Progress{step} }
	tests := map[string]struct {
		client *fake.Client
		change func(*applier.Ask)
		check  func(t *testing.T, s applier.Started, err error)
	}{
		"a live ask is stamped": {
			change: func(a *applier.Ask) { a.Live = true },
			check: func(t *testing.T, s applier.Started, err error) {
				require.NoError(t, err)
				assert.Equal(t, applier.OutcomeStamped, s.Outcome)
			},
		},
		"an outcome is scripted": {
			client: &fake.Client{Answers: []fake.Answer{{Outcome: applier.OutcomeSyncRequested}}},
			check: func(t *testing.T, s applier.Started, err error) {
				require.NoError(t, err)
				assert.Equal(t, applier.OutcomeSyncRequested, s.Outcome)
			},
		},
		"an empty commit asks for nothing": {
			change: func(a *applier.Ask) { a.Commit = "" },
			check: func(t *testing.T, s applier.Started, err error) {
				require.NoError(t, err)
				assert.Equal(t, applier.OutcomeCurrent, s.Outcome)
				assert.Empty(t, s.Token)
			},
		},
		"a bad ask is refused": {
			change: func(a *applier.Ask) { a.Commit = "1f0e1d2" },
			check: func(t *testing.T, _ applier.Started, err error) {
				assert.True(t, applier.IsPermanent(err))
				assert.ErrorContains(t, err, "team-a/shop")
			},
		},
		"a request fails": {
			client: &fake.Client{Answers: []fake.Answer{{Refuse: lost}}},
			check: func(t *testing.T, s applier.Started, err error) {
				require.ErrorIs(t, err, lost)
				assert.False(t, applier.IsPermanent(err))
				assert.Zero(t, s)
			},
		},
		"a verdict refuses": {
			client: &fake.Client{Verdict: applier.Verdict{Reason: applier.ReasonForbidden, Message: "it may not"}},
			check: func(t *testing.T, _ applier.Started, err error) {
				assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
				assert.True(t, applier.IsPermanent(err))
			},
		},
		"another repository is refused without its credentials": {
			client: &fake.Client{Source: applier.Source{URL: "https://bot:s3cr3t@git.example.com/acme/other", Revision: "main"}},
			check: func(t *testing.T, _ applier.Started, err error) {
				assert.Equal(t, applier.ReasonSourceMismatch, applier.VerdictReason(err))
				assert.NotContains(t, err.Error(), "s3cr3t")
			},
		},
		"an applier that does not exist is refused": {
			client: &fake.Client{Appliers: []types.NamespacedName{{Namespace: "team-a", Name: "till"}}},
			check: func(t *testing.T, _ applier.Started, err error) {
				assert.Equal(t, applier.ReasonApplierNotFound, applier.VerdictReason(err))
			},
		},
		"another branch is refused": {
			client: &fake.Client{Source: applier.Source{URL: "https://git.example.com/acme/shop.git", Revision: "next"}},
			check: func(t *testing.T, _ applier.Started, err error) {
				assert.Equal(t, applier.ReasonSourceMismatch, applier.VerdictReason(err))
			},
		},
		"an answer gets lost": {
			client: &fake.Client{Answers: []fake.Answer{{Unconfirmed: lost, Steps: steps(applier.Progress{State: applier.StateRunning})}}},
			check: func(t *testing.T, s applier.Started, err error) {
				require.NoError(t, err)
				require.ErrorIs(t, s.Unconfirmed, applier.ErrUnconfirmed)
				require.ErrorIs(t, s.Unconfirmed, lost)
				assert.Equal(t, applier.OutcomeResumed, s.Outcome)
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := ask()
			if test.change != nil {
				test.change(&a)
			}
			client := test.client
			if client == nil {
				client = &fake.Client{}
			}
			s, err := client.Request(t.Context(), shop, a)
			test.check(t, s, err)

			asked := client.Asks()
			require.Len(t, asked, 1)
			assert.Equal(t, shop, asked[0].Ref)
			assert.Equal(t, a.Token, asked[0].Ask.Token)
			assert.Equal(t, s, asked[0].Started)
			assert.Equal(t, err, asked[0].Err)
		})
	}
}

func TestCallbacksAreCalledInTheContractsOrder(t *testing.T) {
	t.Parallel()
	var client fake.Client
	var calls []string
	a := ask()
	a.Current = func() bool { calls = append(calls, "current"); return true }
	a.Held = func(context.Context) error { calls = append(calls, "held"); return nil }
	var recorded applier.Started
	a.Record = func(_ context.Context, s applier.Started) error {
		calls, recorded = append(calls, "record"), s
		return nil
	}
	s, err := client.Request(t.Context(), shop, a)
	require.NoError(t, err)
	assert.Equal(t, []string{"current", "held", "record", "current"}, calls)
	assert.Equal(t, s, recorded)
}

func TestCallbacksStopARequest(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused by the host")
	recorded := false
	tests := map[string]struct {
		change func(*applier.Ask)
		want   error
	}{
		"the decision is stale": {func(a *applier.Ask) { a.Current = func() bool { return false } }, applier.ErrStale},
		"the decision gets stale while it is recorded": {func(a *applier.Ask) {
			a.Current = func() bool { return !recorded }
			a.Record = func(context.Context, applier.Started) error { recorded = true; return nil }
		}, applier.ErrStale},
		"the host does not hold the applier": {func(a *applier.Ask) { a.Held = func(context.Context) error { return refusal } }, refusal},
		"the record cannot be kept":          {func(a *applier.Ask) { a.Record = func(context.Context, applier.Started) error { return refusal } }, refusal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var client fake.Client
			a := ask()
			test.change(&a)
			_, err := client.Request(t.Context(), shop, a)
			require.ErrorIs(t, err, test.want)

			end, err := client.Progress(t.Context(), shop, &applier.Started{Outcome: applier.OutcomeResumed, Token: a.Token, Recovered: true})
			require.NoError(t, err)
			assert.Equal(t, applier.ReasonNotRun, end.Reason, "nothing was started")
		})
	}
}

func TestAnswersAreUsedInOrderAndTheLastOneStays(t *testing.T) {
	t.Parallel()
	client := fake.Client{Answers: []fake.Answer{{}, fake.Fails("BuildFailed", "no such file")}}
	for i, want := range []error{nil, applier.ErrFailed, applier.ErrFailed} {
		end, err := applier.Apply(t.Context(), &client, shop, ask(), nil)
		if want == nil {
			require.NoError(t, err, "request %d", i)
			continue
		}
		require.ErrorIs(t, err, want, "request %d", i)
		assert.Equal(t, "BuildFailed", end.Reason)
		assert.Equal(t, "no such file", end.Message)
	}
	assert.Len(t, client.Asks(), 3)
}

func TestAnotherRevisionIsScripted(t *testing.T) {
	t.Parallel()
	client := fake.Client{Answers: []fake.Answer{{Steps: []applier.Progress{{State: applier.StateSucceeded, AppliedRevision: "main@sha1:" + other}}}}}
	end, err := applier.Apply(t.Context(), &client, shop, ask(), nil)
	require.ErrorIs(t, err, applier.ErrAppliedOther)
	assert.Equal(t, other, end.AppliedCommit)
	assert.Equal(t, applier.ReasonAppliedOther, end.Reason)
}

func TestACommitThatIsAppliedNeedsNoCatchUp(t *testing.T) {
	t.Parallel()
	var client fake.Client
	_, err := applier.Apply(t.Context(), &client, shop, ask(), nil)
	require.NoError(t, err)
	for reason, want := range map[applier.ApplyReason]applier.Outcome{
		applier.CatchUp: applier.OutcomeCurrent, applier.ForeignCommit: applier.OutcomeCurrent,
		applier.Refusal: applier.OutcomeResumed, applier.Repair: applier.OutcomeResumed,
	} {
		a := ask()
		a.Reason = reason
		s, err := client.Request(t.Context(), shop, a)
		require.NoError(t, err)
		assert.Equal(t, want, s.Outcome, "reason %s", reason)
	}
}

func TestARecordedOperationIsFollowedAfterARestart(t *testing.T) {
	t.Parallel()
	var client fake.Client
	var record applier.Started
	a := ask()
	a.Record = func(_ context.Context, s applier.Started) error { record = s; return nil }
	_, err := client.Request(t.Context(), shop, a)
	require.NoError(t, err)

	record.Recovered = true
	end, err := applier.Follower{}.Follow(t.Context(), &client, shop, &record, nil)
	require.NoError(t, err)
	assert.Equal(t, commit, end.AppliedCommit)
}

func TestStepsStandForATime(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(applier.Client) applier.Client{
		"watched": func(c applier.Client) applier.Client { return c },
		"polled":  func(c applier.Client) applier.Client { return struct{ applier.Client }{c} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &fake.Client{Answers: []fake.Answer{{Every: time.Minute}}}
				began := time.Now()
				var seen []applier.State
				_, err := applier.Apply(t.Context(), wrap(client), shop, ask(), states(&seen))
				require.NoError(t, err)
				assert.Equal(t, 3*time.Minute, time.Since(began).Truncate(time.Minute))
				assert.Equal(t, []applier.State{applier.StateRequested, applier.StateRunning, applier.StateSettling, applier.StateSucceeded}, seen)
			})
		})
	}
}

func TestAnOperationHangsUntilItIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &fake.Client{Answers: []fake.Answer{fake.Hangs()}}
		type result struct {
			end applier.Progress
			err error
		}
		results := make(chan result, 1)
		go func() {
			end, err := applier.Apply(t.Context(), client, shop, ask(), nil)
			results <- result{end, err}
		}()
		<-time.After(time.Hour)
		synctest.Wait()
		require.Empty(t, results, "it has not ended")

		client.Report(shop, applier.Progress{State: applier.StateSucceeded})
		got := <-results
		require.NoError(t, got.err)
		assert.Equal(t, commit, got.end.AppliedCommit)

		client.Report(shop, applier.Progress{State: applier.StateFailed})
		end, err := client.Progress(t.Context(), shop, &applier.Started{Outcome: applier.OutcomeResumed, Token: client.Asks()[0].Ask.Token})
		require.NoError(t, err)
		assert.Equal(t, applier.StateSucceeded, end.State, "an end stays")
	})
}

func TestCancelledApplySettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &fake.Client{Answers: []fake.Answer{fake.Hangs()}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		progress, err := applier.Apply(ctx, client, shop, ask(), nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotEmpty(t, progress.SuspendToken)
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var client fake.Client
		ctx, cancel := context.WithCancel(t.Context())
		changes := client.Watch(ctx, shop)
		object, open := <-changes
		assert.True(t, open)
		assert.Nil(t, object)
		cancel()
		for range changes {
		}
	})
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	client := &fake.Client{Answers: []fake.Answer{{}, {Every: time.Millisecond}}}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			ref := types.NamespacedName{Namespace: "team-a", Name: fmt.Sprint("app-", i%4)}
			_, err := applier.Apply(t.Context(), client, ref, ask(), nil)
			assert.NoError(t, err)
			client.Validate(t.Context(), ref)
			client.Asks()
			client.Report(ref, applier.Progress{State: applier.StateSucceeded})
		})
	}
	group.Wait()
	assert.Len(t, client.Asks(), 8)
}
