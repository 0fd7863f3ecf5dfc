package appliertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier"
)

var requestClauses = []clause{
	{
		group: "Request", name: "refuses a bad ask before it reads",
		text:  "Ask.Validate is called first: a bad ask is a permanent error, and nothing is read or written",
		check: requestRefusesBadAsks,
	},
	{
		group: "Request", name: "refuses another repository",
		text:  "no starting write is sent to an applier that applies another repository than Ask.Want: SourceMismatch, permanent",
		check: requestRefusesRepository,
	},
	{
		group: "Request", name: "refuses another branch",
		text:  "no starting write is sent to an applier that applies another branch than Ask.Want: SourceMismatch, permanent",
		check: requestRefusesBranch,
	},
	{
		group: "Request", name: "takes any spelling of the repository and branch",
		text:  "a Binding holds the repository in any spelling, and the branch as main or refs/heads/main",
		check: requestTakesSpellings,
	},
	{
		group: "Request", name: "refuses an applier that does not exist",
		text:  "a VerdictError carries the reason that Validate would give: ApplierNotFound, permanent; nothing is created",
		check: requestRefusesMissing,
	},
	{
		group: "Request", name: "refuses an identity that may not read",
		text:  "a VerdictError carries the reason that Validate would give: Forbidden, permanent",
		needs: []Capability{API},
		check: requestRefusesForbidden,
	},
	{
		group: "Request", name: "keeps the API server's error",
		text:  "an error of the API server stays reachable by errors.As, is not permanent, and names the applier and its cluster",
		needs: []Capability{API},
		check: requestKeepsErrors,
	},
	{
		group: "Request", name: "asks nothing for an empty commit",
		text:  "with an empty commit nothing is applied, and the applier's source is at most made to look: OutcomeCurrent",
		check: requestEmptyCommit,
	},
	{
		group: "Request", name: "is current only where no run is needed",
		text:  "OutcomeCurrent asks for nothing; a commit that is not applied, and a reason that needs a run, are asked for",
		check: requestCurrentOutcome,
	},
	{
		group: "Request", name: "names what it started",
		text:  "the Started has the outcome, the token and commit of the ask, and a Baseline of at most 1 KiB",
		check: requestNamesStarted,
	},
	{
		group: "Request", name: "puts the token into the applier by one write",
		text:  "the token identifies the request in the applier's own object, which the one write that starts it puts there",
		needs: []Capability{API},
		check: requestWritesToken,
	},
	{
		group: "Request", name: "returns soon after its context ends",
		text:  "Request returns soon after ctx ends",
		needs: []Capability{API},
		check: requestReturns,
	},
}

func requestRefusesBadAsks(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	bad := []struct {
		name   string
		change func(*applier.Ask)
	}{
		{"without a token", func(a *applier.Ask) { a.Token = "" }},
		{"without a repository", func(a *applier.Ask) { a.Want.Repository = "" }},
		{"without a branch", func(a *applier.Ask) { a.Want.Branch = "" }},
		{"of the branch HEAD", func(a *applier.Ask) { a.Want.Branch = "HEAD" }},
		{"with a short hash", func(a *applier.Ask) { a.Commit = commit[:12] }},
		{"with an upper-case hash", func(a *applier.Ask) { a.Commit = strings.Repeat("A", 40) }},
		{"with a branch for a commit", func(a *applier.Ask) { a.Commit = "main" }},
		{"for an unknown reason", func(a *applier.Ask) { a.Reason = "Because" }},
	}
	var wrong []error
	for _, b := range bad {
		s.wire.forget()
		ask, noted := s.ask(commit, b.change)
		_, err := s.client.Request(ctx, s.Ref, ask)
		switch {
		case err == nil:
			wrong = append(wrong, fmt.Errorf("an ask %s is accepted", b.name))
		case !applier.IsPermanent(err):
			wrong = append(wrong, fmt.Errorf("an ask %s is refused by an error that is not permanent: %w", b.name, err))
		case len(s.wire.requests()) > 0:
			wrong = append(wrong, fmt.Errorf("an ask %s is refused only after %v", b.name, s.wire.requests()[0]))
		case len(noted.made) > 0:
			wrong = append(wrong, fmt.Errorf("an ask %s is refused only after a call of %s", b.name, noted.made[0].name))
		}
	}
	return errors.Join(wrong...)
}

