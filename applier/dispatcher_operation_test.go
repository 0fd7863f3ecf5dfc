package applier_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// progressClient is a Client that tells what Progress was called with.
type progressClient struct {
	applier.Client
	called func(s applier.Started)
}

func (c progressClient) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	c.called(*s)
	return c.Client.Progress(ctx, ref, s)
}

func (w *dispatchWorld) hang() {
	w.client.Answers = []fake.Answer{fake.Hangs()}
	w.start()
	w.request(w.decided())
	require.Equal(w, []string{"Requested", "Running"}, w.reported())
}

func (w *dispatchWorld) finish() {
	w.client.Report(shopApp.NamespacedName(), applier.Progress{State: applier.StateSucceeded})
	synctest.Wait()
}

func TestAnOperationThatTakesTooLongIsUnresolvedAndFollowedOn(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running", "Running unresolved", "Running unresolved"}, w.reported())
		assert.True(w, w.kept().Unresolved)
		assert.NotEmpty(w, w.kept().Started.SuspendToken, "it is suspended at once")
		assert.Equal(w, []string{"ApplyRequested", "ApplyUnresolved"}, w.eventReasons())
		time.Sleep(day)
		w.finish()
		assert.Equal(w, "Completed Succeeded unresolved", w.reported()[len(w.reported())-1])
		assert.Equal(w, applier.EndCompleted, w.end().End)
		assert.Equal(w, []string{"ApplyRequested", "ApplyUnresolved"}, w.eventReasons())
	})
}

func TestTheSuspendOfAnUnresolvedOperationDoesNotWaitForTheStore(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.store.Inject(fake.StoreFault{Method: "Target", Delay: time.Hour})
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		assert.NotEmpty(w, w.kept().Started.SuspendToken)
	})
}

func TestAnUnresolvedOperationIsPolledEverLessOftenUpToABound(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var reads moments
		w.wrapped = polled(progressClient{w.client, func(applier.Started) { reads.note() }})
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		w.request(w.decided())
		time.Sleep(applier.DefaultUnresolvedAfter - time.Second)
		synctest.Wait()
		assert.Len(w, reads.noted(), int((applier.DefaultUnresolvedAfter-time.Second)/applier.DefaultPollInterval)+1)
		time.Sleep(time.Second)
		synctest.Wait()
		unresolved := len(reads.noted()) - 1
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var gaps []time.Duration
		after := reads.noted()[unresolved:]
		for i := 1; i < len(after); i++ {
			gaps = append(gaps, after[i].Sub(after[i-1]))
		}
		require.Greater(w, len(gaps), 6)
		assert.Equal(w, []time.Duration{4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute}, gaps[:6])
	})
}

func TestNothingIsReadWhileAWatchedApplierDoesNotChange(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var reads moments
		w.wrapped = watchedProgress{progressClient{w.client, func(applier.Started) { reads.note() }}, w.client}
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		before := len(reads.noted())
		time.Sleep(day)
		synctest.Wait()
		assert.Len(w, reads.noted(), before)
	})
}

// moments notes when something happened.
type moments struct {
	mu sync.Mutex
	at []time.Time
}

func (m *moments) note() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = append(m.at, time.Now())
}

func (m *moments) noted() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.at)
}

// watchedProgress is a progressClient that can be watched.
type watchedProgress struct {
	progressClient
	applier.Watcher
}

func TestAnAbandonedAttemptReportsNothingMoreAndSettlesWhatItResumed(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		token := w.kept().Started.Token
		assert.True(w, w.dispatcher.Following(w.trigger, token))
		w.abandon()
		synctest.Wait()
		assert.NotEmpty(w, w.kept().Started.SuspendToken, "it is suspended at once")
		assert.False(w, w.dispatcher.Following(w.trigger, token), "once it is")
		w.finish()
		assert.Equal(w, []string{"Requested", "Running"}, w.reported())
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State, "its record is completed all the same")
		assert.False(w, w.kept().Unresolved)
	})
}

func TestAnAttemptAbandonedBeforeItsWriteStartsNothing(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			w.abandon()
			assert.False(w, ask.Current())
			return w.client.Request(context.WithoutCancel(ctx), shopApp.NamespacedName(), ask)
		}}
		w.start()
		w.request(w.decided())
		assert.Empty(w, w.reported())
		assert.Nil(w, w.kept())
		require.ErrorIs(w, w.client.Asks()[0].Err, applier.ErrStale)
	})
}

func TestAStopLeavesWhatIsInFlightToTheNextProcess(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		began := time.Now()
		w.stop()
		assert.Zero(w, time.Since(began))
		assert.Equal(w, applier.StateRunning, w.kept().Progress.State)
		assert.Empty(w, w.kept().Started.SuspendToken)
		w.finish()
		time.Sleep(day)
		assert.Equal(w, []string{"Requested", "Running"}, w.reported())
	})
}

