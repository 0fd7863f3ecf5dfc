package fake_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

const viewedURL = "https://git.example.com/acme/shop"

func TestARemoteDiffsItsCommits(t *testing.T) {
	t.Parallel()
	remote := fake.NewRemote()
	r := remote.Repository(viewedURL)
	first := r.Commit(fake.Files{"apps/shop/cm.yaml": "a\nb\nc\nd\ne\nf\ng\nh\ni\n", "apps/shop-db/cm.yaml": "1\n"})
	second := r.Commit(fake.Files{"apps/shop/cm.yaml": "a\nb\nc\nd\nE\nf\ng\nh\ni\n", "apps/shop-db/cm.yaml": "2\n"})
	third := r.Commit(fake.Files{"apps/shop-db/cm.yaml": "3\n"})

	diff, err := remote.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: "https://bot:s3cret@git.example.com/acme/shop.git", Path: "./apps/shop/", To: second})
	require.NoError(t, err)
	assert.Equal(t, "https://git.example.com/acme/shop.git", diff.Repository)
	assert.Equal(t, "apps/shop", diff.Path)
	assert.Equal(t, first, diff.From)
	require.Len(t, diff.Files, 1, "apps/shop-db is another folder")
	assert.Equal(t, gitopsprovider.FileModified, diff.Files[0].Status)
	assert.Equal(t, `diff --git a/apps/shop/cm.yaml b/apps/shop/cm.yaml
index `+diff.Files[0].OldBlob+`..`+diff.Files[0].NewBlob+` 100644
--- a/apps/shop/cm.yaml
+++ b/apps/shop/cm.yaml
@@ -2,7 +2,7 @@
 b
 c
 d
-e
+E
 f
 g
 h
`, diff.Files[0].Patch)

	diff, err = remote.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: viewedURL, Path: "apps/shop", From: second, To: third})
	require.NoError(t, err)
	assert.True(t, diff.NewestTouching)
	assert.Equal(t, "apps/shop is the same in both commits; this is commit "+gitref.Short(second)+", the newest that touched it", diff.Note)
	assert.Equal(t, []string{first, second}, []string{diff.From, diff.To})
}

func TestARemoteAnswersAsADifferDoes(t *testing.T) {
	t.Parallel()
	remote := fake.NewRemote()
	commit := remote.Repository(viewedURL).Commit(fake.Files{"a": "1"})
	for name, test := range map[string]struct {
		query gitopsprovider.DiffQuery
		want  error
	}{
		"another repository": {gitopsprovider.DiffQuery{Repository: "https://git.example.com/acme/other", To: commit}, gitopsprovider.ErrRepositoryNotFound},
		"another commit":     {gitopsprovider.DiffQuery{Repository: viewedURL, To: strings.Repeat("a", 40)}, gitopsprovider.ErrCommitNotFound},
		"an unknown before":  {gitopsprovider.DiffQuery{Repository: viewedURL, From: strings.Repeat("a", 40), To: commit}, gitopsprovider.ErrCommitNotFound},
		"a short hash":       {gitopsprovider.DiffQuery{Repository: viewedURL, To: commit[:12]}, gitopsprovider.ErrInvalidQuery},
		"a path above":       {gitopsprovider.DiffQuery{Repository: viewedURL, To: commit, Path: "a/../.."}, gitopsprovider.ErrInvalidQuery},
		"no address":         {gitopsprovider.DiffQuery{To: commit}, gitopsprovider.ErrInvalidQuery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := remote.Diff(t.Context(), test.query)
			assert.ErrorIs(t, err, test.want)
		})
	}
}

func TestTheHistoryOfAPathInARemote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		remote := fake.NewRemote()
		r := remote.Repository(viewedURL)
		var touching []string
		begin := time.Now()
		for i := range 4 {
			touching = append(touching, r.Commit(fake.Files{"apps/shop/cm.yaml": fmt.Sprint(i)}))
			r.Commit(fake.Files{"README.md": fmt.Sprint(i)})
			time.Sleep(time.Hour)
		}
		list := func(q gitopsprovider.HistoryQuery) gitopsprovider.History {
			q.Repository, q.Path, q.Revision = viewedURL, "apps/shop", r.Head("main")
			history, err := remote.History(t.Context(), q)
			require.NoError(t, err)
			return history
		}
		hashes := func(h gitopsprovider.History) []string {
			var hashes []string
			for _, commit := range h.Commits {
				hashes = append(hashes, commit.Hash)
			}
			return hashes
		}
		assert.Equal(t, []string{touching[3], touching[2], touching[1], touching[0]}, hashes(list(gitopsprovider.HistoryQuery{})))
		assert.Equal(t, []string{touching[2], touching[1]},
			hashes(list(gitopsprovider.HistoryQuery{Since: begin.Add(time.Hour), Until: begin.Add(2 * time.Hour)})), "both ends included")
		cut := list(gitopsprovider.HistoryQuery{Limit: 1})
		assert.Equal(t, touching[3:], hashes(cut))
		assert.True(t, cut.Cut)
		assert.False(t, list(gitopsprovider.HistoryQuery{Limit: 4}).Cut)
		none := list(gitopsprovider.HistoryQuery{Since: begin.Add(24 * time.Hour)})
		assert.Empty(t, none.Commits)
		assert.Equal(t, "no commit of this window touched apps/shop", none.Note)
	})
}

// The stand-in and the real Differ agree on which files differ and how, and git applies the patches of both.
func TestARemoteDiffsAsGitdiffDoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := func(args ...string) string {
		command := exec.CommandContext(t.Context(), "git", args...)
		command.Dir = dir
		command.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		output, err := command.CombinedOutput()
		require.NoError(t, err, string(output))
		return strings.TrimSpace(string(output))
	}
	git("init", "--quiet", "--initial-branch=main")
	remote := fake.NewRemote()
	r := remote.Repository(viewedURL)
	real, err := gitdiff.New(gitdiff.Options{Dir: t.TempDir(), AllowLocal: true})
	require.NoError(t, err)

	for _, step := range []struct {
		write  fake.Files
		remove []string
	}{
		{write: fake.Files{"a.yaml": "one\ntwo\n", "dir/b.yaml": "x\n", "dirt.yaml": "y\n"}},
		{write: fake.Files{"a.yaml": "one\n2\n", "dir/b.yaml": "x"}},
		{remove: []string{"dir/b.yaml"}},
		{write: fake.Files{"empty": "", "dir/c.yaml": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"}},
		{write: fake.Files{"dir/c.yaml": "0\n1\n2\n3\n4\n5\n6\n7\n8\n"}},
		{write: fake.Files{"bin": "a\x00b"}},
	} {
		commit := ""
		for _, name := range step.remove {
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
			commit = r.Remove(name)
		}
		for name, content := range step.write {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		if step.write != nil {
			commit = r.Commit(step.write)
		}
		git("add", "--all")
		git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=x")

		got, err := remote.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: viewedURL, To: commit})
		require.NoError(t, err)
		want, err := real.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: dir, To: git("rev-parse", "HEAD")})
		require.NoError(t, err)
		require.Len(t, got.Files, len(want.Files))
		for i := range want.Files {
			patch := got.Files[i].Patch
			got.Files[i].Patch, want.Files[i].Patch = "", ""
			assert.Equal(t, want.Files[i], got.Files[i])
			if !got.Files[i].Binary {
				file := filepath.Join(t.TempDir(), "patch")
				require.NoError(t, os.WriteFile(file, []byte(patch), 0o600))
				git("apply", "--reverse", "--check", file)
			}
		}
	}
}
