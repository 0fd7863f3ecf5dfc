package applier_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func (c askedClient) Request(ctx context.Context, _ types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	return c.request(ctx, ask)
}

// Unwrap returns the client inside, which can be watched.
func (c askedClient) Unwrap() applier.Client { return c.Client }

func TestAnAttemptReportsItsOperationAsItMovesAndOneEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		w.request(w.decided())
		assert.Equal(w, []string{"Requested", "Running", "Settling", "Completed Succeeded"}, w.reported())
		end := w.end().Operation
		assert.Equal(w, shopApp, end.Applier)
		assert.Equal(w, commitA, end.Progress.AppliedCommit)
		assert.Equal(w, []applier.TargetRef{w.target}, end.Targets)
		assert.Equal(w, "Succeeded", string(w.kept().Progress.State), "the record is completed")
		assert.Equal(w, end.CompletedAt.UTC(), w.kept().CompletedAt.UTC())
		assert.Equal(w, []string{"Normal ApplyRequested shop: Kustomization team-a/shop in cluster prod is asked to apply commit aaaaaaaaaaaa"}, w.events)
	})
}

func TestAnOperationIsRecordedBeforeItIsStarted(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			s := applier.Started{Outcome: applier.OutcomeResumed, Token: ask.Token, Commit: ask.Commit, Baseline: "what stood", UID: "k1"}
			require.Nil(w, w.kept())
			require.NoError(w, ask.Held(ctx))
			require.NoError(w, ask.Record(ctx, s))
			kept := w.kept()
			assert.Equal(w, ask.Token, kept.Started.Token)
			assert.Equal(w, "what stood", kept.Started.Baseline)
			assert.Equal(w, applier.StateRequested, kept.Progress.State)
			assert.Equal(w, shopApp, kept.Applier)
			binding := kept.Want
			assert.Equal(w, shopWrites, binding)
			assert.Equal(w, applier.Commit, kept.Reason)
			assert.Equal(w, []applier.TargetRef{w.target}, kept.Targets)
			return w.client.Request(ctx, shopApp.NamespacedName(), applier.Ask{Want: ask.Want, Commit: ask.Commit, Token: ask.Token})
		}}
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndCompleted, w.end().End)
	})
}

func TestNothingIsAskedForATargetThat(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *dispatchWorld){
		"is gone": func(w *dispatchWorld) { w.store.DeleteTarget(w.target) },
		"was replaced by another of its name": func(w *dispatchWorld) {
			w.store.DeleteTarget(w.target)
			w.putTarget("shop")
		},
		"is being deleted":      func(w *dispatchWorld) { w.changeTarget(func(t *applier.Target) { t.Deleting = true }) },
		"names no trigger":      func(w *dispatchWorld) { w.changeTarget(func(t *applier.Target) { t.Trigger = applier.TriggerRef{} }) },
		"names another trigger": func(w *dispatchWorld) { w.changeTarget(func(t *applier.Target) { t.Trigger.Name = "other" }) },
		"writes to another branch": func(w *dispatchWorld) {
			w.changeTarget(func(t *applier.Target) { t.Writes.Branch = "release" })
		},
		"writes to another repository": func(w *dispatchWorld) {
			w.changeTarget(func(t *applier.Target) { t.Writes.Repository = "https://git.example.com/acme/other" })
		},
		"writes where nobody knows yet": func(w *dispatchWorld) { w.changeTarget(func(t *applier.Target) { t.Writes = applier.Binding{} }) },
		"is no longer admitted": func(w *dispatchWorld) {
			w.changeTarget(func(t *applier.Target) {
				t.Admission = applier.Admission{State: applier.NotAdmitted, Message: "the team moved"}
			})
		},
		"is not judged yet": func(w *dispatchWorld) { w.changeTarget(func(t *applier.Target) { t.Admission = applier.Admission{} }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				change(w)
				w.start()
				w.request(w.decided())
				assert.Equal(w, applier.EndAskedNothing, w.end().End)
				require.ErrorIs(w, w.end().Err, applier.ErrStale)
				assert.ErrorContains(w, w.end().Err, "target team-a/shop")
				assert.Empty(w, w.client.Asks())
				assert.Empty(w, w.events)
			})
			t.Run("while the request was on its way", func(t *testing.T) {
				t.Parallel()
				inDispatchWorld(t, func(w *dispatchWorld) {
					asked := false
					w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
						asked = true
						change(w)
						return w.client.Request(ctx, shopApp.NamespacedName(), ask)
					}}
					w.start()
					w.request(w.decided())
					require.True(w, asked)
					assert.Equal(w, applier.EndAskedNothing, w.end().End)
					require.ErrorIs(w, w.end().Err, applier.ErrStale)
					assert.Nil(w, w.kept(), "nothing is recorded")
				})
			})
		})
	}
}

