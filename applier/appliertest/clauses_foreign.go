package appliertest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

var foreignClauses = []clause{
	{
		group: "Foreign", name: "deletion between any two requests creates nothing",
		text:  "an applier that is deleted at any moment is not created again, and an operation on it ends Failed",
		needs: []Capability{API},
		check: foreignDeletion,
	},
	{
		group: "Foreign", name: "replacement between any two requests starts nothing",
		text:  "an object of the same name with another UID is not this operation's: nothing is written to it, and the operation ends Failed",
		needs: []Capability{API},
		check: foreignReplacement,
	},
	{
		group: "Foreign", name: "retargeting between any two requests starts nothing",
		text:  "no starting write is stored after the binding was last seen to differ from what was asked, whenever it changed",
		needs: []Capability{API, Retarget},
		check: foreignRetargeting,
	},
	{
		group: "Foreign", name: "hands at any moment leave the report true",
		text:  "whatever somebody else does at any moment, an operation ends once, its end is true, and the applier stands held afterwards",
		needs: []Capability{API, Hands},
		check: foreignHands,
	},
	{
		group: "Foreign", name: "operations are not replaced",
		text:  "an operation that somebody else started is never written over: a request that may not wait is ErrBusy, or refused (ErrNotHeld), and starts nothing",
		needs: []Capability{API, ForeignOperation},
		check: foreignOperationStays,
	},
	{
		group: "Foreign", name: "operations are waited for",
		text:  "an operation that somebody else started is waited for, or the request is refused (ErrNotHeld); once it is over, the applier can be asked",
		needs: []Capability{API, ForeignOperation},
		check: foreignOperationIsWaitedFor,
	},
}

