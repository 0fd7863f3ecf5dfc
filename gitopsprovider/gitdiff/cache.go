package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cache is a folder of bare repositories, one for each location.
//
//	gitdiff-v1/<key>/          the repository, see entry
//	gitdiff-v1/<key>.use       locked, shared, by every call that reads it;
//	                           exclusively by one that deletes it
//	gitdiff-v1/<key>.fetch     locked, exclusively, by a call that adds to it
//
// Only a holder of both locks may make or delete the files; whoever adds to a
// repository renames whole files into it, so that readers need not wait.
type cache struct {
	dir          string
	repositories int
	bytes        int64
}

const (
	cacheFolder   = "gitdiff-v1"
	useSuffix     = ".use"
	fetchSuffix   = ".fetch"
	removedPrefix = "removed-"
)

func newCache(o Options) *cache {
	return &cache{dir: filepath.Join(o.Dir, cacheFolder), repositories: o.Limits.CacheRepositories, bytes: o.Limits.CacheBytes}
}

// use opens the repository of a key for reading. The caller closes it.
func (c *cache) use(ctx context.Context, key string) (*entry, error) {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	info, err := os.Lstat(c.dir)
	if err != nil {
		return nil, fmt.Errorf("opening the cache: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("the cache %s is no folder", c.dir)
	}
	if err := checkOwner(c.dir, info); err != nil {
		return nil, err
	}
	used, err := lock(ctx, c.path(key, useSuffix), false)
	if err != nil {
		return nil, err
	}
	e := &entry{dir: c.path(key, ""), fetchPath: c.path(key, fetchSuffix), used: used}
	if err := e.open(ctx); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (c *cache) path(key, suffix string) string { return filepath.Join(c.dir, key+suffix) }

// discard deletes the repository of a key once nobody uses it.
func (c *cache) discard(ctx context.Context, key string) error {
	used, err := lock(ctx, c.path(key, useSuffix), true)
	if err != nil {
		return err
	}
	defer used.release()
	return c.delete(key)
}

// delete deletes a repository whose use lock the caller holds exclusively. It is
// first renamed, so that a process which dies here leaves no half of one.
func (c *cache) delete(key string) error {
	aside := c.path(removedPrefix+key, "")
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	if err := os.Rename(c.path(key, ""), aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(aside)
}

// tidy deletes what was used longest ago until the cache is within its bounds.
// What is in use stays. It is called after a call that added to the cache,
// when nothing depends on its success: the next one tries again.
func (c *cache) tidy() {
	kept := c.entries()
	slices.SortFunc(kept, func(a, b cached) int { return b.used.Compare(a.used) }) // newest first
	var bytes int64
	for i, e := range kept {
		bytes += e.bytes
		if i >= c.repositories || bytes > c.bytes || e.worn {
			if c.evict(e.key) {
				bytes -= e.bytes
			}
		}
	}
}

// evict deletes a repository and its locks, unless somebody uses it.
func (c *cache) evict(key string) bool {
	used, err := tryLock(c.path(key, useSuffix), true)
	if err != nil {
		return false
	}
	fetch, err := tryLock(c.path(key, fetchSuffix), true)
	if err != nil {
		used.release()
		return false
	}
	err = c.delete(key)
	if removeErr := fetch.remove(); err == nil {
		err = removeErr
	}
	if removeErr := used.remove(); err == nil {
		err = removeErr
	}
	return err == nil
}

// removeLeftover deletes what a process that died was about to delete.
func (c *cache) removeLeftover(file os.DirEntry) {
	const age = time.Hour // of what somebody else may be deleting
	if info, err := file.Info(); err == nil && time.Since(info.ModTime()) > age {
		_ = os.RemoveAll(filepath.Join(c.dir, file.Name()))
	}
}

// cached is a repository in the cache.
type cached struct {
	key   string
	used  time.Time
	bytes int64
	worn  bool // it has grown so many packs that a new one is better
}

// entries lists the cache. What vanishes meanwhile is left out.
func (c *cache) entries() []cached {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil
	}
	var found []cached
	for _, file := range files {
		if strings.HasPrefix(file.Name(), removedPrefix) {
			c.removeLeftover(file)
			continue
		}
		if !file.IsDir() {
			continue
		}
		e := cached{key: file.Name()}
		info, err := os.Stat(filepath.Join(c.dir, e.key, stateFile))
		if err == nil {
			e.used = info.ModTime()
		}
		packs := 0
		_ = filepath.WalkDir(filepath.Join(c.dir, e.key), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // it vanished
			}
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				e.bytes += info.Size()
			}
			if strings.HasSuffix(path, ".pack") {
				packs++
			}
			return nil
		})
		e.worn = packs > mostPacks
		found = append(found, e)
	}
	return found
}
