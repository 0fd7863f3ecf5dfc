package gitdiff

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	objectcache "github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	// mostCommitBytes and mostTreeBytes bound what is decoded at once. A tree
	// of this size has some 800,000 entries.
	mostCommitBytes = 1 << 20
	mostTreeBytes   = 32 << 20

	// keptBytes is how much of what was read one call keeps.
	keptBytes = 32 * objectcache.MiByte

	// largeBytes is from where on a file is read as a stream.
	largeBytes = 1 << 20
)

// store reads the objects of one repository on disk, for one call: its own, and
// those that it borrows from other repositories.
type store struct{ objects []*filesystem.Storage }

// openStore opens a bare repository, or the folder .git of another.
func openStore(dir string) *store {
	return &store{[]*filesystem.Storage{filesystem.NewStorageWithOptions(osfs.New(dir), objectcache.NewObjectLRU(keptBytes), filesystem.Options{
		KeepDescriptors:      true,
		LargeObjectThreshold: largeBytes,
	})}}
}

// openLocal opens a repository that is not in the cache.
func openLocal(path string) (*store, error) {
	for _, dir := range []string{path, filepath.Join(path, ".git"), path + ".git"} {
		if info, err := os.Stat(filepath.Join(dir, "objects")); err == nil && info.IsDir() {
			s := openStore(dir)
			s.borrow(filepath.Join(dir, "objects"), mostAlternates)
			return s, nil
		}
	}
	return nil, fmt.Errorf("there is no repository at this path: %w", gitopsprovider.ErrRepositoryNotFound)
}

// mostAlternates is how far borrowed repositories may borrow themselves, as in
// Git.
const mostAlternates = 5

// borrow opens the repositories that a folder of objects names as its alternates.
func (s *store) borrow(objects string, most int) {
	list, err := os.ReadFile(filepath.Join(objects, "info", "alternates"))
	if err != nil || most == 0 {
		return
	}
	for line := range strings.Lines(string(list)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(objects, line)
		}
		s.objects = append(s.objects, openStore(filepath.Dir(line)).objects...)
		s.borrow(line, most-1)
	}
}

func (s *store) close() {
	for _, o := range s.objects {
		_ = o.Close()
	}
}

// reload reads the indexes of the packs, those that were added too. Without a
// reload before it, has could not tell what is missing from what cannot be read.
func (s *store) reload() error {
	for _, o := range s.objects {
		o.Reindex()
		if err := o.HasEncodedObject(plumbing.ZeroHash); err != nil && !errors.Is(err, plumbing.ErrObjectNotFound) {
			return fmt.Errorf("%w: reading the packs: %w", errBroken, err)
		}
	}
	return nil
}

// has reports whether an object is here.
func (s *store) has(h plumbing.Hash) bool {
	return slices.ContainsFunc(s.objects, func(o *filesystem.Storage) bool { return o.HasEncodedObject(h) == nil })
}

func (s *store) hasAll(list []plumbing.Hash) bool {
	return !slices.ContainsFunc(list, func(h plumbing.Hash) bool { return !s.has(h) })
}

// errMissing is an object that is not here.
var errMissing = errors.New("object is missing")

// object returns an object of any kind, or errMissing.
func (s *store) object(h plumbing.Hash) (plumbing.EncodedObject, error) {
	for _, objects := range s.objects {
		o, err := objects.EncodedObject(plumbing.AnyObject, h)
		if err == nil {
			return o, nil
		}
		if !errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil, fmt.Errorf("%w: reading object %s: %w", errBroken, h, err)
		}
	}
	return nil, errMissing
}

// bounded returns an object that must be here, of one kind and size.
func (s *store) bounded(h plumbing.Hash, kind plumbing.ObjectType, most int64) (plumbing.EncodedObject, error) {
	o, err := s.object(h)
	if errors.Is(err, errMissing) {
		return nil, fmt.Errorf("%w: %s %s is missing", errBroken, kind, h)
	}
	if err != nil {
		return nil, err
	}
	if o.Type() != kind {
		return nil, fmt.Errorf("%w: object %s is a %s and no %s", errBroken, h, o.Type(), kind)
	}
	if o.Size() > most {
		return nil, fmt.Errorf("the %s %s has more than %d bytes: %w", kind, h, most, gitopsprovider.ErrLimit)
	}
	return o, nil
}

func (s *store) commit(h plumbing.Hash) (*object.Commit, error) {
	o, err := s.bounded(h, plumbing.CommitObject, mostCommitBytes)
	if err != nil {
		return nil, err
	}
	c, err := object.DecodeCommit(s.objects[0], o)
	if err != nil {
		return nil, fmt.Errorf("%w: reading commit %s: %w", errBroken, h, err)
	}
	return c, nil
}

// tree returns the entries of a tree. The zero hash is the empty tree.
func (s *store) tree(h plumbing.Hash) ([]object.TreeEntry, error) {
	if h.IsZero() {
		return nil, nil
	}
	o, err := s.bounded(h, plumbing.TreeObject, mostTreeBytes)
	if err != nil {
		return nil, err
	}
	t, err := object.DecodeTree(s.objects[0], o)
	if err != nil {
		return nil, fmt.Errorf("%w: reading tree %s: %w", errBroken, h, err)
	}
	for _, e := range t.Entries {
		// Git never makes such a name; a path with it would lead elsewhere.
		if strings.Contains(e.Name, "/") || e.Name == "." || e.Name == ".." {
			return nil, fmt.Errorf("the tree %s holds the name %q, which Git forbids: %w", h, e.Name, gitopsprovider.ErrServerNotSupported)
		}
	}
	return t.Entries, nil
}

// blobSize returns the size of a file.
func (s *store) blobSize(h plumbing.Hash) (int64, error) {
	o, err := s.bounded(h, plumbing.BlobObject, 1<<62)
	if err != nil {
		return 0, err
	}
	return o.Size(), nil
}

// blob returns the beginning of a file, most bytes at most.
func (s *store) blob(h plumbing.Hash, most int64) ([]byte, error) {
	o, err := s.bounded(h, plumbing.BlobObject, 1<<62)
	if err != nil {
		return nil, err
	}
	r, err := o.Reader()
	if err != nil {
		return nil, fmt.Errorf("%w: reading file %s: %w", errBroken, h, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, most))
	if closeErr := r.Close(); err == nil && int64(len(data)) < most {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("%w: reading file %s: %w", errBroken, h, err)
	}
	return data, nil
}