// stillGone returns an error when the applier exists.
func (s *subject) stillGone(ctx context.Context) error {
	object, err := s.object(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("an applier was created: %s", show(object))
}

// undergo asks and follows while somebody else interferes. It returns what the contract does not allow, whatever the
// interference was.
func (s *subject) undergo(ctx context.Context, client applier.Client, commit string, h *hit) (ask applier.Ask, started *applier.Started, end applier.Progress, err error) {
	ask, _ = s.ask(commit)
	begun, err := client.Request(ctx, s.Ref, ask)
	if err != nil {
		if err := h.wait(); err != nil {
			return ask, nil, end, err
		}
		if stored(s.starts(ask.Token)) > 0 {
			return ask, nil, end, fmt.Errorf("the operation was started, and Request returned an error: %w", err)
		}
		if wrong := s.names(err.Error(), s.Ref); wrong != nil {
			return ask, nil, end, fmt.Errorf("Request's error is not for people: %w", wrong)
		}
		return ask, nil, end, nil
	}
	if begun.Outcome == applier.OutcomeCurrent {
		return ask, nil, end, errors.New("Request answers Current for a commit that is not applied")
	}
	end, err = s.pursue(ctx, client, &begun, stored(s.starts(ask.Token)) > 0)
	if err == nil && stored(s.starts(ask.Token)) > 1 {
		err = errors.New("the operation was started twice")
	}
	return ask, &begun, end, errors.Join(err, h.wait())
}

func foreignDeletion(ctx context.Context, e *env) error {
	strike := func(s *subject, _ *request) fault {
		return fault{before: s.remove}
	}
	return e.sweep(ctx, sweep{what: "deleted", strike: strike, fresh: true, flow: func(ctx context.Context, s *subject, h *hit) error {
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		_, started, end, err := s.undergo(ctx, s.client, commit, h)
		if err != nil || h.request() == nil {
			return err
		}
		if started != nil {
			if err := s.truthful(ctx, *started, end); err != nil {
				return err
			}
		}
		return s.stillGone(ctx)
	}})
}

func foreignReplacement(ctx context.Context, e *env) error {
	var mu sync.Mutex
	var replacement *unstructured.Unstructured
	strike := func(s *subject, _ *request) fault {
		return fault{before: func(ctx context.Context) error {
			made, err := s.replace(ctx)
			mu.Lock()
			defer mu.Unlock()
			replacement = made
			return err
		}}
	}
	return e.sweep(ctx, sweep{what: "replaced", strike: strike, fresh: true, flow: func(ctx context.Context, s *subject, h *hit) error {
		was, err := s.object(ctx)
		if err != nil {
			return err
		}
		s.like = was
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		_, started, end, err := s.undergo(ctx, s.client, commit, h)
		if err != nil || h.request() == nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		// A request made after the replacement was read is one of the replacement, and is its own operation.
		if started != nil && started.UID == replacement.GetUID() {
			return errors.Join(s.truthful(ctx, *started, end), s.settled(ctx))
		}
		if started != nil {
			if err := s.truthful(ctx, *started, end); err != nil {
				return fmt.Errorf("the applier was replaced: %w", err)
			}
		}
		now, err := s.object(ctx)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(intent(now), intent(replacement)) {
			return fmt.Errorf("the object that took the applier's place was written to:\nit was %s\nit is  %s", show(replacement), show(now))
		}
		return nil
	}})
}

func foreignRetargeting(ctx context.Context, e *env) error {
	strike := func(s *subject, _ *request) fault { return fault{before: s.Retarget} }
	return e.sweep(ctx, sweep{what: "pointed elsewhere", strike: strike, fresh: true, flow: func(ctx context.Context, s *subject, h *hit) error {
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		ask, started, _, err := s.undergo(ctx, s.client, commit, h)
		struck := h.request()
		if err != nil || struck == nil {
			return err
		}
		for _, start := range s.starts(ask.Token) {
			if start.stored && start.number >= struck.number {
				return fmt.Errorf("%v starts the apply of an applier that was pointed elsewhere before", start)
			}
		}
		if started == nil {
			return nil
		}
		return s.settled(ctx)
	}})
}

func foreignHands(ctx context.Context, e *env) error {
	e.untouched = e.applier()
	for i, hand := range e.untouched.Hands {
		if err := e.foreignHand(ctx, i, hand.Name); err != nil {
			return err
		}
	}
	return nil
}

// foreignHand sweeps one of the hands over an operation.
func (e *env) foreignHand(ctx context.Context, i int, name string) error {
	strike := func(s *subject, _ *request) fault { return fault{before: s.Hands[i].Act} }
	return e.sweep(ctx, sweep{what: fmt.Sprintf("with %q just before", name), strike: strike, flow: func(ctx context.Context, s *subject, h *hit) error {
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		s.follower.PollInterval = strikeInterval
		// A client that polls has read what was done before its last request; one that watches may hear of it too late.
		_, started, end, err := s.undergo(ctx, struct{ applier.Client }{s.client}, commit, h)
		s.wire.on(nil)
		if err != nil {
			return err
		}
		if started != nil {
			// What was stamped after the suspend was handled is handled soon.
			if err := errors.Join(s.truthful(ctx, *started, end), s.suspended(ctx), s.until(ctx, func() error { return s.settled(ctx) })); err != nil {
				return err
			}
		}
		if undo := s.Hands[i].Undo; undo != nil {
			if err := undo(ctx); err != nil {
				return err
			}
		}
		if err := s.handBack(ctx); err != nil {
			return fmt.Errorf("afterwards the applier cannot be held: %w", err)
		}
		next, err := s.Push(ctx)
		if err != nil {
			return err
		}
		if err := s.persist(ctx, next); err != nil {
			return fmt.Errorf("the next commit: %w", err)
		}
		return nil
	}})
}

func foreignOperationStays(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	release, err := s.foreign(ctx)
	if err != nil {
		return err
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	before, err := s.object(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	ask, noted := s.ask(commit, func(a *applier.Ask) { a.Wait = -1 })
	_, err = s.client.Request(ctx, s.Ref, ask)
	switch {
	case err == nil:
		return errors.New("somebody else's operation is in progress, the request may not wait, and it returned no error")
	case errors.Is(err, applier.ErrNotHeld):
	case !errors.Is(err, applier.ErrBusy) || applier.IsPermanent(err):
		return fmt.Errorf("somebody else's operation is in progress, and Request's error is not ErrBusy, or is permanent: %w", err)
	}
	if wrong := errors.Join(s.names(err.Error(), s.Ref), s.untouched("while somebody else's operation is in progress")); wrong != nil {
		return wrong
	}
	if len(noted.records()) > 0 {
		return errors.New("Record was called while somebody else's operation is in progress")
	}
	after, err := s.object(ctx)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(intent(before), intent(after)) {
		return fmt.Errorf("somebody else's operation was changed:\nit was %s\nit is  %s", show(before), show(after))
	}
	return release()
}

func foreignOperationIsWaitedFor(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	release, err := s.foreign(ctx)
	if err != nil {
		return err
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	ask, _ := s.ask(commit)
	var started applier.Started
	done := make(chan error, 1)
	go func() {
		var err error
		started, err = s.client.Request(ctx, s.Ref, ask)
		done <- err
	}()
	pause(ctx, 2*time.Second)
	wrong := s.untouched("while somebody else's operation is in progress")
	if err := errors.Join(wrong, release()); err != nil {
		return err
	}
	switch err := <-done; {
	case err == nil:
		end, err := s.follow(ctx, &started)
		if err != nil {
			return err
		}
		if end.AppliedCommit != commit {
			err = fmt.Errorf("the operation that was waited for is over, and ours ended %+v", end)
		}
		return errors.Join(err, s.truthful(ctx, started, end), s.settled(ctx))
	case !errors.Is(err, applier.ErrNotHeld):
		return fmt.Errorf("the operation in progress was over in time, and Request did not wait for it: %w", err)
	}
	if err := s.handBack(ctx); err != nil {
		return err
	}
	return s.persist(ctx, commit)
}