// refusesAsk returns what is wrong with how an ask is refused for a reason.
func (s *subject) refusesAsk(ctx context.Context, reason string, change func(*applier.Ask)) error {
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	before, err := s.Applied(ctx)
	if err != nil {
		return err
	}
	s.wire.forget()
	ask, noted := s.ask(commit, change)
	_, err = s.client.Request(ctx, s.Ref, ask)
	switch {
	case err == nil:
		return errors.New("Request returned no error")
	case applier.VerdictReason(err) != reason:
		return fmt.Errorf("the reason of Request's error is %q instead of %s: %w", applier.VerdictReason(err), reason, err)
	case !applier.IsPermanent(err):
		return fmt.Errorf("Request's error is not permanent: %w", err)
	case len(noted.records()) > 0:
		return errors.New("Record was called for a request that is refused")
	}
	return errors.Join(s.names(err.Error(), s.Ref), s.untouched("for a request that is refused"), s.unchanged(ctx, before, "the request was refused"))
}

func requestRefusesRepository(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	return s.refusesAsk(ctx, applier.ReasonSourceMismatch, func(a *applier.Ask) {
		a.Want.Repository = "https://bot:" + secret + "@git.example.com/somebody/else"
	})
}

func requestRefusesBranch(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	return s.refusesAsk(ctx, applier.ReasonSourceMismatch, func(a *applier.Ask) { a.Want.Branch = "some-other-branch" })
}

func requestTakesSpellings(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit, func(a *applier.Ask) {
		a.Want.Repository = strings.TrimSuffix(a.Want.Repository, ".git") + ".git"
		a.Want.Branch = "refs/heads/" + strings.TrimPrefix(a.Want.Branch, "refs/heads/")
	})
	if err != nil {
		return err
	}
	_, err = s.follow(ctx, &started)
	return err
}

func requestRefusesMissing(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.Ref = s.missing()
	if err := s.refusesAsk(ctx, applier.ReasonApplierNotFound, func(*applier.Ask) {}); err != nil || s.API == nil {
		return err
	}
	return s.stillGone(ctx)
}

func requestRefusesForbidden(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	s.wire.on(func(r *request) fault {
		if r.resource.GroupResource() == s.Resource.GroupResource() {
			return fault{refuse: forbidden(r)}
		}
		return fault{}
	})
	return s.refusesAsk(ctx, applier.ReasonForbidden, func(*applier.Ask) {})
}

func requestKeepsErrors(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	s.wire.on(func(r *request) fault { return fault{refuse: internalError(r)} })
	ask, _ := s.ask(commit)
	_, err = s.client.Request(ctx, s.Ref, ask)
	if err == nil {
		return errors.New("the API server answers nothing but 500, and Request returned no error")
	}
	if _, ok := status(err); !ok {
		return fmt.Errorf("the API server's error is not in Request's: %w", err)
	}
	return s.refused(ask, err)
}

func requestEmptyCommit(ctx context.Context, e *env) error {
	s, err := e.subject(ctx)
	if err != nil {
		return err
	}
	ask, noted := s.ask("")
	started, err := s.client.Request(ctx, s.Ref, ask)
	switch {
	case err != nil:
		return fmt.Errorf("Request: %w", err)
	case started.Outcome != applier.OutcomeCurrent:
		return fmt.Errorf("the outcome is %q", started.Outcome)
	case len(noted.records()) > 0:
		return errors.New("Record was called although nothing is to be started")
	}
	return s.untouched("for an empty commit")
}

