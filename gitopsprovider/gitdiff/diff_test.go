package gitdiff_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// scenario is a repository with named commits, served over HTTP.
type scenario struct {
	*repo
	server *gitServer
	differ *gitdiff.Differ
}

func newScenario(t testing.TB, o gitdiff.Options, write func(h *history)) *scenario {
	t.Helper()
	r := newRepo(t)
	h := &history{}
	write(h)
	h.into(r)
	return &scenario{r, serve(t, r), newDiffer(t, o)}
}

func (s *scenario) diff(from, to, path string) (gitopsprovider.Diff, error) {
	q := gitopsprovider.DiffQuery{Repository: s.server.url, Path: path, To: s.rev(to)}
	if from != "" {
		q.From = s.rev(from)
	}
	return s.differ.Diff(s.t.Context(), q)
}

func (s *scenario) mustDiff(from, to, path string) gitopsprovider.Diff {
	s.t.Helper()
	d, err := s.diff(from, to, path)
	require.NoError(s.t, err)
	return d
}

// summary lists the files of a diff, one in a line.
func summary(d gitopsprovider.Diff) []string {
	var lines []string
	for _, f := range d.Files {
		line := fmt.Sprintf("%s %s", f.Status, f.Path)
		if f.OldPath != "" {
			line += " from " + f.OldPath
		}
		lines = append(lines, line)
	}
	return lines
}

func TestACommitIsComparedWithItsFirstParent(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		a := h.commit("main", "A")
		h.text("apps/shop/a.yaml", "replicas: 1\n")
		side := h.commit("side", "aside", a)
		h.text("apps/shop/b.yaml", "new: true\n")
		b := h.commit("main", "B", a)
		h.text("apps/shop/a.yaml", "replicas: 2\n")
		h.commit("main", "merge", b, side)
		h.text("apps/shop/b.yaml", "new: true\n")
	})
	d := s.mustDiff("", "main", "apps/shop")
	assert.Equal(t, []string{"Added apps/shop/b.yaml"}, summary(d))
	assert.Equal(t, s.rev("main^1"), d.From)
	assert.Equal(t, s.rev("main"), d.To)
	assert.Equal(t, []string{s.rev("main^1"), s.rev("main^2")}, d.Commit.Parents)
	assert.Empty(t, d.Note)

	d = s.mustDiff("", "main^1", "./apps/shop/")
	assert.Equal(t, "apps/shop", d.Path)
	assert.Equal(t, s.git("diff", "--full-index", "main~2", "main~1"), strings.TrimSuffix(patchOf(d), "\n"))
	assert.Equal(t, "B", d.Commit.Subject)
	assert.Equal(t, "Ada <ada@example.com>", d.Commit.Author)
	assert.Equal(t, s.git("log", "-1", "--format=%ct", "main^1"), fmt.Sprint(d.Commit.When.Unix()))
}

func TestARootCommitIsComparedWithTheEmptyTree(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		h.commit("main", "root")
		h.text("apps/shop/a.yaml", "replicas: 1\n")
	})
	d := s.mustDiff("", "main", "apps")
	assert.Equal(t, []string{"Added apps/shop/a.yaml"}, summary(d))
	assert.Empty(t, d.From)
	assert.Equal(t, s.git("show", "--format=", "--full-index", "main"), strings.TrimSuffix(patchOf(d), "\n"))
}

func TestAPathEndsAtASegment(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		a := h.commit("main", "A")
		h.text("apps/shop/a.yaml", "1\n")
		h.text("apps/shop-db/a.yaml", "1\n")
		h.text("apps/shop.yaml", "1\n")
		h.commit("main", "B", a)
		h.text("apps/shop/a.yaml", "2\n")
		h.text("apps/shop-db/a.yaml", "2\n")
		h.text("apps/shop.yaml", "2\n")
	})
	for path, want := range map[string][]string{
		"apps/shop":        {"Modified apps/shop/a.yaml"},
		"/apps//shop/./":   {"Modified apps/shop/a.yaml"},
		"apps/shop/a.yaml": {"Modified apps/shop/a.yaml"},
		"apps/shop-db":     {"Modified apps/shop-db/a.yaml"},
		"":                 {"Modified apps/shop-db/a.yaml", "Modified apps/shop.yaml", "Modified apps/shop/a.yaml"},
		".":                {"Modified apps/shop-db/a.yaml", "Modified apps/shop.yaml", "Modified apps/shop/a.yaml"},
	} {
		assert.Equal(t, want, summary(s.mustDiff("main~1", "main", path)), path)
	}
	d := s.mustDiff("main~1", "main", "apps/sho")
	assert.Empty(t, d.Files)
	assert.Contains(t, d.Note, "no commit before touched it")
}

