package gitopsprovider_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// repository is a Differ that a test scripts, and counts what it is asked.
type repository struct {
	history map[string]gitopsprovider.History
	diff    gitopsprovider.Diff
	err     error

	mu        sync.Mutex
	histories []gitopsprovider.HistoryQuery
	diffs     []gitopsprovider.DiffQuery
}

func (r *repository) Diff(_ context.Context, q gitopsprovider.DiffQuery) (gitopsprovider.Diff, error) {
	r.diffs = append(r.diffs, q)
	return r.diff, r.err
}

func (r *repository) History(_ context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.histories = append(r.histories, q)
	return r.history[q.Path], r.err
}

func commit(hash, clock string) gitopsprovider.Commit {
	return gitopsprovider.Commit{Hash: hash, When: at(clock), Subject: "at " + clock}
}

var lastHours = gitopsprovider.TimeWindow{Since: at("08:00")}

func TestAWindowHasTheCommitsThatTouchedThePath(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL),
		app("ns/a", applies("Repo ns/r", "a", "main@sha1:"+commitC), deployed("12:30 main@sha1:"+commitC, "10:30 main@sha1:"+commitA)),
		app("ns/b", applies("Repo ns/r", "b", "main@sha1:"+commitC)),
		app("ns/twin", applies("Repo ns/r", "b", "main@sha1:"+commitC)))
	differ := &repository{history: map[string]gitopsprovider.History{
		"a": {Commits: []gitopsprovider.Commit{commit(commitC, "12:00"), commit(commitA, "10:00")}},
		"b": {Commits: []gitopsprovider.Commit{commit(commitB, "11:00")}},
	}}
	list := changes(t, differ, m, lastHours, gitopsprovider.Selector{})

	assert.Equal(t, []string{
		"App ns/a: cccccccccccc current at 12:30",
		"App ns/b: bbbbbbbbbbbb current", "App ns/twin: bbbbbbbbbbbb current",
		"App ns/a: aaaaaaaaaaaa at 10:30",
	}, commits(list), "newest first; the time of deployment where the history has that commit; each as the change that it introduced")
	assert.Len(t, differ.histories, 2, "two appliers of one path ask once")
	slices.SortFunc(differ.histories, func(a, b gitopsprovider.HistoryQuery) int { return strings.Compare(a.Path, b.Path) })
	assert.Equal(t, gitopsprovider.HistoryQuery{
		Repository: shopURL, Path: "a", Revision: commitC, Branch: "main", Since: lastHours.Since, Limit: gitopsprovider.DefaultLimit + 1,
	}, differ.histories[0])
	assert.False(t, list.Cut)
	assert.Equal(t, "at 12:00", list.Changes[0].Commit.Subject)
	assert.Empty(t, list.Changes[0].FromCommit)
}

func commits(list gitopsprovider.ChangeList) []string {
	out := []string{}
	for _, change := range list.Changes {
		line := change.Workload.String() + ": " + change.ToCommit[:12]
		if change.FromCommit != "" {
			line = change.Workload.String() + ": " + change.FromCommit[:12] + " to " + change.ToCommit[:12]
		}
		if change.Current {
			line += " current"
		}
		if !change.DeployedAt.IsZero() {
			line += " at " + change.DeployedAt.Format("15:04")
		}
		if !change.DeployedAfter.IsZero() {
			line += " after " + change.DeployedAfter.Format("15:04")
		}
		out = append(out, line)
	}
	return out
}

