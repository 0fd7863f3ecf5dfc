package appliertest

import (
	"context"
	"errors"
	"fmt"
)

func operationsRunBesideOthers(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	like, err := s.object(ctx)
	if err != nil {
		return err
	}
	beside := *s
	copied := *s.Applier
	copied.Ref.Name += "-beside"
	beside.Applier = &copied
	if _, err := s.create(ctx, like, copied.Ref.Name); err != nil {
		return err
	}
	if err := beside.handBack(ctx); err != nil {
		return fmt.Errorf("cannot hold the copy: %w", err)
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	apply := func(s *subject) error {
		started, err := s.request(ctx, commit)
		if err != nil {
			return err
		}
		end, err := s.follow(ctx, &started)
		if err == nil && end.AppliedCommit != commit {
			err = fmt.Errorf("two appliers were asked at the same time, and the operation of %s ended %+v", s.Ref, end)
		}
		return err
	}
	return together(
		func() error { return apply(s) },
		func() error { return apply(&beside) },
		func() error { s.client.Validate(ctx, s.Ref); return nil },
		func() error { s.client.Validate(ctx, copied.Ref); return nil },
	)
}

func operationsAtOnce(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	ask := func() error {
		ask, _ := s.ask(commit)
		started, err := s.client.Request(ctx, s.Ref, ask)
		if err != nil {
			if stored(s.starts(ask.Token)) > 0 {
				return fmt.Errorf("the operation was started, and Request returned an error: %w", err)
			}
			return nil
		}
		if started.Token != ask.Token {
			return fmt.Errorf("a request with the token %s started the operation %s", ask.Token, started.Token)
		}
		end, err := s.follow(ctx, &started)
		if err != nil {
			return err
		}
		return s.truthful(ctx, started, end)
	}
	read := func() error {
		s.client.Validate(ctx, s.Ref)
		return nil
	}
	if err := together(ask, ask, read, read); err != nil {
		return err
	}
	applied, err := s.Applied(ctx)
	if err == nil && applied != commit {
		err = fmt.Errorf("two requests asked for %s at the same time, and the cluster holds %q", commit, applied)
	}
	return errors.Join(err, s.settled(ctx))
}

// together runs all at the same time and returns what went wrong.
func together(all ...func() error) error {
	results := make(chan error, len(all))
	for _, f := range all {
		go func() { results <- f() }()
	}
	var failed []error
	for range all {
		failed = append(failed, <-results)
	}
	return errors.Join(failed...)
}
