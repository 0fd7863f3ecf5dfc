package gitdiff

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	modeTree      = filemode.Dir
	modeSymlink   = filemode.Symlink
	modeSubmodule = filemode.Submodule

	// mostTrees bounds how many folders are compared. A few objects can make a
	// tree of billions of folders, which hold each other many times.
	mostTrees = 200_000

	// mostPath bounds how long a path may be, and how deep folders are nested.
	// It is what operating systems allow.
	mostPath = 4096
)

// side is a file on one side of a change. The zero side is none.
type side struct {
	path string
	mode filemode.FileMode
	hash plumbing.Hash
}

func (s side) exists() bool { return s.mode != 0 }

// hasBlob reports whether the file has content in this repository.
func (s side) hasBlob() bool { return s.exists() && s.mode != modeSubmodule }

// change is a file that differs.
type change struct {
	before, after side
	similarity    int // of a rename, in percent
}

// path is where the change is listed.
func (c change) path() string {
	if c.after.exists() {
		return c.after.path
	}
	return c.before.path
}

func (c change) renamed() bool {
	return c.before.exists() && c.after.exists() && c.before.path != c.after.path
}

// typeChanged reports whether a path turned into another kind of entry.
func (c change) typeChanged() bool {
	const kind = 0o170000
	return c.before.exists() && c.after.exists() && c.before.mode&kind != c.after.mode&kind
}

func (c change) status() gitopsprovider.FileStatus {
	switch {
	case !c.before.exists():
		return gitopsprovider.FileAdded
	case !c.after.exists():
		return gitopsprovider.FileDeleted
	case c.renamed():
		return gitopsprovider.FileRenamed
	case c.typeChanged():
		return gitopsprovider.FileTypeChanged
	}
	return gitopsprovider.FileModified
}

// treeDiff compares two trees. It reads only what differs.
type treeDiff struct {
	store   *store
	most    int // files
	trees   int
	changes []change
	cut     string // why it ended early
}

func isNothing(e object.TreeEntry) bool { return e.Mode == 0 }

// compare lists what differs between the entries of one path, in the order of
// the paths.
func (d *treeDiff) compare(ctx context.Context, path string, before, after object.TreeEntry) error {
	if before.Mode == after.Mode && before.Hash == after.Hash {
		return nil
	}
	wasTree, isTree := before.Mode == modeTree, after.Mode == modeTree
	if !isNothing(before) && !wasTree || !isNothing(after) && !isTree {
		d.add(change{before: fileSide(path, before), after: fileSide(path, after)})
	}
	if !wasTree && !isTree {
		return nil
	}
	return d.compareTrees(ctx, path, treeHash(before), treeHash(after))
}

func fileSide(path string, e object.TreeEntry) side {
	if isNothing(e) || e.Mode == modeTree {
		return side{}
	}
	return side{path, e.Mode, e.Hash}
}

func treeHash(e object.TreeEntry) plumbing.Hash {
	if e.Mode != modeTree {
		return plumbing.ZeroHash
	}
	return e.Hash
}

func (d *treeDiff) compareTrees(ctx context.Context, path string, before, after plumbing.Hash) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if d.trees++; d.trees > mostTrees {
		d.cut = "too many folders differ"
	}
	if len(path) > mostPath {
		d.cut = "the paths of files are too long"
	}
	if d.cut != "" {
		return nil
	}
	old, err := d.store.tree(before)
	if err != nil {
		return err
	}
	now, err := d.store.tree(after)
	if err != nil {
		return err
	}
	for len(old) > 0 || len(now) > 0 {
		var b, a object.TreeEntry
		order := compareEntries(old, now)
		if order <= 0 {
			b, old = old[0], old[1:]
		}
		if order >= 0 {
			a, now = now[0], now[1:]
		}
		name := b.Name + a.Name
		if order == 0 {
			name = a.Name
		}
		if err := d.compare(ctx, join(path, name), b, a); err != nil || d.cut != "" {
			return err
		}
	}
	return nil
}

// compareEntries says which of two lists of entries begins with the lesser one.
// Git sorts a folder as if its name ended in a slash, so that a path that turned
// from one into the other is at two places: it was deleted here and added there.
func compareEntries(a, b []object.TreeEntry) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return strings.Compare(sortName(a[0]), sortName(b[0]))
}

func sortName(e object.TreeEntry) string {
	if e.Mode == modeTree {
		return e.Name + "/"
	}
	return e.Name
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}

func (d *treeDiff) add(c change) {
	if len(c.path()) > mostPath {
		d.cut = "the paths of files are too long"
		return
	}
	if len(d.changes) == d.most {
		d.cut = fmt.Sprintf("only the first %d files that differ are listed", d.most)
		return
	}
	d.changes = append(d.changes, c)
}
