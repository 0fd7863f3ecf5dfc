package gitopsprovider

import (
	"context"
	"errors"
	"fmt"
)

// Diff returns what a change changed, or of one without a ToRev what was attempted would have changed: between
// FromCommit and ToCommit or AttemptedCommit, or what that itself introduced if there is no FromCommit. If the range holds no change of the path, it is what the newest commit that touched it changed.
//
// A change that has both a ToRev and an Attempted is that of ToRev: [Change.Attempt] returns the other one.
//
// A change of another source than a Git repository has an empty Diff, whose Note says why. The error is that of the
// Differ.
func (v *Views) Diff(ctx context.Context, change Change) (Diff, error) {
	if why := change.noDiff(); why != "" {
		return Diff{Repository: change.Source.URL, Path: change.Path, Note: why}, nil
	}
	_, commit := change.goal()
	diff, err := v.differ.Diff(ctx, DiffQuery{
		Repository: change.Source.URL, Path: change.Path, From: change.FromCommit, To: commit, Branch: change.Source.Branch,
	})
	if err != nil {
		return Diff{}, fmt.Errorf("the diff of %s: %w", v.named(change.Workload), err)
	}
	if change.FromRev != "" && change.FromCommit == "" {
		diff.Note = joinNotes(diff.Note, fmt.Sprintf("the commit of %s, which was applied before, is not known: this is what %s itself changed",
			change.FromRev, commit))
	}
	return diff, nil
}

// noDiff says why there is no diff of a change, if there is none.
func (c Change) noDiff() string {
	revision, commit := c.goal()
	switch {
	case c.Source.Type == SourceGit && commit == "":
		return fmt.Sprintf("%s names no commit, so there is nothing to compare", orNothing(revision))
	case c.Source.Type == SourceGit:
		return ""
	case c.Source.Type == "":
		return "where the content comes from is not known, so there is nothing to compare"
	case c.Source.Origin.URL != "":
		return fmt.Sprintf("the source is no Git repository (%s), so there is no diff; it says that it was made from %s at %s",
			c.Source.Type, c.Source.Origin.URL, orNothing(c.Source.Origin.Revision))
	default:
		return fmt.Sprintf("the source is no Git repository (%s), so there is no diff", c.Source.Type)
	}
}

func orNothing(revision string) string {
	if revision == "" {
		return "no revision"
	}
	return revision
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// NoDiffer is the Differ of a program that does without: every question is answered with [ErrNoDiffer].
type NoDiffer struct{}

var _ Differ = NoDiffer{}

// ErrNoDiffer is a question about a repository that was asked of [NoDiffer].
var ErrNoDiffer = errors.New("this program reads no Git repositories: it was made with NoDiffer")

// Diff returns ErrNoDiffer.
func (NoDiffer) Diff(context.Context, DiffQuery) (Diff, error) { return Diff{}, ErrNoDiffer }

// History returns ErrNoDiffer.
func (NoDiffer) History(context.Context, HistoryQuery) (History, error) {
	return History{}, ErrNoDiffer
}
