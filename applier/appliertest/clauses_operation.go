package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier"
)

var operationClauses = []clause{
	{
		group: "Operation", name: "ends Succeeded at the commit that was applied",
		text:  "success is read from the applier's status for this token, and names the revision that it really applied",
		check: operationSucceeds,
	},
	{
		group: "Operation", name: "is followed by polling alone",
		text:  "Progress is to be called until it reports an end; without a Watcher an operation is followed by polling",
		check: operationIsPolled,
	},
	{
		group: "Operation", name: "is followed by any client",
		text:  "a Client keeps no state between calls: what it needs to know it reads from the cluster or from the Started",
		check: operationNeedsNoState,
	},
	{
		group: "Operation", name: "that fails says why",
		text:  "a failed apply is StateFailed, with a reason and the applier's own message; the next commit can be applied",
		needs: []Capability{PushBroken},
		check: operationFails,
	},
	{
		group: "Operation", name: "has one end",
		text:  "each attempt reports one end: Progress after it reports the same, and writes nothing",
		check: operationEndsOnce,
	},
	{
		group: "Operation", name: "does not end before its apply",
		text:  "an apply that has started and is not over is neither Succeeded nor Failed",
		needs: []Capability{PushStuck},
		check: operationIsRunning,
	},
	{
		group: "Operation", name: "that was never started is Failed",
		text:  "a Recovered operation whose starting write was never made is Failed, at the latest when it is Overdue, and is not started by following it",
		check: operationNeverStarted,
	},
	{
		group: "Operation", name: "reports nothing beside an error",
		text:  "an error of Progress says nothing about the operation, and the Progress beside it is empty; it names the applier and keeps the API server's error",
		needs: []Capability{API},
		check: progressErrors,
	},
	{
		group: "Operation", name: "of another backend is refused",
		text:  "an operation that is none of this backend's is a permanent error, and nothing is written for it",
		needs: []Capability{API},
		check: operationOfAnother,
	},
	{
		group: "Operation", name: "reports an applier that is gone as an end",
		text:  "an applier that is gone is no error of Progress but an end",
		needs: []Capability{API},
		check: progressGone,
	},
	{
		group: "Operation", name: "runs beside others",
		text:  "a Client is safe for concurrent use, also on several appliers",
		needs: []Capability{API},
		check: operationsRunBesideOthers,
	},
	{
		group: "Operation", name: "survives a second request at the same time",
		text:  "a Client is safe for concurrent use, also for one applier: each request that started something ends once, and tells the truth",
		check: operationsAtOnce,
	},
}

// states are the states that a Progress may report before its end.
var states = []applier.State{applier.StateRequested, applier.StateRunning, applier.StateSettling}

// known returns the first report that is none.
func known(seen []applier.Progress) error {
	for _, p := range seen {
		if !p.State.Ended() && !slices.Contains(states, p.State) {
			return fmt.Errorf("Progress reports the state %q, which is none", p.State)
		}
	}
	return nil
}

func operationSucceeds(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	var seen []applier.Progress
	end, err := s.followWith(ctx, s.client, &started, func(p applier.Progress) { seen = append(seen, p) })
	switch {
	case err != nil:
		return err
	case end.State != applier.StateSucceeded || end.AppliedCommit != commit:
		return fmt.Errorf("nothing was wrong, and the operation ended %+v instead of Succeeded at %s", end, commit)
	case started.Outcome == applier.OutcomeResumed && started.SuspendToken == "":
		return errors.New("the applier was resumed, and Started has no SuspendToken at the end")
	case end.SuspendToken != started.SuspendToken:
		return fmt.Errorf("the SuspendToken of the end is %q, and that of Started %q", end.SuspendToken, started.SuspendToken)
	}
	return errors.Join(known(seen), s.truthful(ctx, started, end), s.settled(ctx))
}

func operationIsPolled(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	end, err := s.followWith(ctx, struct{ applier.Client }{s.client}, &started, nil)
	if err == nil && end.AppliedCommit != commit {
		err = fmt.Errorf("nothing was wrong, and the operation ended %+v", end)
	}
	return err
}

func operationNeedsNoState(ctx context.Context, e *env) error {
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
		if err := s.restart(); err != nil {
			return err
		}
		var err error
		end, err = s.client.Progress(ctx, s.Ref, &started)
		if err == nil && !end.State.Ended() {
			err = fmt.Errorf("the operation did not end: %+v", end)
		}
		return err
	})
	if err == nil && end.AppliedCommit != commit {
		err = fmt.Errorf("each Progress was read by a new client, and the operation ended %+v", end)
	}
	return err
}

func operationFails(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, message, err := s.PushBroken(ctx)
	if err != nil {
		return err
	}
	started, end, err := s.apply(ctx, commit)
	switch {
	case err != nil:
		return err
	case end.State != applier.StateFailed:
		return fmt.Errorf("the apply failed, and the operation ended %+v", end)
	case !strings.Contains(end.Message, message):
		return fmt.Errorf("the applier said %q, and the message of the end is %q", message, end.Message)
	case started.Outcome == applier.OutcomeResumed && end.SuspendToken == "":
		return errors.New("the applier was resumed, and the end has no SuspendToken")
	}
	commit, err = s.Push(ctx)
	if err == nil {
		err = s.succeed(ctx, commit)
	}
	if err != nil {
		return fmt.Errorf("after a failed apply, the next commit: %w", err)
	}
	return nil
}

