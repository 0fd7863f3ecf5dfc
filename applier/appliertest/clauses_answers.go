package appliertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/gitops-applier/gitops-applier/applier"
)

var answerClauses = []clause{
	{
		group: "Answers", name: "lost after the starting write make it unconfirmed",
		text:  "a starting write that was made without an answer is a Started whose Unconfirmed wraps ErrUnconfirmed, and is followed to its true end",
		needs: []Capability{API},
		check: startUnconfirmed,
	},
	{
		group: "Answers", name: "lost before the starting write make it unconfirmed",
		text:  "a starting write without an answer that was not made is unconfirmed too; it ends Failed, and is not started by following it",
		needs: []Capability{API},
		check: startNeverMade,
	},
	sweepClause("of 500 at any request are survived", "whatever request is answered by 500, the laws hold and the commit is applied", nil, answers(internalError)),
	sweepClause("of 429 at any request are survived", "whatever request is answered by 429, the laws hold and the commit is applied", nil, answers(tooManyRequests)),
	sweepClause("of 409 at any write are survived", "whatever write is answered by a conflict, it is decided afresh, the laws hold and the commit is applied", writing, answers(conflict)),
	sweepClause("that do not come are survived", "whatever request times out without reaching the API server, the laws hold and the commit is applied", nil, answers(timedOut)),
	sweepClause("that get lost are survived", "whatever request is processed and its answer lost, the laws hold, and no operation is started twice", nil, loses(connectionReset)),
	sweepClause("of 500 to a write that was made are survived", "a write without a clear answer is unconfirmed: whatever write is made and answered by 500, no operation is started twice", writing, loses(internalError)),
	sweepClause("of 409 to a write that was made are survived", "a 409 may be the echo of a write of our own that was sent again: our token in the object means that it was made", writing, loses(conflict)),
}

func sweepClause(name, text string, which func(*subject, *request) bool, strike func(*subject, *request) fault) clause {
	return clause{
		group: "Answers", name: name, text: text, needs: []Capability{API},
		check: func(ctx context.Context, e *env) error {
			return e.sweep(ctx, sweep{what: "struck", which: which, strike: strike, flow: persisting})
		},
	}
}

// silence strikes the starting write of a token and every request after it.
func (s *subject) silence(token string, made bool) func(*request) fault {
	silent := make(chan struct{})
	return func(r *request) fault {
		if s.isStart(r, token) {
			select {
			case <-silent:
			default:
				close(silent)
				if made {
					return fault{lose: connectionReset(r)}
				}
			}
		}
		select {
		case <-silent:
			return fault{refuse: connectionReset(r)}
		default:
			return fault{}
		}
	}
}

// unconfirmed requests with the answer to the starting write missing, and wants a Started that says so.
func (s *subject) unconfirmed(ctx context.Context, commit string, made bool) (applier.Started, error) {
	ask, _ := s.ask(commit)
	s.wire.on(s.silence(ask.Token, made))
	started, err := s.client.Request(ctx, s.Ref, ask)
	s.wire.on(nil)
	switch {
	case err != nil:
		return started, fmt.Errorf("it is not known whether the starting write was made, and Request returned an error, which means that it was not: %w", err)
	case started.Unconfirmed == nil:
		return started, errors.New("it is not known whether the starting write was made, and Started.Unconfirmed is nil")
	case !errors.Is(started.Unconfirmed, applier.ErrUnconfirmed):
		return started, fmt.Errorf("Started.Unconfirmed does not wrap ErrUnconfirmed: %w", started.Unconfirmed)
	case len(s.starts(ask.Token)) == 0:
		return started, errors.New("no write puts the token into the applier, so none can be unconfirmed")
	}
	return started, s.rightStarted(ctx, ask, started)
}

func startUnconfirmed(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, started, err := s.madeUnconfirmed(ctx)
	if err != nil {
		return err
	}
	end, err := s.follow(ctx, &started)
	switch {
	case err != nil:
		return err
	case end.AppliedCommit != commit:
		return fmt.Errorf("the starting write was made, and the operation ended %+v", end)
	case stored(s.starts(started.Token)) != 1:
		return fmt.Errorf("the operation was started %d times", stored(s.starts(started.Token)))
	}
	return errors.Join(s.truthful(ctx, started, end), s.settled(ctx))
}

// madeUnconfirmed requests until the starting write is made whose answer gets lost. It may be refused: where something else changes the
// applier in that moment, the answer that got lost is a conflict.
func (s *subject) madeUnconfirmed(ctx context.Context) (commit string, started applier.Started, err error) {
	var refused error
	for range startTries {
		if commit, err = s.Push(ctx); err != nil {
			return commit, started, err
		}
		if started, err = s.unconfirmed(ctx, commit, true); err != nil {
			return commit, started, err
		}
		starts := s.starts(started.Token)
		if stored(starts) > 0 {
			return commit, started, nil
		}
		refused = fmt.Errorf("%v: %w", starts[0], starts[0].refused)
		if _, err := s.pursue(ctx, s.client, &started, false); err != nil {
			return commit, started, err
		}
	}
	return commit, started, fmt.Errorf("the API server refused the starting write of each of %d requests, the last with %w", startTries, refused)
}

// startTries is how often in a row an applier may change in the moment of the starting write.
const startTries = 10

func startNeverMade(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	started, err := s.unconfirmed(ctx, commit, false)
	if err != nil {
		return err
	}
	return s.neverStarted(ctx, &started, before)
}
