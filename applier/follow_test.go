package applier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

var ref = types.NamespacedName{Namespace: "ns", Name: "app"}

// scripted is a client that answers as a test says.
type scripted struct {
	request  func(ctx context.Context, ask applier.Ask) (applier.Started, error)
	progress func(ctx context.Context, s *applier.Started) (applier.Progress, error)
}

func (c *scripted) Validate(context.Context, types.NamespacedName) applier.Verdict {
	return applier.Verdict{OK: true}
}

func (c *scripted) Request(ctx context.Context, _ types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	return c.request(ctx, ask)
}

func (c *scripted) Progress(ctx context.Context, _ types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	return c.progress(ctx, s)
}

// watched is a scripted client that shows what a test sends.
type watched struct {
	scripted
	shown chan *unstructured.Unstructured
	ctx   context.Context
}

func (c *watched) Watch(ctx context.Context, _ types.NamespacedName) <-chan *unstructured.Unstructured {
	c.ctx = ctx
	return c.shown
}

var (
	running   = applier.Progress{State: applier.StateRunning, Message: "runs"}
	succeeded = applier.Progress{State: applier.StateSucceeded, Reason: "Applied"}
	errLost   = errors.New("lost")
)

// answers returns a progress function that gives one answer after another, the last for ever, and the times of the calls.
func answers(list ...any) (func(context.Context, *applier.Started) (applier.Progress, error), *[]time.Duration) {
	start, at := time.Now(), &[]time.Duration{}
	return func(context.Context, *applier.Started) (applier.Progress, error) {
		*at = append(*at, time.Since(start))
		next := list[min(len(*at), len(list))-1]
		if err, failed := next.(error); failed {
			return applier.Progress{}, err
		}
		return next.(applier.Progress), nil
	}, at
}

func TestWithoutAWatchAnOperationIsPolledFromTheStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ set, interval time.Duration }{
		"by default": {interval: applier.DefaultPollInterval}, "as set": {set: 7 * time.Second, interval: 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				progress, at := answers(running, errLost, running, succeeded)
				var reported []applier.Progress
				end, err := applier.Follower{PollInterval: test.set}.Follow(t.Context(), &scripted{progress: progress}, ref, &applier.Started{},
					func(p applier.Progress) { reported = append(reported, p) })

				require.NoError(t, err)
				assert.Equal(t, succeeded, end)
				assert.Equal(t, []time.Duration{0, test.interval, 2 * test.interval, 3 * test.interval}, *at)
				assert.Equal(t, []applier.Progress{running, succeeded}, reported, "what did not change is not reported again")
			})
		})
	}
}

func TestAWatchedOperationIsReadWhenItsApplierChangesAndNotBetween(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []*unstructured.Unstructured
		client := &watched{shown: make(chan *unstructured.Unstructured)}
		client.progress = func(_ context.Context, s *applier.Started) (applier.Progress, error) {
			seen = append(seen, s.Observed)
			s.Observed = nil
			if len(seen) == 3 {
				return succeeded, nil
			}
			return running, nil
		}
		first, third := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		go func() {
			for _, object := range []*unstructured.Unstructured{first, nil, third} {
				time.Sleep(time.Hour)
				client.shown <- object
			}
		}()
		start := time.Now()

		end, err := applier.Follower{}.Follow(t.Context(), client, ref, &applier.Started{}, nil)

		require.NoError(t, err)
		assert.Equal(t, succeeded, end)
		assert.Equal(t, 3*time.Hour, time.Since(start))
		require.Len(t, seen, 3)
		assert.Same(t, first, seen[0])
		assert.Nil(t, seen[1], "something changed that is to be read")
		assert.Same(t, third, seen[2])
		assert.Error(t, client.ctx.Err(), "the watch ends with the call")
	})
}

func TestAReadThatFailedIsTriedAgainAlthoughNothingChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		progress, at := answers(errLost, errLost, running, succeeded)
		client := &watched{shown: make(chan *unstructured.Unstructured, 1), scripted: scripted{progress: progress}}
		client.shown <- &unstructured.Unstructured{}
		go func() {
			time.Sleep(time.Hour)
			client.shown <- &unstructured.Unstructured{}
		}()

		_, err := applier.Follower{}.Follow(t.Context(), client, ref, &applier.Started{}, nil)

		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second, time.Hour}, *at)
	})
}

func TestReadsThatFailOneAfterAnotherAreTriedAgainEverLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		progress, at := answers(errLost, errLost, errLost, errLost, errLost, running, errLost, succeeded)
		follower := applier.Follower{PollInterval: 2 * time.Second, PollMax: 10 * time.Second}

		_, err := follower.Follow(t.Context(), &scripted{progress: progress}, ref, &applier.Started{}, nil)

		require.NoError(t, err)
		var seconds []float64
		for _, call := range *at {
			seconds = append(seconds, call.Seconds())
		}
		assert.Equal(t, []float64{0, 2, 6, 14, 24, 34, 36, 38}, seconds, "the first comes after PollInterval, and so does the next that follows an answer")
	})
}

func TestAReadOfAWatchedOverdueOperationThatFailsIsTriedAgainAsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		progress, at := answers(running, running, running, running, errLost, succeeded)
		client := &watched{shown: make(chan *unstructured.Unstructured), scripted: scripted{progress: progress}}
		go func() {
			for range 4 {
				client.shown <- &unstructured.Unstructured{}
			}
		}()
		follower := applier.Follower{PollMax: time.Minute}

		_, err := follower.Follow(t.Context(), client, ref, &applier.Started{Overdue: true}, nil)

		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 0, 0, 0, 0, applier.DefaultPollInterval}, *at)
	})
}

func TestAWatchThatIsRefusedIsReplacedByPolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		progress, at := answers(running, running, succeeded)
		client := &watched{shown: make(chan *unstructured.Unstructured), scripted: scripted{progress: progress}}
		close(client.shown)

		_, err := applier.Follower{}.Follow(t.Context(), client, ref, &applier.Started{}, nil)

		require.NoError(t, err)
		assert.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second}, *at)
	})
}

func TestFollowingEndsWithItsContextAndTellsHowFarItCame(t *testing.T) {
	t.Parallel()
	cause := errors.New("the host stops")
	t.Run("while it waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*time.Second, func() { cancel(cause) })
			progress, at := answers(running)

			last, err := applier.Follower{}.Follow(ctx, &scripted{progress: progress}, ref, &applier.Started{}, nil)

			assert.Equal(t, running, last)
			assert.ErrorIs(t, err, cause)
			assert.Len(t, *at, 2)
		})
	})
	t.Run("after reads that failed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			progress, _ := answers(running, errLost)

			last, err := applier.Follower{}.Follow(ctx, &scripted{progress: progress}, ref, &applier.Started{}, nil)

			assert.Equal(t, running, last, "a read that failed says nothing")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, errLost)
		})
	})
	t.Run("while it waits for a watch", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			client := &watched{shown: make(chan *unstructured.Unstructured)}

			last, err := applier.Follower{}.Follow(ctx, client, ref, &applier.Started{}, nil)

			assert.Zero(t, last)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	})
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		progress, at := answers(succeeded)
		_, err := applier.Follower{}.Follow(ctx, &scripted{progress: progress}, ref, &applier.Started{}, nil)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, *at)
	})
}
