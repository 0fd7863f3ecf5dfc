//go:build unix

package gitdiff

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Between fork and exec, a child process has every file of its parent open.
func TestALockIsReleasedAlsoWhileAChildProcessStarts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := tryLock(path, true)
	require.NoError(t, err)
	child, err := syscall.Dup(int(held.file.Fd()))
	require.NoError(t, err)
	defer func() { _ = syscall.Close(child) }()
	_, err = tryLock(path, false)
	require.ErrorIs(t, err, errLocked)

	held.release()
	again, err := tryLock(path, true)
	require.NoError(t, err)
	require.NoError(t, again.remove())
	assert.NoFileExists(t, path)
}
