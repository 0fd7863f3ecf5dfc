package gitdiff_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

func hashesOf(h gitopsprovider.History) []string {
	var list []string
	for _, c := range h.Commits {
		list = append(list, c.Hash)
	}
	return list
}

func TestHistoryIsGitLog(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	generate(200).into(r)
	server := serve(t, r)
	commits := strings.Fields(r.git("rev-list", "main"))
	for _, path := range []string{"", "apps/shop", "apps", "infra", "odd", "side", "apps/shop/vendor", "nowhere"} {
		t.Run("path "+path, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			d := newDiffer(t, gitdiff.Options{})
			for _, revision := range []string{commits[0], commits[40], commits[len(commits)-1]} {
				got, err := d.History(t.Context(), gitopsprovider.HistoryQuery{Repository: server.url, Path: path, Revision: revision})
				require.NoError(t, err)
				want := strings.Fields(r.git("log", "--format=%H", revision, "--", or(path, ".")))
				assert.Equal(t, want, append([]string{}, hashesOf(got)...))
				assert.False(t, got.Cut)
				assert.Equal(t, len(want) == 0, got.Note != "")
			}
		})
	}
}

func TestHistoryOfAWindow(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	h := &history{}
	last := h.commit("main", "root")
	h.text("apps/shop/a.yaml", "0\n")
	for i := range 400 {
		last = h.commit("main", fmt.Sprintf("commit %d", i), last)
		h.text([]string{"apps/shop/a.yaml", "apps/db/a.yaml"}[i%2], fmt.Sprint(i))
	}
	h.into(r)
	server := serve(t, r)
	when := func(i int) time.Time { return time.Unix(1700000000+60*int64(i+2), 0) } // of commit i
	for name, test := range map[string]struct {
		q             gitopsprovider.HistoryQuery
		first, last   string
		number        int
		cut           bool
		note          string
		mostReceived  int64
		leastReceived int64
	}{
		"the newest":             {q: gitopsprovider.HistoryQuery{Limit: 1}, first: "commit 398", last: "commit 398", number: 1, cut: true, note: "there may be more than the 1 commits asked for"},
		"since":                  {q: gitopsprovider.HistoryQuery{Since: when(390)}, first: "commit 398", last: "commit 390", number: 5},
		"until":                  {q: gitopsprovider.HistoryQuery{Until: when(9)}, first: "commit 8", last: "root", number: 6},
		"both":                   {q: gitopsprovider.HistoryQuery{Since: when(100), Until: when(110)}, first: "commit 110", last: "commit 100", number: 6},
		"both, limited":          {q: gitopsprovider.HistoryQuery{Since: when(100), Until: when(110), Limit: 2}, first: "commit 110", last: "commit 108", number: 2, cut: true, note: "there may be more than the 2 commits asked for"},
		"nothing in it":          {q: gitopsprovider.HistoryQuery{Since: when(101), Until: when(101)}, note: "touched apps/shop in this window"},
		"after the last":         {q: gitopsprovider.HistoryQuery{Since: when(5000)}, note: "touched apps/shop in this window"},
		"before the first":       {q: gitopsprovider.HistoryQuery{Until: when(-5000)}, note: "touched apps/shop in this window"},
		"the whole, and no more": {q: gitopsprovider.HistoryQuery{Limit: 201}, first: "commit 398", last: "root", number: 201},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := test.q
			q.Repository, q.Path, q.Revision = server.url, "apps/shop", r.in(t).rev("main")
			got, err := newDiffer(t, gitdiff.Options{}).History(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, test.number, len(got.Commits)) //nolint:testifylint // Len prints them all
			if test.number > 0 {
				assert.Equal(t, test.first, got.Commits[0].Subject)
				assert.Equal(t, test.last, got.Commits[test.number-1].Subject)
			}
			assert.Equal(t, test.cut, got.Cut)
			assert.Contains(t, got.Note, test.note)
			assert.Equal(t, test.note == "", got.Note == "")
		})
	}
}

func TestAWindowFetchesNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	h := &history{}
	last := h.commit("main", "root")
	for i := range 1000 {
		last = h.commit("main", fmt.Sprintf("commit %d", i), last)
		h.text("apps/shop/a.yaml", fmt.Sprint(i))
	}
	h.into(r)
	server := serve(t, r)
	dir := t.TempDir()
	d := newDiffer(t, gitdiff.Options{Dir: dir})
	_, err := d.History(t.Context(), gitopsprovider.HistoryQuery{
		Repository: server.url, Path: "apps/shop", Revision: r.rev("main"), Since: time.Unix(1700000000+60*1000, 0),
	})
	require.NoError(t, err)
	cached := &repo{t, cachedRepos(t, dir)[0]}
	assert.Less(t, strings.Count(cached.git("cat-file", "--batch-check", "--batch-all-objects"), " commit "), 50)
	assert.LessOrEqual(t, server.requests.Load(), int64(3))
}

func TestALimitIsNotNegative(t *testing.T) {
	t.Parallel()
	_, err := newDiffer(t, gitdiff.Options{}).History(t.Context(), gitopsprovider.HistoryQuery{
		Repository: "https://git.invalid/acme/shop", Revision: "1eabc9a41ca088515cab83f1cce49eb43e84b67f", Limit: -1,
	})
	assert.ErrorIs(t, err, gitopsprovider.ErrInvalidQuery)
}
