package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var lateClauses = []clause{
	{
		group: "Late", name: "starts of an unconfirmed operation are followed",
		text: "the starting write of an operation that is Unconfirmed may be made late: the operation has no end before it is Overdue, " +
			"unless that write can be made no more; and once it is made, the operation is followed to its true end",
		needs: []Capability{API},
		check: lateUnconfirmed,
	},
	{
		group: "Late", name: "starts of a recovered operation are followed",
		text: "the process that recorded an operation may live, and start it yet: a Recovered operation has no end before it is Overdue, " +
			"unless it is started no more; and once it is started, the operation is followed to its true end",
		needs: []Capability{API},
		check: lateRecovered,
	},
	{
		group: "Late", name: "starts are not sent",
		text:  "no write that may start the apply is sent later than 30 seconds after ask.Record was called, whatever that and the API server took of them",
		needs: []Capability{API},
		check: lateIsNotSent,
	},
}

const (
	// looks is how often Progress is called while nothing is to be seen of an operation.
	looks = 20
	// lateTries is how often a write is to be made late. One that the applier's own changes keep from being made shows nothing.
	lateTries = 3
	// tooLate is longer than a starting write may take after its record.
	tooLate = 31 * time.Second
)

// look follows an operation for a short while, as a host does that watches: what it reported last, or its end.
func (s *subject) look(ctx context.Context, client applier.Client, started *applier.Started) (p applier.Progress, err error) {
	watches := s.can(client, Watcher)
	for i := range looks {
		if watches && i%2 == 1 {
			if started.Observed, err = s.object(ctx); err != nil {
				return p, err
			}
		}
		if p, err = client.Progress(ctx, s.Ref, started); err != nil {
			return p, fmt.Errorf("Progress: %w", err)
		}
		if p.State.Ended() {
			break
		}
		pause(ctx, pollInterval)
	}
	return p, nil
}

func lateUnconfirmed(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	for range lateTries {
		if shown, err := s.startLate(ctx, commit); shown || err != nil {
			return err
		}
	}
	return nil
}

// startLate lets the starting write arrive only after it was given up. It reports whether that shows anything: a write that carries
// what was read is refused where the applier has changed.
func (s *subject) startLate(ctx context.Context, commit string) (shown bool, err error) {
	ask, _ := s.ask(commit)
	var arrive func(context.Context) error
	s.wire.on(func(r *request) fault {
		if arrive != nil || !s.isStart(r, ask.Token) {
			return fault{}
		}
		return fault{late: func(send func(context.Context) error) { arrive = send }}
	})
	started, err := s.client.Request(ctx, s.Ref, ask)
	s.wire.on(nil)
	switch {
	case err != nil:
		return true, fmt.Errorf("the starting write got no answer, and Request returned an error, which means that nothing was started: %w", err)
	case arrive == nil:
		return true, errors.New("no write puts the token into the applier, so none can be late")
	case started.Unconfirmed == nil:
		return true, errors.New("the starting write got no answer, and Started.Unconfirmed is nil")
	}
	seen, err := s.look(ctx, s.client, &started)
	if err != nil {
		return true, err
	}
	if refused := arrive(ctx); refused != nil {
		end, err := s.pursue(ctx, s.client, &started, false)
		if err == nil && end.State != applier.StateFailed {
			err = fmt.Errorf("the starting write came late and was refused (%w), and the operation ended %+v", refused, end)
		}
		return started.Outcome == applier.OutcomeResumed, errors.Join(err, s.settled(ctx))
	}
	return true, s.startedLate(ctx, s.client, &started, seen)
}

// startedLate returns how an operation breaks the law that was started after it was last seen.
func (s *subject) startedLate(ctx context.Context, client applier.Client, started *applier.Started, seen applier.Progress) error {
	if seen.State.Ended() {
		return fmt.Errorf("the operation was not Overdue, and Progress reported the end %+v; then the write was made that starts it", seen)
	}
	end, err := s.followWith(ctx, client, started, nil)
	if err == nil && !elsewhere(end) && (end.State != applier.StateSucceeded || end.AppliedCommit != started.Commit) {
		err = fmt.Errorf("the operation was started late and nothing kept it from being applied, and it ended %+v", end)
	}
	return errors.Join(err, s.truthful(ctx, *started, end), s.settled(ctx))
}

