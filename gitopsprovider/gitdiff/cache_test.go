package gitdiff_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// cachedRepos lists the repositories in a cache.
func cachedRepos(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "gitdiff-v1", "*", "HEAD"))
	require.NoError(t, err)
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

func twoCommits(h *history) {
	a := h.commit("main", "A")
	h.text("a.yaml", strings.Repeat("some: content\n", 100)+"replicas: 1\n")
	h.text("b.yaml", "other: content\n")
	h.commit("main", "B", a)
	h.text("a.yaml", strings.Repeat("some: content\n", 100)+"replicas: 2\n")
}

func TestASecondDiffAsksNobody(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, twoCommits)
	first := s.mustDiff("", "main", "")
	requests := s.server.requests.Load()
	assert.Equal(t, first, s.mustDiff("", "main", ""))
	assert.Equal(t, requests, s.server.requests.Load())
}

func TestManyCallsAtOnceFetchOnce(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, twoCommits)
	q := gitopsprovider.DiffQuery{Repository: s.server.url, To: s.rev("main")}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			d, err := s.differ.Diff(t.Context(), q)
			if assert.NoError(t, err) {
				assert.Len(t, d.Files, 1)
			}
		})
	}
	group.Wait()
	assert.Equal(t, int64(2), s.server.requests.Load())
}

// The test binary is run again as other processes with one cache, while their
// repositories are evicted all the time.
func TestProcessesShareACache(t *testing.T) {
	if query := os.Getenv("GITDIFF_TEST_PROCESS"); query != "" {
		inAnotherProcess(t, strings.Split(query, "|"))
		return
	}
	t.Parallel()
	root := t.TempDir()
	var urls []string
	var server *gitServer
	for i := range 3 {
		r := &repo{t, filepath.Join(root, fmt.Sprintf("repo-%d.git", i))}
		require.NoError(t, os.MkdirAll(r.dir, 0o755))
		r.git("init", "--quiet", "--bare")
		generate(12).into(r)
		if server == nil {
			server = serve(t, r)
		}
		urls = append(urls, strings.Replace(server.url, "repo-0", fmt.Sprintf("repo-%d", i), 1))
	}
	commits := strings.Fields((&repo{t, filepath.Join(root, "repo-0.git")}).git("rev-list", "main"))
	dir := t.TempDir()
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcessesShareACache$", "-test.v")
			cmd.Env = append(os.Environ(), "GITDIFF_TEST_PROCESS="+strings.Join([]string{dir, strings.Join(urls, ","), strings.Join(commits, ",")}, "|"))
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "--- PASS")
		})
	}
	group.Wait()
	for _, cached := range cachedRepos(t, dir) {
		(&repo{t, cached}).git("cat-file", "--batch-check", "--batch-all-objects")
	}
	left, err := filepath.Glob(filepath.Join(dir, "gitdiff-v1", "*", "objects", "pack", "tmp_*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func inAnotherProcess(t *testing.T, args []string) {
	d := newDiffer(t, gitdiff.Options{Dir: args[0], Limits: gitdiff.Limits{CacheRepositories: 1}})
	urls, commits := strings.Split(args[1], ","), strings.Split(args[2], ",")
	var group sync.WaitGroup
	for worker := range 3 {
		group.Go(func() {
			for i := range commits {
				q := gitopsprovider.DiffQuery{Repository: urls[(i+worker)%len(urls)], To: commits[(i*7+worker)%len(commits)]}
				_, err := d.Diff(t.Context(), q)
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
}

func TestABrokenRepositoryIsMadeAnew(t *testing.T) {
	t.Parallel()
	each := func(pattern string, f func(path string) error) func(dir string) error {
		return func(dir string) error {
			return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				if ok, _ := filepath.Match(pattern, d.Name()); !ok {
					return nil
				}
				_ = os.Chmod(path, 0o600)
				return f(path)
			})
		}
	}
	empty := func(path string) error { return os.WriteFile(path, nil, 0o600) }
	garbage := func(path string) error {
		return os.WriteFile(path, bytes.Repeat([]byte("garbage"), 500), 0o600)
	}
	half := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	}
	for name, damage := range map[string]func(dir string) error{
		"the pack is empty":         each("*.pack", empty),
		"the pack is cut":           each("*.pack", half),
		"the pack is garbage":       each("*.pack", garbage),
		"the pack is gone":          each("*.pack", os.Remove),
		"the index is empty":        each("*.idx", empty),
		"the index is cut":          each("*.idx", half),
		"the index is garbage":      each("*.idx", garbage),
		"the index is gone":         each("*.idx", os.Remove),
		"the state is empty":        each("gitdiff.json", empty),
		"the state is garbage":      each("gitdiff.json", garbage),
		"the state is gone":         each("gitdiff.json", os.Remove),
		"all files are gone":        each("*", os.Remove),
		"the packs' folder is gone": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "objects")) },
		"it is a file": func(dir string) error {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
			return os.WriteFile(dir, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := newScenario(t, gitdiff.Options{Dir: dir}, twoCommits)
			first := s.mustDiff("", "main", "")
			cached := cachedRepos(t, dir)
			require.Len(t, cached, 1)
			require.NoError(t, damage(cached[0]))
			assert.Equal(t, first, s.mustDiff("", "main", ""))
			requests := s.server.requests.Load()
			assert.Equal(t, first, s.mustDiff("", "main", ""))
			assert.Equal(t, requests, s.server.requests.Load(), "the new one is whole")
		})
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	var repos []*repo
	for i := range 6 {
		r := &repo{t, filepath.Join(root, fmt.Sprintf("repo-%d.git", i))}
		require.NoError(t, os.MkdirAll(r.dir, 0o755))
		r.git("init", "--quiet", "--bare", "--initial-branch=main")
		h := &history{}
		twoCommits(h)
		h.into(r)
		repos = append(repos, r)
	}
	server := serve(t, repos[0])
	url := func(i int) string { return strings.Replace(server.url, "repo-0", fmt.Sprintf("repo-%d", i), 1) }
	for name, test := range map[string]struct {
		limits gitdiff.Limits
		want   int
	}{
		"in number":      {gitdiff.Limits{CacheRepositories: 3}, 3},
		"in bytes":       {gitdiff.Limits{CacheBytes: 2500}, 1},
		"to nearly none": {gitdiff.Limits{CacheBytes: 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := newDiffer(t, gitdiff.Options{Dir: dir, Limits: test.limits})
			for i := range repos {
				_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: url(i), To: repos[i].in(t).rev("main")})
				require.NoError(t, err)
			}
			// A process that is just being forked, by any test here, holds every file lock for a moment. What is locked is in
			// use and stays until the next fetch.
			for i := 0; i < 100 && len(cachedRepos(t, dir)) > test.want; i++ {
				again := i % len(repos)
				_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: url(again), To: repos[again].in(t).rev("main")})
				require.NoError(t, err)
			}
			kept := cachedRepos(t, dir)
			assert.Len(t, kept, test.want)
			files, err := os.ReadDir(filepath.Join(dir, "gitdiff-v1"))
			require.NoError(t, err)
			assert.Len(t, files, 3*len(kept), "no lock stays behind")
		})
	}
}

func TestARepositoryInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blocked, release := make(chan struct{}), make(chan struct{})
	slow := newScenario(t, gitdiff.Options{Dir: dir}, twoCommits)
	slow.server = serve(t, slow.repo, blockPosts(blocked, release))
	other := newScenario(t, gitdiff.Options{Dir: dir, Limits: gitdiff.Limits{CacheRepositories: 1, CacheBytes: 1}}, twoCommits)

	var group sync.WaitGroup
	group.Go(func() {
		d, err := slow.diff("", "main", "")
		if assert.NoError(t, err) {
			assert.Len(t, d.Files, 1)
		}
	})
	<-blocked
	other.mustDiff("", "main", "")
	assert.Len(t, cachedRepos(t, dir), 1)
	close(release)
	group.Wait()
}

func TestARepositoryOfManyPacksIsDeletedToBeginAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScenario(t, gitdiff.Options{Dir: dir}, func(h *history) {
		last := h.commit("main", "root")
		for i := range 102 {
			h.text(fmt.Sprint(i), fmt.Sprint(i))
		}
		h.commit("main", "next", last)
		h.text("a.yaml", "1\n")
	})
	s.mustDiff("", "main~1", "")
	cached := &repo{t, cachedRepos(t, dir)[0]}
	for i := range 100 {
		cached.run(s.rev(fmt.Sprintf("main:%d", i)), nil, "pack-objects", "-q", "objects/pack/pack")
	}
	assert.Len(t, s.mustDiff("", "main", "").Files, 1, "another pack, and the last")
	assert.Empty(t, cachedRepos(t, dir))
	assert.Len(t, s.mustDiff("", "main", "").Files, 1)
	assert.Len(t, cachedRepos(t, dir), 1)
}

func TestACacheThatOthersMayWriteIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "gitdiff-v1"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(dir, "gitdiff-v1"), 0o777)) //nolint:gosec // that is the test
	s := newScenario(t, gitdiff.Options{Dir: dir}, twoCommits)
	_, err := s.diff("", "main", "")
	assert.ErrorContains(t, err, "may be written by other users")
}

func TestWaitingForAnotherCallEndsWithTheContext(t *testing.T) {
	t.Parallel()
	blocked, release := make(chan struct{}), make(chan struct{})
	s := newScenario(t, gitdiff.Options{}, twoCommits)
	s.server = serve(t, s.repo, blockPosts(blocked, release))
	var group sync.WaitGroup
	group.Go(func() { _, _ = s.diff("", "main", "") })
	<-blocked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.differ.Diff(ctx, gitopsprovider.DiffQuery{Repository: s.server.url, To: s.rev("main")})
	assert.ErrorIs(t, err, context.Canceled)
	close(release)
	group.Wait()
}
