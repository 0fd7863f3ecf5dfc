package applier_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestTheTimesOfADispatcherAreThose(t *testing.T) {
	t.Parallel()
	assert.Equal(t, 30*time.Second, applier.DefaultAttemptTimeout)
	assert.Equal(t, 5*time.Minute, applier.DefaultOperationWait)
	assert.Equal(t, 5*time.Minute, applier.DefaultUnresolvedAfter)
	assert.Equal(t, 2*time.Second, applier.DefaultPollInterval)
	assert.Equal(t, time.Minute, applier.DefaultUnresolvedPollMax)
	assert.Equal(t, 10*time.Second, applier.DefaultStopTimeout)
	assert.Equal(t, 5*time.Second, applier.DefaultStatusRetryInterval)
}

func TestAnAttemptIsBoundedUpToItsRequest(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ set, bound time.Duration }{
		"by default": {0, applier.DefaultAttemptTimeout},
		"as set":     {10 * time.Second, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.dispatcher.AttemptTimeout = tc.set
				w.wrapped = askedClient{w.client, func(ctx context.Context, _ applier.Ask) (applier.Started, error) {
					<-ctx.Done()
					return applier.Started{}, context.Cause(ctx)
				}}
				w.start()
				w.requireTimeout(tc.bound)
			})
		})
	}
}

// requireTimeout makes a request, and requires that it fails once bound has passed, and not before.
func (w *dispatchWorld) requireTimeout(bound time.Duration) {
	w.Helper()
	w.request(w.decided())
	time.Sleep(bound - time.Nanosecond)
	require.Empty(w, w.reported())
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	require.Equal(w, applier.EndNotStarted, w.end().End)
	require.ErrorContains(w, w.end().Err, "AttemptTimeout")
}

func TestTheWholeAttemptUpToItsRequestIsBounded(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.store.Inject(fake.StoreFault{Method: "Target", Delay: 20 * time.Second})
		w.wrapped = askedClient{w.client, func(ctx context.Context, _ applier.Ask) (applier.Started, error) {
			<-ctx.Done()
			return applier.Started{}, context.Cause(ctx)
		}}
		w.start()
		began := time.Now()
		w.request(w.decided())
		for len(w.reported()) == 0 {
			time.Sleep(time.Second)
		}
		assert.LessOrEqual(w, time.Since(began), applier.DefaultAttemptTimeout+time.Second)
	})
}

func TestAnOperationInProgressIsWaitedFor(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var waits []time.Duration
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			waits = append(waits, ask.Wait)
			if ask.Wait < 0 {
				return applier.Started{}, fmt.Errorf("%w: somebody syncs", applier.ErrBusy)
			}
			select {
			case <-time.After(4 * time.Minute):
				return w.client.Request(ctx, shopApp.NamespacedName(), ask)
			case <-ctx.Done():
				return applier.Started{}, context.Cause(ctx)
			}
		}}
		w.start()
		w.request(w.decided())
		time.Sleep(5 * time.Minute)
		assert.Equal(w, applier.EndCompleted, w.end().End)
		assert.Equal(w, []time.Duration{-1, applier.DefaultOperationWait}, waits)
	})
}

func TestAnAttemptHasAttemptTimeoutAndWhereItWaitsForAnOperationOperationWaitMore(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.dispatcher.AttemptTimeout, w.dispatcher.OperationWait = 10*time.Second, time.Minute
		var waits []time.Duration
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			waits = append(waits, ask.Wait)
			if ask.Wait < 0 {
				return applier.Started{}, fmt.Errorf("%w: somebody syncs", applier.ErrBusy)
			}
			<-ctx.Done()
			return applier.Started{}, context.Cause(ctx)
		}}
		w.start()
		w.request(w.decided())
		time.Sleep(70*time.Second - time.Nanosecond)
		assert.Empty(w, w.reported())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		assert.Equal(w, applier.EndNotStarted, w.end().End)
		require.ErrorContains(w, w.end().Err, "AttemptTimeout")
		assert.Equal(w, []time.Duration{-1, time.Minute}, waits)
	})
}

func TestAnOperationInProgressIsNotWaitedForIfNotWanted(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{{Refuse: applier.ErrBusy}}
		w.dispatcher.OperationWait = -1
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndNotStarted, w.end().End)
		require.ErrorIs(w, w.end().Err, applier.ErrBusy)
		assert.Len(w, w.client.Asks(), 1)
	})
}

