package argocd

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Progress reports how far Argo CD is with the sync s. It writes nothing.
//
// The operation is recognised by its token: Requested while .operation carries it, Running while
// status.operationState does in a phase that is not final (a failed sync that waits for Argo CD's own retry
// included), and Succeeded or Failed once that phase is final and .operation is no longer the request's. Success is
// the phase and the revision that was synced; status.sync and health are not read for it. What was left unpruned is
// named in the message.
//
// The controller moves an operation into status.operationState whole, so a token that is nowhere means that the sync
// was never set (Recovered, Unconfirmed), that somebody removed or replaced it (Superseded), or that a pass in flight
// for the previous operation put that one's record back and dropped this one (Swallowed). Of a Recovered operation that is
// said once it is Overdue: the process that recorded it may live, and set it yet. An operation that somebody
// removed while it was running is processed no further; it is Failed once it is Overdue. One whose Application is being
// deleted goes on.
//
// An end that a watch shows (s.Observed) is read again, but for that of the operation's own record.
func (c *Client) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	named := c.named(ref)
	switch {
	case s.Outcome == applier.OutcomeCurrent:
		return applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonCurrent, AppliedCommit: s.Commit}, nil
	case s.Outcome != applier.OutcomeSyncRequested:
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: the operation's outcome %q is not one of package argocd", named, s.Outcome))
	case s.Token == "":
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: the operation has no token: it is not one of Request", named))
	}
	before, known, err := parseBaseline(s.Baseline)
	if err != nil {
		return applier.Progress{}, applier.Permanent(fmt.Errorf("%s: %w", named, err))
	}
	f := following{named: named, started: *s, before: before, known: known}

	u := s.Observed
	s.Observed = nil
	if u != nil {
		app, err := parseApplication(u, c.options.InfoKey)
		if err != nil {
			return applier.Progress{}, fmt.Errorf("cannot read %s: %w", named, err)
		}
		// It can be older than the update: of the ends, only the operation's own is one for sure.
		if p := f.where(app); !p.State.Ended() || f.over(app) {
			return p, nil
		}
	}
	app, err := c.get(ctx, ref)
	switch {
	case applier.AbsenceOf(err) == applier.AbsenceNotFound:
		return f.failed(applier.ReasonGone, "%s no longer exists", named), nil
	case err != nil:
		return applier.Progress{}, fmt.Errorf("cannot read %s: %w", named, err)
	}
	return f.where(app), nil
}

// following is one operation to be judged by what its Application shows. It reads and writes nothing.
type following struct {
	named   string
	started applier.Started
	before  baseline
	known   bool
}

// where says where the operation stands.
func (f following) where(app application) applier.Progress {
	switch {
	case f.started.UID != "" && app.uid != f.started.UID:
		return f.failed(applier.ReasonReplaced, "%s is another object of that name now", f.named)
	case f.over(app):
		return f.outcome(app.state)
	case f.carried(app) && app.operation == nil && f.started.Overdue:
		return f.failed(applier.ReasonInterrupted, "somebody removed the operation of %s while it was %s, and what it applied is not known: %s",
			f.named, app.state.phase, app.state.message)
	case f.carried(app):
		return f.running(app.state)
	case f.asked(app):
		return f.progress(applier.StateRequested, "%s is asked to sync %s", f.named, applier.DescribeCommit(f.started.Commit))
	default:
		return f.unseen(app)
	}
}

// asked reports whether app is asked for the operation, carried whether the operation was taken up, and over whether it has ended.
func (f following) asked(app application) bool {
	return app.operation != nil && app.operation.token == f.started.Token
}

func (f following) carried(app application) bool {
	return app.state != nil && app.state.operation.token == f.started.Token
}

func (f following) over(app application) bool {
	return f.carried(app) && app.state.completed() && !f.asked(app)
}

func (f following) running(s *state) applier.Progress {
	if s.message == "" {
		return f.progress(applier.StateRunning, "%s is %s", f.named, s.phase)
	}
	return f.progress(applier.StateRunning, "%s is %s: %s", f.named, s.phase, s.message)
}

