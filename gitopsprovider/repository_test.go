package gitopsprovider_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// git is a repository that the git command makes.
type git struct {
	*testing.T
	dir string
}

func (g git) run(args ...string) string {
	g.Helper()
	return g.runAt("00:00", args...)
}

func (g git) runAt(clock string, args ...string) string {
	g.Helper()
	when := at(clock).Format(time.RFC3339)
	cmd := exec.CommandContext(g.Context(), "git", args...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when)
	out, err := cmd.CombinedOutput()
	require.NoError(g, err, string(out))
	return strings.TrimSpace(string(out))
}

// commitAt writes a file and commits it at a time of the day of these tests.
func (g git) commitAt(clock, file, content string) string {
	g.Helper()
	path := filepath.Join(g.dir, file)
	require.NoError(g, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(g, os.WriteFile(path, []byte(content), 0o600))
	g.run("add", ".")
	g.runAt(clock, "commit", "--quiet", "-m", file+" at "+clock)
	return g.run("rev-parse", "HEAD")
}

// The views over a real repository: the window of one folder, and the diffs of what it holds.
func TestTheViewsReadTheRepository(t *testing.T) {
	t.Parallel()
	g := git{t, t.TempDir()}
	g.run("init", "--quiet", "--initial-branch=main")
	first := g.commitAt("07:00", "apps/shop/cm.yaml", "color: red\n")
	g.commitAt("09:00", "apps/other/cm.yaml", "other\n")
	second := g.commitAt("10:00", "apps/shop/cm.yaml", "color: blue\n")
	g.commitAt("11:00", "apps/shop-db/cm.yaml", "a folder whose name begins alike\n")
	head := g.commitAt("12:00", "README.md", "nothing that is applied\n")
	differ, err := gitdiff.New(gitdiff.Options{Dir: t.TempDir(), AllowLocal: true})
	require.NoError(t, err)
	m := newMemory(repo("ns/r", "file://"+g.dir),
		app("ns/shop", applies("Repo ns/r", "apps/shop", "main@sha1:"+head), deployed("12:05 main@sha1:"+head, "07:05 main@sha1:"+first)))
	v := views(t, differ, m)

	list, err := v.Changes(t.Context(), lastHours, gitopsprovider.Selector{})
	require.NoError(t, err)
	require.NoError(t, list.Err())
	require.Len(t, list.Changes, 1, "one commit touched the folder since 8 o'clock: %v", commits(list))
	assert.Equal(t, second, list.Changes[0].ToCommit)
	assert.True(t, list.Changes[0].Current)
	assert.Equal(t, "apps/shop/cm.yaml at 10:00", list.Changes[0].Commit.Subject)
	diff, err := v.Diff(t.Context(), list.Changes[0])
	require.NoError(t, err)
	require.Len(t, diff.Files, 1)
	assert.Contains(t, diff.Files[0].Patch, "-color: red\n+color: blue\n")

	list, err = v.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	require.NoError(t, err)
	require.Len(t, list.Changes, 1)
	assert.Equal(t, head, list.Changes[0].ToCommit)
	assert.Equal(t, first, list.Changes[0].FromCommit)
	diff, err = v.Diff(t.Context(), list.Changes[0])
	require.NoError(t, err)
	require.Len(t, diff.Files, 1, "the range from what was applied before")
	assert.Equal(t, "apps/shop/cm.yaml", diff.Files[0].Path)
}

// A hash that an annotated tag has of its own is peeled to the commit.
func TestADiffToATagIsThatToItsCommit(t *testing.T) {
	t.Parallel()
	g := git{t, t.TempDir()}
	g.run("init", "--quiet", "--initial-branch=main")
	first := g.commitAt("07:00", "cm.yaml", "color: red\n")
	second := g.commitAt("10:00", "cm.yaml", "color: blue\n")
	g.run("tag", "-a", "v1", "-m", "v1")
	tag := g.run("rev-parse", "v1")
	require.NotEqual(t, second, tag)
	differ, err := gitdiff.New(gitdiff.Options{Dir: t.TempDir(), AllowLocal: true})
	require.NoError(t, err)
	v := views(t, differ, newMemory())
	diffTo := func(commit string) gitopsprovider.Diff {
		diff, err := v.Diff(t.Context(), gitopsprovider.Change{
			Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: "file://" + g.dir}, FromCommit: first, ToCommit: commit,
		})
		require.NoError(t, err)
		return diff
	}
	assert.Equal(t, diffTo(second), diffTo(tag))
}