// A rollback brings no commit of the window, and is what an incident is about.
func TestAWindowHasTheDeploymentsThatNoCommitExplains(t *testing.T) {
	t.Parallel()
	type log = []gitopsprovider.Commit
	for name, test := range map[string]struct {
		history []string
		commits log
		until   string
		want    []string
	}{
		"a rollback": {
			history: []string{"12:00 " + commitA, "09:00 " + commitB},
			want:    []string{"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current at 12:00", "App ns/a: bbbbbbbbbbbb at 09:00"},
		},
		"a rollback of which only the earliest time is known": {
			history: []string{">12:00 " + commitA, "09:00 " + commitB},
			want:    []string{"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current after 12:00", "App ns/a: bbbbbbbbbbbb at 09:00"},
		},
		"a rollback to a commit of the window": {
			history: []string{"12:30 " + commitA, "12:05 " + commitB, "11:01 " + commitA, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current at 12:30", "App ns/a: aaaaaaaaaaaa to bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa at 11:01"},
		},
		"a rollback to a commit of the window that was not deployed before": {
			history: []string{"12:30 " + commitA, "12:05 " + commitB, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current at 12:30", "App ns/a: cccccccccccc to bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa"},
		},
		"a rollback to a commit of the window whose entry was moved": {
			history: []string{">12:25 " + commitA, "12:05 " + commitB, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current after 12:25", "App ns/a: cccccccccccc to bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa"},
		},
		"a rollback to a commit that did not touch the path": {
			history: []string{"12:30 " + commitD, "12:05 " + commitB, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb to dddddddddddd current at 12:30", "App ns/a: cccccccccccc to bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa"},
		},
		"a rollback after two attempts to go forward": {
			history: []string{"12:30 " + commitA, "12:15 " + commitB, "12:05 " + commitD, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")},
			want: []string{
				"App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa current at 12:30", "App ns/a: dddddddddddd to bbbbbbbbbbbb at 12:15",
				"App ns/a: cccccccccccc to dddddddddddd at 12:05", "App ns/a: aaaaaaaaaaaa",
			},
		},
		"a rollback from one commit of the window to another, and back": {
			history: []string{"12:30 " + commitB, "12:15 " + commitA, "12:05 " + commitB, "07:00 " + commitC},
			commits: log{commit(commitB, "11:00"), commit(commitA, "10:00")},
			want: []string{
				"App ns/a: aaaaaaaaaaaa to bbbbbbbbbbbb current at 12:30", "App ns/a: bbbbbbbbbbbb to aaaaaaaaaaaa at 12:15",
				"App ns/a: bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa",
			},
		},
		"a revert by a commit, whose content has an entry already": {
			history: []string{">12:25 " + commitA, "12:05 " + commitB}, commits: log{commit(commitA, "12:29"), commit(commitB, "12:04")},
			want: []string{"App ns/a: aaaaaaaaaaaa current after 12:25", "App ns/a: bbbbbbbbbbbb at 12:05"},
		},
		"a window that ends before a rollback": {
			history: []string{"12:30 " + commitA, "12:05 " + commitB, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")}, until: "12:15",
			want: []string{"App ns/a: cccccccccccc to bbbbbbbbbbbb at 12:05", "App ns/a: aaaaaaaaaaaa"},
		},
		"a window that ends before a commit of it is deployed": {
			history: []string{"12:30 " + commitA, "07:00 " + commitC}, commits: log{commit(commitA, "11:00")}, until: "12:15",
			want: []string{"App ns/a: aaaaaaaaaaaa"},
		},
		"a deployment that a commit explains": {
			history: []string{"12:00 " + commitA, "07:00 " + commitB}, commits: log{commit(commitC, "11:00")},
			want: []string{"App ns/a: cccccccccccc current"},
		},
		"a deployment whose commit was made in the second of the one before": {
			history: []string{"12:00 " + commitC, "07:00 " + commitB}, commits: log{commit(commitC, "07:00")},
			want: []string{"App ns/a: cccccccccccc current at 12:00"},
		},
		"a deployment whose commit did not touch the path": {
			history: []string{"12:30 " + commitD, "11:01 " + commitA}, commits: log{commit(commitA, "11:00")},
			want: []string{"App ns/a: aaaaaaaaaaaa to dddddddddddd current at 12:30", "App ns/a: aaaaaaaaaaaa at 11:01"},
		},
		"a deployment after one whose commit was made in its second": {
			history: []string{"13:00 " + commitB, "12:05 " + commitD, "11:00 " + commitA}, commits: log{commit(commitB, "12:50"), commit(commitA, "11:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb current at 13:00", "App ns/a: aaaaaaaaaaaa to dddddddddddd at 12:05", "App ns/a: aaaaaaaaaaaa at 11:00"},
		},
		"commits that are deployed one by one, long after they were made": {
			history: []string{"12:30 " + commitB, "12:00 " + commitA, "07:00 " + commitC}, commits: log{commit(commitB, "11:00"), commit(commitA, "10:00")},
			want: []string{"App ns/a: bbbbbbbbbbbb current at 12:30", "App ns/a: aaaaaaaaaaaa at 12:00"},
		},
		"one before the window": {history: []string{"07:30 " + commitA, "07:00 " + commitB}, want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, now, _ := strings.Cut(test.history[0], " ")
			m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", now), deployed(test.history...)))
			differ := &repository{history: map[string]gitopsprovider.History{"": {Commits: test.commits}}}
			window := lastHours
			if test.until != "" {
				window.Until = at(test.until)
			}
			assert.Equal(t, test.want, commits(changes(t, differ, m, window, gitopsprovider.Selector{})))
		})
	}
}

// Whatever was deployed, and whatever of it is in the history of the repository.
func TestAWindowTellsEachOfItsDeploymentsOnce(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{commitA, commitB, commitC, commitD}
	for range 2000 {
		var log []gitopsprovider.Commit
		var history []string
		for minute, order := 59, random.Perm(len(names)); minute >= 0; minute -= 1 + random.IntN(15) {
			name := names[random.IntN(len(names))]
			if len(order) > 0 && random.IntN(2) == 0 {
				log = append(log, commit(names[order[0]], fmt.Sprintf("10:%02d", minute)))
				order = order[1:]
			}
			if len(history) == 0 || !strings.HasSuffix(history[len(history)-1], name) {
				history = append(history, fmt.Sprintf("%s10:%02d %s", []string{"", "", ">"}[random.IntN(3)], minute, name))
			}
		}
		_, now, _ := strings.Cut(history[0], " ")
		m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", now), deployed(history...)))
		differ := &repository{history: map[string]gitopsprovider.History{"": {Commits: log}}}
		list := changes(t, differ, m, lastHours, gitopsprovider.Selector{}).Changes

		current, told := 0, []string{}
		for _, change := range list {
			if change.Current {
				current++
			}
			clock := change.DeployedAt.Format("15:04")
			if !change.DeployedAfter.IsZero() {
				clock = ">" + change.DeployedAfter.Format("15:04")
			}
			if !change.DeployedAt.IsZero() || !change.DeployedAfter.IsZero() {
				told = append(told, clock+" "+change.ToCommit)
			}
			for _, note := range change.Notes {
				if deployment, found := strings.CutPrefix(note, "by the dates, it was deployed with "); found {
					revision, clock, _ := strings.Cut(strings.NewReplacer(" after 2026-05-04T", " >", " at 2026-05-04T", " ").Replace(deployment), " ")
					told = append(told, strings.TrimSuffix(clock, ":00Z")+" "+revision)
				}
			}
		}
		require.ElementsMatch(t, history, told, "%v of %v: %v", history, log, list)
		require.Equal(t, 1, current, "%v of %v: %v", history, log, list)
	}
}

// What the dates alone tell may be wrong: after a branch was set back and went on, they explain what it was set back from.
func TestADeploymentThatOnlyTheDatesExplainIsANoteOfTheCommit(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitB), deployed("13:00 "+commitB, "12:05 "+commitD, "07:00 "+commitC)))
	differ := &repository{history: map[string]gitopsprovider.History{"": {Commits: []gitopsprovider.Commit{commit(commitB, "12:50"), commit(commitA, "11:00")}}}}
	list := changes(t, differ, m, lastHours, gitopsprovider.Selector{}).Changes
	require.Len(t, list, 2)
	assert.Empty(t, list[0].Notes)
	assert.Equal(t, []string{"by the dates, it was deployed with " + commitD + " at 2026-05-04T12:05:00Z"}, list[1].Notes)
	assert.Zero(t, list[1].DeployedAt)

	window := gitopsprovider.TimeWindow{Since: lastHours.Since, Until: at("12:00")}
	assert.Empty(t, changes(t, differ, m, window, gitopsprovider.Selector{}).Changes[1].Notes, "what came after the window is not told")
}

// An engine that moves the entry of what is applied again forgets when it was applied before.
func TestADeploymentBeforeOneThatWasMovedMayHaveReplacedAnother(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitA), deployed(">12:25 "+commitA, "12:05 "+commitB, "07:00 "+commitC)))
	list := changes(t, &repository{}, m, lastHours, gitopsprovider.Selector{}).Changes
	require.Len(t, list, 2)
	assert.Empty(t, list[0].Notes, "the history knows what was rolled back")
	assert.Equal(t, commitC, list[1].FromCommit)
	assert.Equal(t, []string{"it may have replaced another revision: " + commitA + " was applied again since, and the history does not keep when it was before"}, list[1].Notes)
}

