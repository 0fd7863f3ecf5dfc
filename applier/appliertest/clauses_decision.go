package appliertest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gitops-applier/gitops-applier/applier"
)

var decisionClauses = []clause{
	{
		group: "Decision", name: "is asked for right before Record and right before the write",
		text:  "Request asks ask.Current before it calls ask.Record, and again after it, before the write that starts the apply",
		check: currentIsAskedTwice,
	},
	{
		group: "Decision", name: "that is stale starts nothing",
		text:  "a decision that no longer holds is ErrStale; nothing is recorded and nothing is written to the applier",
		check: staleBeforeRecord,
	},
	{
		group: "Decision", name: "that gets stale while it is recorded starts nothing",
		text:  "a decision that no longer holds after Record is ErrStale; nothing is written to the applier",
		check: staleAfterRecord,
	},
	{
		group: "Decision", name: "is recorded once, before the write",
		text:  "Record is called once, before the first write that may start the apply, with the operation as it will be started",
		check: recordedFirst,
	},
	{
		group: "Decision", name: "is recorded in a way that serves to follow it",
		text:  "the Baseline of a record can be older than that of the Started that Request returns, if something changed between the two; either serves",
		needs: []Capability{API},
		check: recordServes,
	},
	{
		group: "Decision", name: "that cannot be recorded starts nothing",
		text:  "an error of Record starts nothing, and stays reachable",
		check: recordFails,
	},
	{
		group: "Decision", name: "needs no callbacks",
		text:  "Current and Held that are nil always hold, and a Record that is nil records nothing",
		check: nilCallbacks,
	},
	{
		group: "Decision", name: "asks Held right before Record",
		text:  "Held is asked before Record, and its error starts nothing",
		needs: []Capability{Holder},
		check: heldIsAsked,
	},
}

func currentIsAskedTwice(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	ask, noted := s.ask(commit)
	started, err := s.client.Request(ctx, s.Ref, ask)
	if err != nil {
		return fmt.Errorf("Request: %w", err)
	}
	if _, err := s.follow(ctx, &started); err != nil {
		return err
	}
	records := noted.records()
	if len(records) != 1 {
		return fmt.Errorf("the calls of Record were %d", len(records))
	}
	return asked(noted, s.starts(ask.Token))
}

// asked returns how the calls back of a request that started something are out of order.
func asked(noted *calls, starts []*request) error {
	noted.mu.Lock()
	defer noted.mu.Unlock()
	var recorded, before, after bool
	var last int
	for _, c := range noted.made {
		switch {
		case c.name == "Record":
			recorded = true
		case c.name == "Current" && !recorded:
			before = true
		case c.name == "Current":
			after, last = true, c.request
		}
	}
	switch {
	case !before:
		return errors.New("there was no call of Current before Record")
	case !after:
		return errors.New("there was no call of Current after Record")
	case len(starts) > 0 && last >= starts[len(starts)-1].number:
		return fmt.Errorf("Current was last asked after %v, which starts the apply", starts[len(starts)-1])
	case len(starts) > 0 && last < starts[0].number-1:
		return fmt.Errorf("between the last question to Current and the write that starts the apply, %d requests were made", starts[0].number-1-last)
	}
	return nil
}

// startsNothing asks, and wants an error that is want, with nothing started.
func (s *subject) startsNothing(ctx context.Context, want error, change func(*applier.Ask)) (*calls, error) {
	commit, err := s.Push(ctx)
	if err != nil {
		return nil, err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return nil, err
	}
	s.wire.forget()
	ask, noted := s.ask(commit, change)
	_, err = s.client.Request(ctx, s.Ref, ask)
	switch {
	case err == nil:
		return noted, errors.New("Request returned no error")
	case !errors.Is(err, want):
		return noted, fmt.Errorf("the error of Request is not what it is to be (%w): %w", want, err)
	}
	return noted, errors.Join(s.names(err.Error(), s.Ref), s.untouched("although nothing was to be started"), s.unchanged(ctx, before, "nothing was to be started"))
}

