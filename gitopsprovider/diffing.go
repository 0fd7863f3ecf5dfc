package gitopsprovider

import (
	"context"
	"errors"
)

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
