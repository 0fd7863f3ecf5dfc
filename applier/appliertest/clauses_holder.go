package appliertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/gitops-applier/gitops-applier/applier"
)

var holderClauses = []clause{
	{
		group: "Holder", name: "holds and hands back",
		text:  "Suspend holds the applier with a new token each time; Release hands it back, and \"\" says that it is resumed",
		needs: []Capability{Holder},
		check: holderHoldsAndReleases,
	},
	{
		group: "Holder", name: "reports what was last applied",
		text:  "Suspension.Applied is what the last apply reported, whoever asked for it",
		needs: []Capability{Holder},
		check: holderReportsApplied,
	},
	{
		group: "Holder", name: "refuses an applier that is not held",
		text:  "an applier that the client does not hold is ErrNotHeld, permanent; nothing is started",
		needs: []Capability{Holder, API},
		check: holderRefusesNotHeld,
	},
	{
		group: "Holder", name: "is busy while an operation runs",
		text:  "an operation in progress that did not end while the request waited is ErrBusy, not permanent; nothing is started",
		needs: []Capability{Holder, PushStuck},
		check: holderIsBusy,
	},
	{
		group: "Holder", name: "tells an applier that does not exist",
		text:  "Suspend and Suspension give a VerdictError with ReasonApplierNotFound, and create nothing; Release has nothing to do",
		needs: []Capability{Holder},
		check: holderMissing,
	},
	{
		group: "Holder", name: "is not held while an operation runs",
		text:  "Held and Handled together let a request start; they are not both so while an operation has the applier resumed",
		needs: []Capability{Holder, PushStuck},
		check: holderWhileRunning,
	},
	{
		group: "Holder", name: "suspends an overdue operation at once",
		text:  "an Overdue operation is suspended at once, although its apply runs; it is followed until it ends by itself",
		needs: []Capability{Holder, PushStuck},
		check: holderOverdue,
	},
	{
		group: "Holder", name: "cuts an operation in progress short",
		text:  "Suspend cuts an operation in progress short, running or not: it ends, never with ReasonNotRun once it was seen to run, and nothing runs after it",
		needs: []Capability{Holder, PushStuck},
		check: holderSuspendsMeanwhile,
	},
	{
		group: "Holder", name: "says that a release is unconfirmed",
		text:  "ErrUnconfirmed from Release is a write that may have been made; to call again is safe",
		needs: []Capability{Holder, API},
		check: holderReleaseUnconfirmed,
	},
	{
		group: "Holder", name: "says that a suspend is unconfirmed",
		text:  "ErrUnconfirmed from Suspend is a write that may have been made; to call again is safe",
		needs: []Capability{Holder, API},
		check: holderUnconfirmed,
	},
	{
		group: "Holder", name: "reports nothing beside an error",
		text:  "Suspend, Suspension and Release return an API server's error as theirs, name the applier, and say nothing else",
		needs: []Capability{Holder, API},
		check: holderErrors,
	},
}

func holderHoldsAndReleases(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	first, err := holder.Suspend(ctx, s.Ref)
	if err != nil {
		return fmt.Errorf("Suspend of a held applier: %w", err)
	}
	second, err := holder.Suspend(ctx, s.Ref)
	switch {
	case err != nil:
		return fmt.Errorf("Suspend of a held applier: %w", err)
	case first == "" || first == second:
		return fmt.Errorf("Suspend returned the tokens %q and %q; each is to be a new one", first, second)
	}
	keeper, err := holder.Release(ctx, s.Ref)
	if err != nil || keeper != "" {
		return fmt.Errorf("nobody else keeps the applier suspended, and Release returned %q, %w", keeper, told(err))
	}
	stands, err := holder.Suspension(ctx, s.Ref)
	switch {
	case err != nil:
		return fmt.Errorf("Suspension: %w", err)
	case stands.Suspended || stands.Held:
		return fmt.Errorf("Release reported that the applier is resumed, and Suspension says %+v", stands)
	}
	return s.hold(ctx)
}

func holderReportsApplied(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	if err := s.succeed(ctx, commit); err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	stands, err := holder.Suspension(ctx, s.Ref)
	if err == nil && (stands.Applied.State != applier.StateSucceeded || stands.Applied.AppliedCommit != commit) {
		err = fmt.Errorf("%s was applied, and Suspension reports %+v", commit, stands.Applied)
	}
	return err
}

