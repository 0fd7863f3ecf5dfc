package fake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A checkout is the commit that a GitRepository's ref leads to.
type checkout struct {
	commit, revision, subject string
	files                     Files
}

var errEmptyRepository = errors.New("git repository is empty")

// fetchFailure is the reason of a checkout that failed.
func fetchFailure(err error) string {
	if errors.Is(err, errEmptyRepository) {
		return "EmptyGitRepository"
	}
	return gitOperationFailed
}

// checkout looks at the remote, for no longer than spec.timeout.
func (c *sourceController) checkout(ctx context.Context, g *managed) (checkout, error) {
	ctx, cancel := context.WithTimeout(ctx, g.duration(time.Minute, "timeout"))
	defer cancel()
	url := spec[string](g, "url")
	err := c.flux.faults.step(ctx, FetchStep, g.name())
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("unable to clone '%s': %w", url, err)
	}
	for _, field := range []string{"ignore", "include", "recurseSubmodules", "sparseCheckout", "verify"} {
		if value := spec[any](g, field); err == nil && value != nil && value != false {
			err = fmt.Errorf("the simulated source-controller does not support spec.%s", field)
		}
	}
	if err == nil {
		repository, ok := c.flux.remote.find(url)
		if ok {
			found, failed := refOf(g).resolve(repository, url)
			if failed == nil || errors.Is(failed, errEmptyRepository) {
				return found, failed
			}
			err = failed
		} else {
			err = fmt.Errorf("unable to clone: repository not found: git repository: '%s'", url)
		}
	}
	return checkout{}, fmt.Errorf("failed to checkout and determine revision: %w", err)
}

// A sourceRef is a GitRepository's spec.ref. A commit wins over a name, a name over tags, tags over a branch.
type sourceRef struct {
	branch, tag, semver, name, commit string
}

func refOf(g *managed) sourceRef {
	return sourceRef{
		branch: spec[string](g, "ref", "branch"),
		tag:    spec[string](g, "ref", "tag"),
		semver: spec[string](g, "ref", "semver"),
		name:   spec[string](g, "ref", "name"),
		commit: spec[string](g, "ref", "commit"),
	}
}

// resolve finds the commit that the ref leads to, and spells its revision as source-controller does.
func (ref sourceRef) resolve(r *Repository, url string) (checkout, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.commits) == 0 && ref.commit == "" && ref.name == "" && ref.tag == "" && ref.semver == "":
		return checkout{}, errEmptyRepository
	case ref.commit != "":
		return ref.resolveCommit(r, url)
	case ref.name != "":
		commit, ok := r.named(ref.name)
		if !ok {
			return checkout{}, fmt.Errorf("unable to resolve ref '%s' to a specific commit", ref.name)
		}
		return r.checkout(ref.name, commit), nil
	case ref.semver != "":
		tag, err := r.newest(ref.semver)
		if err != nil {
			return checkout{}, err
		}
		return r.checkout(tag, r.tags[tag]), nil
	case ref.tag != "":
		commit, ok := r.tags[ref.tag]
		if !ok {
			return checkout{}, missingRef(url, "refs/tags/"+ref.tag)
		}
		return r.checkout(ref.tag, commit), nil
	}
	branch := ref.branch
	if branch == "" {
		branch = "master"
	}
	commit, ok := r.branches[branch]
	if !ok {
		return checkout{}, missingRef(url, "refs/heads/"+branch)
	}
	return r.checkout(branch, commit), nil
}

func (ref sourceRef) resolveCommit(r *Repository, url string) (checkout, error) {
	if _, ok := r.branches[ref.branch]; !ok && ref.branch != "" {
		return checkout{}, missingRef(url, "refs/heads/"+ref.branch)
	}
	if _, ok := r.commits[ref.commit]; !ok {
		return checkout{}, fmt.Errorf("unable to resolve commit object for '%s': object not found", ref.commit)
	}
	return r.checkout(ref.branch, ref.commit), nil
}

// named finds the commit of a full name such as refs/heads/main. The lock is held.
func (r *Repository) named(name string) (commit string, ok bool) {
	if branch, is := strings.CutPrefix(name, "refs/heads/"); is {
		commit, ok = r.branches[branch]
	} else if tag, is := strings.CutPrefix(name, "refs/tags/"); is {
		commit, ok = r.tags[tag]
	}
	return commit, ok
}

// checkout is a commit under the ref that led to it. The lock is held.
func (r *Repository) checkout(ref, commit string) checkout {
	revision := "sha1:" + commit
	if len(commit) == 64 {
		revision = "sha256:" + commit
	}
	if ref != "" {
		revision = ref + "@" + revision
	}
	return checkout{commit: commit, revision: revision, subject: r.commits[commit].subject, files: r.commits[commit].files}
}

func missingRef(url, ref string) error {
	return fmt.Errorf("unable to clone '%s': couldn't find remote ref %q", url, ref)
}