func TestAStopSendsNoMoreStartingWrites(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			w.cancel()
			assert.False(w, ask.Current())
			return w.client.Request(context.WithoutCancel(ctx), shopApp.NamespacedName(), ask)
		}}
		w.start()
		w.request(w.decided())
		assert.Empty(w, w.reported())
		require.ErrorIs(w, w.client.Asks()[0].Err, applier.ErrStale)
	})
}

func TestARecoveredOperationIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		record := w.kept()
		next := w.nextProcess()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: next.report})
		time.Sleep(time.Minute)
		assert.Empty(w, next.reported(), "it waits for the start")
		next.start()
		assert.Equal(w, []string{"Running"}, next.reported())
		assert.True(w, next.dispatcher.Following(w.trigger, record.Started.Token))
		w.finish()
		assert.Equal(w, []string{"Running", "Completed Succeeded"}, next.reported())
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
		next.stop()
	})
}

func TestRecoveryFollowsTheRecordAndNotTheTrigger(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		record := w.kept()
		w.changeTrigger(func(t *applier.Trigger) { t.Applier.Name, t.Deleting = "other", true })
		next := w.nextProcess()
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: next.report})
		w.finish()
		assert.Equal(w, shopApp, next.end().Operation.Applier)
		assert.Equal(w, applier.StateSucceeded, w.kept().Progress.State)
		next.stop()
	})
}

func TestARecoveredOperationThatIsOldIsSoonUnresolved(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		time.Sleep(day)
		next := w.nextProcess()
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: next.report})
		assert.Equal(w, []string{"Running"}, next.reported(), "it may have ended meanwhile")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		assert.Contains(w, next.reported(), "Running unresolved")
		assert.Equal(w, []string{"ApplyUnresolved"}, next.eventReasons())
		next.stop()

		third := w.nextProcess()
		third.start()
		third.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: third.report})
		assert.Empty(w, third.eventReasons(), "it was said before")
		w.finish()
		assert.Equal(w, applier.EndCompleted, third.end().End)
		third.stop()
	})
}

func TestARecoveredOperationFromAClockThatIsAheadHasItsFullTime(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.stop()
		record := w.kept()
		record.Started.RequestedAt = metav1.NewMicroTime(time.Now().Add(day))
		next := w.nextProcess()
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: record, Report: next.report})
		time.Sleep(applier.DefaultUnresolvedAfter - time.Second)
		assert.Equal(w, []string{"Running"}, next.reported())
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Contains(w, next.reported(), "Running unresolved")
		next.stop()
	})
}

func TestARecordThatIsCompletedIsItsEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		record := operationAt("t1", applier.StateFailed)
		w.recoverRecorded(record)
		assert.Equal(w, []string{"Completed Failed"}, w.reported())
	})
}

func TestARecoveredOperationInAClusterThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		record := operationAt("t1", applier.StateRunning)
		record.Applier.Cluster = "test"
		w.recoverRecorded(record)
		time.Sleep(day)
		assert.Equal(w, []string{"Running", "Running unresolved"}, w.reported())
	})
}

func TestARecoveredOperationWithoutABackendIsNotFollowed(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.start()
		record := operationAt("t1", applier.StateRunning)
		record.Applier.Kind = "Helmsman"
		w.recoverRecorded(record)
		assert.Equal(w, applier.EndNotFollowed, w.end().End)
		assert.ErrorContains(w, w.end().Err, "no backend serves Helmsman")
		assert.False(w, w.dispatcher.Following(w.trigger, "t1"))
	})
}

func TestFollowingIsTrueFromBeforeTheRecordUntilTheEnd(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var token string
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			token = ask.Token
			assert.True(w, w.dispatcher.Following(w.trigger, token))
			return w.client.Request(ctx, shopApp.NamespacedName(), ask)
		}}
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		w.request(w.decided())
		assert.True(w, w.dispatcher.Following(w.trigger, token))
		assert.False(w, w.dispatcher.Following(w.trigger, "another"))
		assert.False(w, w.dispatcher.Following(applier.TriggerRef{Namespace: "team-a", Name: "other"}, token))
		w.finish()
		assert.False(w, w.dispatcher.Following(w.trigger, token))
	})
}

func TestFollowingEndsWithAnAttemptThatStartedNothing(t *testing.T) {
	t.Parallel()
	for end, answer := range map[applier.End]error{applier.EndNotStarted: errAway, applier.EndAskedNothing: nil} {
		t.Run(string(end), func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				token := ""
				w.wrapped = askedClient{w.client, func(_ context.Context, ask applier.Ask) (applier.Started, error) {
					token = ask.Token
					return applier.Started{Outcome: applier.OutcomeCurrent}, answer
				}}
				w.start()
				w.request(w.decided())
				require.Equal(w, end, w.end().End)
				assert.False(w, w.dispatcher.Following(w.trigger, token))
			})
		})
	}
}
