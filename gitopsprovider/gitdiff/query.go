package gitdiff

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// scope is a cleaned path: its parts from the root of the repository. None is
// the whole repository.
type scope []string

func (s scope) String() string { return strings.Join(s, "/") }

// words names the scope in a sentence.
func (s scope) words() string {
	if len(s) == 0 {
		return "the repository"
	}
	return s.String()
}

// parseScope cleans a path. Git knows no "." and "..", so that a path which
// leaves the repository is a mistake and not another folder.
func parseScope(path string) (scope, error) {
	var parts scope
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, fmt.Errorf("path %q leaves the folder it begins in: %w", path, gitopsprovider.ErrInvalidQuery)
		case strings.ContainsRune(part, 0):
			return nil, fmt.Errorf("path %q holds a NUL byte: %w", path, gitopsprovider.ErrInvalidQuery)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// parseCommit reads a full hash.
func parseCommit(field, commit string) (plumbing.Hash, error) {
	if !gitref.IsCommit(commit) {
		return plumbing.ZeroHash, fmt.Errorf("%s %q is not a full commit hash in lower-case hex: %w", field, commit, gitopsprovider.ErrInvalidQuery)
	}
	hash := plumbing.NewHash(commit)
	if len(commit) != len(hash)*2 {
		return plumbing.ZeroHash, fmt.Errorf("%s %s is of a repository whose objects are named by SHA-256: %w", field, commit, gitopsprovider.ErrServerNotSupported)
	}
	return hash, nil
}

// parseBranch returns the short name of a branch, or nothing.
func parseBranch(branch string) string {
	name, err := gitref.Branch(branch)
	if err != nil {
		return "" // only a hint: HEAD, a tag or a range helps nobody
	}
	return name
}
