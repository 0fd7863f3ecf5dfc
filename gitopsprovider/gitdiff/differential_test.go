package gitdiff_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// A generated repository is read by both, and both must say the same.
func TestSameAsGit(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	generate(200).into(r)
	server := serve(t, r)
	// One fetches pair by pair, the other has it all before.
	fetching, warm := newDiffer(t, gitdiff.Options{ShowSecrets: true}), newDiffer(t, gitdiff.Options{ShowSecrets: true})
	for _, branch := range strings.Fields(r.git("for-each-ref", "--format=%(objectname)")) {
		_, err := warm.History(t.Context(), gitopsprovider.HistoryQuery{Repository: server.url, Path: "nowhere", Revision: branch})
		require.NoError(t, err)
	}
	requests := server.requests.Load()

	commits := strings.Fields(r.git("rev-list", "--all"))
	require.GreaterOrEqual(t, len(commits), 200)
	var pairs [][2]string
	for _, line := range strings.Split(r.git("rev-list", "--all", "--parents"), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 {
			pairs = append(pairs, [2]string{fields[1], fields[0]})
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		pairs = append(pairs, [2]string{commits[rng.IntN(len(commits))], commits[rng.IntN(len(commits))]})
	}
	paths := []string{"", "apps/shop", "apps", "infra/größe", "odd"}
	assert.Less(t, requests, int64(100))
	const workers = 4
	for worker := range workers {
		t.Run(fmt.Sprintf("part %d", worker), func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			index := "GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")
			for i := worker; i < len(pairs); i += workers {
				from, to := pairs[i][0], pairs[i][1]
				if from == to {
					continue
				}
				path, d := paths[i%len(paths)], warm
				if i < 120 {
					d = fetching
				}
				got, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: server.url, Path: path, From: from, To: to})
				require.NoError(t, err)
				if got.NewestTouching || len(got.Files) == 0 {
					newest := r.git("log", "-1", "--format=%H", to, "--", or(path, "."))
					assert.Equal(t, newest != "", got.NewestTouching, "a commit touched it")
					if newest != "" {
						assert.Equal(t, newest, got.To)
					}
				}
				if got.NewestTouching {
					from, to = or(got.From, emptyTree), got.To
				}
				sameEntries(t, r, path, from, to, got)
				sameTree(t, r, index, path, from, to, got)
				if t.Failed() {
					t.Fatalf("between %s and %s, path %q:\n%s", from, to, path, patchOf(got))
				}
			}
		})
	}
}

// sameEntries compares paths, statuses, modes and blobs with git diff-tree, which
// is told not to look for renames: ours are taken apart.
func sameEntries(t *testing.T, r *repo, path, from, to string, got gitopsprovider.Diff) {
	t.Helper()
	const none, noBlob = "000000", "0000000000000000000000000000000000000000"
	seen := map[string]string{}
	for _, f := range got.Files {
		if f.Status == gitopsprovider.FileRenamed {
			seen[f.OldPath] = fmt.Sprintf(":%s %s %s %s D", f.OldMode, none, f.OldBlob, noBlob)
			seen[f.Path] = fmt.Sprintf(":%s %s %s %s A", none, f.NewMode, noBlob, f.NewBlob)
			continue
		}
		letter := map[gitopsprovider.FileStatus]string{"Added": "A", "Modified": "M", "Deleted": "D", "TypeChanged": "T"}[f.Status]
		seen[f.Path] = fmt.Sprintf(":%s %s %s %s %s", or(string(f.OldMode), none), or(string(f.NewMode), none), or(f.OldBlob, noBlob), or(f.NewBlob, noBlob), letter)
	}
	args := []string{"diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", from, to}
	if path != "" {
		args = append(args, "--", path)
	}
	want := map[string]string{}
	fields := strings.Split(r.git(args...), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		want[fields[i+1]] = fields[i]
	}
	assert.Equal(t, want, seen)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// sameTree applies the patch by git to one tree and compares with the other.
func sameTree(t *testing.T, r *repo, index, path, from, to string, got gitopsprovider.Diff) {
	t.Helper()
	env := []string{index}
	r.run("", env, "read-tree", from)
	_, err := r.try(patchOf(got), env, "apply", "--cached", "--allow-empty", "--whitespace=nowarn", "-")
	if !assert.NoError(t, err) {
		return
	}
	out, err := r.try("", env, "diff-index", "--cached", "--no-renames", to, "--", or(path, "."))
	assert.NoError(t, err)
	assert.Empty(t, out, "applied, it is the same")
}

func patchOf(d gitopsprovider.Diff) string {
	var b strings.Builder
	for _, f := range d.Files {
		b.WriteString(f.Patch)
	}
	return b.String()
}