func TestARangeWithoutAChangeShowsTheNewestCommitThatTouchedThePath(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		last := h.commit("main", "A")
		h.text("apps/shop/a.yaml", "1\n")
		last = h.commit("main", "touches shop", last)
		h.text("apps/shop/a.yaml", "2\n")
		for i := range 300 {
			last = h.commit("main", "elsewhere", last)
			h.text("apps/db/a.yaml", fmt.Sprint(i))
		}
		_ = last
	})
	for _, from := range []string{"main~1", ""} {
		d := s.mustDiff(from, "main", "apps/shop")
		assert.True(t, d.NewestTouching)
		assert.Equal(t, "touches shop", d.Commit.Subject)
		assert.Equal(t, s.rev("main~300"), d.To)
		assert.Equal(t, s.rev("main~301"), d.From)
		assert.Equal(t, []string{"Modified apps/shop/a.yaml"}, summary(d))
		assert.Contains(t, d.Note, "the newest that touched it")
	}
	d := s.mustDiff("", "main", "apps/nowhere")
	assert.Empty(t, d.Files)
	assert.False(t, d.NewestTouching)
	assert.Equal(t, fmt.Sprintf("apps/nowhere is the same at %.12s and at %.12s, and no commit before touched it", s.rev("main~1"), s.rev("main")), d.Note)
}

func TestTagsArePeeled(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		a := h.commit("main", "A")
		h.text("a.yaml", "1\n")
		h.commit("main", "B", a)
		h.text("a.yaml", "2\n")
	})
	env := []string{"GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x"}
	s.run("", env, "tag", "-a", "-m", "one", "v1", "main")
	s.run("", env, "tag", "-a", "-m", "a tag of a tag", "v1-again", "v1")
	s.run("", env, "tag", "-a", "-m", "a file", "file", s.rev("main:a.yaml"))
	require.NotEqual(t, s.rev("main"), s.rev("v1"))

	want := s.mustDiff("main~1", "main", "")
	assert.Equal(t, want, s.mustDiff("main~1", "v1", ""))
	assert.Equal(t, want, s.mustDiff("main~1", "v1-again", ""))
	assert.Equal(t, s.mustDiff("", "main", ""), s.mustDiff("", "v1", ""))

	same := s.mustDiff("main", "v1", "")
	assert.Empty(t, same.Files)
	assert.Equal(t, s.rev("main"), same.From)
	assert.Equal(t, s.rev("main"), same.To)
	assert.Equal(t, "from and to are the same commit", same.Note)

	for _, object := range []string{"file", "main:a.yaml", "main^{tree}"} {
		_, err := s.diff("main", object, "")
		assert.ErrorIs(t, err, gitopsprovider.ErrNotCommit, object)
		_, err = s.diff("", object, "")
		assert.ErrorIs(t, err, gitopsprovider.ErrNotCommit, object)
	}
}

func TestASubmoduleThatMovesIsOneEntry(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		last := h.commit("main", "A")
		h.text("apps/shop/a.yaml", "1\n")
		for i := range 2 {
			last = h.commit("main", "S", last)
			fmt.Fprintf(&h.b, "M 160000 %040x apps/shop/vendor\n", i+1)
		}
		h.commit("main", "drop", last)
		h.remove("apps/shop/vendor")
	})
	s1, s2 := fmt.Sprintf("%040x", 1), fmt.Sprintf("%040x", 2)
	for commit, want := range map[string]gitopsprovider.FileDiff{
		"main~2": {Status: gitopsprovider.FileAdded, NewMode: gitopsprovider.ModeSubmodule, NewBlob: s1},
		"main~1": {
			Status: gitopsprovider.FileModified, OldMode: gitopsprovider.ModeSubmodule, OldBlob: s1,
			NewMode: gitopsprovider.ModeSubmodule, NewBlob: s2,
		},
		"main": {Status: gitopsprovider.FileDeleted, OldMode: gitopsprovider.ModeSubmodule, OldBlob: s2},
	} {
		d := s.mustDiff("", commit, "apps/shop")
		require.Len(t, d.Files, 1, commit)
		want.Path = "apps/shop/vendor"
		want.Patch = s.git("show", "--format=", "--full-index", commit) + "\n"
		assert.Equal(t, want, d.Files[0], commit)
	}
}

