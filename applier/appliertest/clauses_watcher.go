package appliertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

var watcherClauses = []clause{
	{
		group: "Watcher", name: "shows what stands first",
		text:  "the first value is what stands once the watch is open",
		needs: []Capability{Watcher},
		check: watchShowsFirst,
	},
	{
		group: "Watcher", name: "suffices to follow an operation",
		text:  "Watch shows the applier as it changes: an operation is followed to its end without polling",
		needs: []Capability{Watcher},
		check: watchSuffices,
	},
	{
		group: "Watcher", name: "shows the newest state and not each step",
		text:  "a value that was not received before the next is replaced by it",
		needs: []Capability{Watcher, API},
		check: watchShowsNewest,
	},
	{
		group: "Watcher", name: "shows that the applier is gone",
		text:  "nil says that the object is gone or that something changed that is to be read",
		needs: []Capability{Watcher, API},
		check: watchShowsGone,
	},
	{
		group: "Watcher", name: "opens a broken watch again",
		text:  "a watch that breaks is opened again by itself, and nothing that changed meanwhile is lost",
		needs: []Capability{Watcher, API},
		check: watchReopens,
	},
	{
		group: "Watcher", name: "closes the channel when the watch is refused",
		text:  "the channel is also closed when the API server refuses the watch; ctx is then not done, and the operation is followed by polling",
		needs: []Capability{Watcher, API},
		check: watchRefused,
	},
	{
		group: "Watcher", name: "closes the channel when its context ends",
		text:  "Watch shows the applier until ctx ends; then it closes the channel, whether anybody receives or not",
		needs: []Capability{Watcher},
		check: watchCloses,
	},
	{
		group: "Watcher", name: "lets Progress read what was observed",
		text:  "Progress reads what s.Observed shows instead of asking the API server, and clears it",
		needs: []Capability{Watcher, API},
		check: progressReadsObserved,
	},
	{
		group: "Watcher", name: "takes nothing that came before its own write for an end",
		text:  "Observed can be older than the client's own last write: what it shows is then no end of the operation",
		needs: []Capability{Watcher, API},
		check: observedIsOld,
	},
}

// receive returns the next value, or an error when none comes in time or the channel is closed.
func (s *subject) receive(ctx context.Context, changes <-chan *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	timer := time.NewTimer(s.env.harness.Timeout)
	defer timer.Stop()
	select {
	case object, open := <-changes:
		if !open {
			return nil, errors.New("the channel was closed although ctx is not done")
		}
		return object, nil
	case <-timer.C:
		return nil, fmt.Errorf("nothing was shown within %v", s.env.harness.Timeout)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *subject) watch(ctx context.Context) <-chan *unstructured.Unstructured {
	watcher, _ := applier.AsWatcher(s.client)
	return watcher.Watch(ctx, s.Ref)
}

func watchShowsFirst(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	object, err := s.receive(ctx, s.watch(ctx))
	if err == nil && object != nil && object.GetName() != s.Ref.Name {
		err = fmt.Errorf("the watch of %s shows %s", s.Ref, object.GetName())
	}
	return err
}

func watchSuffices(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, e.harness.Timeout)
	defer cancel()
	changes := s.watch(bounded)
	for {
		if started.Observed, err = s.receive(bounded, changes); err != nil {
			return fmt.Errorf("while an operation went on: %w", err)
		}
		p, err := s.client.Progress(ctx, s.Ref, &started)
		switch {
		case err != nil || p.State.Ended():
			return err
		case bounded.Err() != nil:
			return fmt.Errorf("the operation did not end within %v: %+v", e.harness.Timeout, p)
		}
	}
}