// The history of the applier has the version of a chart, not the commit that it was built from.
func TestAWindowTellsWhenWhatIsAppliedNowWasDeployed(t *testing.T) {
	t.Parallel()
	chart := gitopsprovider.Object{
		Workload: workload("Chart", "ns/c"),
		Source:   &gitopsprovider.Source{Type: gitopsprovider.SourceHelm, Revision: "1.2.3", BuiltFrom: "main@sha1:" + commitB},
		Sources:  []gitopsprovider.SourceUse{{Path: "charts/shop", Source: gitopsprovider.Source{Object: workload("Repo", "ns/r")}}},
	}
	m := newMemory(repo("ns/r", shopURL), chart, app("ns/a", applies("Chart ns/c", "", "1.2.3"), deployed("12:30 1.2.3", "10:30 1.2.2")))
	differ := &repository{history: map[string]gitopsprovider.History{
		"charts/shop": {Commits: []gitopsprovider.Commit{commit(commitB, "12:00"), commit(commitA, "10:00")}},
	}}
	assert.Equal(t, []string{"App ns/a: bbbbbbbbbbbb current at 12:30", "App ns/a: aaaaaaaaaaaa"},
		commits(changes(t, differ, m, lastHours, gitopsprovider.Selector{})))
}

func TestAWindowOfASourceWithoutCommitsHasItsDeployments(t *testing.T) {
	t.Parallel()
	helm := repo("ns/helm", "https://charts.example.com")
	helm.Source.Type = gitopsprovider.SourceHelm
	m := newMemory(helm, app("ns/a", applies("Repo ns/helm", "web", "3"), deployed("12:00 3", "11:00 2", "10:00 2", "07:00 1")))
	differ := &repository{}
	list := changes(t, differ, m, lastHours, gitopsprovider.Selector{})
	assert.Equal(t, []string{"2 to 3 at 12:00", "1 to 2 at 10:00"}, ranges(list))
	assert.Equal(t, []bool{true, false}, []bool{list.Changes[0].Current, list.Changes[1].Current})
	assert.Empty(t, differ.histories)
}

