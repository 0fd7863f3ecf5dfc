package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// repository is what a call reads: the objects on disk, and the server that has
// the others.
type repository struct {
	call   *call
	store  *store
	entry  *entry   // nil if the repository is local
	server *fetcher // nil until something is missing
}

// fetcher connects to the server, once. It returns nil for a local repository,
// where what is missing is nowhere.
func (r *repository) fetcher(ctx context.Context) (*fetcher, error) {
	if r.server != nil || r.entry == nil {
		return r.server, nil
	}
	remote, secrets, err := r.call.differ.connect(ctx, r.call.location, r.call.budget)
	r.call.secrets = append(r.call.secrets, secrets...)
	if err != nil {
		return nil, err
	}
	r.server = &fetcher{
		remote: remote, entry: r.entry, branch: r.call.branch, budget: r.call.budget, store: r.store,
		objectBytes: r.call.differ.limits.ObjectBytes,
	}
	return r.server, nil
}

func (r *repository) disconnect() {
	if r.server != nil {
		r.server.remote.close()
	}
}

// need fetches commits, or tags of commits, that are not here, and as many of
// their ancestors as depth says: 1 is none, 2 their parents.
func (r *repository) need(ctx context.Context, depth int, commits ...plumbing.Hash) error {
	here := func(h plumbing.Hash) bool { return r.reaches(h, depth) }
	missing := slices.DeleteFunc(slices.Clone(commits), here)
	if len(missing) == 0 {
		return nil
	}
	f, err := r.fetcher(ctx)
	if err != nil {
		return err
	}
	done := func() bool { return len(slices.DeleteFunc(slices.Clone(missing), here)) == 0 }
	if f != nil {
		err = f.fetch(ctx, missing, depth, done)
		if err != nil && !errors.Is(err, errNotGiven) {
			return err
		}
	}
	for _, h := range missing {
		if !r.store.has(h) {
			return notFound(h)
		}
	}
	if !done() && f == nil {
		return errHistoryEnds
	}
	if !done() {
		return fmt.Errorf("%w: the server leaves out parents of its commits", errBroken)
	}
	return nil
}

// errHistoryEnds is a shallow local repository whose history goes on elsewhere.
var errHistoryEnds = errors.New("the local repository is shallow")

// reaches reports whether a commit is here with its parents, if depth is 2 or
// more. Whatever is no commit reaches: to fetch more does not change it.
func (r *repository) reaches(h plumbing.Hash, depth int) bool {
	if !r.store.has(h) {
		return false
	}
	if depth == 1 {
		return true
	}
	c, err := r.peel(h)
	if err != nil {
		return !errors.Is(err, errMissing)
	}
	return r.hasParents(c)
}

func (r *repository) hasParents(c *object.Commit) bool {
	return r.store.hasAll(c.ParentHashes)
}

// peel returns the commit that a hash names, itself or through tags. The object
// it is of must be here.
func (r *repository) peel(h plumbing.Hash) (*object.Commit, error) {
	const mostTags = 16
	named := h
	for range mostTags {
		o, err := r.store.object(h)
		if err != nil {
			return nil, err
		}
		switch o.Type() {
		case plumbing.CommitObject:
			return r.store.commit(h)
		case plumbing.TagObject:
			if o.Size() > mostCommitBytes {
				return nil, fmt.Errorf("the tag %s has more than %d bytes: %w", h, mostCommitBytes, gitopsprovider.ErrLimit)
			}
			tag, err := object.DecodeTag(r.store.objects[0], o)
			if err != nil {
				return nil, fmt.Errorf("%w: reading tag %s: %w", errBroken, h, err)
			}
			h = tag.Target
		default:
			if h != named {
				return nil, fmt.Errorf("%s is a tag of a %s: %w", named, o.Type(), gitopsprovider.ErrNotCommit)
			}
			return nil, fmt.Errorf("%s is a %s: %w", named, o.Type(), gitopsprovider.ErrNotCommit)
		}
	}
	return nil, fmt.Errorf("%s is a tag of a tag of a tag, and so on: %w", named, gitopsprovider.ErrNotCommit)
}

// commitOf is peel for a hash that was asked for and fetched.
func (r *repository) commitOf(h plumbing.Hash) (*object.Commit, error) {
	c, err := r.peel(h)
	if errors.Is(err, errMissing) {
		return nil, fmt.Errorf("%w: what %s names is missing", errBroken, h)
	}
	return c, err
}

// at returns the entry of a tree at a path: the zero entry if there is none.
func (r *repository) at(root plumbing.Hash, path scope) (object.TreeEntry, error) {
	found := object.TreeEntry{Mode: modeTree, Hash: root}
	for _, part := range path {
		if found.Mode != modeTree {
			return object.TreeEntry{}, nil
		}
		entries, err := r.store.tree(found.Hash)
		if err != nil {
			return object.TreeEntry{}, err
		}
		i := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == part })
		if i < 0 {
			return object.TreeEntry{}, nil
		}
		found = entries[i]
	}
	return object.TreeEntry{Mode: found.Mode, Hash: found.Hash}, nil
}

// describe returns a commit as callers see it.
func describe(c *object.Commit) gitopsprovider.Commit {
	subject, _, _ := strings.Cut(strings.TrimLeft(c.Message, "\n"), "\n")
	out := gitopsprovider.Commit{
		Hash:    c.Hash.String(),
		Subject: oneLine(subject),
		Author:  oneLine(fmt.Sprintf("%s <%s>", c.Author.Name, c.Author.Email)),
		When:    c.Committer.When,
	}
	for _, p := range c.ParentHashes {
		out.Parents = append(out.Parents, p.String())
	}
	return out
}

// oneLine makes a text fit to be shown: it is as long as a line may be, and valid
// UTF-8.
func oneLine(text string) string {
	const most = 1000
	text = strings.TrimSpace(text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
