package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

var applyClauses = []clause{
	{
		group: "Apply", name: "returns once the commit is applied",
		text:  "a nil error of Apply means that the commit is applied",
		check: applyReturns,
	},
	{
		group: "Apply", name: "returns what failed",
		text:  "an operation that ended Failed is ErrFailed, and an OperationError that carries its end",
		needs: []Capability{PushBroken},
		check: applyFails,
	},
	{
		group: "Apply", name: "settles when it is cancelled",
		text:  "Apply returns its context's cause within ten seconds of its end, and has suspended again what it resumed",
		needs: []Capability{PushStuck},
		check: applySettles,
	},
}

func applyReturns(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.harness.Timeout)
	defer cancel()
	ask, _ := s.ask(commit, func(a *applier.Ask) { a.Token = "" })
	end, err := s.follower.Apply(ctx, s.client, s.Ref, ask, nil)
	if err != nil {
		return fmt.Errorf("Apply: %w", err)
	}
	applied, err := s.Applied(ctx)
	if err == nil && (applied != commit || end.AppliedCommit != commit) {
		err = fmt.Errorf("Apply returned no error, and the end is %+v, and the cluster holds %q instead of %s", end, applied, commit)
	}
	return errors.Join(err, s.settled(ctx))
}

func applyFails(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, _, err := s.PushBroken(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.harness.Timeout)
	defer cancel()
	ask, _ := s.ask(commit)
	end, err := s.follower.Apply(ctx, s.client, s.Ref, ask, nil)
	var failed *applier.OperationError
	if !errors.Is(err, applier.ErrFailed) || !errors.As(err, &failed) || failed.Progress != end {
		return fmt.Errorf("the apply failed, the end is %+v, and Apply returned: %w", end, told(err))
	}
	return s.settled(ctx)
}

func applySettles(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	commit, release, err := s.stuck(ctx)
	if err != nil {
		return err
	}
	applying, cancel := context.WithCancel(ctx)
	defer cancel()
	running := make(chan struct{}, 1)
	done := make(chan error, 1)
	ask, _ := s.ask(commit)
	go func() {
		_, err := s.follower.Apply(applying, s.client, s.Ref, ask, func(applier.Progress) {
			select {
			case running <- struct{}{}:
			default:
			}
		})
		done <- err
	}()
	select {
	case <-running:
	case err := <-done:
		return fmt.Errorf("the apply does not end, and Apply returned: %w", told(err))
	}
	cancel()
	select {
	case err = <-done:
	case <-time.After(10*time.Second + soon):
		return errors.New("Apply did not return within its bound after its context ended")
	}
	if !errors.Is(err, context.Canceled) {
		return fmt.Errorf("Apply was cancelled, and returned: %w", told(err))
	}
	if err := s.suspended(ctx); err != nil {
		return err
	}
	return release()
}

// suspended returns an error when a client that holds left the applier resumed.
func (s *subject) suspended(ctx context.Context) error {
	if !s.can(s.client, Holder) {
		return nil
	}
	holder, _ := applier.AsHolder(s.spectator)
	stands, err := holder.Suspension(ctx, s.Ref)
	if err == nil && !stands.Suspended {
		err = fmt.Errorf("the applier was left resumed: %+v", stands)
	}
	return err
}
