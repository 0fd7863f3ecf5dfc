package applier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// recordUnanswered records operation by a write that gets no answer, and was not made.
func (w *statusWorld) recordUnanswered(operation *applier.Operation) {
	remove := w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Dropped: errLost})
	defer remove()
	require.ErrorIs(w, w.record(operation), applier.ErrUnconfirmed)
}

func TestAWithdrawalIsNotLostToTheNextOne(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t0", applier.StateFailed))
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.recordUnanswered(operationAt("t2", applier.StateRequested))
		w.writer.WithdrawApplyOperation(w.trigger, "t2")
		w.start()
		synctest.Wait()
		assert.Equal(w, "t0 Failed", w.shown(), "the withdrawal of the first was to go with the record of the second, which never arrived")
		require.NoError(w, w.record(operationAt("t3", applier.StateRequested)))
	})
}

func TestARecordThatLandsAfterItsWithdrawalIsWithdrawn(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t0", applier.StateFailed))
		w.start()
		w.recordUnanswered(operationAt("t1", applier.StateRequested))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		time.Sleep(time.Second)
		assert.Equal(w, "t0 Failed", w.shown())
		w.put(operationAt("t1", applier.StateRequested)) // The write was still on its way.
		require.NoError(w, w.record(operationAt("t2", applier.StateRequested)), "nobody follows the first")
		w.writer.WithdrawApplyOperation(w.trigger, "t2")
		synctest.Wait()
		assert.Equal(w, "t0 Failed", w.shown())

		w.recordUnanswered(operationAt("t3", applier.StateRequested))
		w.writer.WithdrawApplyOperation(w.trigger, "t3")
		time.Sleep(time.Second)
		w.put(operationAt("t3", applier.StateRequested))
		time.Sleep(applier.DefaultStatusRetryInterval)
		synctest.Wait()
		assert.Equal(w, "t0 Failed", w.shown(), "also where nothing else is recorded")
	})
}

// A store writes, its client sends that again and gets a conflict, and the next read fails.
type echoedStore struct {
	*fake.Store
	failed error
}

func (s *echoedStore) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) (err error) {
	err, s.failed = s.failed, nil
	return errors.Join(s.Store.UpdateStatus(ctx, ref, mutate), err)
}

func TestARecordIsWithdrawnWhicheverErrorItsWriteHad(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t0", applier.StateFailed))
		store := &echoedStore{w.store, errors.New("etcdserver: leader changed")}
		w.writer = applier.NewStatusWriter(store, logr.Discard())
		w.start()
		require.Error(w, w.record(operationAt("t1", applier.StateRequested)))
		require.Equal(w, "t1 Requested", w.shown())
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		synctest.Wait()
		assert.Equal(w, "t0 Failed", w.shown())
	})
}

// Two attempts of one trigger overlap, and neither knows whether it has recorded its operation.
func TestARecordThatMayYetLandIsNotOvertakenByAnother(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.recordUnanswered(operationAt("t1", applier.StateRequested))
		require.ErrorIs(w, w.record(operationAt("t2", applier.StateRequested)), applier.ErrOperationOpen)
		w.writer.WithdrawApplyOperation(w.trigger, "t2")
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		time.Sleep(time.Second)
		w.put(operationAt("t1", applier.StateRequested)) // It was still on its way.
		time.Sleep(2 * time.Minute)
		assert.Empty(w, w.shown(), "nobody follows it")
	})
}

func TestTheStoreIsNotAskedForeverAboutAWithdrawal(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.recordUnanswered(operationAt("t1", applier.StateRequested))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		time.Sleep(5 * time.Minute)
		calls := len(w.store.Calls())
		assert.Less(w, calls, 20)
		time.Sleep(day)
		assert.Len(w, w.store.Calls(), calls)
	})
}

// A client that resends a write by itself sees a conflict with its own, and reads what came after it.
func TestARecordThatTurnsOutToBeThereIsWithdrawnAlthoughRecordingFailed(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*applier.Trigger){
		"the trigger is being deleted by then":   func(t *applier.Trigger) { t.Deleting = true },
		"it names another applier by then":       func(t *applier.Trigger) { t.Applier.Name = "other" },
		"somebody else's record is open by then": func(t *applier.Trigger) { t.Status.Operation = operationAt("x1", applier.StateRunning) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStatusWorld(t, func(w *statusWorld) {
				w.start()
				w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Between: func(fake.StoreCall) {
					w.put(operationAt("t1", applier.StateRequested)) // What was sent first is made,
					require.NoError(w, w.store.ChangeTrigger(w.trigger, change))
				}})
				require.Error(w, w.record(operationAt("t1", applier.StateRequested)))
				w.writer.WithdrawApplyOperation(w.trigger, "t1")
				synctest.Wait()
				assert.NotEqual(w, "t1 Requested", w.shown())
			})
		})
	}
}

// Another process followed the record, and found that it never ran.
func TestAWithdrawalLeavesTheEndThatSomebodyElseRecorded(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t0", applier.StateSucceeded))
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.put(operationAt("t1", applier.StateFailed))
		w.start()
		synctest.Wait()
		assert.Equal(w, "t1 Failed", w.shown())
	})
}

func TestAWithdrawalIsLookedForUntilItsRecordCanNoLongerLand(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.recordUnanswered(operationAt("t1", applier.StateRequested))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		time.Sleep(54 * time.Second)
		// What is read within the minute is answered after it, and the record lands in between.
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, After: func(fake.StoreCall) {
			time.Sleep(4 * time.Second)
			w.put(operationAt("t1", applier.StateRequested))
			time.Sleep(2 * time.Second)
		}})
		time.Sleep(10 * time.Minute)
		assert.Empty(w, w.shown())
	})
}

func TestAWithdrawalIsWrittenBeforeTheNextRecord(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		require.NoError(w, w.record(operationAt("t2", applier.StateRequested)))
		var shown []string
		for _, status := range w.store.History(w.trigger) {
			token := ""
			if status.Operation != nil {
				token = status.Operation.Started.Token
			}
			shown = append(shown, token)
		}
		assert.Equal(w, []string{"t1", "", "t2"}, shown)
	})
}