func staleBeforeRecord(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	noted, err := s.startsNothing(ctx, applier.ErrStale, func(a *applier.Ask) { a.Current = func() bool { return false } })
	if err == nil && len(noted.records()) > 0 {
		err = errors.New("Record was called although the decision no longer held")
	}
	return err
}

func staleAfterRecord(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	var recorded atomic.Bool
	_, err = s.startsNothing(ctx, applier.ErrStale, func(a *applier.Ask) {
		a.Current = func() bool { return !recorded.Load() }
		a.Record = func(context.Context, applier.Started) error { recorded.Store(true); return nil }
	})
	return err
}

func recordedFirst(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	ask, noted := s.ask(commit)
	started, err := s.client.Request(ctx, s.Ref, ask)
	if err != nil {
		return fmt.Errorf("Request: %w", err)
	}
	if _, err := s.follow(ctx, &started); err != nil {
		return err
	}
	records := noted.records()
	if len(records) != 1 {
		return fmt.Errorf("the calls of Record were %d", len(records))
	}
	if starts := s.starts(ask.Token); len(starts) > 0 && starts[0].number <= records[0].request {
		return fmt.Errorf("%v starts the apply, and was sent before Record was called", starts[0])
	}
	if err := s.rightStarted(ctx, ask, records[0].started); err != nil {
		return fmt.Errorf("the operation that Record was given: %w", err)
	}
	if records[0].started.Outcome != started.Outcome {
		return fmt.Errorf("Record was given %+v, and Request returned %+v", records[0].started, started)
	}
	return nil
}

// recordServes follows one operation by its record and another by what Request returned, each with a change of the applier between the
// two that means nothing.
func recordServes(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	for _, by := range []string{"the record", "what Request returned"} {
		commit, err := s.Push(ctx)
		if err != nil {
			return err
		}
		var record *applier.Started
		started, err := s.request(ctx, commit, func(a *applier.Ask) {
			a.Record = func(ctx context.Context, started applier.Started) error {
				var err error
				record, err = recorded(started)
				return errors.Join(err, s.annotate(ctx, "appliertest/changed", a.Token))
			}
		})
		if err != nil {
			return fmt.Errorf("an annotation of the applier changed after Record: %w", err)
		}
		if by == "the record" {
			if err := s.restart(); err != nil {
				return err
			}
			started = *record
		}
		end, err := s.follow(ctx, &started)
		if err == nil && (end.State != applier.StateSucceeded || end.AppliedCommit != commit) {
			err = fmt.Errorf("an annotation of the applier changed after Record, and the operation ended %+v", end)
		}
		if err := errors.Join(err, s.truthful(ctx, started, end), s.settled(ctx)); err != nil {
			return fmt.Errorf("followed by %s: %w", by, err)
		}
	}
	return nil
}

func recordFails(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	full := errors.New("the record cannot be kept")
	_, err = s.startsNothing(ctx, full, func(a *applier.Ask) {
		a.Record = func(context.Context, applier.Started) error { return full }
	})
	return err
}

func nilCallbacks(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	ask := applier.Ask{Want: s.Want, Commit: commit, Token: applier.NewToken(), Live: s.Live}
	started, err := s.client.Request(ctx, s.Ref, ask)
	if err != nil {
		return fmt.Errorf("Request: %w", err)
	}
	end, err := s.follow(ctx, &started)
	if err != nil {
		return err
	}
	return s.truthful(ctx, started, end)
}

func heldIsAsked(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	resuming := errors.New("somebody is just suspending it")
	noted, err := s.startsNothing(ctx, resuming, func(a *applier.Ask) {
		a.Held = func(context.Context) error { return resuming }
	})
	if err == nil && len(noted.records()) > 0 {
		err = errors.New("Record was called although Held returned an error")
	}
	return err
}