func watchShowsNewest(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := s.watch(watching)
	if _, err := s.receive(ctx, changes); err != nil {
		return err
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	if _, err := s.followWith(ctx, struct{ applier.Client }{s.client}, &started, nil); err != nil {
		return err
	}
	pause(ctx, time.Second)
	object, err := s.receive(ctx, changes)
	if err != nil || object == nil {
		return err
	}
	now, err := s.object(ctx)
	if err == nil && object.GetResourceVersion() != now.GetResourceVersion() {
		err = fmt.Errorf("after many changes that nobody received, the watch shows resourceVersion %s, and %s stands", object.GetResourceVersion(), now.GetResourceVersion())
	}
	return err
}

func watchShowsGone(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := s.watch(watching)
	if _, err := s.receive(ctx, changes); err != nil {
		return err
	}
	if err := s.remove(ctx); err != nil {
		return err
	}
	if err := s.receiveNil(ctx, changes); err != nil {
		return fmt.Errorf("the applier was deleted: %w", err)
	}
	return nil
}

// receiveNil receives until the applier is shown to be gone.
func (s *subject) receiveNil(ctx context.Context, changes <-chan *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.env.harness.Timeout, fmt.Errorf("nil was not shown within %v", s.env.harness.Timeout))
	defer cancel()
	for {
		object, err := s.receive(ctx, changes)
		if err != nil || object == nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func watchReopens(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := s.watch(watching)
	if _, err := s.receive(ctx, changes); err != nil {
		return err
	}
	if s.wire.cut() == 0 {
		return errors.New("no watch goes through the API that NewClient is given, so none can be broken")
	}
	if err := s.remove(ctx); err != nil {
		return err
	}
	if err := s.receiveNil(ctx, changes); err != nil {
		return fmt.Errorf("the watch was cut and the applier deleted: %w", err)
	}
	return nil
}

// closes reports whether a channel is closed in time, whatever it still shows.
func closes(changes <-chan *unstructured.Unstructured, within time.Duration) bool {
	for deadline := time.After(within); ; {
		select {
		case <-deadline:
			return false
		case _, open := <-changes:
			if !open {
				return true
			}
		}
	}
}

func watchRefused(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.wire.on(func(r *request) fault {
		if r.verb == "watch" {
			return fault{refuse: forbidden(r)}
		}
		return fault{}
	})
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	changes := s.watch(watching)
	if !closes(changes, e.harness.Timeout) {
		return errors.New("the API server refuses the watch, and the channel stays open")
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	return s.succeed(ctx, commit)
}

func watchCloses(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	for _, received := range []bool{true, false} {
		watching, cancel := context.WithCancel(ctx)
		changes := s.watch(watching)
		if received {
			if _, err := s.receive(ctx, changes); err != nil {
				cancel()
				return err
			}
		} else {
			pause(ctx, time.Second)
		}
		cancel()
		if !closes(changes, soon) {
			return fmt.Errorf("the watch's context ended, and %v later the channel is open", soon)
		}
	}
	return nil
}

func progressReadsObserved(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, end, err := s.apply(ctx, commit)
	if err != nil {
		return err
	}
	started.Observed, err = s.object(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	p, err := s.client.Progress(ctx, s.Ref, &started)
	switch {
	case err != nil:
		return fmt.Errorf("Progress: %w", err)
	case started.Observed != nil:
		return errors.New("Progress left Started.Observed set")
	case len(s.wire.requests()) > 0:
		return fmt.Errorf("Observed shows the end, and Progress made %v", s.wire.requests()[0])
	case p != end:
		return fmt.Errorf("Observed shows the end %+v, and Progress reports %+v", end, p)
	}
	return nil
}

// observedIsOld shows Progress, after each write that the client makes to the applier, what stood before that write, as a
// watch does that lags behind.
func observedIsOld(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	first, err := s.Push(ctx)
	if err == nil {
		err = s.succeed(ctx, first)
	}
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var old *unstructured.Unstructured
	s.wire.on(func(r *request) fault {
		if !s.touched(r) {
			return fault{}
		}
		return fault{before: func(ctx context.Context) error {
			object, err := s.object(ctx)
			mu.Lock()
			defer mu.Unlock()
			old = object
			return err
		}}
	})
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	// A client that writes once more for what it is shown is shown what stood before that, too; more than this is a loop of its own.
	shown := 0
	return s.until(ctx, func() error {
		mu.Lock()
		lagging := old
		old = nil
		mu.Unlock()
		if lagging != nil && shown < maxOld {
			shown++
			started.Observed = lagging
		}
		p, err := s.client.Progress(ctx, s.Ref, &started)
		switch {
		case err != nil:
			return fmt.Errorf("Progress: %w", err)
		case !p.State.Ended():
			return fmt.Errorf("the operation did not end: %+v", p)
		case p.State != applier.StateSucceeded || p.AppliedCommit != commit:
			err = fmt.Errorf("nothing was wrong, and the operation ended %+v", p)
		default:
			err = errors.Join(s.truthful(ctx, started, p), s.settled(ctx))
		}
		switch {
		case err != nil && lagging != nil:
			return stop(fmt.Errorf("Progress was shown what stood before the client's own write (resourceVersion %s): %w", lagging.GetResourceVersion(), err))
		case err != nil:
			return stop(err)
		}
		return nil
	})
}

// maxOld is how often Progress is shown something old.
const maxOld = 5
