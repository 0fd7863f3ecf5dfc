package flux

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// gitRepository is what a GitRepository shows, as far as this package reads it.
type gitRepository struct {
	object
	url string
	ref gitRepositoryRef
	// artifact is the revision that it holds, or "" while it holds none.
	artifact string
}

// gitRepositoryRef is a GitRepository's spec.ref.
type gitRepositoryRef struct {
	branch, name, tag, semver, commit string
}

func parseGitRepository(u *unstructured.Unstructured) (gitRepository, error) {
	f := applier.FieldsOf(u)
	repository := gitRepository{
		object: objectOf(f, u),
		url:    applier.Field[string](f, "spec", "url"),
		ref: gitRepositoryRef{
			branch: applier.Field[string](f, "spec", "ref", "branch"),
			name:   applier.Field[string](f, "spec", "ref", "name"),
			tag:    applier.Field[string](f, "spec", "ref", "tag"),
			semver: applier.Field[string](f, "spec", "ref", "semver"),
			commit: applier.Field[string](f, "spec", "ref", "commit"),
		},
		artifact: applier.Field[string](f, "status", "artifact", "revision"),
	}
	// source-controller v1.9.4 writes the URL into a message whole.
	repository.ready.message = gitref.RedactText(strings.ReplaceAll(repository.ready.message, repository.url, gitref.Redact(repository.url)))
	return repository, f.Err()
}

// gitRepository reads the GitRepository ref. The error is the API server's own, or one of a malformed object.
func (c *Client) gitRepository(ctx context.Context, ref types.NamespacedName) (gitRepository, error) {
	u, err := c.get(ctx, gitRepositoryKind, ref)
	if err != nil {
		return gitRepository{}, err
	}
	return parseGitRepository(u)
}

// holds reports whether the artifact is of commit.
func (g gitRepository) holds(commit string) bool {
	return commit != "" && gitref.CommitOf(g.artifact) == commit
}

// followed returns the branch that is followed, or what pins the source to something else.
//
// A commit wins over a name, a name over tags, tags over a branch, and without any the branch is master, not the
// remote's default (fluxcd/pkg/git v0.52.0, gogit/client.go).
func (r gitRepositoryRef) followed() (string, error) {
	switch {
	case r.commit != "":
		return "", fmt.Errorf("spec.ref.commit pins it to %s", r.commit)
	case r.name != "":
		branch, err := gitref.Branch(r.name)
		if err != nil || branch == r.name {
			return "", fmt.Errorf("spec.ref.name is %s, which does not start with refs/heads/", r.name)
		}
		return branch, nil
	case r.tag != "":
		return "", fmt.Errorf("spec.ref.tag pins it to tag %s", r.tag)
	case r.semver != "":
		return "", fmt.Errorf("spec.ref.semver follows tags (%s)", r.semver)
	case r.branch != "":
		return r.branch, nil
	default:
		return "master", nil
	}
}