func lateRecovered(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	for _, stalls := range []string{"while it recorded the operation", "with the starting write on its way"} {
		if err := s.startRecovered(ctx, stalls == "while it recorded the operation"); err != nil {
			return fmt.Errorf("a process stalled %s, and another followed its record: %w", stalls, err)
		}
	}
	return nil
}

// startRecovered lets one process stall in the middle of a request, and another follow what it recorded.
func (s *subject) startRecovered(ctx context.Context, inRecord bool) error {
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	other, err := s.Applier.process()
	if err != nil {
		return err
	}
	stalled, goOn := make(chan *applier.Started, 1), make(chan struct{})
	var record *applier.Started
	stall := func(ctx context.Context) error {
		if record == nil {
			return nil // It has stalled before.
		}
		stalled <- record
		record = nil
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return noAnswer(ctx.Err())
		}
	}
	ask, _ := s.ask(commit, func(a *applier.Ask) {
		a.Record = func(ctx context.Context, started applier.Started) error {
			var err error
			if record, err = recorded(started); err != nil || !inRecord {
				return err
			}
			return stall(ctx)
		}
	})
	s.wire.on(func(r *request) fault {
		if !s.isStart(r, ask.Token) {
			return fault{}
		}
		return fault{before: stall}
	})
	requested := make(chan error, 1)
	go func() {
		_, err := s.client.Request(ctx, s.Ref, ask)
		requested <- err
	}()
	var started *applier.Started
	select {
	case started = <-stalled:
	case err := <-requested:
		return fmt.Errorf("Request recorded or sent nothing, and returned: %w", told(err))
	}
	seen, err := s.look(ctx, other.client, started)
	close(goOn)
	refused := <-requested
	s.wire.on(nil)
	switch made := stored(s.starts(ask.Token)); {
	case err != nil:
		return err
	case made > 0 && refused != nil:
		return fmt.Errorf("the operation was started, and Request returned an error: %w", refused)
	case made > 0:
		return s.startedLate(ctx, other.client, started, seen)
	case refused == nil:
		return errors.New("Request returned no error, and nothing was started")
	}
	end, err := s.pursue(ctx, other.client, started, false)
	if err == nil && end.State != applier.StateFailed {
		err = fmt.Errorf("it was not started, because %w, and ended %+v", refused, end)
	}
	return errors.Join(err, s.settled(ctx))
}

func lateIsNotSent(ctx context.Context, e *env) error {
	var starts []func() error
	for _, slow := range []string{"Record", "the first read after Record"} {
		s, err := e.subject(ctx)
		if err != nil {
			return err
		}
		starts = append(starts, func() error {
			if err := s.startTooLate(ctx, slow == "Record"); err != nil {
				return fmt.Errorf("%s took %v: %w", slow, tooLate, err)
			}
			return nil
		})
	}
	return together(starts...) // On a real cluster half a minute is long.
}

// startTooLate makes Record take longer than a starting write may take after it, or a read that follows.
func (s *subject) startTooLate(ctx context.Context, inRecord bool) error {
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	var last int // the last request that was made in time
	slow := func(r *request) fault {
		if r.writes() {
			return fault{}
		}
		s.wire.on(nil)
		last = r.number
		return fault{before: func(ctx context.Context) error {
			pause(ctx, tooLate)
			if ctx.Err() != nil {
				return noAnswer(ctx.Err())
			}
			return nil
		}}
	}
	ask, _ := s.ask(commit, func(a *applier.Ask) {
		a.Record = func(ctx context.Context, _ applier.Started) error {
			if inRecord {
				pause(context.WithoutCancel(ctx), tooLate)
				last = len(s.wire.requests())
				return nil
			}
			s.wire.on(slow)
			// A client that writes what it has read is refused now, and reads.
			return s.annotate(ctx, "appliertest/changed", a.Token)
		}
	})
	started, err := s.client.Request(ctx, s.Ref, ask)
	s.wire.on(nil)
	if err == nil && stored(s.starts(ask.Token)) == 0 || last == 0 {
		return fmt.Errorf("Request started nothing, and returned: %w", told(err))
	}
	for _, start := range s.starts(ask.Token) {
		if start.number > last {
			_, _ = s.pursue(ctx, s.client, &started, start.stored)
			return fmt.Errorf("%v starts the apply, and was sent too late", start)
		}
	}
	if err == nil {
		return errors.New("Request returned no error, and nothing was started")
	}
	return errors.Join(s.refused(ask, err), s.settled(ctx))
}