// unseen judges an operation whose token is nowhere.
//
// An update that got no answer carried the resourceVersion of the baseline, and can no longer be made once that has moved. A record tells less:
// its update was decided a last time after it, by a process that may live. So there only time tells.
func (f following) unseen(app application) applier.Progress {
	notLater := f.known && (app.resourceVersion == f.before.ResourceVersion ||
		applier.ResourceVersionBefore(app.resourceVersion, f.before.ResourceVersion))
	if !f.started.Overdue && (f.started.Recovered || notLater) {
		return f.progress(applier.StateRequested, "%s does not show the sync of %s yet", f.named, applier.DescribeCommit(f.started.Commit))
	}
	doubtful := f.started.Recovered || f.started.Unconfirmed != nil
	// The update removes the record that stood before, so where that stands again, or still, nothing ran for this
	// request.
	unchanged := f.known && fingerprint(app.state.identity()) == f.before.State
	switch {
	case unchanged && app.state != nil && !doubtful:
		return f.failed(applier.ReasonSwallowed, "%s went on with the previous operation and dropped this one: %s was not synced for it",
			f.named, applier.DescribeCommit(f.started.Commit))
	case unchanged && doubtful && (app.state != nil || app.operation == nil):
		return f.failed(applier.ReasonNotRun, "%s did not run for this request", f.named)
	default:
		return f.failed(applier.ReasonSuperseded, "the record of this sync of %s is gone, removed or replaced by another's, and what it applied is not known", f.named)
	}
}

// projectNotRead is what 3.2.11 says of any operation on an Application that it indexed before it had read the project,
// after a start or where both are new: the index persists that condition (controller/appcontroller.go,
// newApplicationInformerAndLister), and a sync refuses to run beside it until the Application was refreshed. It says
// so only of a project that it knows by then (controller/sync.go, SyncAppState); of a missing one it says
// "Failed to load application project".
const projectNotRead = "InvalidSpecError: Application referencing project"

// outcome judges a completed operation.
func (f following) outcome(s *state) applier.Progress {
	switch {
	case s.operation.partial != "" || s.operation.revision != f.started.Commit:
		// An operation without info of its own inherits that of the one before (3.2.11).
		return f.failed(applier.ReasonSuperseded, "the record of this sync of %s is that of %s now, which somebody started after it, and what it applied is not known",
			f.named, s.operation.describe())
	case s.phase == phaseSucceeded && s.synced == "":
		return f.failed(applier.ReasonInterrupted, "%s reports success and not what it synced: %s", f.named, s.message)
	case s.phase == phaseSucceeded:
		return f.succeeded(s)
	case s.phase == phaseError && strings.Contains(s.message, projectNotRead):
		return f.failed(applier.ReasonInterrupted, "the controller of %s had not read its project yet, as happens right after its start, and refused to sync: "+
			"that says nothing of the commit: %s", f.named, s.message)
	default:
		return f.failed(s.phase, "%s: %s", f.named, s.explained())
	}
}

func (f following) succeeded(s *state) applier.Progress {
	p := f.progress(applier.StateSucceeded, "%s", s.message)
	p.Reason = s.phase
	p.AppliedRevision = s.synced
	p.AppliedCommit = gitref.CommitOf(s.synced)
	if p.AppliedCommit != f.started.Commit {
		p.Reason = applier.ReasonAppliedOther
		p.Message = fmt.Sprintf("%s synced %s instead of %s: %s", f.named, s.synced, applier.DescribeCommit(f.started.Commit), s.message)
	}
	if len(s.unpruned) > 0 {
		p.Message += "; not pruned: " + strings.Join(s.unpruned, ", ")
	}
	return p
}

func (f following) progress(state applier.State, format string, args ...any) applier.Progress {
	p := applier.Progress{State: state, Message: fmt.Sprintf(format, args...)}
	if f.before.Replaced != "" {
		p.Message += fmt.Sprintf("; it replaced an operation of %s that was left in progress", f.before.Replaced)
	}
	return p
}

func (f following) failed(reason, format string, args ...any) applier.Progress {
	p := f.progress(applier.StateFailed, format, args...)
	p.Reason = reason
	return p
}
