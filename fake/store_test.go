package fake_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var (
	shopTrigger = applier.TriggerRef{Namespace: "team-a", Name: "shop"}
	shopTarget  = applier.TargetRef{Namespace: "team-a", Name: "shop"}
)

// note is a mutate function that leaves a mark, by which a test tells writes apart.
func note(mark string) func(*applier.Trigger) error {
	return func(t *applier.Trigger) error {
		t.Status.Operation = &applier.Operation{Started: applier.Started{Token: mark}}
		return nil
	}
}

func marks(history []applier.TriggerStatus) []string {
	var all []string
	for _, status := range history {
		token := ""
		if status.Operation != nil {
			token = status.Operation.Started.Token
		}
		all = append(all, token)
	}
	return all
}

func TestAStoreGivesTriggersAndTargetsWhatTheyLack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store fake.Store
		put := store.PutTrigger(applier.Trigger{Ref: shopTrigger})
		assert.NotEmpty(t, put.Ref.UID)
		assert.Equal(t, time.Now(), put.Created)
		time.Sleep(time.Second)
		again := store.PutTrigger(applier.Trigger{Ref: shopTrigger, Live: true})
		assert.Equal(t, put.Ref, again.Ref, "it is the same incarnation")
		assert.Equal(t, put.Created, again.Created)
		assert.True(t, again.Live)

		store.DeleteTrigger(shopTrigger)
		_, err := store.Trigger(t.Context(), shopTrigger)
		require.ErrorIs(t, err, applier.ErrRecordGone)
		another := store.PutTrigger(applier.Trigger{Ref: shopTrigger})
		assert.NotEqual(t, put.Ref.UID, another.Ref.UID)
		_, err = store.Trigger(t.Context(), put.Ref)
		require.EqualError(t, err, "trigger team-a/shop is another one now: the host's record is gone")

		target := store.PutTarget(applier.Target{Ref: shopTarget})
		assert.NotEmpty(t, target.Ref.UID)
		assert.Equal(t, target.Ref, store.PutTarget(applier.Target{Ref: shopTarget, Deleting: true}).Ref)
		store.DeleteTarget(shopTarget)
		_, err = store.Target(t.Context(), target.Ref)
		require.EqualError(t, err, "target team-a/shop: the host's record is gone")
	})
}

func TestAStoreIsChangedAsByAUser(t *testing.T) {
	t.Parallel()
	var store fake.Store
	gone := store.ChangeTrigger(shopTrigger, func(*applier.Trigger) { t.Error("there is none") })
	require.ErrorIs(t, gone, applier.ErrRecordGone)
	put := store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("one")))
	require.NoError(t, store.ChangeTrigger(put.Ref, func(t *applier.Trigger) { t.Ref.UID, t.Deleting = "other", true }))
	got, err := store.Trigger(t.Context(), shopTrigger)
	require.NoError(t, err)
	assert.Equal(t, put.Ref, got.Ref, "its UID stays")
	assert.True(t, got.Deleting)
	assert.Equal(t, "one", got.Status.Operation.Started.Token, "its status stays")
	assert.True(t, got.Status.Operation.Started.Recovered, "it is read from a record")

	gone = store.ChangeTarget(shopTarget, func(*applier.Target) { t.Error("there is none") })
	require.ErrorIs(t, gone, applier.ErrRecordGone)
	target := store.PutTarget(applier.Target{Ref: shopTarget, Object: &corev1.ConfigMap{}})
	require.NoError(t, store.ChangeTarget(target.Ref, func(t *applier.Target) { t.Object.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }))
	read, err := store.Target(t.Context(), shopTarget)
	require.NoError(t, err)
	read.Object.(*corev1.ConfigMap).Data["a"] = "c"
	read, err = store.Target(t.Context(), shopTarget)
	require.NoError(t, err)
	assert.Equal(t, "b", read.Object.(*corev1.ConfigMap).Data["a"], "the object that was read was the caller's own")
}

