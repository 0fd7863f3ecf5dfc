package applier_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestARequestThatSaysTooLittleIsRefusedForGood(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*applier.ApplyRequest)
		says   string
	}{
		"no trigger":               {func(r *applier.ApplyRequest) { r.Trigger = applier.TriggerRef{} }, "set ApplyRequest.Trigger"},
		"no targets":               {func(r *applier.ApplyRequest) { r.Targets = nil }, "names no target"},
		"no repository":            {func(r *applier.ApplyRequest) { r.Want.Repository = "" }, "names no repository"},
		"no branch":                {func(r *applier.ApplyRequest) { r.Want.Branch = "" }, "names no branch"},
		"a commit that is no hash": {func(r *applier.ApplyRequest) { r.Commit = "main" }, "not a full hash"},
		"a reason of its own":      {func(r *applier.ApplyRequest) { r.Reason = "Whim" }, "Whim"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.start()
				req := w.decided()
				tc.change(&req)
				w.request(req)
				assert.Equal(w, applier.EndNotStarted, w.end().End)
				assert.True(w, applier.IsPermanent(w.end().Err))
				require.ErrorContains(w, w.end().Err, tc.says)
				assert.NotContains(w, w.end().Err.Error(), "%!")
				assert.Empty(w, w.client.Asks())
			})
		})
	}
}

func TestARecordOfWhatNeededNoRequestIsWithdrawn(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			require.NoError(w, ask.Record(ctx, applier.Started{Outcome: applier.OutcomeResumed, Token: ask.Token}))
			return applier.Started{Outcome: applier.OutcomeCurrent, Commit: ask.Commit}, nil
		}}
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndAskedNothing, w.end().End)
		assert.Nil(w, w.kept())
	})
}

func TestAnOperationThatEndedWhileNobodyFollowedItIsNotUnresolved(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		w.finish()
		time.Sleep(day)
		next := w.nextProcess()
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: next.report})
		assert.Equal(w, []string{"Running", "Completed Succeeded"}, next.reported())
		assert.Empty(w, next.eventReasons())
		assert.False(w, w.kept().Unresolved)
		next.stop()
	})
}

func TestAnOperationWithoutATimeHasItsFullTime(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			s, err := w.client.Request(ctx, shopApp.NamespacedName(), ask)
			s.RequestedAt = metav1.MicroTime{}
			return s, err
		}}
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter - time.Second)
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running"}, w.reported())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Contains(w, w.reported(), "Running unresolved")
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.NotContains(w, w.events[len(w.events)-1], "0001")
	})
}

func TestAClockOfRecordsMakesNoOperationOverdue(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.dispatcher.Now = func() time.Time { return time.Now().Add(day) }
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter - time.Second)
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running"}, w.reported())
	})
}

func TestAnOperationIsFollowedUnderTheTokenItWasAskedWith(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		token := ""
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			token = ask.Token
			s, err := w.client.Request(ctx, shopApp.NamespacedName(), ask)
			s.Token = "a backend's mistake"
			return s, err
		}}
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
		assert.False(w, w.dispatcher.Following(w.trigger, token))
	})
}

func TestAnAttemptAbandonedOnceItIsSuspendedNoLongerCounts(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		kept := w.kept()
		require.NotEmpty(w, kept.Started.SuspendToken)
		assert.True(w, w.dispatcher.Following(w.trigger, kept.Started.Token))
		w.abandon()
		synctest.Wait()
		assert.False(w, w.dispatcher.Following(w.trigger, kept.Started.Token))
		w.finish()
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
	})
}

func TestAnAbandonedRecoveryStillSettlesOnceItsClusterIsBack(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		record := w.kept()

		next := w.nextProcess()
		var away atomic.Bool
		away.Store(true)
		backends, err := applier.NewBackends(w.client.Backend(shopApp.GroupKind()))
		require.NoError(w, err)
		status := applier.NewStatusWriter(next.store, logr.Discard())
		next.dispatcher = applier.NewDispatcher(next.store, status, backends, func(context.Context, string) (dynamic.Interface, error) {
			if away.Load() {
				return nil, fmt.Errorf("the kubeconfig is not there yet")
			}
			return nil, nil
		})
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: next.report})
		next.abandon()
		synctest.Wait()
		assert.True(w, next.dispatcher.Following(w.trigger, record.Started.Token), "the applier may be resumed")
		away.Store(false)
		time.Sleep(applier.DefaultUnresolvedPollMax)
		synctest.Wait()
		assert.False(w, next.dispatcher.Following(w.trigger, record.Started.Token), "it is suspended")
		w.finish()
		assert.Equal(w, []string{"Running"}, next.reported())
		next.stop()
	})
}

