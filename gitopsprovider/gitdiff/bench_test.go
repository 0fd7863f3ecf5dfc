package gitdiff_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	git "github.com/go-git/go-git/v5"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

const benchCommits = 50_000

var largeRepo struct {
	once sync.Once
	dir  string
}

// TestMain removes what the benchmarks share.
func TestMain(m *testing.M) {
	code := m.Run()
	if largeRepo.dir != "" {
		_ = os.RemoveAll(filepath.Dir(largeRepo.dir))
	}
	os.Exit(code)
}

// large returns a repository of 50,000 commits to 300 apps of 4 files, packed.
func large(b *testing.B) *repo {
	b.Helper()
	largeRepo.once.Do(func() {
		dir, err := os.MkdirTemp("", "gitdiff-bench")
		require.NoError(b, err)
		largeRepo.dir = filepath.Join(dir, "large.git")
		r := &repo{b, largeRepo.dir}
		require.NoError(b, os.MkdirAll(r.dir, 0o755))
		r.git("init", "--quiet", "--bare", "--initial-branch=main")
		h := &history{}
		last := h.commit("main", "root")
		for app := range 300 {
			for _, file := range []string{"deployment", "service", "config", "kustomization"} {
				h.text(benchFile(app, file), benchText(app, 0))
			}
		}
		for i := range benchCommits - 1 {
			last = h.commit("main", fmt.Sprintf("app %d: release %d", i%300, i), last)
			h.text(benchFile(i*7%300, "deployment"), benchText(i*7%300, i+1))
		}
		h.into(r)
		r.git("repack", "-a", "-d", "-q")
	})
	return &repo{b, largeRepo.dir}
}

func benchFile(app int, file string) string { return fmt.Sprintf("apps/app-%03d/%s.yaml", app, file) }

func benchText(app, release int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind: Deployment\nmetadata:\n  name: app-%d\n  labels:\n", app)
	for i := range 30 {
		fmt.Fprintf(&b, "    label-%d: %x\n", i, (app*7919+i*104729)*2654435761)
	}
	fmt.Fprintf(&b, "spec:\n  image: registry.example.com/app-%d:v%d\n", app, release)
	return b.String()
}

// BenchmarkLargeRepository compares a Diff with a full clone, over one server, in
// one run. "received" is what the client received.
func BenchmarkLargeRepository(b *testing.B) {
	r := large(b)
	server := serve(b, r)
	partial := &repo{b, r.dir}
	report := func(b *testing.B, before int64) {
		b.ReportMetric(float64(server.received.Load()-before)/float64(b.N), "received-B/op")
	}
	commit := r.rev("main~100")
	query := gitopsprovider.DiffQuery{Repository: server.url, Path: "apps/app-" + appOf(r, commit), To: commit}
	diff := func(b *testing.B, d *gitdiff.Differ, q gitopsprovider.DiffQuery) {
		got, err := d.Diff(b.Context(), q)
		require.NoError(b, err)
		require.Len(b, got.Files, 1)
	}

	b.Run("clone by git", func(b *testing.B) {
		before := server.received.Load()
		for b.Loop() {
			dir := filepath.Join(b.TempDir(), "clone")
			require.NoError(b, exec.CommandContext(b.Context(), "git", "clone", "--quiet", "--bare", server.url, dir).Run())
			require.NoError(b, os.RemoveAll(dir))
		}
		report(b, before)
	})
	b.Run("clone by go-git", func(b *testing.B) {
		before := server.received.Load()
		for b.Loop() {
			dir := filepath.Join(b.TempDir(), "clone")
			_, err := git.PlainCloneContext(b.Context(), dir, true, &git.CloneOptions{URL: server.url})
			require.NoError(b, err)
			require.NoError(b, os.RemoveAll(dir))
		}
		report(b, before)
	})
	first := func(b *testing.B) {
		before := server.received.Load()
		for b.Loop() {
			diff(b, newDiffer(b, gitdiff.Options{}), query)
		}
		report(b, before)
	}
	repeated := func(b *testing.B) {
		d := newDiffer(b, gitdiff.Options{})
		diff(b, d, query)
		before := server.received.Load()
		for b.Loop() {
			diff(b, d, query)
		}
		report(b, before)
	}
	lastTouching := func(b *testing.B) {
		before := server.received.Load()
		for b.Loop() {
			q := query
			q.Path = "apps/app-" + appOf(r, r.rev("main~390"))
			q.To = r.rev("main")
			diff(b, newDiffer(b, gitdiff.Options{}), q)
		}
		report(b, before)
	}
	next := func(b *testing.B) {
		d := newDiffer(b, gitdiff.Options{})
		diff(b, d, query)
		before := server.received.Load()
		i := 0
		for b.Loop() {
			i++
			commit := r.rev(fmt.Sprintf("main~%d", 100-i%90))
			diff(b, d, gitopsprovider.DiffQuery{Repository: server.url, Path: "apps/app-" + appOf(r, commit), To: commit})
		}
		report(b, before)
	}
	b.Run("first diff", first)
	b.Run("repeated diff", repeated)
	b.Run("diff of another commit", next)
	b.Run("newest that touched, some 290 commits back", lastTouching)
	b.Run("repeated diff, whole history in the cache", func(b *testing.B) {
		d := newDiffer(b, gitdiff.Options{Limits: gitdiff.Limits{Commits: benchCommits + 1}})
		_, err := d.History(b.Context(), gitopsprovider.HistoryQuery{Repository: server.url, Path: "apps/none", Revision: r.rev("main")})
		require.NoError(b, err)
		for b.Loop() {
			diff(b, d, query)
		}
	})
	partial.git("config", "uploadpack.allowFilter", "true")
	partial.git("config", "uploadpack.allowAnySHA1InWant", "true")
	b.Run("filter/first diff", first)
	b.Run("filter/repeated diff", repeated)
	b.Run("filter/newest that touched, some 290 commits back", lastTouching)
	partial.git("config", "--unset", "uploadpack.allowFilter")
	partial.git("config", "--unset", "uploadpack.allowAnySHA1InWant")
}

// appOf returns the app that a commit changed.
func appOf(r *repo, commit string) string {
	path := r.git("diff-tree", "-r", "--no-commit-id", "--name-only", commit)
	return path[len("apps/app-") : len("apps/app-")+3]
}
