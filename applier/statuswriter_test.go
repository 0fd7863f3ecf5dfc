package applier_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// shopApp is the applier that the triggers of these tests name.
var shopApp = applier.ApplierRef{
	Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "team-a", Name: "shop",
}

// operationAt returns a record of the operation with token.
func operationAt(token string, state applier.State) *applier.Operation {
	return &applier.Operation{
		Applier:  shopApp,
		Started:  applier.Started{Outcome: applier.OutcomeResumed, Token: token, Commit: commitA},
		Progress: applier.Progress{State: state},
	}
}

const commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// statusWorld is a store with one trigger, and a StatusWriter over it.
type statusWorld struct {
	*testing.T
	store   *fake.Store
	writer  *applier.StatusWriter
	trigger applier.TriggerRef
	stop    func()
}

// inStatusWorld runs test in a bubble. The writer is not started yet.
func inStatusWorld(t *testing.T, test func(w *statusWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &statusWorld{T: t, store: new(fake.Store), stop: func() {}}
		w.trigger = w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-a", Name: "shop"}, Applier: shopApp}).Ref
		w.writer = applier.NewStatusWriter(w.store, logr.Discard())
		test(w)
		w.stop()
	})
}

func (w *statusWorld) start() {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.writer.Start(ctx) }()
	w.stop = func() {
		cancel()
		require.NoError(w, <-ended)
		w.stop = func() {}
	}
}

func (w *statusWorld) publish(operation *applier.Operation) {
	w.writer.PublishTriggerStatus(w.trigger, applier.Publication{Operation: operation})
}

func (w *statusWorld) repair(pending bool) {
	w.writer.PublishTriggerStatus(w.trigger, applier.Publication{RepairPending: &pending})
}

func (w *statusWorld) record(operation *applier.Operation) error {
	return w.writer.RecordApplyOperation(w.Context(), w.trigger, operation)
}

// put makes status hold operation, as another process would have left it.
func (w *statusWorld) put(operation *applier.Operation) {
	require.NoError(w, w.store.ChangeTrigger(w.trigger, func(t *applier.Trigger) { t.Status.Operation = operation }))
}

// status returns what the trigger shows.
func (w *statusWorld) status() applier.TriggerStatus {
	trigger, err := w.store.Process().Trigger(w.Context(), w.trigger)
	require.NoError(w, err)
	return trigger.Status
}

// shown returns the token and the state of the operation that the trigger shows, such as "t1 Running".
func (w *statusWorld) shown() string {
	operation := w.status().Operation
	if operation == nil {
		return ""
	}
	return operation.Started.Token + " " + string(operation.Progress.State)
}

// written returns how many statuses the writer wrote.
func (w *statusWorld) written() int {
	n := 0
	for _, call := range w.store.Calls() {
		if call.Written != nil {
			n++
		}
	}
	return n
}

func TestAPublicationNeverBlocks(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.store.Inject(fake.StoreFault{Delay: time.Hour})
		began := time.Now()
		for range 100 {
			w.repair(true)
		}
		assert.Zero(w, time.Since(began))
	})
}

func TestAPublicationIsHeldUntilTheWriterIsStarted(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.repair(true)
		synctest.Wait()
		assert.False(w, w.status().RepairPending)
		w.start()
		synctest.Wait()
		assert.True(w, w.status().RepairPending)
	})
}

func TestAStatusWriterIsStartedOnce(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		synctest.Wait()
		require.ErrorContains(w, w.writer.Start(w.Context()), "started once")
		w.repair(true)
		synctest.Wait()
		assert.True(w, w.status().RepairPending)
		w.stop()
		require.Error(w, w.writer.Start(w.Context()))
	})
}

func TestALaterPublicationReplacesOneNotYetWritten(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		release := w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Delay: time.Second})
		defer release()
		w.publish(operationAt("t1", applier.StateRequested))
		synctest.Wait()
		for _, state := range []applier.State{applier.StateRunning, applier.StateSettling, applier.StateSucceeded} {
			w.publish(operationAt("t1", state))
		}
		w.repair(true)
		time.Sleep(2 * time.Second)
		assert.Equal(w, "t1 Succeeded", w.shown())
		assert.True(w, w.status().RepairPending)
		assert.Equal(w, 2, w.written(), "the steps between are not replayed")
	})
}