func TestPatchesAreGits(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		before := h.commit("main", "before")
		link := func(path, target string) {
			fmt.Fprintf(&h.b, "M 120000 inline %s\ndata %d\n%s\n", path, len(target), target)
		}
		h.text("mode.sh", "run\n")
		h.text("becomes-link", "a file\n")
		h.text("becomes-folder", "a file\n")
		link("link", "old")
		h.text("no-end", "a\nb")
		h.text("crlf", "a\r\nb\r\n")
		h.text("empty-then-not", "")
		h.text("binary", "a\x00b")
		h.text("with space", "1\n")
		h.text("größe \"q\"\t\\", "1\n")
		h.text("moved", strings.Repeat("the same line\n", 9)+"one\n")
		h.commit("main", "after", before)
		fmt.Fprint(&h.b, "M 100755 inline mode.sh\ndata 4\nrun\n\n")
		link("becomes-link", "target")
		h.remove("becomes-folder")
		h.text("becomes-folder/x", "in it\n")
		link("link", "new")
		h.text("no-end", "a\nc")
		h.text("crlf", "a\r\nc\r\n")
		h.text("empty-then-not", "something\n")
		h.text("empty", "")
		h.text("binary", "a\x00c")
		h.text("with space", "2\n")
		h.text("größe \"q\"\t\\", "2\n")
		h.move("moved", "to/here")
		h.text("to/here", strings.Repeat("the same line\n", 9)+"two\n")
	})
	d := s.mustDiff("main~1", "main", "")
	// The sections of Git's, by their first lines.
	ours, gits := sections(patchOf(d)), sections(s.git("diff", "--full-index", "-M", "main~1", "main")+"\n")
	for first, section := range gits {
		if strings.Contains(section, "similarity index") { // which we measure otherwise
			section = similarity(section)
			ours[first] = similarity(ours[first])
		}
		// Git repeats a line above each hunk; we do not: it may be a secret.
		section = regexp.MustCompile(`(?m)^(@@ .* @@).*$`).ReplaceAllString(section, "$1")
		assert.Equal(t, section, ours[first])
	}
	assert.Len(t, ours, len(gits))
	assert.Contains(t, summary(d), "Renamed to/here from moved")
	assert.Contains(t, summary(d), "TypeChanged becomes-link")
	assert.Contains(t, summary(d), "Deleted becomes-folder")
	assert.Contains(t, summary(d), "Added becomes-folder/x")
	for _, f := range d.Files {
		assert.Equal(t, f.Path == "binary", f.Binary, f.Path)
	}
}

// sections cuts a patch into its files. A path that changed its type has two.
func sections(patch string) map[string]string {
	all := map[string]string{}
	for _, s := range strings.Split("\n"+patch, "\ndiff --git ")[1:] {
		first, _, _ := strings.Cut(s, "\n")
		all[first] += strings.TrimSuffix(s, "\n") + "\n"
	}
	return all
}

func similarity(section string) string {
	lines := strings.SplitAfter(section, "\n")
	lines[1] = ""
	return strings.Join(lines, "")
}

func TestFilesThatMovedUnchangedArePairedHoweverMany(t *testing.T) {
	t.Parallel()
	const n = 1500
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		a := h.commit("main", "A")
		for i := range n {
			h.text(fmt.Sprintf("old/%d.yaml", i), fmt.Sprintf("number: %d\n", i))
		}
		h.commit("main", "B", a)
		for i := range n {
			h.move(fmt.Sprintf("old/%d.yaml", i), fmt.Sprintf("new/%d.yaml", i))
		}
	})
	d := s.mustDiff("", "main", "")
	require.Len(t, d.Files, n)
	for _, f := range d.Files {
		assert.Equal(t, gitopsprovider.FileRenamed, f.Status)
		assert.Equal(t, strings.Replace(f.Path, "new/", "old/", 1), f.OldPath)
	}
}

