package applier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// recover hands over the operation that the trigger records, unless it is followed or has ended: as the worker and the trigger's
// reconciler are told to.
func (w *dispatchWorld) recover() {
	operation := w.kept()
	if operation != nil && !operation.Completed() && !w.dispatcher.Following(w.trigger, operation.Started.Token) {
		w.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: operation, Report: w.report})
	}
}

// recoverRecorded puts a record on the trigger, and hands it over.
func (w *dispatchWorld) recoverRecorded(record *applier.Operation) {
	w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = record })
	w.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: w.report})
}

func TestARecoveryThatWaitsForTheStartIsFollowedByNobodyElse(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		next := w.nextProcess()
		next.recover()
		next.recover()
		next.start()
		w.finish()
		assert.Equal(w, []string{"Running", "Completed Succeeded"}, next.reported())
	})
}

func TestARecordThatIsHandedOverTwiceIsFollowedOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		next := w.nextProcess()
		next.start()
		var second []applier.Report // Who asked Following before the first handed it over.
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: next.report})
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: func(r applier.Report) { second = append(second, r) }})
		w.finish()
		assert.Equal(w, []string{"Running", "Completed Succeeded"}, next.reported())
		require.Len(w, second, 1)
		assert.Equal(w, applier.EndAskedNothing, second[0].End)
		require.ErrorIs(w, second[0].Err, applier.ErrStale)
		assert.ErrorContains(w, second[0].Err, "is followed already")
	})
}

func TestAnOperationWhoseEndIsNotWrittenYetIsFollowedByNobodyElse(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		token := w.kept().Started.Token
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errAway})
		w.finish()
		require.False(w, w.kept().Completed())
		assert.True(w, w.dispatcher.Following(w.trigger, token))
		assert.True(w, w.dispatcher.Following(applier.TriggerRef{Namespace: w.trigger.Namespace, Name: w.trigger.Name}, token))
		w.recover()
		time.Sleep(applier.DefaultStatusRetryInterval)
		synctest.Wait()
		assert.True(w, w.kept().Completed())
		assert.False(w, w.dispatcher.Following(w.trigger, token))
		assert.Equal(w, []string{"Requested", "Running", "Completed Succeeded"}, w.reported())
	})
}

func TestAnOperationWhoseWithdrawalIsNotWrittenYetIsFollowedByNobody(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			require.NoError(w, ask.Record(ctx, applier.Started{Outcome: applier.OutcomeSyncRequested, Token: ask.Token}))
			return applier.Started{}, errAway
		}}
		w.start()
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 2, Delay: 5 * time.Second})
		w.request(w.decided())
		require.NotNil(w, w.kept())
		w.recover()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Nil(w, w.kept())
		assert.Equal(w, []string{"NotStarted"}, w.reported())
	})
}

// Who hands over a record may have read it a while ago.
func TestARecordIsReadAgainBeforeItIsFollowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		now  func(w *dispatchWorld, old *applier.Operation) *applier.Operation
		want []string
		err  error
	}{
		"as it was": {func(_ *dispatchWorld, old *applier.Operation) *applier.Operation { return old }, []string{"Running"}, nil},
		"it has ended": {func(_ *dispatchWorld, old *applier.Operation) *applier.Operation {
			old.Progress = applier.Progress{State: applier.StateFailed, Reason: "BuildFailed"}
			return old
		}, []string{"Completed Failed"}, nil},
		"another took its place": {func(_ *dispatchWorld, old *applier.Operation) *applier.Operation {
			old.Started.Token = "another"
			return old
		}, []string{"AskedNothing"}, applier.ErrStale},
		"it was withdrawn": {func(*dispatchWorld, *applier.Operation) *applier.Operation { return nil }, []string{"AskedNothing"}, applier.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.hang()
				w.stop()
				read := w.kept()
				now := tc.now(w, w.kept())
				w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = now })
				next := w.nextProcess()
				next.start()
				next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: read, Report: next.report})
				assert.Equal(w, tc.want, next.reported())
				next.mu.Lock()
				defer next.mu.Unlock()
				require.ErrorIs(w, next.reports[0].Err, tc.err)
			})
		})
	}
}

func TestARecoveryWithoutAUIDLeavesTheNextIncarnationAlone(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		next := w.nextProcess()
		next.start()
		nameless := applier.TriggerRef{Namespace: w.trigger.Namespace, Name: w.trigger.Name}
		next.request(applier.ApplyRequest{Trigger: nameless, Recovered: w.kept(), Report: next.report})
		w.store.DeleteTrigger(w.trigger)
		second := w.store.PutTrigger(applier.Trigger{Ref: nameless, Applier: shopApp})
		time.Sleep(applier.DefaultUnresolvedAfter)
		w.finish()
		assert.Equal(w, applier.EndCompleted, next.end().End)
		trigger, err := w.store.Trigger(w.Context(), second.Ref)
		require.NoError(w, err)
		assert.Nil(w, trigger.Status.Operation)
	})
}