func TestFollowingDoesNotDependOnWhetherTheUIDIsKnown(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		req := w.decided()
		req.Trigger.UID = ""
		w.request(req)
		assert.True(w, w.dispatcher.Following(w.trigger, w.kept().Started.Token))
		assert.True(w, w.dispatcher.Following(req.Trigger, w.kept().Started.Token))
		w.finish()
		assert.Equal(w, applier.EndCompleted, w.end().End)
	})
}

func TestFollowingFindsWhatIsPendingUnderAReferenceWithoutAUID(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		next := w.nextProcess()
		next.start()
		nameless := applier.TriggerRef{Namespace: w.trigger.Namespace, Name: w.trigger.Name}
		kept := w.kept()
		next.store.Inject(fake.StoreFault{Method: "Trigger", Nth: 1, Err: errAway})
		next.store.Inject(fake.StoreFault{Method: "UpdateStatus", Err: errAway})
		next.request(applier.ApplyRequest{Trigger: nameless, Recovered: kept, Report: next.report})
		w.finish()
		require.Equal(w, applier.EndCompleted, next.end().End)
		assert.True(w, next.dispatcher.Following(nameless, kept.Started.Token))
		assert.True(w, next.dispatcher.Following(w.trigger, kept.Started.Token))
	})
}

func TestAWorkerMayUseAgainWhatItHandedOver(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		req := w.decided()
		w.dispatcher.RequestApply(w.worker, req)
		req.Targets[0] = w.putTarget("other").Ref // The next decision.
		synctest.Wait()
		require.Equal(w, []applier.TargetRef{w.target}, w.kept().Targets)
		w.stop()

		next := w.nextProcess()
		operation := w.kept()
		next.dispatcher.RequestApply(next.worker, applier.ApplyRequest{Trigger: w.trigger, Recovered: operation, Report: next.report})
		*operation = applier.Operation{} // It waits for the start.
		next.start()
		w.finish()
		assert.Equal(w, applier.EndCompleted, next.end().End)
	})
}

func TestARecordHoldsNoSecretOfItsRepository(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		req := w.decided()
		req.Want.Repository = "https://bot:s3cret@git.example.com/acme/shop"
		w.request(req)
		assert.Equal(w, applier.EndCompleted, w.end().End)
		kept := w.kept()
		assert.NotContains(w, kept.Want.Repository, "s3cret")
		assert.True(w, kept.Want.Same(shopWrites, nil))
	})
}

// uncomparable is a host's wrapper of a client.
type uncomparable struct {
	dynamic.Interface
	labels map[string]string
}

func TestAClientIsMadeAnewWhereTheHostsClientsCannotBeCompared(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		backends, err := applier.NewBackends(w.client.Backend(shopApp.GroupKind()))
		require.NoError(w, err)
		host := struct{ dynamic.Interface }{uncomparable{labels: map[string]string{}}}
		w.dispatcher = applier.NewDispatcher(w.store, applier.NewStatusWriter(w.store, logr.Discard()), backends,
			func(context.Context, string) (dynamic.Interface, error) { return host, nil })
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndCompleted, w.end().End)
		w.reports = nil
		w.request(w.decided())
		assert.Equal(w, applier.EndCompleted, w.end().End)
	})
}

func TestNothingIsAskedWhereWhileTheRequestWasOnItsWayTheTrigger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		live   bool
		change func(w *dispatchWorld)
		end    applier.End
	}{
		"was deleted":           {change: func(w *dispatchWorld) { w.store.DeleteTrigger(w.trigger) }, end: applier.EndAskedNothing},
		"began to be deleted":   {change: func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Deleting = true }) }, end: applier.EndAskedNothing},
		"named another applier": {change: func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Applier.Name = "other" }) }, end: applier.EndAskedNothing},
		"became live":           {change: func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Live = true }) }, end: applier.EndAskedNothing},
		"is no longer live":     {live: true, change: func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Live = false }) }, end: applier.EndAskedNothing},
		"came second": {change: func(w *dispatchWorld) {
			w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-b", Name: "first"}, Applier: shopApp, Holding: true})
		}, end: applier.EndAskedNothing},
		"no longer held its applier": {change: func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Status.Held = false }) }, end: applier.EndNotStarted},
		"had another operation recorded": {change: func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = operationAt("x1", applier.StateRunning) })
		}, end: applier.EndNotStarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.changeTrigger(func(t *applier.Trigger) { t.Live = tc.live })
				w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
					tc.change(w)
					return w.client.Request(ctx, shopApp.NamespacedName(), ask)
				}}
				w.start()
				w.request(w.decided())
				assert.Equal(w, tc.end, w.end().End)
				require.Len(w, w.client.Asks(), 1)
				assert.Empty(w, w.client.Asks()[0].Started.Outcome)
			})
		})
	}
}

