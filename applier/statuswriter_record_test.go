package applier_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestRecordingWritesNowAndWithItWhatIsHeld(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t1", applier.StateRunning))
		w.publish(operationAt("t1", applier.StateSucceeded))
		w.repair(true)
		require.NoError(w, w.record(operationAt("t2", applier.StateRequested)), "the operation before it has ended, as is held")
		assert.Equal(w, "t2 Requested", w.shown())
		assert.True(w, w.status().RepairPending)
		assert.Equal(w, 2, w.written())
	})
}

func TestTheEndOfAnOperationIsWrittenBeforeTheNextIsRecorded(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t1", applier.StateRunning))
		w.publish(operationAt("t1", applier.StateSucceeded))
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errAway})
		require.ErrorIs(w, w.record(operationAt("t2", applier.StateRequested)), errAway)
		assert.Equal(w, "t1 Running", w.shown())
		require.NoError(w, w.record(operationAt("t2", applier.StateRequested)))
		var shown []string
		for _, status := range w.store.History(w.trigger) {
			shown = append(shown, status.Operation.Started.Token+" "+string(status.Operation.Progress.State))
		}
		assert.Equal(w, []string{"t1 Succeeded", "t2 Requested"}, shown)
	})
}

// The record of an operation carries the publication that came while an earlier one was just being written.
func TestAnEarlierPublicationIsNotWrittenOverARecordsLaterOne(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		recorded := make(chan error, 1)
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Between: func(fake.StoreCall) {
			go func() {
				w.repair(false)
				recorded <- w.record(operationAt("t1", applier.StateRequested))
			}()
			time.Sleep(time.Second)
		}})
		w.start()
		w.repair(true)
		require.NoError(w, <-recorded)
		time.Sleep(time.Minute)
		assert.False(w, w.status().RepairPending)
	})
}

func TestRecordingFailsWhere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before func(w *statusWorld)
		want   error
	}{
		"the trigger is gone": {func(w *statusWorld) { w.store.DeleteTrigger(w.trigger) }, applier.ErrRecordGone},
		"another incarnation has the name": {func(w *statusWorld) {
			w.store.DeleteTrigger(w.trigger)
			w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-a", Name: "shop"}, Applier: shopApp})
		}, applier.ErrRecordGone},
		"it is being deleted": {func(w *statusWorld) {
			require.NoError(w, w.store.ChangeTrigger(w.trigger, func(t *applier.Trigger) { t.Deleting = true }))
		}, applier.ErrRecordGone},
		"it names another applier now": {func(w *statusWorld) {
			require.NoError(w, w.store.ChangeTrigger(w.trigger, func(t *applier.Trigger) { t.Applier.Name = "other" }))
		}, applier.ErrStale},
		"it holds another open operation": {func(w *statusWorld) { w.put(operationAt("x1", applier.StateRunning)) }, applier.ErrOperationOpen},
		"the token was recorded before":   {func(w *statusWorld) { w.put(operationAt("t1", applier.StateSucceeded)) }, applier.ErrOperationOpen},
		"one is recorded meanwhile": {func(w *statusWorld) {
			w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Between: func(fake.StoreCall) { w.put(operationAt("x1", applier.StateRequested)) }})
		}, applier.ErrOperationOpen},
		"the store does not answer": {func(w *statusWorld) {
			w.store.Inject(fake.StoreFault{Lost: errors.New("the connection broke")})
		}, applier.ErrUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStatusWorld(t, func(w *statusWorld) {
				tc.before(w)
				err := w.record(operationAt("t1", applier.StateRequested))
				require.ErrorIs(w, err, tc.want)
				assert.ErrorContains(w, err, "team-a/shop")
			})
		})
	}
}

func TestAnEchoOfItsOwnWriteDoesNotFailARecord(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.put(operationAt("t0", applier.StateFailed))
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Echo: true})
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		assert.Equal(w, "t1 Requested", w.shown())
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.start()
		synctest.Wait()
		assert.Equal(w, "t0 Failed", w.shown())
	})
}

func TestWhatAStatusShowsOfAnOperationIsItsRecord(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		operation := operationAt("t1", applier.StateRequested)
		operation.Reason, operation.Want = applier.Repair, applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"}
		operation.Targets = []applier.TargetRef{{Namespace: "team-a", Name: "shop", UID: "u1"}}
		operation.Started.UID, operation.Started.Baseline = "k1", "handled t0"
		operation.Started.RequestedAt = metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.Local)) // as a record is read
		require.NoError(w, w.record(operation))
		recovered := *operation
		recovered.Started.Recovered = true
		assert.Equal(w, &recovered, w.status().Operation)
	})
}
