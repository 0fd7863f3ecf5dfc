package appliertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var raceClauses = []storeClause{
	{
		group: "Race", name: "loses no update",
		text:  "of several writers at once, one succeeds; the others read and call mutate again, until each has written over what the others wrote",
		check: raceLosesNothing,
	},
	{
		group: "Race", name: "with another's status is decided afresh",
		text:  "a status that somebody else wrote after the trigger was read is not written over: mutate is called again, with it",
		check: raceWithStatus,
	},
	{
		group: "Race", name: "with a changed trigger is decided afresh",
		text:  "a status is written on the condition that the trigger has not changed since it was read, in whatever part: else mutate is called again",
		check: raceWithChange,
	},
	{
		group: "Race", name: "with a trigger made anew writes nothing on it",
		text:  "a trigger that was deleted and made anew after it was read has another UID: it is not written, and ErrRecordGone",
		check: raceWithReplacement,
	},
	{
		group: "Race", name: "between reads and writes is safe",
		text:  "a store is safe for concurrent use",
		check: raceOfReads,
	},
}

// writers is how many goroutines write at once, each so many times.
const writers, writes = 8, 5

func raceLosesNothing(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	other, err := e.another()
	if err != nil {
		return err
	}
	stores := []applier.Store{e.store, other}
	failed := make(chan error, writers*writes)
	met := newMeeting(writers)
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for write := range writes {
				own := applier.TargetRef{Namespace: "writer", Name: fmt.Sprintf("%d-%d", writer, write)}
				first := write == 0
				err := stores[writer%len(stores)].UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
					if first {
						first = false
						met.wait()
					}
					if t.Status.Operation == nil {
						t.Status.Operation = &applier.Operation{}
					}
					t.Status.Operation.Targets = append(t.Status.Operation.Targets, own)
					return nil
				})
				if err != nil {
					failed <- fmt.Errorf("UpdateStatus by one of %d writers: %w", writers, err)
					return
				}
			}
		})
	}
	all.Wait()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	got, err := e.reread(ctx, put.Ref)
	if err != nil {
		return err
	}
	if got.Status.Operation == nil {
		return errors.New("nothing was written")
	}
	count := make(map[string]int)
	for _, ref := range got.Status.Operation.Targets {
		count[ref.Name]++
	}
	for writer := range writers {
		for write := range writes {
			if name := fmt.Sprintf("%d-%d", writer, write); count[name] != 1 {
				return fmt.Errorf("update %s was made, and is there %d times; of %d updates, %d are there",
					name, count[name], writers*writes, len(got.Status.Operation.Targets))
			}
		}
	}
	return nil
}

// meeting makes writers wait until each of them has read, so that they write over each other. A store that lets only one
// read at a time keeps them apart: then they wait for a while and go on.
type meeting struct {
	missing atomic.Int32
	all     chan struct{}
}

func newMeeting(of int) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(int32(of))
	return m
}

func (m *meeting) wait() {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
	case <-time.After(patience):
	}
}

func raceWithStatus(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	other, err := e.another()
	if err != nil {
		return err
	}
	var race meanwhile
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		if race.done == nil {
			race.begin(func() error {
				return other.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
					t.Status.RepairPending = true
					return nil
				})
			})
		}
		t.Status.Held = true
		return nil
	})
	if err = errors.Join(err, race.end()); err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	got, err := e.reread(ctx, put.Ref)
	if err == nil {
		err = sameStatus(got.Status, applier.TriggerStatus{RepairPending: true, Held: true})
	}
	return err
}

func raceWithChange(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	var race meanwhile
	var seen string
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		seen = t.Applier.Name
		if race.done == nil {
			race.begin(func() error {
				_, err := e.trigger(ctx, "shop", func(t *applier.Trigger) { t.Applier.Name = "cart" })
				return err
			})
		}
		t.Status = mark("for " + t.Applier.Name)
		return nil
	})
	if err = errors.Join(err, race.end()); err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	if race.over && seen != "cart" {
		return fmt.Errorf("the trigger named another applier before its status was written, and mutate last saw it name %s", seen)
	}
	return e.wantMark(ctx, put.Ref, "for "+seen)
}

func raceWithReplacement(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	var race meanwhile
	var second applier.Trigger
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		if race.done == nil {
			race.begin(func() error {
				if err := e.DeleteTrigger(ctx, put.Ref); err != nil {
					return err
				}
				var err error
				second, err = e.trigger(ctx, "shop")
				return err
			})
		}
		t.Status = mark("written")
		return nil
	})
	if raced := race.end(); raced != nil {
		return raced
	}
	if race.over && !errors.Is(err, applier.ErrRecordGone) {
		return fmt.Errorf("the trigger was made anew before its status was written, and the error is not ErrRecordGone: %w", told(err))
	}
	return e.wantMark(ctx, second.Ref, "")
}

func raceOfReads(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	target, err := e.target(ctx, "site", put)
	if err != nil {
		return err
	}
	calls := []func() error{
		func() error { return e.store.UpdateStatus(ctx, put.Ref, setStatus(e.fullStatus())) },
		func() error { return e.store.UpdateStatus(ctx, put.Ref, setStatus(mark("other"))) },
		func() error { _, err := e.store.Trigger(ctx, put.Ref); return err },
		func() error {
			_, err := e.store.Trigger(ctx, applier.TriggerRef{Namespace: put.Ref.Namespace, Name: put.Ref.Name})
			return err
		},
		func() error { _, err := e.store.Target(ctx, target.Ref); return err },
		func() error {
			_, err := e.store.Triggers(ctx, applier.TriggerMatch{Cluster: "prod", Source: repo})
			return err
		},
		func() error { _, err := e.store.Targets(ctx, put.Ref); return err },
	}
	failed := make(chan error, len(calls)*often)
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(func() {
			for range often {
				if err := call(); err != nil {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}
