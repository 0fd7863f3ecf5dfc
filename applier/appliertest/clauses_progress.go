package appliertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/gitops-applier/gitops-applier/applier"
)

var progressClauses = []clause{
	{
		group: "Operation", name: "has no end in a kind that is not served",
		text:  "Progress of an applier whose kind is not served is an error, never an end such as Gone: the operation may go on, and is followed once the kind is served again",
		needs: []Capability{API},
		check: neverAnEnd("not served", notServed),
	},
	{
		group: "Operation", name: "has no end in a read that is forbidden",
		text:  "Progress of an applier that may not be read is an error, never an end such as Gone: the operation may go on, and is followed once it may be read again",
		needs: []Capability{API},
		check: neverAnEnd("forbidden", forbidden),
	},
}

// neverAnEnd follows an operation to its end, and breaks each step of it before it is made: first every request for the applier,
// then every write.
func neverAnEnd(what string, answer func(*request) error) func(context.Context, *env) error {
	return func(ctx context.Context, e *env) error {
		s, commit, err := e.pushed(ctx)
		if err != nil {
			return err
		}
		started, err := s.request(ctx, commit)
		if err != nil {
			return err
		}
		var end applier.Progress
		err = s.until(ctx, func() error {
			for _, all := range []bool{true, false} {
				if err := s.noEnd(ctx, &started, all, what, answer); err != nil {
					return stop(err)
				}
			}
			var err error
			end, err = s.client.Progress(ctx, s.Ref, &started)
			switch {
			case err != nil:
				return fmt.Errorf("Progress: %w", err)
			case !end.State.Ended():
				return fmt.Errorf("the operation did not end: %+v", end)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if end.State != applier.StateSucceeded || end.AppliedCommit != commit {
			err = fmt.Errorf("the applier was %s only for a while, and the operation ended %+v", what, end)
		}
		return errors.Join(err, s.truthful(ctx, started, end), s.settled(ctx))
	}
}

// noEnd calls Progress with the requests for the applier broken, all of them or those that write, and returns what is wrong with
// what it reports.
func (s *subject) noEnd(ctx context.Context, started *applier.Started, all bool, what string, answer func(*request) error) error {
	var struck *request
	s.wire.on(func(r *request) fault {
		if r.resource.GroupResource() != s.Resource.GroupResource() || !all && !r.writes() {
			return fault{}
		}
		struck = r
		return fault{refuse: answer(r)}
	})
	defer s.wire.on(nil)
	p, err := s.client.Progress(ctx, s.Ref, started)
	switch {
	case struck == nil && all:
		return fmt.Errorf("Progress made no request for the applier, and reports %+v: %w", p, told(err))
	case struck == nil:
		return nil
	case err == nil && (all || p.State.Ended()):
		return fmt.Errorf("the answer to %v was that it is %s, and Progress returned no error, but %+v", struck, what, p)
	case err == nil:
		return nil
	case p != applier.Progress{}:
		return fmt.Errorf("Progress returned an error, and beside it %+v: %w", p, err)
	case applier.IsPermanent(err):
		return fmt.Errorf("the answer to %v was that it is %s, which may change, and the error of Progress is permanent: %w", struck, what, err)
	}
	if _, kept := status(err); !kept {
		return fmt.Errorf("the API server's error is not in that of Progress: %w", err)
	}
	if wrong := s.names(err.Error(), s.Ref); wrong != nil {
		return fmt.Errorf("the error of Progress is not for people: %w", wrong)
	}
	return nil
}