func TestNothingIsAskedForATriggerThat(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *dispatchWorld){
		"is gone": func(w *dispatchWorld) { w.store.DeleteTrigger(w.trigger) },
		"was replaced by another of its name": func(w *dispatchWorld) {
			w.store.DeleteTrigger(w.trigger)
			w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-a", Name: "shop"}, Applier: shopApp, Status: applier.TriggerStatus{Held: true}})
		},
		"is being deleted": func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Deleting = true }) },
		"does not hold its applier, because another does": func(w *dispatchWorld) {
			w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-b", Name: "older"}, Applier: shopApp, Holding: true})
			other := w.putTarget("older")
			other.Ref.Namespace, other.Ref.UID, other.Trigger = "team-b", "", applier.TriggerRef{Namespace: "team-b", Name: "older"}
			w.store.PutTarget(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				change(w)
				w.start()
				w.request(w.decided())
				assert.Equal(w, applier.EndAskedNothing, w.end().End)
				require.ErrorIs(w, w.end().Err, applier.ErrStale)
				assert.Empty(w, w.client.Asks())
			})
		})
	}
}

func TestADecisionForOneApplierAsksNoOther(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		metrics := newCountedMetrics()
		w.dispatcher.Metrics = metrics
		w.start()
		req := w.decided()
		req.Applier = shopApp
		w.changeTrigger(func(t *applier.Trigger) { t.Applier.Cluster, t.Applier.Name = "test", "other" })
		w.request(req)
		assert.Equal(w, applier.EndAskedNothing, w.end().End)
		require.ErrorIs(w, w.end().Err, applier.ErrStale)
		require.ErrorContains(w, w.end().Err,
			"trigger team-a/shop names Kustomization team-a/other in cluster test now, not Kustomization team-a/shop in cluster prod")
		assert.Empty(w, w.client.Asks())
		assert.Empty(w, w.events)
		assert.Equal(w, 1, metrics.get("ended", shopLabels, applier.ResultStale), "it is counted for the applier that was decided on")

		w.changeTrigger(func(t *applier.Trigger) { t.Applier = shopApp })
		w.reports = nil
		w.request(req)
		assert.Equal(w, applier.EndCompleted, w.end().End)
	})
}

func TestWhyATargetIsNotAdmittedIsSaid(t *testing.T) {
	t.Parallel()
	for says, admission := range map[string]applier.Admission{
		"target team-a/shop is not admitted: the team moved": {State: applier.NotAdmitted, Message: "the team moved"},
		"target team-a/shop is not known to be admitted yet": {},
	} {
		inDispatchWorld(t, func(w *dispatchWorld) {
			w.changeTarget(func(t *applier.Target) { t.Admission = admission })
			w.start()
			w.request(w.decided())
			assert.True(w, strings.HasSuffix(w.end().Err.Error(), says), w.end().Err.Error())
		})
	}
}

func TestOnlyTargetsThatStandAreAskedFor(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		other := w.putTarget("other")
		w.changeTarget(func(t *applier.Target) { t.Deleting = true })
		w.start()
		req := w.decided()
		req.Targets = append(req.Targets, other.Ref)
		w.request(req)
		assert.Equal(w, applier.EndCompleted, w.end().End)
		assert.Equal(w, []applier.TargetRef{other.Ref}, w.end().Operation.Targets)
		require.Len(w, w.events, 1)
		assert.Contains(w, w.events[0], "ApplyRequested other:")
	})
}

