package gitdiff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	stateFile = "gitdiff.json"

	// mostPacks is how many fetches a repository takes. Each adds a pack, and
	// every object is looked for in each of them.
	mostPacks = 100

	// mostTips is how many commits a fetch says are here already.
	mostTips = 32
)

// entry is a bare repository in the cache while a call uses it: packs without
// refs, and a state file. Every commit in it has its trees and, in a repository
// that is not partial, its files; its parents may be missing.
type entry struct {
	dir       string
	fetchPath string
	used      *fileLock
	grew      bool // there is more in the cache than before
}

// state is what a server must be told of the commits here. A file that lacks a
// commit of Shallow would make it leave out what is missing; one that has too
// many makes it send a little more than it had to.
type state struct {
	Shallow []string // commits whose parents may be missing
	Tips    []string // commits fetched last
	Partial bool     // files may be missing
}

// open makes sure that there is a repository.
func (e *entry) open(ctx context.Context) error {
	_, err := e.readState()
	if errors.Is(err, fs.ErrNotExist) {
		return e.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	if _, err := os.Stat(e.packs()); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	now := time.Now()
	_ = os.Chtimes(filepath.Join(e.dir, stateFile), now, now) // only tidy reads it
	return nil
}

// create makes an empty repository, unless another call has just done so.
func (e *entry) create(ctx context.Context) error {
	fetching, err := e.fetching(ctx)
	if err != nil {
		return err
	}
	defer fetching.release()
	if _, err := e.readState(); err == nil {
		return nil
	}
	e.grew = true
	if held, err := filepath.Glob(filepath.Join(e.packs(), "*.pack")); err == nil && len(held) > 0 {
		return fmt.Errorf("%w: its state is lost", errBroken)
	}
	for _, dir := range []string{e.packs(), filepath.Join(e.dir, "refs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a repository in the cache: %w", err)
		}
	}
	// Git takes it for a repository then, which helps whoever looks into it.
	if err := writeBytes(filepath.Join(e.dir, "HEAD"), []byte("ref: refs/heads/none\n")); err != nil {
		return err
	}
	return e.writeState(state{})
}

func (e *entry) close() { e.used.release() }

// fetching locks the repository for adding to it.
func (e *entry) fetching(ctx context.Context) (*fileLock, error) {
	return lock(ctx, e.fetchPath, true)
}

func (e *entry) packs() string { return filepath.Join(e.dir, "objects", "pack") }

func (e *entry) readState() (state, error) {
	data, err := os.ReadFile(filepath.Join(e.dir, stateFile))
	if err != nil {
		return state{}, err
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		return state{}, fmt.Errorf("reading %s: %w", stateFile, err)
	}
	return s, nil
}

func (e *entry) writeState(s state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(e.dir, stateFile), data)
}

// withShallow adds commits whose parents are missing.
func (s state) withShallow(commits []plumbing.Hash) state {
	s.Shallow = union(s.Shallow, commits)
	return s
}

// withoutShallow removes commits whose parents are here now, and adds tips.
func (s state) withoutShallow(commits, tips []plumbing.Hash) state {
	gone := make(map[string]bool, len(commits))
	for _, c := range commits {
		gone[c.String()] = true
	}
	s.Shallow = slices.DeleteFunc(slices.Clone(s.Shallow), func(c string) bool { return gone[c] })
	s.Tips = union(s.Tips, tips)
	s.Tips = s.Tips[max(0, len(s.Tips)-mostTips):]
	return s
}

// union appends hashes to a list, each once, the newest at the end.
func union(list []string, hashes []plumbing.Hash) []string {
	added := make(map[string]bool, len(hashes))
	for _, h := range hashes {
		added[h.String()] = true
	}
	list = slices.DeleteFunc(slices.Clone(list), func(c string) bool { return added[c] })
	for _, h := range hashes {
		if added[h.String()] {
			list = append(list, h.String())
			delete(added, h.String())
		}
	}
	return list
}

func hashes(list []string) []plumbing.Hash {
	out := make([]plumbing.Hash, len(list))
	for i, h := range list {
		out[i] = plumbing.NewHash(h)
	}
	return out
}

// writeBytes replaces a file as a whole.
func writeBytes(path string, data []byte) error {
	return writeFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeFile replaces a file as a whole by what write writes.
func writeFile(path string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), tempPrefix)
	if err != nil {
		return fmt.Errorf("writing to the cache: %w", err)
	}
	err = write(temp)
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return fmt.Errorf("writing to the cache: %w", err)
	}
	return nil
}

// tempPrefix begins the names of files that are not whole yet.
const tempPrefix = "tmp_"

// removeLeftovers deletes what a process that died while it fetched left. The
// caller holds the fetch lock.
func (e *entry) removeLeftovers() {
	for _, dir := range []string{e.dir, e.packs()} {
		left, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*"))
		for _, path := range left {
			_ = os.Remove(path)
		}
	}
}
