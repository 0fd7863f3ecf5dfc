package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// comparison is the two commits of a diff. before is nil for the empty tree.
type comparison struct {
	path          scope
	before, after *object.Commit
}

func (r *repository) diff(ctx context.Context, q gitopsprovider.DiffQuery) (gitopsprovider.Diff, error) {
	path, err := parseScope(q.Path)
	if err != nil {
		return gitopsprovider.Diff{}, err
	}
	to, err := parseCommit("to", q.To)
	if err != nil {
		return gitopsprovider.Diff{}, err
	}
	c, err := r.comparisonOf(ctx, path, q.From, to)
	if err != nil {
		return gitopsprovider.Diff{}, err
	}
	d, err := r.compare(ctx, c)
	if err != nil {
		return gitopsprovider.Diff{}, err
	}
	switch {
	case len(d.Files) > 0 || d.Cut:
	case c.before != nil && c.before.Hash == c.after.Hash:
		d.Note = "from and to are the same commit"
	default:
		if d, err = r.newestTouching(ctx, d, c, to); err != nil {
			return gitopsprovider.Diff{}, err
		}
	}
	d.Repository = gitref.Redact(q.Repository)
	return d, nil
}

// comparisonOf fetches the commits of a diff.
func (r *repository) comparisonOf(ctx context.Context, path scope, fromText string, to plumbing.Hash) (comparison, error) {
	c := comparison{path: path}
	if fromText == "" {
		if err := r.need(ctx, 2, to); err != nil {
			return c, r.explainShallow(err, to)
		}
		var err error
		if c.after, err = r.commitOf(to); err == nil {
			c.before, err = r.firstParent(c.after)
		}
		return c, err
	}
	from, err := parseCommit("from", fromText)
	if err != nil {
		return c, err
	}
	if err := r.need(ctx, 1, from, to); err != nil {
		return c, err
	}
	if c.before, err = r.commitOf(from); err == nil {
		c.after, err = r.commitOf(to)
	}
	return c, err
}

func (r *repository) explainShallow(err error, commit plumbing.Hash) error {
	if errors.Is(err, errHistoryEnds) {
		return fmt.Errorf("the parent of %s: %w: %w", commit, err, gitopsprovider.ErrCommitNotFound)
	}
	return err
}

// firstParent returns nil for a root commit.
func (r *repository) firstParent(c *object.Commit) (*object.Commit, error) {
	if len(c.ParentHashes) == 0 {
		return nil, nil
	}
	return r.store.commit(c.ParentHashes[0])
}

// newestTouching returns what the newest commit that touched the path changed in
// it, or the empty diff with the reason why there is none.
func (r *repository) newestTouching(ctx context.Context, empty gitopsprovider.Diff, c comparison, to plumbing.Hash) (gitopsprovider.Diff, error) {
	unchanged := fmt.Sprintf("%s is the same at %s and at %s", c.path.words(), name(c.before), name(c.after))
	w := r.walk(c.after, to, c.path)
	w.most = 1
	if err := w.run(ctx); err != nil {
		return empty, err
	}
	if len(w.found) == 0 {
		empty.Note = fmt.Sprintf("%s, and no commit before touched it", unchanged)
		if w.cut != "" {
			empty.Note = fmt.Sprintf("%s, and no commit found before touched it: %s", unchanged, w.cut)
			empty.Cut = true
		}
		return empty, nil
	}
	newest, err := r.store.commit(plumbing.NewHash(w.found[0].Hash))
	if err != nil {
		return empty, err
	}
	parent, err := r.firstParent(newest)
	if err != nil {
		return empty, err
	}
	d, err := r.compare(ctx, comparison{path: c.path, before: parent, after: newest})
	if err != nil {
		return empty, err
	}
	d.NewestTouching = true
	d.Note = joinNotes(fmt.Sprintf("%s; this is commit %s, the newest that touched it", unchanged, gitref.Short(newest.Hash.String())), d.Note)
	return d, nil
}

func name(c *object.Commit) string {
	if c == nil {
		return "the empty tree"
	}
	return gitref.Short(c.Hash.String())
}

func joinNotes(notes ...string) string {
	var said []string
	for _, n := range notes {
		if n != "" {
			said = append(said, n)
		}
	}
	return strings.Join(said, "; ")
}

// compare returns the diff of two commits.
func (r *repository) compare(ctx context.Context, c comparison) (gitopsprovider.Diff, error) {
	d := gitopsprovider.Diff{Path: c.path.String(), To: c.after.Hash.String(), Commit: describe(c.after)}
	var before object.TreeEntry
	if c.before != nil {
		d.From = c.before.Hash.String()
		var err error
		if before, err = r.at(c.before.TreeHash, c.path); err != nil {
			return d, err
		}
	}
	after, err := r.at(c.after.TreeHash, c.path)
	if err != nil {
		return d, err
	}
	trees := &treeDiff{store: r.store, most: r.call.differ.limits.Files}
	if err := trees.compare(ctx, c.path.String(), before, after); err != nil {
		return d, err
	}
	d.Note, d.Cut = trees.cut, trees.cut != ""
	if err := r.needBlobs(ctx, c, trees.changes); err != nil {
		return d, err
	}
	changes, whole, err := r.pairRenames(ctx, trees.changes)
	if err != nil {
		return d, err
	}
	if !whole {
		d.Note = joinNotes(d.Note, "too many files were added and deleted to look for those that were renamed and changed at once")
	}
	if err := r.patches(ctx, changes, &d); err != nil {
		return d, err
	}
	return d, nil
}

// needBlobs fetches the files that differ, where only trees are here. Files that
// are too large to fetch stay away: their patch is cut.
func (r *repository) needBlobs(ctx context.Context, c comparison, changes []change) error {
	missing := func() []plumbing.Hash {
		var list []plumbing.Hash
		for _, change := range changes {
			for _, s := range []side{change.before, change.after} {
				if s.hasBlob() && !r.store.has(s.hash) {
					list = append(list, s.hash)
				}
			}
		}
		return list
	}
	blobs := missing()
	if len(blobs) == 0 {
		return nil
	}
	f, err := r.fetcher(ctx)
	if err != nil || f == nil {
		return err
	}
	commits := []plumbing.Hash{c.after.Hash}
	if c.before != nil {
		commits = append(commits, c.before.Hash)
	}
	err = f.fetchBlobs(ctx, blobs, commits, func() bool { return len(missing()) == 0 })
	if errors.Is(err, gitopsprovider.ErrLimit) && ctx.Err() == nil {
		return nil
	}
	if errors.Is(err, errNotGiven) {
		return fmt.Errorf("%w: the server leaves out files of its commits", errBroken)
	}
	return err
}