func TestARefusalIsAskedForConsentingTargetsAloneAndNothingWeakerInstead(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		req := w.decided()
		req.Reason = applier.Refusal
		w.request(req)
		assert.Equal(w, applier.EndAskedNothing, w.end().End)
		require.ErrorIs(w, w.end().Err, applier.ErrStale)
		assert.Empty(w, w.client.Asks())

		consenting := w.putTarget("consenting")
		require.NoError(w, w.store.ChangeTarget(consenting.Ref, func(t *applier.Target) { t.RefusalConsent = true }))
		req.Targets = append(req.Targets, consenting.Ref)
		w.reports = nil
		w.request(req)
		assert.Equal(w, applier.EndCompleted, w.end().End)
		assert.Equal(w, []applier.TargetRef{consenting.Ref}, w.end().Operation.Targets)
		assert.Equal(w, applier.Refusal, w.client.Asks()[0].Ask.Reason)
	})
}

func TestADecisionThatNoLongerHoldsAsksNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []int{0, 1} {
		t.Run(fmt.Sprint("after being asked times ", after), func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				asked := 0
				req := w.decided()
				req.Current = func() bool { asked++; return asked <= after }
				w.start()
				w.request(req)
				assert.Equal(w, applier.EndAskedNothing, w.end().End)
				require.ErrorIs(w, w.end().Err, applier.ErrStale)
				assert.Nil(w, w.kept(), "what was recorded is withdrawn")
				assert.Empty(w, w.events)
			})
		})
	}
}

func TestAnApplierThatNeedsNoRequestIsTheEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{{Outcome: applier.OutcomeCurrent}}
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.Report{End: applier.EndAskedNothing}, w.end())
		assert.Empty(w, w.events)
	})
}

func TestAFailedRequestStartsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(w *dispatchWorld)
		says    string
	}{
		"the backend refuses": {func(w *dispatchWorld) { w.client.Answers = []fake.Answer{{Refuse: errAway}} }, "the API server is away"},
		"the cluster is not known": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Applier.Cluster = "test" })
		}, `no cluster is named "test"`},
		"no backend serves the kind": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Applier.Kind = "Helmsman" })
		}, "no backend serves Helmsman"},
		"the trigger cannot be read": {func(w *dispatchWorld) { w.store.Inject(fake.StoreFault{Method: "Trigger", Err: errAway}) }, "trigger team-a/shop"},
		"a target cannot be read":    {func(w *dispatchWorld) { w.store.Inject(fake.StoreFault{Method: "Target", Err: errAway}) }, "target team-a/shop"},
		"who holds the applier cannot be read": {func(w *dispatchWorld) {
			w.store.Inject(fake.StoreFault{Method: "Triggers", Err: errAway})
		}, "the API server is away"},
		"the applier is not held yet": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Held = false })
		}, "does not hold Kustomization team-a/shop in cluster prod yet"},
		"another operation is open": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = operationAt("x1", applier.StateRunning) })
		}, "another operation is open: x1"},
		"it cannot be recorded": {func(w *dispatchWorld) { w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errAway}) }, "the API server is away"},
		"it is not known whether it was recorded": {func(w *dispatchWorld) {
			w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Lost: errAway})
		}, "it is not known whether the write was made"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				tc.prepare(w)
				before := w.kept()
				w.start()
				w.request(w.decided())
				time.Sleep(time.Minute)
				assert.Equal(w, applier.EndNotStarted, w.end().End)
				require.ErrorContains(w, w.end().Err, tc.says)
				assert.Equal(w, before, w.kept(), "what was recorded is withdrawn")
				for _, asked := range w.client.Asks() {
					assert.Empty(w, asked.Started.Outcome)
				}
			})
		})
	}
}

