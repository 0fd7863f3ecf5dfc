package fake

import (
	"fmt"
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
	states := []applier.State{applier.StateRequested, applier.StateRunning}
	if o.resumed {
		states = append(states, applier.StateSettling)
	}
	var steps []applier.Progress
	for _, state := range append(states, applier.StateSucceeded) {
		steps = append(steps, o.complete(applier.Progress{State: state}))
	}
	return steps
}

// complete fills in what a backend says and a script leaves out.
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
	if step.Message == "" {
		step.Message = o.describe(step)
	}
	return step
}

// describe says where the operation stands, as a backend does.
func (o *operation) describe(step applier.Progress) string {
	named, commit := name(o.ref), applier.DescribeCommit(o.commit)
	switch step.State {
	case applier.StateRequested:
		return fmt.Sprintf("%s is asked to apply %s", named, commit)
	case applier.StateRunning:
		return fmt.Sprintf("%s applies %s", named, commit)
	case applier.StateSettling:
		return named + " is suspended again; that is not handled yet"
	case applier.StateSucceeded:
		if step.AppliedCommit != o.commit {
			return fmt.Sprintf("%s applied %s instead of %s", named, step.AppliedRevision, commit)
		}
		return "Applied revision: " + step.AppliedRevision // Flux's own words.
	default:
		return fmt.Sprintf("%s: %s", named, step.Reason)
	}
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
