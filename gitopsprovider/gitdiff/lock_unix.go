//go:build unix

package gitdiff

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks an open file, without waiting.
func lockFile(file *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		switch err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		default:
			return fmt.Errorf("locking %s: %w", file.Name(), err)
		}
	}
}

// unlockFile unlocks a file before it is closed. Closing alone would not do: a program that the process is just starting
// has the file open too, until it runs.
func unlockFile(file *os.File) { _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }

// checkOwner refuses a folder that another user may write to, and so decide
// what is read from it.
func checkOwner(dir string, info os.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the cache %s belongs to user %d, and this process is user %d: name another Options.Dir", dir, stat.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("the cache %s may be written by other users (%v): chmod go-w it, or name another Options.Dir", dir, info.Mode())
	}
	return nil
}
