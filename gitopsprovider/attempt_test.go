package gitopsprovider_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// attempting is an applier of a folder that applies one revision, or none, and failed to apply another at a time of the day.
func attempting(clock, applied, attempted string, set ...func(*gitopsprovider.Object)) gitopsprovider.Object {
	o := app("ns/a", applies("Repo ns/r", "apps", applied), is(failing("Build", "no such file")))
	o.Ready.Since = at(clock)
	o.Sources[0].Attempted = attempted
	return with(o, set...)
}

func TestAChangeSaysWhatWasAttemptedSince(t *testing.T) {
	t.Parallel()
	object := attempting("12:00", "main@sha1:"+commitB, "main@sha1:"+commitC, deployed("11:00 main@sha1:"+commitB, "10:00 main@sha1:"+commitA))
	list := changesNow(t, object, repo("ns/r", shopURL))
	require.Len(t, list.Changes, 1)
	change := list.Changes[0]
	assert.Equal(t, []string{"main@sha1:" + commitC, commitC}, []string{change.Attempted, change.AttemptedCommit})
	assert.Equal(t, []string{commitA, commitB}, []string{change.FromCommit, change.ToCommit})
	assert.True(t, change.Current)

	attempt := change.Attempt()
	assert.Equal(t, []string{"main@sha1:" + commitB, commitB, "", ""}, []string{attempt.FromRev, attempt.FromCommit, attempt.ToRev, attempt.ToCommit})
	assert.Equal(t, commitC, attempt.AttemptedCommit)
	assert.False(t, attempt.Current)
	assert.Zero(t, attempt.DeployedAt)
	assert.Equal(t, attempt, attempt.Attempt())
}

func TestAnApplierThatNeverAppliedAnythingIsListedIfItTried(t *testing.T) {
	t.Parallel()
	list := changesNow(t, attempting("12:00", "", "main@sha1:"+commitC), repo("ns/r", shopURL))
	require.Len(t, list.Changes, 1)
	change := list.Changes[0]
	assert.Equal(t, []string{"", "", commitC}, []string{change.ToRev, change.FromRev, change.AttemptedCommit})
	assert.False(t, change.Current)
	assert.Empty(t, changesNow(t, attempting("12:00", "", ""), repo("ns/r", shopURL)).Changes)
}

func TestAWindowHasWhatWasAttemptedAndDidNotLand(t *testing.T) {
	t.Parallel()
	type log = []gitopsprovider.Commit
	made := log{commit(commitC, "10:00"), commit(commitB, "09:00")}
	for name, test := range map[string]struct {
		tried, applied, attempted string
		landed, history           log
		until                     string
		commit                    string
		listed                    bool
	}{
		"the hour's commit is the broken one":                    {"10:01", commitB, commitC, nil, made[:1], "", commitC, true},
		"a commit of the window, tried again after it":           {"23:00", commitB, commitC, nil, made[:1], "11:00", commitC, true},
		"an older commit, tried again in the window":             {"10:01", commitB, commitC, nil, nil, "", "", true},
		"an older commit, tried before the window":               {"07:00", commitB, commitC, nil, nil, "", "", false},
		"an older commit, tried after the window":                {"23:00", commitB, commitC, nil, nil, "11:00", "", false},
		"the commit that touched the path is not the newest one": {"10:01", commitB, commitD, nil, made[:1], "", commitC, true},
		"commits that landed are none of the attempt":            {"10:01", commitB, commitC, made[1:], made, "", commitC, true},
		"nothing was applied before":                             {"10:01", "", commitC, nil, made[:1], "", commitC, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			differ := &byRevision{test.applied: test.landed, test.attempted: test.history}
			window := lastHours
			if test.until != "" {
				window.Until = at(test.until)
			}
			list := changes(t, differ, newMemory(attempting(test.tried, test.applied, test.attempted), repo("ns/r", shopURL)), window, gitopsprovider.Selector{})
			var attempts []gitopsprovider.Change
			for _, change := range list.Changes {
				if change.Attempted != "" {
					attempts = append(attempts, change)
				}
			}
			assert.Len(t, list.Changes, len(attempts)+len(test.landed))
			if !test.listed {
				assert.Empty(t, attempts)
				return
			}
			require.Len(t, attempts, 1)
			change := attempts[0]
			assert.Equal(t, []string{"", test.applied, test.attempted}, []string{change.ToCommit, change.FromCommit, change.AttemptedCommit})
			assert.Equal(t, []string{test.attempted + " was attempted since, and failed", "nothing of it landed"}, change.Notes)
			assert.False(t, change.Current)
			if test.commit == "" {
				assert.Nil(t, change.Commit)
			} else {
				require.NotNil(t, change.Commit)
				assert.Equal(t, test.commit, change.Commit.Hash)
			}
		})
	}
}

// byRevision is a Differ that knows the history of each revision.
type byRevision map[string][]gitopsprovider.Commit

func (byRevision) Diff(context.Context, gitopsprovider.DiffQuery) (gitopsprovider.Diff, error) {
	return gitopsprovider.Diff{}, nil
}

func (r byRevision) History(_ context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	return gitopsprovider.History{Commits: r[q.Revision]}, nil
}