func TestAWindowIsBoundedAndSaysSo(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitA)))
	three := []gitopsprovider.Commit{commit(commitC, "12:00"), commit(commitB, "11:00"), commit(commitA, "10:00")}
	for name, test := range map[string]struct {
		limit   int
		history gitopsprovider.History
		want    int
		cut     bool
	}{
		"all of it":              {3, gitopsprovider.History{Commits: three}, 3, false},
		"more than the limit":    {2, gitopsprovider.History{Commits: three}, 2, true},
		"a history that was cut": {5, gitopsprovider.History{Commits: three, Cut: true}, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			differ := &repository{history: map[string]gitopsprovider.History{"": test.history}}
			window := lastHours
			window.Limit = test.limit
			list := changes(t, differ, m, window, gitopsprovider.Selector{})
			assert.Len(t, list.Changes, test.want)
			assert.Equal(t, test.cut, list.Cut)
			assert.Equal(t, test.limit+1, differ.histories[0].Limit)
		})
	}
}

func TestAWindowWithAnEndHasNothingCurrent(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitA)))
	differ := &repository{history: map[string]gitopsprovider.History{"": {Commits: []gitopsprovider.Commit{commit(commitA, "10:00")}}}}
	window := gitopsprovider.TimeWindow{Since: at("08:00"), Until: at("11:00")}
	list := changes(t, differ, m, window, gitopsprovider.Selector{})
	require.Len(t, list.Changes, 1)
	assert.False(t, list.Changes[0].Current, "what came after the window is not known")
	assert.Equal(t, window.Until, differ.histories[0].Until)
}