func TestNothingIsAskedWhereTheTriggerGoesAsItsOperationIsRecorded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *dispatchWorld){
		"gone":          func(w *dispatchWorld) { w.store.DeleteTrigger(w.trigger) },
		"being deleted": func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Deleting = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Before: func(fake.StoreCall) { change(w) }})
				w.start()
				w.request(w.decided())
				assert.Equal(w, applier.EndAskedNothing, w.end().End)
				require.ErrorIs(w, w.end().Err, applier.ErrStale)
				require.ErrorIs(w, w.end().Err, applier.ErrRecordGone)
				assert.Empty(w, w.events)
				assert.Empty(w, w.client.Asks()[0].Started.Outcome)
			})
		})
	}
}

func TestARecoveryAfterTheStopFailsAtOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		w.stop()
		w.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: operationAt("t1", applier.StateRunning), Report: w.report})
		assert.Equal(w, applier.EndNotStarted, w.end().End)
	})
}

func TestWhatIsReportedIsTheReceiversOwn(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		req := w.decided()
		req.Report = func(r applier.Report) {
			w.report(r)
			if r.Operation != nil {
				r.Operation.Targets[0].Name, r.Operation.Started.Token = "spoiled", "spoiled"
			}
		}
		w.request(req)
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
		assert.Equal(w, []applier.TargetRef{w.target}, w.kept().Targets)
	})
}

func TestTheLogHasItsKeys(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var lines []string
		w.dispatcher.Log = funcr.NewJSON(func(line string) { lines = append(lines, line) }, funcr.Options{Verbosity: 1})
		w.start()
		w.request(w.decided())
		require.NotEmpty(w, lines)
		for _, line := range lines {
			var keys map[string]any
			require.NoError(w, json.Unmarshal([]byte(line), &keys))
			assert.Equal(w, "team-a/shop", keys["trigger"], line)
			assert.Equal(w, "team-a/shop", keys["applier"], line)
			assert.Equal(w, "prod", keys["cluster"], line)
			assert.Equal(w, commitA, keys["commit"], line)
			assert.Equal(w, w.kept().Started.Token, keys["token"], line)
		}
	})
}

func TestBothPartsRunOnTheLeaderAlone(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		assert.True(w, w.dispatcher.NeedLeaderElection())
		assert.True(w, applier.NewStatusWriter(w.store, logr.Discard()).NeedLeaderElection())
	})
}

// A start is sent up to half a minute after its record, and an API server may be at work on it for a minute. So long nobody says that it
// is not to come; but what may be resumed is suspended at once.
func TestAnOperationThatMayYetBeginIsNotGivenUp(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		outcome                  applier.Outcome
		lost, recovered, abandon bool
		after                    time.Duration
	}{
		"abandoned":                  {outcome: applier.OutcomeSyncRequested, lost: true, abandon: true, after: 90 * time.Second},
		"unresolved":                 {outcome: applier.OutcomeStamped, lost: true, after: 90 * time.Second},
		"recovered and abandoned":    {outcome: applier.OutcomeStamped, recovered: true, abandon: true, after: 90 * time.Second},
		"recovered and unresolved":   {outcome: applier.OutcomeSyncRequested, recovered: true, after: 90 * time.Second},
		"it has begun":               {outcome: applier.OutcomeSyncRequested, abandon: true},
		"it may have been resumed":   {outcome: applier.OutcomeResumed, lost: true, abandon: true},
		"it was, by another process": {outcome: applier.OutcomeResumed, recovered: true, abandon: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				answer := fake.Hangs()
				answer.Outcome = tc.outcome
				if tc.lost {
					answer.Unconfirmed = errLost
				}
				w.client.Answers = []fake.Answer{answer}
				req := w.decided()
				if tc.recovered {
					w.start()
					w.request(req)
					w.stop()
					req = applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept()}
					w = w.nextProcess()
				}
				var overdue moments
				w.wrapped = progressClient{w.client, func(s applier.Started) {
					if s.Overdue {
						overdue.note()
					}
				}}
				if !tc.abandon {
					w.dispatcher.UnresolvedAfter = time.Second
				}
				w.start()
				began := time.Now()
				w.request(req)
				if tc.abandon {
					w.abandon()
				}
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				require.NotEmpty(w, overdue.noted())
				assert.Equal(w, tc.after, overdue.noted()[0].Sub(began))
			})
		})
	}
}
