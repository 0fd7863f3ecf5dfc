package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// fileLock is a lock that goroutines and processes share. The kernel releases
// it when a process dies.
type fileLock struct{ file *os.File }

// errLocked is a lock that somebody else holds.
var errLocked = errors.New("locked by another call")

// lock waits for a lock until ctx ends. It asks again and again, since waiting
// in the kernel could not be interrupted.
func lock(ctx context.Context, path string, exclusive bool) (*fileLock, error) {
	const first, most = time.Millisecond, 50 * time.Millisecond
	timer := time.NewTimer(0)
	defer timer.Stop()
	for delay := first; ; delay = min(2*delay, most) {
		l, err := tryLock(path, exclusive)
		if !errors.Is(err, errLocked) {
			return l, err
		}
		timer.Reset(delay)
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another call that uses the cache: %w", context.Cause(ctx))
		case <-timer.C:
		}
	}
}

// tryLock takes a lock, or returns errLocked.
func tryLock(path string, exclusive bool) (*fileLock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lockFile(file, exclusive); err != nil {
			_ = file.Close()
			return nil, err
		}
		// Whoever held it before may have removed the file, and another may
		// have made it anew: then this lock is on nothing.
		if isAt(file, path) {
			return &fileLock{file}, nil
		}
		_ = file.Close()
	}
}

func isAt(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(held, there)
}

// release gives the lock up.
func (l *fileLock) release() {
	unlockFile(l.file)
	_ = l.file.Close()
}

// remove gives an exclusive lock up and removes its file.
func (l *fileLock) remove() error {
	err := os.Remove(l.file.Name())
	l.release()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
