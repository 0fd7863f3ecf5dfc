package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var unansweredClauses = []storeClause{
	{
		group: "Unanswered", name: "writes that were made are unconfirmed",
		text:  "an error says that nothing was written, unless it is ErrUnconfirmed: a write that was made and whose answer got lost is no other error",
		needs: []Capability{Lose},
		check: unansweredIsUnconfirmed(func(e *storeEnv) func(applier.Store) { return e.Lose }),
	},
	{
		group: "Unanswered", name: "writes that were not made are unconfirmed",
		text:  "a write without an answer is ErrUnconfirmed: a store cannot know that it was not made",
		needs: []Capability{Drop},
		check: unansweredIsUnconfirmed(func(e *storeEnv) func(applier.Store) { return e.Drop }),
	},
	{
		group: "Unanswered", name: "writes that were made and sent again are made once",
		text:  "a write that the client sends again by itself conflicts with its own: mutate is called again, with what it left before",
		needs: []Capability{Echo},
		check: unansweredIsEchoed,
	},
	{
		group: "Unanswered", name: "calls end with their context",
		text:  "each method returns soon after its context ends, also while nobody answers",
		needs: []Capability{Hang},
		check: unansweredEnds,
	},
	{
		group: "Context", name: "that has ended is no wait",
		text:  "each method returns soon when its context has ended before, and whatever UpdateStatus says of what it wrote is true",
		check: endedContext,
	},
	{
		group: "Context", name: "that ends in the middle leaves the answer true",
		text:  "whenever the context of UpdateStatus ends, no error means that the status is written, and an error that is not ErrUnconfirmed, that it is not",
		check: endingContext,
	},
}

func unansweredIsUnconfirmed(breaks func(*storeEnv) func(applier.Store)) func(ctx context.Context, e *storeEnv) error {
	return func(ctx context.Context, e *storeEnv) error {
		put, err := e.trigger(ctx, "shop")
		if err != nil {
			return err
		}
		breaks(e)(e.store)
		err = e.store.UpdateStatus(ctx, put.Ref, setStatus(mark("unanswered")))
		switch {
		case err == nil: // It asked again.
			err = e.wantMark(ctx, put.Ref, "unanswered")
		case errors.Is(err, applier.ErrUnconfirmed):
			err = nil
		default:
			return fmt.Errorf("the write got no answer, and the error is not ErrUnconfirmed, so it says that nothing was written: %w", err)
		}
		if err != nil {
			return err
		}
		if err = e.store.UpdateStatus(ctx, put.Ref, setStatus(mark("answered"))); err != nil {
			return fmt.Errorf("UpdateStatus, after one without an answer: %w", err)
		}
		return e.wantMark(ctx, put.Ref, "answered")
	}
}

func unansweredIsEchoed(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	e.Echo(e.store)
	last := ""
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		last = marked(*t)
		return setStatus(mark("written"))(t)
	})
	switch {
	case errors.Is(err, applier.ErrUnconfirmed): // It did not look again.
		return nil
	case err != nil:
		return fmt.Errorf("the write was made and sent again, and the error is not ErrUnconfirmed, so it says that nothing was written: %w", err)
	case last != "written":
		return fmt.Errorf("the write was made and sent again, and mutate was last called with the status %q", last)
	}
	return e.wantMark(ctx, put.Ref, "written")
}

// everyMethod calls each method of a store.
func (e *storeEnv) everyMethod(trigger applier.TriggerRef, target applier.TargetRef) map[string]func(context.Context, applier.Store) error {
	return map[string]func(context.Context, applier.Store) error{
		"Trigger": func(ctx context.Context, s applier.Store) error { _, err := s.Trigger(ctx, trigger); return err },
		"Target":  func(ctx context.Context, s applier.Store) error { _, err := s.Target(ctx, target); return err },
		"Triggers": func(ctx context.Context, s applier.Store) error {
			_, err := s.Triggers(ctx, applier.TriggerMatch{})
			return err
		},
		"Targets": func(ctx context.Context, s applier.Store) error { _, err := s.Targets(ctx, trigger); return err },
		"UpdateStatus": func(ctx context.Context, s applier.Store) error {
			return s.UpdateStatus(ctx, trigger, setStatus(mark("written")))
		},
	}
}

// returns calls a method whose context ends after a while, and wants it to return soon after that.
func returns(ctx context.Context, name string, after time.Duration, call func(context.Context) error) error {
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	if after == 0 {
		cancel()
	}
	done := make(chan error, 1)
	go func() { done <- call(ending) }()
	if after > 0 {
		select {
		case <-done: // It asks nobody.
			return nil
		case <-time.After(after):
			cancel()
		}
	}
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		return unreturned{fmt.Errorf("%s has not returned %v after its context ended", name, soon)}
	}
}

// unreturned is a call that did not return.
type unreturned struct{ error }

func unansweredEnds(ctx context.Context, e *storeEnv) error {
	trigger, target, err := e.pair(ctx)
	if err != nil {
		return err
	}
	e.Hang(e.store)
	for name, call := range e.everyMethod(trigger.Ref, target.Ref) {
		var late unreturned
		err := returns(ctx, name, time.Second, func(ctx context.Context) error { return call(ctx, e.store) })
		if errors.As(err, &late) {
			return err
		}
	}
	return nil
}

// pair puts a trigger and a target that names it.
func (e *storeEnv) pair(ctx context.Context) (applier.Trigger, applier.Target, error) {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return trigger, applier.Target{}, err
	}
	target, err := e.target(ctx, "site", trigger)
	return trigger, target, err
}

func endedContext(ctx context.Context, e *storeEnv) error {
	trigger, target, err := e.pair(ctx)
	if err != nil {
		return err
	}
	for name, call := range e.everyMethod(trigger.Ref, target.Ref) {
		err := returns(ctx, name, 0, func(ctx context.Context) error { return call(ctx, e.store) })
		var late unreturned
		if errors.As(err, &late) {
			return err
		}
		if name == "UpdateStatus" {
			if err := e.truthful(ctx, trigger.Ref, "written", err); err != nil {
				return err
			}
		}
	}
	return nil
}

func endingContext(ctx context.Context, e *storeEnv) error {
	trigger, _, err := e.pair(ctx)
	if err != nil {
		return err
	}
	for i := range often {
		ending, cancel := context.WithCancel(ctx)
		want := fmt.Sprint("mark ", i)
		err := e.store.UpdateStatus(ending, trigger.Ref, func(t *applier.Trigger) error {
			if i%2 == 0 {
				cancel()
			} else {
				go cancel()
			}
			t.Status = mark(want)
			return nil
		})
		cancel()
		if err := e.truthful(ctx, trigger.Ref, want, err); err != nil {
			return err
		}
	}
	return nil
}

// truthful compares what UpdateStatus returned with what it wrote.
func (e *storeEnv) truthful(ctx context.Context, ref applier.TriggerRef, mark string, returned error) error {
	got, err := e.reread(ctx, ref)
	switch written := marked(got) == mark; {
	case err != nil:
		return err
	case returned == nil && !written:
		return errors.New("UpdateStatus returned no error, and did not write")
	case returned != nil && !errors.Is(returned, applier.ErrUnconfirmed) && written:
		return fmt.Errorf("the status was written, and the error is not ErrUnconfirmed, so it says that it was not: %w", returned)
	}
	return nil
}
