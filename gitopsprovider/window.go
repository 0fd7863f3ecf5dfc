package gitopsprovider

import (
	"fmt"
	"slices"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// landed returns the changes of a window: one for each commit, the newest of which comes first, and one for each deployment
// that none of them explains. A deployment that one explains is told by that commit, as its time or as a note.
func (a applied) landed(window TimeWindow, commits []Commit) []Change {
	var changes []Change
	for i, commit := range commits {
		change := a.change
		change.Commit = &commit
		change.FromRev, change.FromCommit = "", ""
		change.DeployedAt, change.DeployedAfter = time.Time{}, time.Time{}
		if commit.Hash != change.ToCommit {
			change.ToRev, change.ToCommit = commit.Hash, commit.Hash
		}
		// Nothing newer that is applied touched the path, so the first is what stands there, whichever commit is applied.
		change.Current = i == 0 && window.Until.IsZero()
		changes = append(changes, change)
	}
	explained := a.explain(commits)
	for i, run := range a.runs {
		by := explained[i]
		switch {
		case by == unexplained && window.contains(run.began()):
			change := a.ofRun(i)
			if change.Current && len(commits) > 0 {
				changes[0].Current = false
			}
			changes = append(changes, change)
		case by == unexplained || !window.Until.IsZero() && run.began().After(window.Until):
		case commits[by].Hash == a.commitOf(i):
			changes[by].DeployedAt, changes[by].DeployedAfter = run.since, run.after
			changes[by].Notes = run.noted(changes[by].Notes)
		default:
			changes[by].Notes = run.noted(noted(changes[by].Notes, "by the dates, it was deployed with "+run.revision+run.clock()))
		}
	}
	return changes
}

// ofRun returns the change of a run that no commit explains.
func (a applied) ofRun(i int) Change {
	run, change := a.runs[i], a.change
	change.Current = i == 0 && sameRevision(run.revision, a.change.ToRev)
	if !run.place.in(change.Source, change.Path) {
		change.Source, change.Path = run.place.instead(change.Source)
	}
	if !change.Current {
		change.ToRev, change.ToCommit = run.revision, commitOf(change.Source, run.revision)
	}
	change.FromRev, change.FromCommit = run.from, commitOf(change.Source, run.from)
	change.DeployedAt, change.DeployedAfter = run.since, run.after
	change.Notes = run.noted(change.Notes)
	for _, later := range a.runs[:i] {
		if later.since.IsZero() && !later.after.IsZero() {
			change.Notes = noted(change.Notes, "it may have replaced another revision: "+later.revision+" was applied again since, and the history does not keep when it was before")
			break
		}
	}
	return change
}

// unexplained is a run that no commit explains.
const unexplained = -1

// explain returns for each run which of the commits it brought: its own, or else, since the newest commits of a branch need
// not touch the path, one that was made since the run before. commits are those of what is applied now, newest first, so
// that a rollback brings none of them, and what it rolled back may have brought others.
func (a applied) explain(commits []Commit) []int {
	own := make([]int, len(a.runs))
	for i := range a.runs {
		own[i] = slices.IndexFunc(commits, func(c Commit) bool { return c.Hash == a.commitOf(i) })
	}
	explained := make([]int, len(a.runs))
	for i, run := range a.runs {
		switch {
		case !run.place.in(a.change.Source, a.change.Path):
			explained[i] = unexplained
		case own[i] != unexplained:
			explained[i] = a.byCommit(i, commits, own)
		default:
			explained[i] = a.byDate(i, commits, own)
		}
	}
	for i := len(a.runs) - 1; i > 0; i-- {
		if own[i] == unexplained && explained[i-1] == unexplained {
			explained[i] = unexplained
		}
	}
	return explained
}

// byCommit explains a run by its own commit, unless it went back to that: it was applied before, or made before the run
// before and is no child of that one's commit.
func (a applied) byCommit(i int, commits []Commit, own []int) int {
	again := slices.Contains(own[i+1:], own[i])
	child := i+1 < len(own) && own[i+1] > own[i]
	if again || !child && commits[own[i]].When.Before(a.before(i)) {
		return unexplained
	}
	return own[i]
}

// byDate explains a run by the newest commit that was made since the run before, and that is not known to have come with
// another. Times are whole seconds: a commit may be as old as the run before the one that it made.
func (a applied) byDate(i int, commits []Commit, own []int) int {
	for c, commit := range commits {
		if !commit.When.Before(a.before(i)) && !a.after(i, commit.When) && !slices.Contains(own, c) {
			return c
		}
	}
	return unexplained
}

// before is when the run before one began.
func (a applied) before(i int) time.Time {
	if i+1 == len(a.runs) {
		return time.Time{}
	}
	return a.runs[i+1].began()
}

// after reports whether a time is after the one when a run began. Where only the earliest is known, that was before the next.
func (a applied) after(i int, t time.Time) bool {
	began := a.runs[i].since
	if began.IsZero() && i > 0 {
		began = a.runs[i-1].began()
	}
	return !began.IsZero() && t.After(began)
}

// commitOf returns the commit that a run deployed, or "" if that is not known.
func (a applied) commitOf(i int) string {
	if i == 0 && sameRevision(a.runs[0].revision, a.change.ToRev) {
		return a.change.ToCommit
	}
	return gitref.CommitOf(a.runs[i].revision)
}

// noted returns the notes of a change with what the run that brought it adds.
func (r run) noted(notes []string) []string {
	if r.moved {
		return noted(notes, elsewhereBefore)
	}
	return notes
}

// clock says for people when a run began.
func (r run) clock() string {
	switch {
	case !r.since.IsZero():
		return fmt.Sprintf(" at %s", r.since.UTC().Format(time.RFC3339))
	case !r.after.IsZero():
		return fmt.Sprintf(" after %s", r.after.UTC().Format(time.RFC3339))
	default:
		return ""
	}
}
