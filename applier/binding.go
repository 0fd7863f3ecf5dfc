package applier

import "github.com/gitops-applier/gitops-applier/applier/gitref"

// Binding is the repository and branch that an applier must apply from to be asked. A request
// is refused when the applier applies from another one, because the commit that was decided on would
// not be what it applies.
type Binding struct {
	// Repository is the repository's address in any spelling. By default gitref.SameRepository
	// compares it with what the cluster's object says.
	Repository string `json:"repository"`
	// Branch is written main or refs/heads/main.
	Branch string `json:"branch"`
}

// String names the binding in a message, without user info.
func (b Binding) String() string {
	return "branch " + b.Branch + " of " + gitref.Redact(b.Repository)
}

// Same reports whether both name the same branch of the same repository, however they are spelled. Nil for sameRepository is
// gitref.SameRepository. A binding without a repository or a branch is the same as none.
func (b Binding) Same(other Binding, sameRepository func(a, b string) bool) bool {
	if b.Repository == "" || b.Branch == "" {
		return false
	}
	if sameRepository == nil {
		sameRepository = gitref.SameRepository
	}
	return gitref.SameBranch(b.Branch, other.Branch) && sameRepository(b.Repository, other.Repository)
}