// What a repository does not tell is no reason to hide that something failed.
func TestAWindowHasAnAttemptWhoseRepositoryIsNotRead(t *testing.T) {
	t.Parallel()
	m := newMemory(attempting("10:01", commitB, commitC, func(o *gitopsprovider.Object) { o.InPart = true }), repo("ns/r", shopURL))
	list := changes(t, gitopsprovider.NoDiffer{}, m, lastHours, gitopsprovider.Selector{})
	require.Len(t, list.Changes, 1)
	assert.Equal(t, commitC, list.Changes[0].AttemptedCommit)
	assert.Equal(t, []string{commitC + " was attempted since, and failed; it may be applied in part"}, list.Changes[0].Notes)

	var asked []string
	for _, read := range list.Reads {
		if read.Repository != "" {
			asked = append(asked, read.Repository+" "+read.Path+" "+read.Revision)
		}
	}
	assert.Equal(t, []string{shopURL + " apps " + commitB, shopURL + " apps " + commitC}, asked, "no two reads look alike")
}

// A commit of one repository must not be compared with one of another.
func TestAnAttemptIsOfTheSourceThatTheApplierNamesNow(t *testing.T) {
	t.Parallel()
	object := with(moved(), is(failing("Build", "no such file")))
	object.Ready.Since = at("13:00")
	object.Sources[0].Attempted = commitC
	change := changesNow(t, object).Changes[0]
	assert.Equal(t, commitC, change.Attempted)
	assert.Empty(t, change.AttemptedCommit)

	attempt := changes(t, &byRevision{}, newMemory(object), lastHours, gitopsprovider.Selector{}).Changes[0]
	assert.Equal(t, []string{"https://git.example.com/acme/other", "new", commitC, ""}, []string{attempt.Source.URL, attempt.Path, attempt.AttemptedCommit, attempt.FromCommit})
	assert.Equal(t, []string{commitC + " was attempted since, and failed", "another source or path was applied before", "nothing of it landed"}, attempt.Notes)
}

func TestTheCommitOfAChartThatFailedIsThatWhichItWasBuiltFrom(t *testing.T) {
	t.Parallel()
	chart := gitopsprovider.Object{
		Workload: workload("Chart", "ns/c"),
		Source:   &gitopsprovider.Source{Type: gitopsprovider.SourceHelm, Revision: "1.2.3", BuiltFrom: "main@sha1:" + commitB},
		Sources:  []gitopsprovider.SourceUse{{Path: "charts/shop", Source: gitopsprovider.Source{Object: workload("Repo", "ns/r")}}},
	}
	object := app("ns/a", applies("Chart ns/c", "", "1.2.2"), func(o *gitopsprovider.Object) { o.Sources[0].Attempted = "1.2.3" })
	change := changesNow(t, object, chart, repo("ns/r", shopURL)).Changes[0]
	assert.Equal(t, []string{"1.2.3", commitB, "charts/shop"}, []string{change.Attempted, change.AttemptedCommit, change.Path})
}

func TestTheDiffOfAnAttemptIsWhatItWouldHaveChanged(t *testing.T) {
	t.Parallel()
	differ := &repository{}
	v := views(t, differ, newMemory())
	change := gitopsprovider.Change{
		Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: shopURL}, Path: "apps",
		FromCommit: commitA, FromRev: commitA, ToRev: commitB, ToCommit: commitB, Attempted: commitC, AttemptedCommit: commitC,
	}
	for _, change := range []gitopsprovider.Change{change, change.Attempt()} {
		_, err := v.Diff(t.Context(), change)
		require.NoError(t, err)
	}
	query := gitopsprovider.DiffQuery{Repository: shopURL, Path: "apps", From: commitA, To: commitB}
	tried := query
	tried.From, tried.To = commitB, commitC
	assert.Equal(t, []gitopsprovider.DiffQuery{query, tried}, differ.diffs)

	change.Attempted, change.AttemptedCommit = "", ""
	diff, err := v.Diff(t.Context(), change.Attempt())
	require.NoError(t, err)
	assert.Equal(t, "no revision names no commit, so there is nothing to compare", diff.Note)
}

// A note of one deployment is no note of the others.
func TestAWindowSaysOfTheDeploymentThatChangedTheSourceThatItDid(t *testing.T) {
	t.Parallel()
	was := func(clock, path, revision string) gitopsprovider.Deployment {
		return gitopsprovider.Deployment{At: at(clock), Revisions: []gitopsprovider.DeployedRevision{{URL: shopURL, Path: path, Revision: revision}}}
	}
	object := app("ns/a", applies("Repo ns/r", "new", commitC))
	object.Deployments = []gitopsprovider.Deployment{was("12:00", "new", commitC), was("11:00", "new", commitB), was("10:00", "old", commitA)}
	for name, history := range map[string][]gitopsprovider.Commit{"by deployments": nil, "by commits": {commit(commitC, "11:59"), commit(commitB, "10:59")}} {
		list := changes(t, &byRevision{commitC: history}, newMemory(object, repo("ns/r", shopURL)), lastHours, gitopsprovider.Selector{})
		require.Len(t, list.Changes, 3, name)
		for i, want := range [][]string{nil, {"another source or path was applied before"}, nil} {
			assert.Equal(t, want, list.Changes[i].Notes, "%s: %d", name, i)
		}
	}
}
