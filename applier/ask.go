package applier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// ApplyReason is why an apply is asked for. It decides whether an applier that has already applied the
// commit is asked again.
type ApplyReason string

// The reasons for an apply.
const (
	// Commit is a commit that the host made.
	Commit ApplyReason = "Commit"
	// ForeignCommit is a commit that somebody else made.
	ForeignCommit ApplyReason = "ForeignCommit"
	// CatchUp is a host that starts and cannot know what was applied while it was not running.
	CatchUp ApplyReason = "CatchUp"
	// Refusal is a change in the cluster that the host refused: the commit did not change, and is to be
	// applied over it.
	Refusal ApplyReason = "Refusal"
	// Repair is an apply that failed or was interrupted: the same commit is to be applied again.
	Repair ApplyReason = "Repair"
)

// NeedsRun reports whether an applier is to run even if it has applied the commit already.
// CatchUp and ForeignCommit ask only for a commit to be applied. The others, and an empty reason, ask for a run.
func (r ApplyReason) NeedsRun() bool {
	return r != ForeignCommit && r != CatchUp
}

// Ask is what one request asks of an applier.
type Ask struct {
	// Want is the repository and branch that the applier must apply from. Required.
	Want Binding
	// Commit is the commit to apply: a full hash of 40 or 64 lower-case hex digits. Empty when the
	// remote does not carry the branch: then nothing is applied, and the applier's source is at most made to look.
	Commit string
	// Reason is why; the zero value asks for a run, as Commit does.
	Reason ApplyReason
	// Token identifies the request in the applier's own object and status. Required, used for
	// one request alone; see [NewToken]. Apply makes one where it is empty.
	Token string
	// Live asks a Flux Kustomization that is not held suspended: it is made to reconcile the commit, is followed the
	// same way, and is never suspended. It always runs, whatever Reason says. Other backends ignore it.
	Live bool
	// Wait bounds how long the request may wait for an operation in progress on the applier to
	// end. Zero is the client's default; negative does not wait.
	Wait time.Duration

	// Current reports whether the decision still holds. It is called right before Record and right before
	// the write that starts the apply, and may be called more often. Nil always holds.
	Current func() bool
	// Held reports, from a fresh read, whether the host's own record of the applier says that it is held, and
	// errs when it does not: a resume would race whoever is just suspending it. It is asked right
	// before Record. Nil always holds. Only a Flux request that is not Live asks it.
	Held func(ctx context.Context) error
	// Record makes the operation durable and returns once it is. It gets the operation as it will be started, for the
	// host to keep with the applier's reference and to hand to Progress after a restart, with Recovered set. It is
	// called once, before the first write that may start the apply; an error starts nothing. If Request returns an
	// error after it, the recorded operation was not started: withdraw the record. Nil records nothing: then nobody
	// can follow the operation after a crash.
	Record func(ctx context.Context, s Started) error
}

// Validate reports what a request is refused for before anything is read: a missing binding, a missing token, a
// commit that is no full hash, an unknown reason. Its error is permanent. Every backend's Request calls it first.
func (a Ask) Validate() error {
	var err error
	switch {
	case a.Token == "":
		err = errors.New("the ask has no token: set Ask.Token to a value used once, such as NewToken()")
	case a.Want.Repository == "":
		err = errors.New("the ask names no repository: set Ask.Want.Repository")
	case a.Want.Branch == "":
		err = errors.New("the ask names no branch: set Ask.Want.Branch")
	case a.Commit != "" && !gitref.IsCommit(a.Commit):
		err = fmt.Errorf("the ask's commit %q is not a full hash of 40 or 64 lower-case hex digits: resolve it in the repository first", a.Commit)
	}
	if err == nil {
		if _, branch := gitref.Branch(a.Want.Branch); branch != nil {
			err = fmt.Errorf("the ask's branch: %w", branch)
		}
	}
	if err == nil {
		switch a.Reason {
		case "", Commit, ForeignCommit, CatchUp, Refusal, Repair:
		default:
			err = fmt.Errorf("the ask's reason %q is unknown: use one of the ApplyReason constants", a.Reason)
		}
	}
	return Permanent(err)
}

// IsCurrent reports whether the decision still holds.
func (a Ask) IsCurrent() bool {
	return a.Current == nil || a.Current()
}

// DescribeCommit names a commit in a message: its first twelve digits, or what an empty one means.
func DescribeCommit(commit string) string {
	if commit == "" {
		return "no commit (the branch does not exist)"
	}
	return "commit " + gitref.Short(commit)
}