func TestAStoreKeepsTheHistoryOfAStatus(t *testing.T) {
	t.Parallel()
	var store fake.Store
	first := store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	for _, mark := range []string{"one", "two", "two"} {
		require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note(mark)))
	}
	require.NoError(t, store.Process().UpdateStatus(t.Context(), shopTrigger, note("three")))
	store.DeleteTrigger(shopTrigger)
	second := store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("four")))

	assert.Equal(t, []string{"one", "two", "three"}, marks(store.History(first.Ref)), "each write, by whichever process, and not what changes nothing")
	assert.Equal(t, []string{"four"}, marks(store.History(second.Ref)))
	assert.Equal(t, []string{"one", "two", "three", "four"}, marks(store.History(shopTrigger)))
}

func TestAStoreRecordsItsCalls(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	other := store.Process()
	_, err := other.Trigger(t.Context(), shopTrigger)
	require.NoError(t, err)
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("one")))
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("one")))
	_, err = store.Target(t.Context(), shopTarget)
	require.Error(t, err)
	_, err = store.Triggers(t.Context(), applier.TriggerMatch{Namespace: "team-a"})
	require.NoError(t, err)

	calls := store.Calls()
	require.Len(t, calls, 4, "not those of another process")
	assert.Equal(t, "#1 UpdateStatus team-a/shop", calls[0].String())
	assert.Equal(t, "one", calls[0].Written.Operation.Started.Token)
	assert.Nil(t, calls[1].Written, "nothing was to be written")
	assert.Equal(t, "#3 Target team-a/shop: target team-a/shop: the host's record is gone", calls[2].String())
	assert.Equal(t, "team-a", calls[3].Match.Namespace)
	assert.True(t, calls[3].Done)
}

func TestAStoreFaultStrikesTheCallsThatMatch(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	down := errors.New("the API server is down")
	remove := store.Inject(fake.StoreFault{Method: "UpdateStatus", Name: "shop", Nth: 2, Err: down})

	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("one")))
	_, err := store.Trigger(t.Context(), shopTrigger)
	require.NoError(t, err, "another method")
	require.NoError(t, store.Process().UpdateStatus(t.Context(), shopTrigger, note("two")), "another process")
	err = store.UpdateStatus(t.Context(), shopTrigger, func(*applier.Trigger) error { t.Error("nothing was to be read"); return nil })
	require.ErrorIs(t, err, down)
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("three")))
	assert.Equal(t, []string{"one", "two", "three"}, marks(store.History(shopTrigger)))

	remove()
	store.Inject(fake.StoreFault{Match: func(c fake.StoreCall) bool { return c.Match.Namespace == "team-b" }, Err: down})
	_, err = store.Triggers(t.Context(), applier.TriggerMatch{Namespace: "team-b"})
	require.ErrorIs(t, err, down)
	_, err = store.Triggers(t.Context(), applier.TriggerMatch{})
	require.NoError(t, err)
}

func TestAStoreWriteIsMadeAndItsAnswerLost(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	lost := errors.New("connection reset")
	store.Inject(fake.StoreFault{Nth: 1, Lost: lost})
	err := store.UpdateStatus(t.Context(), shopTrigger, note("one"))
	require.ErrorIs(t, err, applier.ErrUnconfirmed)
	require.ErrorIs(t, err, lost)
	assert.Equal(t, []string{"one"}, marks(store.History(shopTrigger)))
}

func TestAStoreWriteIsDropped(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	dropped := errors.New("connection reset")
	store.Inject(fake.StoreFault{Nth: 1, Dropped: dropped})
	called := 0
	err := store.UpdateStatus(t.Context(), shopTrigger, func(t *applier.Trigger) error { called++; return note("one")(t) })
	require.ErrorIs(t, err, applier.ErrUnconfirmed)
	require.ErrorIs(t, err, dropped)
	assert.Equal(t, 1, called)
	assert.Empty(t, store.History(shopTrigger))
}

func TestAStoreWriteIsEchoed(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	store.Inject(fake.StoreFault{Echo: true})
	var seen []string
	require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, func(t *applier.Trigger) error {
		seen = append(seen, marks([]applier.TriggerStatus{t.Status})...)
		return note("one")(t)
	}))
	assert.Equal(t, []string{"", "one"}, seen, "what it left before")
	assert.Equal(t, []string{"one"}, marks(store.History(shopTrigger)))
	assert.Equal(t, "one", store.Calls()[0].Written.Operation.Started.Token)
}

