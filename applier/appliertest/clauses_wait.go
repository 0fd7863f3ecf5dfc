package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var waitClauses = []clause{
	{
		group: "Wait", name: "is as long as the ask says",
		text:  "a request waits for an operation in progress as long as ask.Wait says, and with a negative one not at all: then it is ErrBusy; or it is refused at once (ErrNotHeld)",
		needs: []Capability{API, ForeignOperation},
		check: waitIsBounded,
	},
	{
		group: "Wait", name: "ends with its context",
		text:  "Request returns soon after ctx ends, also while it waits for an operation that somebody else started; it has started nothing then",
		needs: []Capability{API, ForeignOperation},
		check: waitEnds,
	},
}

// shortWait is how long a request may wait for an operation that takes longer.
const shortWait = 2 * time.Second

// busy makes somebody else start an operation on a new applier, and returns a commit to ask for.
func (e *env) busy(ctx context.Context) (s *subject, commit string, release func() error, err error) {
	if s, err = e.subject(ctx); err != nil {
		return nil, "", nil, err
	}
	if release, err = s.foreign(ctx); err == nil {
		commit, err = s.Push(ctx)
	}
	return s, commit, release, err
}

func waitIsBounded(ctx context.Context, e *env) error {
	s, commit, release, err := e.busy(ctx)
	if err != nil {
		return err
	}
	for _, wait := range []time.Duration{-1, -time.Hour, shortWait} {
		if err := s.waits(ctx, commit, wait, release); err != nil {
			return fmt.Errorf("somebody else's operation is in progress, and the request may wait for %v: %w", wait, err)
		}
	}
	return release()
}

// waits returns what is wrong with how long a request waits, and what it returns then.
func (s *subject) waits(ctx context.Context, commit string, wait time.Duration, release func() error) error {
	s.wire.forget()
	limit := max(0, wait) + soon
	asking, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	err := s.requestDuring(asking, commit, wait, limit, release)
	switch took := time.Since(began); {
	case asking.Err() != nil:
		return fmt.Errorf("Request took %v, and returned: %w", took, told(err))
	case err == nil:
		return errors.New("Request returned no error")
	case errors.Is(err, applier.ErrNotHeld):
		return nil
	case !errors.Is(err, applier.ErrBusy) || applier.IsPermanent(err):
		return fmt.Errorf("Request's error is not ErrBusy, or is permanent: %w", err)
	case took < wait/2:
		return fmt.Errorf("Request took %v, and returned: %w", took, err)
	}
	return errors.Join(s.names(err.Error(), s.Ref), s.untouched("while somebody else's operation is in progress"))
}

func waitEnds(ctx context.Context, e *env) error {
	s, commit, release, err := e.busy(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	asking, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	switch err := s.requestDuring(asking, commit, e.harness.Timeout, time.Second, release); {
	case err == nil:
		return errors.New("somebody else's operation is in progress, and Request returned no error")
	case errors.Is(err, errLasts):
		return err
	default:
		return errors.Join(s.names(err.Error(), s.Ref), s.untouched("while somebody else's operation is in progress"), release())
	}
}

// errLasts is a Request that waits on after its context ended.
var errLasts = fmt.Errorf("Request has not returned %v after its context ended", soon)

// requestDuring asks while somebody else's operation is in progress. The request's context ends after limit. One that waits on is
// given what it waits for, and its return is waited for.
func (s *subject) requestDuring(ctx context.Context, commit string, wait, limit time.Duration, release func() error) error {
	ask, _ := s.ask(commit, func(a *applier.Ask) { a.Wait = wait })
	requested := make(chan error, 1)
	go func() {
		_, err := s.client.Request(ctx, s.Ref, ask)
		requested <- err
	}()
	select {
	case err := <-requested:
		return err
	case <-time.After(limit + soon):
	}
	err := release()
	select {
	case <-requested:
	case <-time.After(s.env.harness.Timeout):
	}
	return errors.Join(errLasts, err)
}
