package gitopsprovider

import (
	"slices"
	"time"
)

// attempt is what an applier failed to apply of a source, and where that is from. The applier may name another source now than
// the one of what is applied.
type attempt struct {
	usedSource
	inPart bool
	// query is the history to ask for. It is zero where there is none to ask for.
	query HistoryQuery
}

// attempt finds out where the content that a use failed to apply comes from.
func (c *changes) attempt(use SourceUse, find func(Workload) (found Object, missing string), inPart bool) *attempt {
	use.Applied = use.failed()
	from := used(use, find)
	return &attempt{usedSource: from, inPart: inPart, query: c.query(from)}
}

// beside returns the change of what is applied with what was attempted since.
func (a attempt) beside(change Change) Change {
	change.Attempted = a.applied
	if a.isOf(change) {
		change.AttemptedCommit = a.commit
	}
	change.Notes = noted(change.Notes, a.note())
	return change
}

// isOf reports whether the attempt is of the source and path of a change.
func (a attempt) isOf(change Change) bool {
	return a.path == change.Path && sameURL(a.source.URL, change.Source.URL) && a.source.Chart == change.Source.Chart
}

func (a attempt) note() string {
	note := a.applied + " was attempted since, and failed"
	if a.inPart {
		note += "; it may be applied in part"
	}
	return note
}

// Attempt returns what was attempted as a change of its own, from what is applied to Attempted, for [Views.Diff]. A window lists
// it like that. Where nothing was attempted, its Diff is empty.
func (c Change) Attempt() Change {
	if c.isAttempt() {
		return c
	}
	c.FromRev, c.FromCommit = c.ToRev, c.ToCommit
	c.ToRev, c.ToCommit, c.Commit, c.Current = "", "", nil, false
	c.DeployedAt, c.DeployedAfter = time.Time{}, time.Time{}
	return c
}

// isAttempt reports whether a change is what was attempted alone.
func (c Change) isAttempt() bool { return c.ToRev == "" && c.Attempted != "" }

// goal is the revision and commit that a change leads to, or was to lead to.
func (c Change) goal() (revision, commit string) {
	if c.isAttempt() {
		return c.Attempted, c.AttemptedCommit
	}
	return c.ToRev, c.ToCommit
}

// tried returns the change of what was attempted since, if it falls into the window. landed and tried are the commits of the
// window up to what is applied, and up to what was attempted.
func (a applied) tried(window TimeWindow, landed, tried []Commit) []Change {
	change := a.attempt.beside(a.change).Attempt()
	if !a.attempt.isOf(a.change) {
		change.Source, change.Path = a.attempt.source, a.attempt.path
		change.FromRev, change.FromCommit, change.AttemptedCommit = "", "", a.attempt.commit
		change.Notes = noted(a.attempt.notes, a.attempt.note(), elsewhereBefore)
	}
	if !a.attempt.inPart {
		change.Notes = noted(change.Notes, "nothing of it landed")
	}
	for _, commit := range tried {
		if !slices.ContainsFunc(landed, func(c Commit) bool { return c.Hash == commit.Hash }) {
			change.Commit = &commit
			break
		}
	}
	if change.Commit == nil && !window.contains(change.Ready.Since) {
		return nil
	}
	return []Change{change}
}
