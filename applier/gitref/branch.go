package gitref

import (
	"errors"
	"fmt"
	"strings"
)

// Why a revision names no branch. [Branch] wraps one of these; test with
// errors.Is.
var (
	// ErrDefaultBranch is an empty revision or HEAD: it follows whatever branch
	// the repository calls its default, which can change without a commit.
	ErrDefaultBranch = errors.New("follows the repository's default branch, which nobody named: name the branch")

	// ErrPinned is a full commit hash, in either case of its letters.
	ErrPinned = errors.New("is a commit, which never moves: name a branch")

	// ErrTag is refs/tags/….
	ErrTag = errors.New("is a tag: name a branch")

	// ErrNotBranch is anything else that no branch is called: another ref, a
	// version range such as 1.*, an expression such as main~1, a name that
	// Git does not allow.
	ErrNotBranch = errors.New("is not the name of a branch")
)

const (
	headsPrefix = "refs/heads/"
	tagsPrefix  = "refs/tags/"
)

// Branch returns the short name of the branch that a revision names, main for
// both main and refs/heads/main. If it names none, the error says why and
// holds the revision; it wraps [ErrDefaultBranch], [ErrPinned], [ErrTag] or
// [ErrNotBranch].
//
// A revision here is what somebody asked to follow: a target's branch, an
// Application's targetRevision, a GitRepository's spec.ref.branch or
// spec.ref.name. For what a source reports, which holds a hash, see
// [ParseRevision].
//
// A bare name that Git allows for a branch is taken for one, although a tag of
// that name may exist.
func Branch(revision string) (string, error) {
	name, full := strings.CutPrefix(revision, headsPrefix)
	var reason error
	switch {
	case !full && (name == "" || name == "HEAD"):
		reason = ErrDefaultBranch
	case IsCommit(strings.ToLower(name)):
		reason = ErrPinned
	case strings.HasPrefix(revision, tagsPrefix):
		reason = ErrTag
	case !isBranchName(name):
		reason = ErrNotBranch
	default:
		return name, nil
	}
	return "", fmt.Errorf("revision %q %w", revision, reason)
}

// SameBranch reports whether both revisions name one branch. What names no
// branch is the same as nothing, itself included: two repositories that follow
// HEAD need not follow the same branch.
func SameBranch(a, b string) bool {
	nameA, errA := Branch(a)
	nameB, errB := Branch(b)
	return errA == nil && errB == nil && nameA == nameB
}

// isBranchName applies the rules of git check-ref-format --branch to a short
// name. It also refuses a short name that starts with refs/, which Git allows
// and nobody could tell from a full ref.
func isBranchName(name string) bool {
	if name == "HEAD" || name == "@" || strings.HasPrefix(name, "-") || strings.HasPrefix(name, "refs/") ||
		strings.HasSuffix(name, ".") || strings.Contains(name, "..") || strings.Contains(name, "@{") ||
		strings.ContainsAny(name, `~^:?*[\`) || strings.ContainsFunc(name, isControlOrSpace) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}

func isControlOrSpace(r rune) bool { return r <= ' ' || r == 0x7f }