func TestWhereNoHistoryCanBeReadDeploymentsAreListed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		answer gitopsprovider.Answer
		fails  bool
	}{
		"nobody reads repositories":     {gitopsprovider.ErrNoDiffer, gitopsprovider.AnswerNone, false},
		"a repository that is gone":     {fmt.Errorf("x: %w", gitopsprovider.ErrRepositoryNotFound), gitopsprovider.AnswerAbsent, false},
		"a commit that is gone":         {gitopsprovider.ErrCommitNotFound, gitopsprovider.AnswerAbsent, false},
		"credentials that were refused": {gitopsprovider.ErrCredentials, gitopsprovider.AnswerForbidden, true},
		"a server that does not answer": {errSilent, gitopsprovider.AnswerUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitB), deployed("12:00 "+commitB, "07:00 "+commitA)))
			list := changes(t, &repository{err: test.err}, m, lastHours, gitopsprovider.Selector{})
			assert.Equal(t, []string{commitA + " to " + commitB + " at 12:00"}, ranges(list))
			read := list.Reads[len(list.Reads)-1]
			assert.Equal(t, shopURL, read.Repository)
			assert.Equal(t, test.answer, read.Answer)
			assert.Contains(t, read.Message, "so that only deployments are listed")
			assert.Equal(t, test.fails, list.Err() != nil)
		})
	}
}

func TestAWindowHasToBeASpanOfTime(t *testing.T) {
	t.Parallel()
	for want, window := range map[string]gitopsprovider.TimeWindow{
		"changes in cluster test: a window that ends has to begin: set TimeWindow.Since":                             {Until: at("08:00")},
		"changes in cluster test: the window ends at 2026-05-04T08:00:00Z, before it begins at 2026-05-04T09:00:00Z": {Since: at("09:00"), Until: at("08:00")},
		"changes in cluster test: the limit -1 is negative":                                                          {Limit: -1},
	} {
		_, err := views(t, gitopsprovider.NoDiffer{}, newMemory()).Changes(t.Context(), window, gitopsprovider.Selector{})
		require.EqualError(t, err, want)
	}
}

func TestWithoutAWindowALimitBoundsTheList(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", commitA)), app("ns/b", applies("Repo ns/r", "", commitA)))
	list := changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{Limit: 1}, gitopsprovider.Selector{})
	assert.Len(t, list.Changes, 1)
	assert.True(t, list.Cut)
}

func TestChangesEndWithTheirContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	_, err := views(t, gitopsprovider.NoDiffer{}, newMemory()).Changes(ctx, lastHours, gitopsprovider.Selector{})
	require.ErrorIs(t, err, errSilent)
}

func TestAWindowSaysWhichHistoriesWereReadAndWhyOneIsCut(t *testing.T) {
	t.Parallel()
	m := newMemory(repo("ns/r", shopURL),
		app("ns/a", applies("Repo ns/r", "a", "main@sha1:"+commitC)),
		app("ns/b", applies("Repo ns/r", "b", "main@sha1:"+commitC)))
	differ := &repository{history: map[string]gitopsprovider.History{"b": {Cut: true, Note: "more than 10 commits"}}}
	list := changes(t, differ, m, lastHours, gitopsprovider.Selector{})

	assert.Empty(t, list.Changes)
	assert.True(t, list.Cut)
	require.NoError(t, list.Err())
	var messages []string
	for _, read := range list.Reads {
		if read.Repository != "" {
			assert.Equal(t, gitopsprovider.AnswerFound, read.Answer)
			messages = append(messages, read.Message)
		}
	}
	assert.ElementsMatch(t, []string{"", "more than 10 commits"}, messages)
}