// What a crash left resumed is suspended again, also for nobody.
func TestARecordWhoseTriggerIsGoneIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		record := w.kept()
		w.store.DeleteTrigger(w.trigger)
		next := w.nextProcess()
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: next.report})
		w.finish()
		require.Equal(w, []string{"Running", "Completed Succeeded"}, next.reported())
		assert.NotEmpty(w, next.end().Operation.Started.SuspendToken, "it is suspended")
		assert.False(w, next.dispatcher.Following(w.trigger, record.Started.Token))
	})
}

// refusing is a Client that cannot follow what it started.
type refusing struct {
	applier.Client
	// first is called by the first Progress; later ones are refused.
	first  func()
	called bool
}

func (c *refusing) Progress(context.Context, types.NamespacedName, *applier.Started) (applier.Progress, error) {
	if c.called {
		return applier.Progress{}, applier.Permanent(errAway)
	}
	c.called = true
	c.first()
	return applier.Progress{State: applier.StateRunning}, nil
}

func TestARecordThatTheHostTookAwayStaysAway(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		mend := func() {}
		w.wrapped = &refusing{Client: w.client, first: func() {
			mend = w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Err: errAway})
		}}
		w.start()
		w.request(w.decided())
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.Equal(w, applier.EndNotFollowed, w.end().End)
		mend()
		w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = nil })
		time.Sleep(time.Minute)
		assert.Nil(w, w.kept())
	})
}

func TestARecordThatIsJustBeingWrittenIsNotWrittenAgainOnceNobodyFollowsIt(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		written := make(chan struct{})
		w.wrapped = &refusing{Client: w.client, first: func() {
			w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Between: func(fake.StoreCall) { <-written }})
		}}
		w.start()
		w.request(w.decided())
		time.Sleep(4 * time.Second)
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running"}, w.reported(), "a view of it is on its way to the store")
		close(written)
		synctest.Wait()
		require.Equal(w, applier.EndNotFollowed, w.end().End)
		assert.False(w, w.dispatcher.Following(w.trigger, w.end().Operation.Started.Token))
		w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = nil })
		time.Sleep(time.Minute)
		assert.Nil(w, w.kept())
	})
}

// Without a dispatcher nobody says that an operation is overdue.
func TestAnOperationThatNeverBeganEndsByItself(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]applier.Started{
		"unconfirmed": {Outcome: applier.OutcomeSyncRequested, Token: "t1", Unconfirmed: applier.ErrUnconfirmed},
		"recovered":   {Outcome: applier.OutcomeStamped, Token: "t1", Recovered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				end, err := applier.Follower{}.Follow(t.Context(), unbegun{}, types.NamespacedName{Name: "app"}, &s, nil)
				require.NoError(t, err)
				assert.Equal(t, applier.ReasonNotRun, end.Reason)
				assert.Equal(t, 90*time.Second, time.Since(began))
				assert.False(t, s.Overdue, "that is the host's to say")
			})
		})
	}
}

func TestAnOperationThatNeverBeganEndsAlsoWhereTheAPIServerWasAwayForLonger(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]applier.Started{
		"unconfirmed": {Outcome: applier.OutcomeSyncRequested, Token: "t1", Unconfirmed: applier.ErrUnconfirmed},
		"recovered":   {Outcome: applier.OutcomeStamped, Token: "t1", Recovered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				end, err := applier.Follower{}.Follow(ctx, awayUntil(began.Add(99*time.Second)), types.NamespacedName{Name: "app"}, &s, nil)
				require.NoError(t, err)
				assert.Equal(t, applier.ReasonNotRun, end.Reason)
				assert.LessOrEqual(t, time.Since(began), 103*time.Second)
			})
		})
	}
}

// awayUntil is a Client whose API server is away until back. Then its watch shows the object, once.
func awayUntil(back time.Time) applier.Client { return &away{back: back} }

type away struct {
	unbegun
	back time.Time
}

func (c *away) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if time.Now().Before(c.back) {
		return applier.Progress{}, errAway
	}
	s.Observed = nil
	return c.unbegun.Progress(ctx, ref, s)
}

func (c *away) Watch(ctx context.Context, _ types.NamespacedName) <-chan *unstructured.Unstructured {
	out := make(chan *unstructured.Unstructured, 1)
	time.AfterFunc(time.Until(c.back)+time.Second/2, func() { out <- nil })
	context.AfterFunc(ctx, func() { close(out) })
	return out
}

func TestARecoveryOfNothingFailsForGood(t *testing.T) {
	t.Parallel()
	for name, recovered := range map[string]*applier.Operation{
		"the zero value": {},
		"no token":       {Applier: shopApp},
		"no applier":     {Started: applier.Started{Token: "t1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.start()
				w.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: recovered, Report: w.report})
				assert.Equal(w, applier.EndNotFollowed, w.end().End)
				assert.True(w, applier.IsPermanent(w.end().Err))
				assert.ErrorContains(w, w.end().Err, "hand over what the trigger records")
			})
		})
	}
}

// unbegun is a Client that sees nothing of an operation until it is given up.
type unbegun struct{ applier.Client }

func (unbegun) Progress(_ context.Context, _ types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if s.Overdue {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonNotRun}, nil
	}
	return applier.Progress{State: applier.StateRequested}, nil
}