func TestManyUnlikeFilesAreNotPairedByContent(t *testing.T) {
	t.Parallel()
	const n = 5000
	s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{Files: 3 * n}}, func(h *history) {
		a := h.commit("main", "A")
		for i := range n {
			h.text(fmt.Sprintf("apps/old-%d.yaml", i), fmt.Sprintf("number: %d\n", i))
		}
		h.commit("main", "B", a)
		for i := range n {
			h.remove(fmt.Sprintf("apps/old-%d.yaml", i))
			h.text(fmt.Sprintf("apps/new-%d.yaml", i), fmt.Sprintf("other: %d\n", i+n))
		}
	})
	d := s.mustDiff("", "main", "apps")
	assert.Equal(t, 2*n, len(d.Files)) //nolint:testifylint // Len prints them all
	assert.Contains(t, d.Note, "too many files were added and deleted")
	assert.False(t, d.Cut)

	s.differ = newDiffer(t, gitdiff.Options{})
	d = s.mustDiff("", "main", "apps")
	assert.Equal(t, 3000, len(d.Files)) //nolint:testifylint // Len prints them all
	assert.True(t, d.Cut)
	assert.Contains(t, d.Note, "only the first 3000 files that differ are listed")
}

func TestWhatIsTooLargeIsCutAndSaidSo(t *testing.T) {
	t.Parallel()
	write := func(h *history) {
		a := h.commit("main", "A")
		h.text("small", "1\n")
		h.commit("main", "B", a)
		h.text("small", "2\n")
		h.text("huge", strings.Repeat("0123456789\n", 1000))
		h.text("huge-binary", "\x00"+strings.Repeat("0123456789\n", 1000))
		h.text("zz-last", "last\n")
	}
	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{FileBytes: 1000}}, write)
		d := s.mustDiff("", "main", "")
		assert.True(t, d.Cut)
		assert.Equal(t, "the patches of 1 files are cut: they are too large", d.Note)
		require.Len(t, d.Files, 4)
		assert.True(t, d.Files[0].Cut)
		assert.NotContains(t, d.Files[0].Patch, "@@")
		assert.True(t, d.Files[1].Binary)
		assert.Contains(t, d.Files[2].Patch, "+2\n")
	})
	t.Run("the patches", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{PatchBytes: 400}}, write)
		d := s.mustDiff("", "main", "")
		assert.True(t, d.Cut)
		assert.True(t, d.Files[0].Cut)
		assert.Less(t, len(patchOf(d)), 2000)
	})
	t.Run("the headers of patches", func(t *testing.T) {
		t.Parallel()
		// Each byte of such a path has four in a patch, and a header holds it six times.
		folder := strings.Repeat(strings.Repeat("ö", 100)+"/", 15)
		s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{PatchBytes: 100_000}}, func(h *history) {
			a := h.commit("main", "A")
			h.commit("main", "B", a)
			for i := range 50 {
				h.text(fmt.Sprintf("%s%02d", folder, i), "1\n")
			}
		})
		d := s.mustDiff("", "main", "")
		assert.Len(t, d.Files, 50)
		assert.True(t, d.Cut)
		assert.True(t, d.Files[49].Cut)
		assert.Empty(t, d.Files[49].Patch)
		assert.Less(t, len(patchOf(d)), 200_000)
	})
	t.Run("the list of files", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{Files: 2}}, write)
		d := s.mustDiff("", "main", "")
		assert.True(t, d.Cut)
		assert.Len(t, d.Files, 2)
		assert.Equal(t, "only the first 2 files that differ are listed", d.Note)
	})
	t.Run("the paths", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{}, func(h *history) {
			a := h.commit("main", "A")
			h.commit("main", "B", a)
			h.text("a.yaml", "1\n")
			h.text("b/"+strings.Repeat("folder/", 700)+"c.yaml", "1\n")
		})
		d := s.mustDiff("", "main", "")
		assert.Equal(t, []string{"Added a.yaml"}, summary(d))
		assert.True(t, d.Cut)
		assert.Equal(t, "the paths of files are too long", d.Note)
	})
	t.Run("the history", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{Limits: gitdiff.Limits{Commits: 10}}, func(h *history) {
			last := h.commit("main", "A")
			h.text("apps/shop/a.yaml", "1\n")
			for i := range 100 {
				last = h.commit("main", "elsewhere", last)
				h.text("apps/db/a.yaml", fmt.Sprint(i))
			}
		})
		d := s.mustDiff("", "main", "apps/shop")
		assert.True(t, d.Cut)
		assert.Empty(t, d.Files)
		assert.Contains(t, d.Note, "only the newest 10 commits were walked")
	})
}

func TestInvalidQueriesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	const commit = "1eabc9a41ca088515cab83f1cce49eb43e84b67f"
	const url = "https://git.invalid/acme/shop"
	d := newDiffer(t, gitdiff.Options{})
	for name, test := range map[string]struct {
		q    gitopsprovider.DiffQuery
		want error
		says string
	}{
		"no repository":       {gitopsprovider.DiffQuery{To: commit}, gitopsprovider.ErrInvalidQuery, "not the address of a Git repository"},
		"an image":            {gitopsprovider.DiffQuery{Repository: "reg.example.com:5000/shop", To: commit}, gitopsprovider.ErrInvalidQuery, "address of an image"},
		"no commit":           {gitopsprovider.DiffQuery{Repository: url}, gitopsprovider.ErrInvalidQuery, `to "" is not a full commit hash`},
		"a branch":            {gitopsprovider.DiffQuery{Repository: url, To: "main"}, gitopsprovider.ErrInvalidQuery, "not a full commit hash"},
		"a short hash":        {gitopsprovider.DiffQuery{Repository: url, To: commit[:8]}, gitopsprovider.ErrInvalidQuery, "not a full commit hash"},
		"a revision":          {gitopsprovider.DiffQuery{Repository: url, To: commit, From: commit + "~1"}, gitopsprovider.ErrInvalidQuery, "from"},
		"SHA-256":             {gitopsprovider.DiffQuery{Repository: url, To: commit + commit[:24]}, gitopsprovider.ErrServerNotSupported, "SHA-256"},
		"a path that leaves":  {gitopsprovider.DiffQuery{Repository: url, To: commit, Path: "apps/../../etc"}, gitopsprovider.ErrInvalidQuery, "leaves the folder"},
		"a local path":        {gitopsprovider.DiffQuery{Repository: "/etc/repo", To: commit}, gitopsprovider.ErrRepositoryNotAllowed, "AllowLocal"},
		"a file URL":          {gitopsprovider.DiffQuery{Repository: "file:///etc/repo", To: commit}, gitopsprovider.ErrRepositoryNotAllowed, "AllowLocal"},
		"Git's own protocol":  {gitopsprovider.DiffQuery{Repository: "git://git.invalid/acme/shop", To: commit}, gitopsprovider.ErrRepositoryNotAllowed, "git"},
		"an option, not path": {gitopsprovider.DiffQuery{Repository: "git@git.invalid:-oProxyCommand=x", To: commit}, gitopsprovider.ErrInvalidQuery, "dash"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := d.Diff(t.Context(), test.q)
			assert.ErrorIs(t, err, test.want)
			assert.ErrorContains(t, err, test.says)
			if test.q.From == "" {
				_, err = d.History(t.Context(), gitopsprovider.HistoryQuery{Repository: test.q.Repository, Path: test.q.Path, Revision: test.q.To})
				assert.ErrorIs(t, err, test.want)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := gitdiff.New(gitdiff.Options{})
	assert.EqualError(t, err, "gitdiff: Options.Dir is empty: name the folder of the cache")
	_, err = gitdiff.New(gitdiff.Options{Dir: t.TempDir(), Limits: gitdiff.Limits{Files: -1}})
	assert.EqualError(t, err, "gitdiff: Options.Limits.Files is negative: zero is its default")
}
