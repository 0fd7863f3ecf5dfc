package gitdiff_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// The tests compare with Git itself. Without it they fail.

// repo is a bare repository that the git command made.
type repo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) *repo {
	t.Helper()
	r := &repo{t, filepath.Join(t.TempDir(), "repo.git")}
	require.NoError(t, os.MkdirAll(r.dir, 0o755))
	r.git("init", "--quiet", "--bare", "--initial-branch=main")
	r.git("config", "gc.auto", "0")
	return r
}

// in returns the repository for another test.
func (r *repo) in(t testing.TB) *repo { return &repo{t, r.dir} }

// emptyTree is the name of the tree without entries.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// git runs git in the repository and returns what it prints.
func (r *repo) git(args ...string) string {
	r.t.Helper()
	return r.run("", nil, args...)
}

func (r *repo) run(input string, env []string, args ...string) string {
	r.t.Helper()
	out, err := r.try(input, env, args...)
	require.NoError(r.t, err, "git %s", strings.Join(args, " "))
	return out
}

func (r *repo) try(input string, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent", "GIT_TERMINAL_PROMPT=0"), env...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}

func (r *repo) rev(name string) string {
	r.t.Helper()
	return r.git("rev-parse", "--verify", name)
}

// history writes commits by git fast-import.
type history struct {
	b     strings.Builder
	mark  int
	clock int64
}

// commit begins a commit on a branch and returns its mark; text, remove and
// move say what it changes.
func (h *history) commit(branch, message string, parents ...string) string {
	h.mark++
	h.clock += 60
	fmt.Fprintf(&h.b, "commit refs/heads/%s\nmark :%d\nauthor Ada <ada@example.com> %d +0100\ncommitter Bob <bob@example.com> %d +0000\ndata %d\n%s\n",
		branch, h.mark, 1700000000+h.clock, 1700000000+h.clock, len(message), message)
	for i, p := range parents {
		fmt.Fprintf(&h.b, "%s %s\n", []string{"from", "merge"}[min(i, 1)], p)
	}
	return fmt.Sprintf(":%d", h.mark)
}

func (h *history) text(path, content string) {
	fmt.Fprintf(&h.b, "M 100644 inline %s\ndata %d\n%s\n", importPath(path), len(content), content)
}

func (h *history) remove(path string) { fmt.Fprintf(&h.b, "D %s\n", importPath(path)) }

func (h *history) move(from, to string) {
	fmt.Fprintf(&h.b, "R %s %s\n", importPath(from), importPath(to))
}

// into writes the commits to a repository.
func (h *history) into(r *repo) {
	r.t.Helper()
	r.run(h.b.String(), nil, "fast-import", "--quiet", "--force")
}

// importPath quotes a path as fast-import reads it.
func importPath(path string) string {
	replaced := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path)
	return `"` + replaced + `"`
}

// generate writes a history of n commits with everything that Git knows: merges,
// renames, binary files, a submodule, symbolic links, modes, odd names, carriage
// returns and files without a last line end.
func generate(n int) *history {
	rng := rand.New(rand.NewPCG(7, 11))
	h := &history{}
	g := &generator{h: h, rng: rng, files: map[string]string{}}
	last := h.commit("main", "root")
	g.change(12)
	for i := 1; i < n; i++ {
		if i%12 == 0 {
			side := h.commit(fmt.Sprintf("side-%d", i), fmt.Sprintf("commit %d, aside", i), last)
			h.text(fmt.Sprintf("side/%d.txt", i), g.lines(4))
			next := h.commit("main", fmt.Sprintf("commit %d", i), last)
			g.change(2)
			last = h.commit("main", fmt.Sprintf("merge %d", i), next, side)
			h.text(fmt.Sprintf("side/%d.txt", i), g.lines(5))
			i += 2
			continue
		}
		last = h.commit("main", fmt.Sprintf("commit %d\n\nwith a body", i), last)
		g.change(1 + rng.IntN(3))
	}
	return h
}

type generator struct {
	h     *history
	rng   *rand.Rand
	files map[string]string
	names []string
	made  int
}

var folders = []string{"apps/shop", "apps/shop-db", "apps/shop/base", "apps", "infra/größe", "infra/a b", `odd/q"uote`, "odd/tab\there", `odd/back\slash`, "odd/日本"}

func (g *generator) lines(n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "line %d\n", g.rng.IntN(40))
	}
	return b.String()
}

func (g *generator) change(times int) {
	for range times {
		switch kind := g.rng.IntN(16); {
		case kind < 4 || len(g.names) < 5:
			g.add()
		case kind < 8:
			g.edit()
		case kind == 8:
			g.drop()
		case kind == 9:
			from, to := g.pick(), g.newName()
			g.h.move(from, to)
			g.forget(from)
			g.names = append(g.names, to)
		case kind == 10: // another mode
			g.h.text(g.pick(), g.lines(3))
			fmt.Fprintf(&g.h.b, "M 100755 inline %s\ndata 4\nrun\n\n", importPath(g.pick()))
		case kind == 11:
			target := []string{"base", "../shop-db", "nowhere"}[g.rng.IntN(3)]
			fmt.Fprintf(&g.h.b, "M 120000 inline %s\ndata %d\n%s\n", importPath("apps/shop/link"), len(target), target)
		case kind == 12:
			fmt.Fprintf(&g.h.b, "M 160000 %040x %s\n", g.rng.Uint64(), importPath("apps/shop/vendor"))
		case kind == 13:
			content := "\x89PNG\x00" + g.lines(2)
			fmt.Fprintf(&g.h.b, "M 100644 inline %s\ndata %d\n%s\n", importPath("apps/shop/logo.png"), len(content), content)
		case kind == 14:
			g.h.text("apps/crlf.txt", strings.ReplaceAll(g.lines(6), "\n", "\r\n"))
		default:
			g.h.text("apps/no-end.txt", strings.TrimSuffix(g.lines(4), "\n"))
		}
	}
}

func (g *generator) newName() string {
	g.made++
	return fmt.Sprintf("%s/%d.yaml", folders[g.rng.IntN(len(folders))], g.made)
}

func (g *generator) pick() string { return g.names[g.rng.IntN(len(g.names))] }

func (g *generator) forget(name string) {
	for i, n := range g.names {
		if n == name {
			g.names = append(g.names[:i], g.names[i+1:]...)
			return
		}
	}
}

func (g *generator) add() {
	name := g.newName()
	g.names = append(g.names, name)
	g.files[name] = g.lines(g.rng.IntN(30))
	g.h.text(name, g.files[name])
}

func (g *generator) edit() {
	name := g.pick()
	lines := strings.SplitAfter(g.files[name], "\n")
	at := g.rng.IntN(len(lines))
	lines[at] = g.lines(g.rng.IntN(3))
	g.files[name] = strings.Join(lines, "")
	g.h.text(name, g.files[name])
}

func (g *generator) drop() {
	name := g.pick()
	g.h.remove(name)
	g.forget(name)
}

// newDiffer returns a Differ with a cache of its own.
func newDiffer(t testing.TB, o gitdiff.Options) *gitdiff.Differ {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	d, err := gitdiff.New(o)
	require.NoError(t, err)
	return d
}