func operationEndsOnce(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, end, err := s.apply(ctx, commit)
	if err != nil {
		return err
	}
	for _, who := range []string{"the same client", "the same client", "another client"} {
		if who == "another client" {
			if err := s.restart(); err != nil {
				return err
			}
		}
		s.wire.forget()
		again, err := s.client.Progress(ctx, s.Ref, &started)
		if err == nil && s.Live && !again.State.Ended() {
			again, err = s.follow(ctx, &started) // It runs on by itself, and may be in its next run.
		}
		switch {
		case err != nil:
			return fmt.Errorf("after the end, Progress of %s: %w", who, err)
		case again != end:
			return fmt.Errorf("the end was %+v, and then, by %s, %+v", end, who, again)
		}
		if err := s.untouched("after the end"); err != nil {
			return err
		}
	}
	return nil
}

func operationIsRunning(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, release, err := s.stuck(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	for range 20 {
		p, err := s.client.Progress(ctx, s.Ref, &started)
		switch {
		case err != nil:
			return fmt.Errorf("Progress: %w", err)
		case p.State != applier.StateRequested && p.State != applier.StateRunning:
			return fmt.Errorf("the apply is not over, and Progress reports %+v", p)
		}
		pause(ctx, pollInterval)
	}
	if err := release(); err != nil {
		return err
	}
	end, err := s.follow(ctx, &started)
	if err != nil {
		return err
	}
	if end.AppliedCommit != commit {
		err = fmt.Errorf("the apply went on, and the operation ended %+v", end)
	}
	return errors.Join(err, s.truthful(ctx, started, end), s.settled(ctx))
}

func operationNeverStarted(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	died := errors.New("the process ends here")
	var record *applier.Started
	ask, _ := s.ask(commit, func(a *applier.Ask) {
		a.Record = func(_ context.Context, started applier.Started) error {
			var err error
			record, err = recorded(started)
			return errors.Join(err, died)
		}
	})
	if _, err := s.client.Request(ctx, s.Ref, ask); !errors.Is(err, died) {
		return fmt.Errorf("Record returned an error, and Request returned another: %w", told(err))
	}
	if err := s.restart(); err != nil {
		return err
	}
	return s.neverStarted(ctx, record, before)
}

// neverStarted returns how following an operation breaks the law whose starting write was never made.
func (s *subject) neverStarted(ctx context.Context, started *applier.Started, before string) error {
	end, err := s.pursue(ctx, s.client, started, false)
	if err != nil {
		return err
	}
	if end.State != applier.StateFailed {
		return fmt.Errorf("the write that starts it was never made, and the operation ended %+v", end)
	}
	return errors.Join(s.truthful(ctx, *started, end), s.settled(ctx), s.unchanged(ctx, before, "the write that starts it was never made"))
}

func progressErrors(ctx context.Context, e *env) error {
	return e.sweep(ctx, sweep{what: "with a 500", strike: answers(internalError), flow: func(ctx context.Context, s *subject, h *hit) error {
		s.follower.PollInterval = strikeInterval
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		strikes := s.wire.pause()
		started, err := s.request(ctx, commit)
		if err != nil {
			return err
		}
		s.wire.on(strikes)
		return s.until(ctx, func() error {
			p, err := s.client.Progress(ctx, s.Ref, &started)
			switch {
			case err == nil && !p.State.Ended():
				return fmt.Errorf("the operation did not end: %+v", p)
			case err == nil:
				return nil
			case h.request() == nil:
				return fmt.Errorf("Progress: %w", err)
			}
			_, kept := status(err)
			switch {
			case p != applier.Progress{}:
				return stop(fmt.Errorf("Progress returned an error, and beside it %+v", p))
			case !kept:
				return stop(fmt.Errorf("the API server's error is not in that of Progress: %w", err))
			}
			if wrong := s.names(err.Error(), s.Ref); wrong != nil {
				return stop(fmt.Errorf("the error of Progress is not for people: %w", wrong))
			}
			return err
		})
	}})
}

func operationOfAnother(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	started := applier.Started{Outcome: "AskedOfSomethingElse", Token: applier.NewToken(), Commit: strings.Repeat("a", 40), Recovered: true}
	p, err := s.client.Progress(ctx, s.Ref, &started)
	switch {
	case err == nil:
		return fmt.Errorf("the outcome of the operation is that of no backend, and Progress reports %+v", p)
	case !applier.IsPermanent(err):
		return fmt.Errorf("the error of Progress is not permanent: %w", err)
	case p != applier.Progress{}:
		return fmt.Errorf("Progress returned an error, and beside it %+v", p)
	}
	return errors.Join(s.names(err.Error(), s.Ref), s.untouched("for an operation of another backend"))
}

func progressGone(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	if err := s.remove(ctx); err != nil {
		return err
	}
	p, err := s.client.Progress(ctx, s.Ref, &started)
	switch {
	case err != nil:
		return fmt.Errorf("the applier is gone, and Progress returned an error: %w", err)
	case p.State != applier.StateFailed || p.Reason == "":
		return fmt.Errorf("the applier is gone, and Progress reports %+v", p)
	}
	return nil
}