func holderRefusesNotHeld(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	if _, err := holder.Release(ctx, s.Ref); err != nil {
		return fmt.Errorf("Release: %w", err)
	}
	s.wire.forget()
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	ask, noted := s.ask(commit)
	_, err = s.client.Request(ctx, s.Ref, ask)
	switch {
	case !errors.Is(err, applier.ErrNotHeld):
		return fmt.Errorf("Request's error is not ErrNotHeld: %w", told(err))
	case !applier.IsPermanent(err):
		return fmt.Errorf("Request's error is not permanent: %w", err)
	case len(noted.records()) > 0:
		return errors.New("Record was called")
	}
	return errors.Join(s.names(err.Error(), s.Ref), s.untouched("although the applier is not held"))
}

func holderMissing(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.Ref = s.missing()
	holder, _ := applier.AsHolder(s.client)
	_, err = holder.Suspend(ctx, s.Ref)
	if applier.VerdictReason(err) != applier.ReasonApplierNotFound || !applier.IsPermanent(err) {
		return fmt.Errorf("Suspend of an applier that does not exist: %w", told(err))
	}
	_, err = holder.Suspension(ctx, s.Ref)
	if applier.VerdictReason(err) != applier.ReasonApplierNotFound {
		return fmt.Errorf("Suspension of an applier that does not exist: %w", told(err))
	}
	if keeper, err := holder.Release(ctx, s.Ref); err != nil || keeper != "" {
		return fmt.Errorf("Release of an applier that does not exist: %q, %w", keeper, told(err))
	}
	if s.API == nil {
		return nil
	}
	return s.stillGone(ctx)
}

func holderWhileRunning(ctx context.Context, e *env) error {
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
	holder, _ := applier.AsHolder(s.client)
	stands, err := holder.Suspension(ctx, s.Ref)
	if err == nil && stands.Held && stands.Handled {
		err = fmt.Errorf("an operation has the applier resumed, and Suspension says %+v", stands)
	}
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	_, err = s.follow(ctx, &started)
	return errors.Join(err, s.settled(ctx))
}

func holderIsBusy(ctx context.Context, e *env) error {
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
	ask, noted := s.ask(commit, func(a *applier.Ask) { a.Wait = -1 })
	_, refused := s.client.Request(ctx, s.Ref, ask)
	if err := release(); err != nil {
		return err
	}
	switch {
	case refused == nil:
		return errors.New("an operation has the applier resumed, the request may not wait, and it returned no error")
	case !errors.Is(refused, applier.ErrBusy) || applier.IsPermanent(refused):
		return fmt.Errorf("an operation has the applier resumed, and Request's error is not ErrBusy, or is permanent: %w", refused)
	case len(noted.records()) > 0:
		return errors.New("Record was called while an operation has the applier resumed")
	}
	end, err := s.follow(ctx, &started)
	if err == nil && end.AppliedCommit != commit {
		err = fmt.Errorf("a second request came while it ran, and the operation ended %+v", end)
	}
	return errors.Join(s.names(refused.Error(), s.Ref), err, s.settled(ctx))
}

func holderOverdue(ctx context.Context, e *env) error {
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
	if err := s.runs(ctx, &started); err != nil {
		return err
	}
	started.Overdue = true
	p, err := s.client.Progress(ctx, s.Ref, &started)
	holder, _ := applier.AsHolder(s.client)
	stands, suspensionErr := holder.Suspension(ctx, s.Ref)
	switch {
	case err != nil || suspensionErr != nil:
		return errors.Join(err, suspensionErr)
	case !stands.Suspended || started.SuspendToken == "":
		return fmt.Errorf("Progress was called with Overdue, and the applier is not suspended: %+v, SuspendToken %q", stands, started.SuspendToken)
	case p.State.Ended():
		return fmt.Errorf("the apply is not over, and the overdue operation ended %+v", p)
	}
	if err := release(); err != nil {
		return err
	}
	end, err := s.follow(ctx, &started)
	if err != nil {
		return err
	}
	return errors.Join(s.truthful(ctx, started, end), s.settled(ctx))
}