func TestAFailedWriteIsTriedAgainAfterTheRetryInterval(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.writer.RetryInterval = 7 * time.Second
		w.start()
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errors.New("the API server is away")})
		w.repair(true)
		time.Sleep(7*time.Second - time.Nanosecond)
		assert.Zero(w, w.written())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.True(w, w.status().RepairPending)
	})
}

func TestAFailedWriteIsNotTriedAgainOnceItIsReplaced(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errors.New("the API server is away")})
		w.publish(operationAt("t1", applier.StateRunning))
		synctest.Wait()
		w.publish(operationAt("t1", applier.StateSettling))
		synctest.Wait()
		assert.Equal(w, "t1 Settling", w.shown(), "the newer one does not wait")
		time.Sleep(time.Minute)
		assert.Equal(w, 1, w.written())
	})
}

func TestWhatIsHeldForATriggerThatIsGoneIsDropped(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.store.DeleteTrigger(w.trigger)
		w.repair(true)
		time.Sleep(time.Hour)
		assert.Len(w, w.store.Calls(), 1)
	})
}

func TestAWriteLeavesTheRestOfTheStatus(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		source := applier.TriggerSource{Source: applier.Source{URL: "https://git.example.com/acme/shop"}, Prefetch: true}
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Between: func(fake.StoreCall) {
			require.NoError(w, w.store.ChangeTrigger(w.trigger, func(t *applier.Trigger) { t.Status.Held, t.Status.Source = true, &source }))
		}})
		w.start()
		w.repair(true)
		synctest.Wait()
		assert.Equal(w, applier.TriggerStatus{RepairPending: true, Held: true, Source: &source}, w.status(),
			"what the reconciler wrote between the read and the write stands")
	})
}

func TestSeveralTriggersAreWrittenInParallelAndEachOneAtATime(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		var refs []applier.TriggerRef
		for i := range 10 {
			refs = append(refs, w.store.PutTrigger(applier.Trigger{Ref: applier.TriggerRef{Namespace: "team-a", Name: fmt.Sprint("t", i)}, Applier: shopApp}).Ref)
		}
		var mu sync.Mutex
		writing := make(map[applier.TriggerRef]int)
		count := func(trigger applier.TriggerRef, n int) {
			mu.Lock()
			defer mu.Unlock()
			writing[trigger] += n
			assert.LessOrEqual(w, writing[trigger], 1)
		}
		w.store.Inject(fake.StoreFault{
			Method: "UpdateStatus", Delay: time.Second,
			Before: func(call fake.StoreCall) { count(call.Trigger, 1) },
			After:  func(call fake.StoreCall) { count(call.Trigger, -1) },
		})
		w.start()
		began := time.Now()
		pending := true
		for range 3 {
			for _, ref := range refs {
				w.writer.PublishTriggerStatus(ref, applier.Publication{RepairPending: &pending})
				synctest.Wait()
			}
		}
		for w.written() < len(refs) {
			time.Sleep(100 * time.Millisecond)
		}
		assert.Less(w, time.Since(began), 2*time.Second)
		time.Sleep(10 * time.Second)
	})
}

func TestAPublishedOperationIsWrittenOnlyOverItsOwnEarlierRecord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		shown     *applier.Operation
		published *applier.Operation
		want      string
	}{
		"a status that holds none":           {nil, operationAt("t1", applier.StateRunning), "t1 Running"},
		"the same at an earlier point":       {operationAt("t1", applier.StateRequested), operationAt("t1", applier.StateRunning), "t1 Running"},
		"the same at a later point":          {operationAt("t1", applier.StateSettling), operationAt("t1", applier.StateRequested), "t1 Requested"},
		"the same, ended meanwhile":          {operationAt("t1", applier.StateFailed), operationAt("t1", applier.StateRunning), "t1 Failed"},
		"the same with another end":          {operationAt("t1", applier.StateFailed), operationAt("t1", applier.StateSucceeded), "t1 Failed"},
		"one that somebody else recorded":    {operationAt("x1", applier.StateRunning), operationAt("t1", applier.StateRunning), "x1 Running"},
		"one that somebody else's completed": {operationAt("x1", applier.StateSucceeded), operationAt("t1", applier.StateRunning), "x1 Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStatusWorld(t, func(w *statusWorld) {
				w.put(tc.shown)
				w.start()
				w.publish(tc.published)
				synctest.Wait()
				assert.Equal(w, tc.want, w.shown())
			})
		})
	}
}

func TestAWithdrawnOperationIsReplacedByWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]*applier.Operation{"nothing": nil, "a completed operation": operationAt("t0", applier.StateFailed)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStatusWorld(t, func(w *statusWorld) {
				w.put(before)
				shown := w.shown()
				w.start()
				require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
				assert.Equal(w, "t1 Requested", w.shown())
				w.writer.WithdrawApplyOperation(w.trigger, "t1")
				synctest.Wait()
				assert.Equal(w, shown, w.shown())
				require.NoError(w, w.record(operationAt("t2", applier.StateRequested)))
			})
		})
	}
}

func TestAnOperationWhoseRecordHadNoAnswerIsWithdrawn(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Lost: errors.New("the connection broke")})
		w.start()
		require.ErrorIs(w, w.record(operationAt("t1", applier.StateRequested)), applier.ErrUnconfirmed)
		assert.Equal(w, "t1 Requested", w.shown())
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		synctest.Wait()
		assert.Empty(w, w.shown())
	})
}

func TestAPublicationDoesNotReplaceWhatAnEarlierOneWithdrew(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.repair(true)
		w.start()
		synctest.Wait()
		assert.Empty(w, w.shown())
		assert.True(w, w.status().RepairPending)
	})
}

func TestOnlyAnOperationThatWasNotStartedCanBeWithdrawn(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.publish(operationAt("t1", applier.StateRunning))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.writer.WithdrawApplyOperation(w.trigger, "t0")
		synctest.Wait()
		assert.Equal(w, "t1 Running", w.shown())
	})
}

func TestAWithdrawalLeavesWhatSomebodyElseRecordedSince(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		require.NoError(w, w.record(operationAt("t1", applier.StateRequested)))
		w.put(operationAt("x1", applier.StateRunning))
		w.writer.WithdrawApplyOperation(w.trigger, "t1")
		w.start()
		synctest.Wait()
		assert.Equal(w, "x1 Running", w.shown())
	})
}

func TestAStopWritesWhatIsLeft(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Err: errors.New("the API server is away")})
		w.start()
		w.repair(true)
		synctest.Wait()
		began := time.Now()
		w.stop()
		assert.True(w, w.status().RepairPending)
		assert.Zero(w, time.Since(began))
	})
}

func TestAStopEndsInTimeWhateverTheStoreDoes(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.store.Inject(fake.StoreFault{Delay: time.Hour})
		w.start()
		w.repair(true)
		synctest.Wait()
		began := time.Now()
		w.stop()
		assert.LessOrEqual(w, time.Since(began), 5*time.Second)
	})
}

// A write without an answer may be made after a later view of the trigger was found to stand already.
func TestALateWriteIsNotTheLastWord(t *testing.T) {
	t.Parallel()
	inStatusWorld(t, func(w *statusWorld) {
		w.start()
		w.repair(true)
		synctest.Wait()
		mend := w.store.Inject(fake.StoreFault{Method: "UpdateStatus", Dropped: errLost})
		w.repair(false)
		synctest.Wait()
		mend()
		w.repair(true)
		synctest.Wait()
		time.Sleep(30 * time.Second)
		require.NoError(w, w.store.ChangeTrigger(w.trigger, func(t *applier.Trigger) { t.Status.RepairPending = false })) // It arrives.
		time.Sleep(10 * time.Second)
		assert.True(w, w.status().RepairPending)
		time.Sleep(2 * time.Minute)
		calls := len(w.store.Calls())
		time.Sleep(day)
		assert.Len(w, w.store.Calls(), calls, "the store is not asked for ever")
	})
}
