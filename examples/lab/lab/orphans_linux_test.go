package lab_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingOutlivesAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	holder := exec.Command(self)
	holder.Env = append(os.Environ(), holderVariable+"=1")
	holder.Stderr = os.Stderr
	out, err := holder.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, holder.Start())
	var h held
	line, err := bufio.NewReader(out).ReadBytes('\n')
	assert.NoError(t, err)
	assert.NoError(t, json.Unmarshal(line, &h))
	assert.DirExists(t, h.State)
	for _, pid := range h.Processes {
		assert.True(t, alive(pid), "process %d", pid)
	}

	require.NoError(t, holder.Process.Kill())
	holder.Wait()
	assert.Eventually(t, func() bool {
		_, err := os.Stat(h.State)
		return os.IsNotExist(err) && !alive(h.Processes[0]) && !alive(h.Processes[1])
	}, 20*time.Second, 50*time.Millisecond)
}

// alive says whether a process still runs. One that nobody has waited for has
// ended, but is still listed, with no command line.
func alive(pid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && len(line) > 0
}