func holderUnconfirmed(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	s.wire.on(func(r *request) fault {
		if s.touched(r) {
			return fault{lose: connectionReset(r)}
		}
		return fault{}
	})
	_, err = holder.Suspend(ctx, s.Ref)
	s.wire.on(nil)
	if !errors.Is(err, applier.ErrUnconfirmed) {
		return fmt.Errorf("the answers to the suspend were lost, and Suspend returned: %w", told(err))
	}
	return errors.Join(s.names(err.Error(), s.Ref), s.hold(ctx))
}

func holderReleaseUnconfirmed(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	s.wire.on(func(r *request) fault {
		if s.touched(r) {
			return fault{lose: connectionReset(r)}
		}
		return fault{}
	})
	_, err = holder.Release(ctx, s.Ref)
	s.wire.on(nil)
	if !errors.Is(err, applier.ErrUnconfirmed) {
		return fmt.Errorf("the answers to the release were lost, and Release returned: %w", told(err))
	}
	if wrong := s.names(err.Error(), s.Ref); wrong != nil {
		return wrong
	}
	keeper, err := holder.Release(ctx, s.Ref)
	if err != nil || keeper != "" {
		return fmt.Errorf("Release was called again after its answer was lost, and returned %q, %w", keeper, told(err))
	}
	stands, err := holder.Suspension(ctx, s.Ref)
	if err == nil && stands.Suspended {
		err = fmt.Errorf("the applier was released, and Suspension says %+v", stands)
	}
	return err
}

// runs waits until an operation is seen to run.
func (s *subject) runs(ctx context.Context, started *applier.Started) error {
	return s.until(ctx, func() error {
		p, err := s.client.Progress(ctx, s.Ref, started)
		if err == nil && p.State == applier.StateRequested {
			err = fmt.Errorf("the apply does not start: %+v", p)
		}
		return err
	})
}

func holderSuspendsMeanwhile(ctx context.Context, e *env) error {
	for _, running := range []bool{true, false} {
		if err := e.suspendMeanwhile(ctx, running); err != nil {
			return err
		}
	}
	return nil
}

// suspendMeanwhile calls Suspend right after a request, or once its apply is seen to run.
func (e *env) suspendMeanwhile(ctx context.Context, running bool) error {
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
	if running {
		if err := s.runs(ctx, &started); err != nil {
			return err
		}
	}
	holder, _ := applier.AsHolder(s.client)
	if _, err := holder.Suspend(ctx, s.Ref); err != nil {
		return fmt.Errorf("Suspend after a request: %w", err)
	}
	p, err := s.client.Progress(ctx, s.Ref, &started)
	if err := errors.Join(err, release()); err != nil {
		return err
	}
	if !p.State.Ended() {
		if p, err = s.follow(ctx, &started); err != nil {
			return fmt.Errorf("Suspend was called after the request: %w", err)
		}
	}
	if running && p.Reason == applier.ReasonNotRun {
		return fmt.Errorf("the apply was seen to run when Suspend was called, and the operation ended %+v", p)
	}
	return errors.Join(s.truthful(ctx, started, p), s.settled(ctx))
}

func holderErrors(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	holder, _ := applier.AsHolder(s.client)
	s.wire.on(func(r *request) fault { return fault{refuse: internalError(r)} })
	token, suspend := holder.Suspend(ctx, s.Ref)
	stands, suspension := holder.Suspension(ctx, s.Ref)
	keeper, release := holder.Release(ctx, s.Ref)
	if token != "" || stands != (applier.Suspension{}) || keeper != "" {
		return fmt.Errorf("the API server answers nothing but 500, and the answers are %q, %+v, %q", token, stands, keeper)
	}
	var wrong []error
	for call, err := range map[string]error{"Suspend": suspend, "Suspension": suspension, "Release": release} {
		if _, ok := status(err); !ok || applier.IsPermanent(err) {
			wrong = append(wrong, fmt.Errorf("the API server answers nothing but 500, and %s returned: %w", call, told(err)))
			continue
		}
		if unnamed := s.names(err.Error(), s.Ref); unnamed != nil {
			wrong = append(wrong, fmt.Errorf("the error of %s is not for people: %w", call, unnamed))
		}
	}
	return errors.Join(wrong...)
}
