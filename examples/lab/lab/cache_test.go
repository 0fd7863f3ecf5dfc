package lab_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestBuild(t *testing.T) {
	t.Parallel()

	t.Run("that fails shows the compiler's complaint and leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		tools, cache := module(t, "package main\n\nfunc main() { absent() }\n"), t.TempDir()
		err := lab.BuildProgram(t.Context(), tools, cache, &bytes.Buffer{})
		assert.ErrorContains(t, err, "probe v1.2.3 did not build")
		assert.ErrorContains(t, err, "undefined: absent")
		assert.Empty(t, executables(t, cache))
	})
	t.Run("happens once, also when several processes ask", func(t *testing.T) {
		t.Parallel()
		tools, cache := module(t, "package main\n\nfunc main() {}\n"), t.TempDir()
		var progress [3]bytes.Buffer
		var builds sync.WaitGroup
		for i := range progress {
			builds.Go(func() { assert.NoError(t, lab.BuildProgram(t.Context(), tools, cache, &progress[i])) })
		}
		builds.Wait()
		assert.Len(t, executables(t, cache), 1)
		built := 0
		for i := range progress {
			built += bytes.Count(progress[i].Bytes(), []byte("built probe (1/1)"))
		}
		assert.Equal(t, 1, built)
	})
	t.Run("happens again when what is pinned changes", func(t *testing.T) {
		t.Parallel()
		tools, cache := module(t, "package main\n\nfunc main() {}\n"), t.TempDir()
		require.NoError(t, lab.BuildProgram(t.Context(), tools, cache, &bytes.Buffer{}))
		writeFile(t, filepath.Join(tools, "probe", "main.go"), "package main\n\nfunc main() { println() }\n")
		require.NoError(t, lab.BuildProgram(t.Context(), tools, cache, &bytes.Buffer{}))
		assert.Len(t, executables(t, cache), 2)
	})
}

// module writes the module of a program called probe and returns the folder
// above it.
func module(t *testing.T, main string) string {
	t.Helper()
	tools := t.TempDir()
	dir := filepath.Join(tools, "probe")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "pinned"), 0o755))
	writeFile(t, filepath.Join(dir, "pinned", "go.mod"), "module example.org/pinned\n\ngo 1.26.0\n")
	writeFile(t, filepath.Join(dir, "go.mod"),
		"module example.org/probe\n\ngo 1.26.0\n\nrequire example.org/pinned v1.2.3\n\n"+
			"replace example.org/pinned v1.2.3 => ./pinned\n")
	writeFile(t, filepath.Join(dir, "go.sum"), "")
	writeFile(t, filepath.Join(dir, "main.go"), main)
	return tools
}

func executables(t *testing.T, cache string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(cache, "probe", "*", "probe"))
	require.NoError(t, err)
	return found
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