func requestCurrentOutcome(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	// A commit that is not applied is asked for, whatever the reason.
	started, err := s.request(ctx, commit, func(a *applier.Ask) { a.Reason = applier.CatchUp })
	if err != nil {
		return fmt.Errorf("CatchUp to a commit that is not applied: %w", err)
	}
	if _, err := s.follow(ctx, &started); err != nil {
		return err
	}
	for _, reason := range []applier.ApplyReason{applier.Refusal, applier.Repair, applier.CatchUp, applier.ForeignCommit} {
		s.wire.forget()
		ask, noted := s.ask(commit, func(a *applier.Ask) { a.Reason = reason })
		started, err := s.client.Request(ctx, s.Ref, ask)
		switch current := started.Outcome == applier.OutcomeCurrent; {
		case err != nil:
			return fmt.Errorf("%s of a commit that is applied: %w", reason, err)
		case current && reason.NeedsRun():
			return fmt.Errorf("%s needs a run, and the outcome is Current", reason)
		case current && len(noted.records()) > 0:
			return fmt.Errorf("%s: the outcome is Current, and Record was called", reason)
		case current:
			if err := s.untouched(string(reason) + " with the outcome Current"); err != nil {
				return err
			}
			continue
		}
		end, err := s.follow(ctx, &started)
		if err == nil {
			err = errors.Join(s.truthful(ctx, started, end), s.settled(ctx))
		}
		if err == nil && end.AppliedCommit != commit {
			err = fmt.Errorf("it ended %+v", end)
		}
		if err != nil {
			return fmt.Errorf("%s of a commit that is applied: %w", reason, err)
		}
	}
	return nil
}

func requestNamesStarted(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	ask, _ := s.ask(commit)
	started, err := s.client.Request(ctx, s.Ref, ask)
	if err != nil {
		return fmt.Errorf("Request: %w", err)
	}
	wrong := s.rightStarted(ctx, ask, started)
	if started.Unconfirmed != nil || started.Recovered || started.Overdue || started.SuspendToken != "" || started.Observed != nil {
		wrong = errors.Join(wrong, fmt.Errorf("a fresh operation that was answered has something set that is set later: %+v", started))
	}
	if _, err := s.follow(ctx, &started); err != nil {
		return err
	}
	return wrong
}

// rightStarted returns what is wrong with an operation that a request returned or recorded.
func (s *subject) rightStarted(ctx context.Context, ask applier.Ask, started applier.Started) error {
	switch {
	case started.Outcome == "" || started.Outcome == applier.OutcomeCurrent:
		return fmt.Errorf("its Outcome is %q", started.Outcome)
	case ask.Live && started.Outcome == applier.OutcomeResumed:
		return errors.New("a Live ask resumed the applier")
	case started.Token != ask.Token:
		return fmt.Errorf("its Token is %q instead of the ask's %q", started.Token, ask.Token)
	case started.Commit != ask.Commit:
		return fmt.Errorf("its Commit is %q instead of the ask's %q", started.Commit, ask.Commit)
	case len(started.Baseline) > 1024:
		return fmt.Errorf("its Baseline has %d bytes", len(started.Baseline))
	case started.RequestedAt.IsZero():
		return errors.New("its RequestedAt is zero")
	}
	if s.API == nil {
		return nil
	}
	object, err := s.object(ctx)
	if err != nil {
		return err
	}
	if started.UID != object.GetUID() {
		return fmt.Errorf("its UID is %q instead of the applier's %q", started.UID, object.GetUID())
	}
	return nil
}

func requestWritesToken(ctx context.Context, e *env) error {
	s, commit, err := e.pushed(ctx)
	if err != nil {
		return err
	}
	started, err := s.request(ctx, commit)
	if err != nil {
		return err
	}
	if n := stored(s.starts(started.Token)); n != 1 {
		return fmt.Errorf("%d writes put the token %s into the applier", n, started.Token)
	}
	if _, err := s.follow(ctx, &started); err != nil {
		return err
	}
	if n := stored(s.starts(started.Token)); n != 1 {
		return fmt.Errorf("while it was followed, the operation was started again: %d writes put the token into the applier", n)
	}
	return nil
}
