package appliertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/gitops-applier/gitops-applier/applier"
)

var crashClauses = []clause{
	crashClause("before any request is survived", "a process that dies before a request is sent leaves a record or has started nothing; the next process settles what was recorded, and reports its true end", false),
	crashClause("after any request is survived", "a process that dies after a request was processed leaves a record or has started nothing; the next process settles what was recorded, and reports its true end", true),
}

func crashClause(name, text string, processed bool) clause {
	return clause{
		group: "Crash", name: name, text: text, needs: []Capability{API},
		check: func(ctx context.Context, e *env) error {
			return e.sweep(ctx, sweep{what: "when the process died", strike: dies(processed), flow: crashing})
		},
	}
}

// errDead is what a process hears from the cluster once it is dead.
var errDead = errors.New("the process is dead")

// dies returns a strike after which no request of the process reaches the cluster.
func dies(processed bool) func(*subject, *request) fault {
	return func(s *subject, _ *request) fault {
		s.wire.on(func(*request) fault { return fault{refuse: errDead} })
		if processed {
			return fault{lose: errDead}
		}
		return fault{refuse: errDead}
	}
}

// crashing is the flow of a process that may die, and of the one that takes over.
func crashing(ctx context.Context, s *subject, h *hit) error {
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	ask, record, end, err := s.live(ctx, commit, h)
	if h.request() == nil {
		if err == nil && !elsewhere(end) && (end.State != applier.StateSucceeded || end.AppliedCommit != commit) {
			err = fmt.Errorf("nothing was wrong, and the operation ended %+v", end)
		}
		return err
	}
	made := stored(s.starts(ask.Token))
	if err := s.restart(); err != nil {
		return err
	}
	switch {
	case record == nil && made > 0:
		return errors.New("the operation was started, and nothing is recorded of it")
	case record == nil:
		if err := s.settled(ctx); err != nil {
			return err
		}
	default:
		if err := s.recovered(ctx, record, made, before); err != nil {
			return err
		}
	}
	if next, err := s.Push(ctx); err != nil {
		return err
	} else if err := s.persist(ctx, next); err != nil {
		return fmt.Errorf("the next commit, after the operation was settled: %w", err)
	}
	return nil
}

// live lets a process ask and follow until the end or its death. It returns what it recorded.
func (s *subject) live(ctx context.Context, commit string, h *hit) (applier.Ask, *applier.Started, applier.Progress, error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	var mu sync.Mutex
	var record *applier.Started
	keep := func(started applier.Started) error {
		mu.Lock()
		defer mu.Unlock()
		if h.request() != nil {
			return errDead
		}
		var err error
		record, err = recorded(started)
		return err
	}
	ask, _ := s.ask(commit, func(a *applier.Ask) {
		a.Record = func(_ context.Context, started applier.Started) error { return keep(started) }
	})
	var end applier.Progress
	done := make(chan error, 1)
	go func() {
		started, err := s.client.Request(ctx, s.Ref, ask)
		if err == nil {
			end, err = s.followWith(ctx, s.client, &started, func(applier.Progress) { _ = keep(started) })
		}
		done <- err
	}()
	err := s.await(ctx, h, done)
	if errors.Is(err, errStruck) {
		kill()
		err = <-done
	}
	mu.Lock()
	defer mu.Unlock()
	return ask, record, end, err
}

// recorded returns what another process reads of an operation that was recorded.
func recorded(started applier.Started) (*applier.Started, error) {
	record, err := json.Marshal(started)
	if err != nil {
		return nil, err
	}
	var read applier.Started
	return &read, json.Unmarshal(record, &read)
}

// recovered returns how an operation breaks the law that another process took over by its record.
func (s *subject) recovered(ctx context.Context, record *applier.Started, made int, before string) error {
	if made == 0 {
		return s.neverStarted(ctx, record, before)
	}
	end, err := s.follow(ctx, record)
	if err != nil {
		return err
	}
	if !elsewhere(end) && (end.State != applier.StateSucceeded || end.AppliedCommit != record.Commit) {
		err = fmt.Errorf("the operation was started and nothing kept it from being applied, and it ended %+v", end)
	}
	return errors.Join(err, s.truthful(ctx, *record, end), s.settled(ctx))
}
