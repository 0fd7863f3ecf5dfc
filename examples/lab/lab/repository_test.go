package lab_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestRepository(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)

	t.Run("starts without a commit, and HEAD names main", func(t *testing.T) {
		repo := l.Repository(t)
		assert.Empty(t, repo.Head(t, "main"))
		assert.Contains(t, git(t, "", "ls-remote", "--symref", repo.URL()), "")
		repo.Commit(t, lab.Files{"a": "1"})
		assert.Contains(t, git(t, "", "ls-remote", "--symref", repo.URL(), "HEAD"), "ref: refs/heads/main\tHEAD")
	})
	t.Run("a commit keeps the files it does not name", func(t *testing.T) {
		repo := l.Repository(t)
		repo.Commit(t, lab.Files{"a": "1", "dir/b": "2"})
		commit := repo.Commit(t, lab.Files{"a": "3\n"})
		assert.Equal(t, commit, repo.Head(t, "main"))
		clone := t.TempDir()
		git(t, "", "clone", "--quiet", repo.URL(), clone)
		assert.Equal(t, map[string]string{"a": "3\n", "dir/b": "2"}, filesIn(t, clone))
		assert.Equal(t, "2", git(t, clone, "rev-list", "--count", "HEAD"))
	})
	t.Run("removes files", func(t *testing.T) {
		repo := l.Repository(t)
		repo.Commit(t, lab.Files{"a": "1", "b": "2"})
		repo.Remove(t, "a")
		clone := t.TempDir()
		git(t, "", "clone", "--quiet", repo.URL(), clone)
		assert.Equal(t, map[string]string{"b": "2"}, filesIn(t, clone))
	})
	t.Run("equal commits have different hashes", func(t *testing.T) {
		repo := l.Repository(t)
		hashes := make(map[string]bool)
		for range 5 {
			hashes[repo.Commit(t, lab.Files{"a": "1"})] = true
			hashes[repo.ForcePush(t, "main", lab.Files{"a": "1"})] = true
			hashes[repo.Commit(t, nil)] = true
		}
		assert.Len(t, hashes, 15)
	})
	t.Run("a force push starts the branch anew", func(t *testing.T) {
		repo := l.Repository(t)
		repo.Commit(t, lab.Files{"a": "1"})
		repo.Commit(t, lab.Files{"b": "2"})
		commit := repo.ForcePush(t, "main", lab.Files{"c": "3"})
		assert.Equal(t, commit, repo.Head(t, "main"))
		clone := t.TempDir()
		git(t, "", "clone", "--quiet", repo.URL(), clone)
		assert.Equal(t, map[string]string{"c": "3"}, filesIn(t, clone))
		assert.Equal(t, "1", git(t, clone, "rev-list", "--count", "HEAD"))
	})
	t.Run("branches come, move and go", func(t *testing.T) {
		repo := l.Repository(t)
		main := repo.Commit(t, lab.Files{"a": "1"})
		topic := repo.CommitTo(t, "topic/one", lab.Files{"b": "2"})
		assert.Equal(t, topic, repo.Head(t, "topic/one"))
		assert.Equal(t, main, repo.Head(t, "main"))
		repo.SetBranch(t, "topic/one", main)
		assert.Equal(t, main, repo.Head(t, "topic/one"))
		repo.DeleteBranch(t, "topic/one")
		assert.Empty(t, repo.Head(t, "topic/one"))
		repo.Tag(t, "v1", main)
		assert.Contains(t, git(t, "", "ls-remote", "--tags", repo.URL()), main+"\trefs/tags/v1")
	})
	t.Run("takes a push", func(t *testing.T) {
		repo := l.Repository(t)
		repo.Commit(t, lab.Files{"a": "1"})
		clone := t.TempDir()
		git(t, "", "clone", "--quiet", repo.URL(), clone)
		git(t, clone, "-c", "user.name=u", "-c", "user.email=u@localhost", "commit", "--quiet", "--allow-empty", "-m", "mine")
		git(t, clone, "push", "--quiet")
		assert.Equal(t, git(t, clone, "rev-parse", "HEAD"), repo.Head(t, "main"))
	})
	t.Run("names objects by sha256 when asked to", func(t *testing.T) {
		repo := l.RepositoryOf(t, lab.SHA256)
		commit := repo.Commit(t, lab.Files{"a": "1"})
		assert.Len(t, commit, 64)
		assert.Contains(t, git(t, "", "ls-remote", repo.URL()), commit)
	})
	t.Run("does not exist elsewhere", func(t *testing.T) {
		a, b := l.Repository(t), l.Repository(t)
		assert.NotEqual(t, a.URL(), b.URL())
	})
}

func TestMissingGitIsExplained(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := lab.NewGitServer(t.TempDir())
	assert.ErrorContains(t, err, "install git")
	assert.ErrorContains(t, err, "PATH")
}

// git runs the machine's git in a folder and returns what it printed.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// filesIn reads the files of a work tree.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for _, path := range strings.Fields(git(t, dir, "ls-files")) {
		files[path] = readFile(t, filepath.Join(dir, path))
	}
	return files
}