func TestAStopEndsInTimeWhateverABackendDoes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ set, bound time.Duration }{
		"by default": {0, applier.DefaultStopTimeout},
		"as set":     {time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				w.dispatcher.StopTimeout = tc.set
				release := make(chan struct{})
				w.wrapped = askedClient{w.client, func(context.Context, applier.Ask) (applier.Started, error) {
					<-release
					return applier.Started{}, errAway
				}}
				ctx, cancel := context.WithCancel(w.Context())
				ended := make(chan error, 1)
				go func() { ended <- w.dispatcher.Start(ctx) }()
				synctest.Wait()
				w.request(w.decided())
				cancel()
				began := time.Now()
				require.ErrorContains(w, <-ended, "does not heed its context")
				assert.Equal(w, tc.bound, time.Since(began))
				close(release)
			})
		})
	}
}

func TestAnOperationIsPolledAtTheIntervalsThatTheHostSets(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.dispatcher.PollInterval, w.dispatcher.UnresolvedAfter = 3*time.Second, 9*time.Second
		w.dispatcher.UnresolvedPollMax = 10 * time.Second
		var reads moments
		w.wrapped = polled(progressClient{w.client, func(applier.Started) { reads.note() }})
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		began := time.Now()
		w.request(w.decided())
		time.Sleep(40 * time.Second)
		var seconds []float64
		for _, read := range reads.noted() {
			second := read.Sub(began).Seconds()
			if len(seconds) == 0 || second > seconds[len(seconds)-1] { // As it becomes unresolved it may be read twice.
				seconds = append(seconds, second)
			}
		}
		assert.Equal(w, []float64{0, 3, 6, 9, 15, 25, 35}, seconds)
	})
}

func TestTheTimesAndTheTokenOfARecordAreTheHosts(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		then := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		w.dispatcher.Now = func() time.Time { return then }
		w.dispatcher.Tokens = func() string { return "mine" }
		w.wrapped = askedClient{w.client, func(ctx context.Context, ask applier.Ask) (applier.Started, error) {
			s, err := w.client.Request(ctx, shopApp.NamespacedName(), ask)
			s.RequestedAt = metav1.MicroTime{} // A backend that does not say when.
			return s, err
		}}
		w.start()
		w.request(w.decided())
		end := w.end()
		assert.Equal(w, applier.EndCompleted, end.End)
		assert.Equal(w, "mine", w.client.Asks()[0].Ask.Token)
		for _, operation := range []*applier.Operation{end.Operation, w.kept()} {
			assert.Equal(w, "mine", operation.Started.Token)
			assert.Equal(w, then, operation.Started.RequestedAt.UTC())
			assert.Equal(w, then, operation.CompletedAt.UTC())
		}
	})
}

// The host knows that a mirror is the repository.
func (w *dispatchWorld) knowsMirrors() {
	w.dispatcher.SameRepository = func(_, _ string) bool { return true }
}

const mirror = "https://mirror.example.com/shop"

func TestATargetThatWritesToWhatTheHostSaysIsTheSameRepositoryIsAskedFor(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.knowsMirrors()
		w.changeTarget(func(t *applier.Target) { t.Writes.Repository = mirror })
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndCompleted, w.end().End)
	})
}

func TestATriggerComesFirstAlsoByATargetThatTheHostSaysWritesWhatItsApplierApplies(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.knowsMirrors()
		older := w.store.PutTrigger(applier.Trigger{
			Ref: applier.TriggerRef{Namespace: "team-a", Name: "older"}, Created: time.Now().Add(-day), Applier: shopApp,
			Status: applier.TriggerStatus{Source: &applier.TriggerSource{Source: applier.Source{URL: shopWrites.Repository, Revision: "main"}}},
		})
		target := w.putTarget("older")
		target.Trigger.Name, target.Writes.Repository = older.Ref.Name, mirror
		w.store.PutTarget(target)
		w.start()
		w.request(w.decided())
		assert.Equal(w, applier.EndAskedNothing, w.end().End)
		require.ErrorContains(w, w.end().Err, "is held by trigger team-a/older")
	})
}