func TestAnApplierThatTheHostDoesNotHoldYetIsAskedLater(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.changeTrigger(func(t *applier.Trigger) { t.Status.Held = false })
		w.start()
		w.request(w.decided())
		require.ErrorIs(w, w.end().Err, applier.ErrNotHeld)
		assert.False(w, applier.IsPermanent(w.end().Err))
	})
}

func TestAnApplierThatIsToBeHeldIsNotEvenAskedBeforeTheHostHoldsIt(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = struct {
			applier.Client
			applier.Holder
		}{Client: w.client}
		w.changeTrigger(func(t *applier.Trigger) { t.Status.Held = false })
		w.start()
		w.request(w.decided())
		require.ErrorIs(w, w.end().Err, applier.ErrNotHeld)
		assert.Empty(w, w.client.Asks())
	})
}

func TestALiveTriggerIsAskedLiveAndNeedsNoHold(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.changeTrigger(func(t *applier.Trigger) { t.Live, t.Status.Held = true, false })
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.OutcomeStamped, w.end().Operation.Started.Outcome)
	})
}

func TestFailedRequestsAreOneEventForARunOfThem(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		away := fake.Answer{Refuse: errAway}
		w.client.Answers = []fake.Answer{away, away, {}, away}
		w.start()
		for range 4 {
			w.request(w.decided())
		}
		assert.Equal(w, []string{"ApplyRequestFailed", "ApplyRequested", "ApplyRequestFailed"}, w.eventReasons())
	})
}

func TestFailedAppliesAreOneEventForARunOfThem(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		fails := fake.Fails("BuildFailed", "no such base")
		w.client.Answers = []fake.Answer{fails, fails, {}, fails}
		w.start()
		for range 4 {
			w.request(w.decided())
		}
		assert.Equal(w, []string{
			"ApplyRequested", "ApplyFailed", "ApplyRequested", "ApplyRequested", "ApplyRequested", "ApplyFailed",
		}, w.eventReasons())
		assert.Equal(w, "Warning ApplyFailed shop: BuildFailed: no such base", w.events[1])
	})
}

func TestAnAttemptBeforeTheStartFailsAtOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.request(w.decided())
		assert.Equal(w, applier.EndNotStarted, w.end().End)
		assert.Empty(w, w.client.Asks())
	})
}

func TestAnAttemptAfterTheStopFailsAtOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		w.stop()
		w.request(w.decided())
		assert.Equal(w, applier.EndNotStarted, w.end().End)
		assert.Empty(w, w.client.Asks())
	})
}

func TestADispatcherIsStartedOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		require.Error(w, w.dispatcher.Start(w.Context()))
	})
}

func TestAnUnconfirmedRequestIsFollowed(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{{Unconfirmed: errors.New("the connection broke")}}
		w.start()
		w.request(w.decided())
		assert.Equal(w, "Completed Succeeded", w.reported()[len(w.reported())-1])
		assert.NoError(w, w.kept().Started.Unconfirmed, "a record says nothing of it")
	})
}

// A token is used for one request alone, and what the first of two recorded is withdrawn by it.
func TestEachRequestOfAnAttemptHasATokenOfItsOwn(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var tokens []string
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			tokens = append(tokens, ask.Token)
			if len(tokens) == 1 {
				require.NoError(w, ask.Record(ctx, applier.Started{Outcome: applier.OutcomeResumed, Token: ask.Token, Commit: ask.Commit}))
				return applier.Started{}, fmt.Errorf("%w: somebody was first", applier.ErrBusy)
			}
			assert.True(w, w.dispatcher.Following(w.trigger, tokens[1]))
			return w.client.Request(ctx, shopApp.NamespacedName(), ask)
		}}
		w.start()
		w.request(w.decided())
		require.Len(w, tokens, 2)
		assert.NotEqual(w, tokens[0], tokens[1])
		assert.Equal(w, tokens[1], w.kept().Started.Token)
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
		assert.False(w, w.dispatcher.Following(w.trigger, tokens[0]))
		assert.False(w, w.dispatcher.Following(w.trigger, tokens[1]))
	})
}
