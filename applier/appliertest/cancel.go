package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// soon bounds how long a call may take after its context ended.
const soon = 5 * time.Second

func requestReturns(ctx context.Context, e *env) error {
	over := make(chan struct{})
	defer close(over)
	hangs := func(*subject, *request) fault { return fault{hang: over} }
	return e.sweep(ctx, sweep{what: "without an answer until the context ended", strike: hangs, fresh: true, flow: func(ctx context.Context, s *subject, h *hit) error {
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		asking, cancel := context.WithCancel(ctx)
		defer cancel()
		ask, _ := s.ask(commit)
		done := make(chan error, 1)
		go func() {
			_, err := s.client.Request(asking, s.Ref, ask)
			done <- err
		}()
		if err = s.await(ctx, h, done); errors.Is(err, errStruck) {
			cancel()
			select {
			case err = <-done:
			case <-time.After(soon):
				s.wire.on(nil)
				return fmt.Errorf("Request has not returned %v after its context ended", soon)
			}
			if err != nil {
				if stored(s.starts(ask.Token)) > 0 {
					return fmt.Errorf("the operation was started, and Request returned an error: %w", err)
				}
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("Request: %w", err)
		}
		s.wire.on(nil)
		return nil
	}})
}

// errStruck says that a request was struck while a call was going on.
var errStruck = errors.New("struck")

// await returns the result of a call, or errStruck once one of its requests was struck. A process that ended before would take
// the request back that it was to leave behind.
func (s *subject) await(ctx context.Context, h *hit, done <-chan error) error {
	for {
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
		if r := h.request(); r != nil && s.wire.isOver(r) {
			return errStruck
		}
	}
}