func TestAStoreWriteIsMadeOverNothingThatChanged(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fake.Store){
		"a status that was written": func(s *fake.Store) {
			require.NoError(t, s.Process().UpdateStatus(t.Context(), shopTrigger, note("theirs")))
		},
		"a trigger that was changed": func(s *fake.Store) {
			require.NoError(t, s.ChangeTrigger(shopTrigger, func(t *applier.Trigger) { t.Live = true }))
		},
		"a trigger that was made anew": func(s *fake.Store) {
			s.DeleteTrigger(shopTrigger)
			s.PutTrigger(applier.Trigger{Ref: shopTrigger})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store fake.Store
			store.PutTrigger(applier.Trigger{Ref: shopTrigger})
			store.Inject(fake.StoreFault{Method: "UpdateStatus", Between: func(fake.StoreCall) { change(&store) }})
			called := 0
			require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, func(t *applier.Trigger) error { called++; return note("ours")(t) }))
			assert.Equal(t, 2, called, "it was read again")
			history := marks(store.History(shopTrigger))
			assert.Equal(t, "ours", history[len(history)-1])
		})
	}
}

func TestAStoreCallIsDelayedUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var store fake.Store
		store.PutTrigger(applier.Trigger{Ref: shopTrigger})
		store.Inject(fake.StoreFault{Delay: time.Minute})
		start := time.Now()
		require.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, note("one")))
		assert.Equal(t, time.Minute, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, store.UpdateStatus(ctx, shopTrigger, note("two")), context.DeadlineExceeded)
		assert.Equal(t, []string{"one"}, marks(store.History(shopTrigger)))
	})
}

func TestAStoreProcessThatDies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault func(cut func(fake.StoreCall)) fake.StoreFault
		wrote []string
	}{
		"before a call":     {func(cut func(fake.StoreCall)) fake.StoreFault { return fake.StoreFault{Before: cut} }, nil},
		"before its write":  {func(cut func(fake.StoreCall)) fake.StoreFault { return fake.StoreFault{Between: cut} }, nil},
		"before its answer": {func(cut func(fake.StoreCall)) fake.StoreFault { return fake.StoreFault{After: cut} }, []string{"one"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var store fake.Store
			store.PutTrigger(applier.Trigger{Ref: shopTrigger})
			dies := store.Process()
			dies.Inject(test.fault(func(fake.StoreCall) { dies.Cut() }))
			require.ErrorIs(t, dies.UpdateStatus(t.Context(), shopTrigger, note("one")), fake.ErrCut)
			assert.Equal(t, test.wrote, marks(store.History(shopTrigger)))
			_, err := dies.Trigger(t.Context(), shopTrigger)
			require.ErrorIs(t, err, fake.ErrCut)
			_, err = store.Process().Trigger(t.Context(), shopTrigger)
			require.NoError(t, err, "the next process")
		})
	}
}

func TestAStoreIsUsedFromManyGoroutines(t *testing.T) {
	t.Parallel()
	var store fake.Store
	store.PutTrigger(applier.Trigger{Ref: shopTrigger})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				assert.NoError(t, store.UpdateStatus(t.Context(), shopTrigger, func(t *applier.Trigger) error {
					t.Status.Operation = &applier.Operation{Targets: make([]applier.TargetRef, 1+len(targets(t)))}
					return nil
				}))
			}
		})
		all.Go(func() {
			_, err := store.Triggers(t.Context(), applier.TriggerMatch{})
			assert.NoError(t, err)
			store.Calls()
		})
	}
	all.Wait()
	got, err := store.Trigger(t.Context(), shopTrigger)
	require.NoError(t, err)
	assert.Len(t, targets(&got), 400, "no update was lost")
}

func targets(t *applier.Trigger) []applier.TargetRef {
	if t.Status.Operation == nil {
		return nil
	}
	return t.Status.Operation.Targets
}
