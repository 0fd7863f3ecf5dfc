package fake

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// operation is one operation that a [Client] started, and how far it has come.
type operation struct {
	ref            types.NamespacedName
	branch, commit string
	resumed        bool
	steps          []applier.Progress
	// next is the step that stands, where each stands until it was reported.
	next int
	// every and since say which step stands, where each stands for a time.
	every time.Duration
	since time.Time
}

// present returns the number of the step that stands.
func (o *operation) present(now time.Time) int {
	if o.every > 0 {
		return min(int(now.Sub(o.since)/o.every), len(o.steps)-1)
	}
	return o.next
}

// untilNext returns how long the present step still stands, or zero where time does not tell.
func (o *operation) untilNext(now time.Time) time.Duration {
	present := o.present(now)
	if o.every <= 0 || present == len(o.steps)-1 {
		return 0
	}
	return o.since.Add(time.Duration(present+1) * o.every).Sub(now)
}

// succeeding returns the steps of an operation that succeeds.
func (o *operation) succeeding() []applier.Progress {
	steps := []applier.Progress{{State: applier.StateRequested}, {State: applier.StateRunning}}
	if o.resumed {
		steps = append(steps, applier.Progress{State: applier.StateSettling})
	}
	return append(steps, o.complete(applier.Progress{State: applier.StateSucceeded}))
}

// complete fills in what every end says and a script leaves out.
func (o *operation) complete(step applier.Progress) applier.Progress {
	switch step.State {
	case applier.StateSucceeded:
		if step.AppliedRevision == "" {
			step.AppliedRevision = revision(o.branch, o.commit)
		}
		if step.AppliedCommit == "" {
			step.AppliedCommit = gitref.CommitOf(step.AppliedRevision)
		}
		if step.Reason == "" {
			step.Reason = string(step.State)
			if step.AppliedCommit != o.commit {
				step.Reason = applier.ReasonAppliedOther
			}
		}
	case applier.StateFailed:
		if step.Reason == "" {
			step.Reason = string(step.State)
		}
	}
	return step
}

// revision spells a commit of a branch as Flux does.
func revision(branch, commit string) string {
	if name, err := gitref.Branch(branch); err == nil {
		branch = name
	}
	algorithm := "sha1"
	if len(commit) == 64 {
		algorithm = "sha256"
	}
	return branch + "@" + algorithm + ":" + commit
}
