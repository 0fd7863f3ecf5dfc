package gitopsprovider_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const shopURL = "https://git.example.com/acme/shop"

// at is a time of the day of these tests.
func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02 15:04", "2026-05-04 "+clock)
	if err != nil {
		panic(err)
	}
	return t
}

// deployed adds deployments of one source, newest first: "12:00 main@sha1:…", ">12:00 …" for one after that, "? …" for one
// of which nothing is known.
func deployed(entries ...string) func(*gitopsprovider.Object) {
	return func(o *gitopsprovider.Object) {
		for _, entry := range entries {
			clock, revision, _ := strings.Cut(entry, " ")
			deployment := gitopsprovider.Deployment{Revisions: []gitopsprovider.DeployedRevision{{Revision: revision}}}
			if after, unknown := strings.CutPrefix(clock, ">"); unknown {
				deployment.After = at(after)
			} else if clock != "?" {
				deployment.At = at(clock)
			}
			o.Deployments = append(o.Deployments, deployment)
		}
	}
}

func changes(t *testing.T, differ gitopsprovider.Differ, m *memory, window gitopsprovider.TimeWindow, sel gitopsprovider.Selector) gitopsprovider.ChangeList {
	t.Helper()
	list, err := views(t, differ, m).Changes(t.Context(), window, sel)
	require.NoError(t, err)
	return list
}

func changesNow(t *testing.T, objects ...gitopsprovider.Object) gitopsprovider.ChangeList {
	t.Helper()
	return changes(t, gitopsprovider.NoDiffer{}, newMemory(objects...), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
}

func TestAChangeSaysWhatIsAppliedFromWhere(t *testing.T) {
	t.Parallel()
	object := app("team/shop", applies("Repo flux/main", "apps/shop", "main@sha1:"+commitB),
		deployed("12:00 main@sha1:"+commitB, "09:00 main@sha1:"+commitA), labelled("Delivery", "App/flux/all"))
	object.TargetNamespace, object.TargetCluster = "shop", "edge"
	list := changesNow(t, object, repo("flux/main", shopURL))

	require.Len(t, list.Changes, 1)
	assert.Equal(t, gitopsprovider.Change{
		Engine: "Delivery", Workload: object.Workload, TargetNamespace: "shop", TargetCluster: "edge",
		Source: gitopsprovider.Source{
			Object: workload("Repo", "flux/main"), Type: gitopsprovider.SourceGit, URL: shopURL, Ref: "main", Branch: "main", Revision: "main@sha1:" + commitB,
		},
		Path: "apps/shop", ToRev: "main@sha1:" + commitB, ToCommit: commitB, FromRev: "main@sha1:" + commitA, FromCommit: commitA,
		Current: true, DeployedAt: at("12:00"), ManagedBy: []gitopsprovider.Workload{workload("App", "flux/all")}, Ready: ready,
	}, list.Changes[0])
	assert.False(t, list.Cut)
	require.NoError(t, list.Err())
}

func TestWhereARangeComesFrom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		applied string
		history []string
		from    string
		since   string
	}{
		"nothing is known of before":                         {"main@sha1:" + commitB, nil, "", "?"},
		"the first deployment":                               {"main@sha1:" + commitB, []string{"12:00 main@sha1:" + commitB}, "", "12:00"},
		"one revision that was deployed again and again":     {"main@sha1:" + commitB, []string{"12:00 main@sha1:" + commitB, "11:00 main@sha1:" + commitB, "10:00 main@sha1:" + commitA}, commitA, "11:00"},
		"one commit in two spellings":                        {"main@sha1:" + commitB, []string{"12:00 main@sha1:" + commitB, "11:00 main/" + commitB, "10:00 " + commitA}, commitA, "11:00"},
		"a rollback at a time that is not kept":              {"main@sha1:" + commitA, []string{"? main@sha1:" + commitA, "11:00 main@sha1:" + commitB}, commitB, "?"},
		"a history that does not begin with what is applied": {"main@sha1:" + commitC, []string{"11:00 main@sha1:" + commitB}, "", "?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := changesNow(t, app("ns/a", applies("Repo ns/r", "", test.applied), deployed(test.history...)), repo("ns/r", shopURL))
			require.Len(t, list.Changes, 1)
			assert.Equal(t, test.from, list.Changes[0].FromCommit)
			if test.since == "?" {
				assert.Zero(t, list.Changes[0].DeployedAt)
			} else {
				assert.Equal(t, at(test.since), list.Changes[0].DeployedAt)
			}
		})
	}
}

func TestARangeDoesNotSpanTwoSources(t *testing.T) {
	t.Parallel()
	object := app("ns/a", applies("Repo ns/r", "apps", commitB))
	object.Deployments = []gitopsprovider.Deployment{
		{Revisions: []gitopsprovider.DeployedRevision{{URL: shopURL, Path: "apps", Revision: commitB}}, At: at("12:00")},
		{Revisions: []gitopsprovider.DeployedRevision{{URL: shopURL, Path: "old", Revision: commitA}}, At: at("11:00")},
	}
	change := changesNow(t, object, repo("ns/r", shopURL)).Changes[0]
	assert.Empty(t, change.FromRev)
	assert.Equal(t, at("12:00"), change.DeployedAt)
	assert.Equal(t, []string{"another source or path was applied before"}, change.Notes)
}

// The history of a Helm release names charts and versions, and no repository. A version of one chart is none of another.
func TestAVersionIsOfTheChartThatItWasDeployedFrom(t *testing.T) {
	t.Parallel()
	helm := repo("ns/helm", "https://charts.example.com")
	helm.Source.Type = gitopsprovider.SourceHelm
	chart := gitopsprovider.Object{
		Workload: workload("Chart", "ns/c"), Source: &gitopsprovider.Source{Revision: "3.0.0", Chart: "shop"},
		Sources: []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{Object: workload("Repo", "ns/helm")}, Path: "shop"}},
	}
	release := func(applied string, deployments ...gitopsprovider.Deployment) gitopsprovider.Object {
		return app("ns/a", applies("Chart ns/c", "", applied), func(o *gitopsprovider.Object) { o.Deployments = deployments })
	}
	of := func(clock, chart, version string) gitopsprovider.Deployment {
		return gitopsprovider.Deployment{At: at(clock), Revisions: []gitopsprovider.DeployedRevision{{Chart: chart, Revision: version}}}
	}
	const elsewhere, before = "the applier names another source or path now (https://charts.example.com shop), which was not applied yet", "another source or path was applied before"
	for name, test := range map[string]struct {
		object gitopsprovider.Object
		want   []string
		notes  []string
	}{
		"of the chart that is named":     {release("3.0.0", of("12:00", "shop", "3.0.0"), of("11:00", "shop", "2.0.0")), []string{"https://charts.example.com shop 2.0.0 to 3.0.0", "https://charts.example.com shop  to 2.0.0"}, nil},
		"of another chart":               {release("1.2.2", of("12:00", "web", "1.2.2")), []string{" web  to 1.2.2"}, []string{elsewhere}},
		"of another chart, same version": {release("3.0.0", of("12:00", "web", "3.0.0")), []string{" web  to 3.0.0"}, []string{elsewhere}},
		"after that of another chart":    {release("3.0.0", of("12:00", "shop", "3.0.0"), of("11:00", "web", "1.2.2")), []string{"https://charts.example.com shop  to 3.0.0", " web  to 1.2.2"}, []string{before}},
		"after the same of another":      {release("3.0.0", of("12:00", "shop", "3.0.0"), of("11:00", "web", "3.0.0")), []string{"https://charts.example.com shop  to 3.0.0", " web  to 3.0.0"}, []string{before}},
		"of a chart that is not told":    {release("3.0.0", of("12:00", "", "3.0.0")), []string{"https://charts.example.com shop  to 3.0.0"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := changesNow(t, test.object, chart, helm).Changes
			window := changes(t, gitopsprovider.NoDiffer{}, newMemory(test.object, chart, helm), lastHours, gitopsprovider.Selector{}).Changes
			var got []string
			for _, change := range window {
				got = append(got, fmt.Sprintf("%s %s %s to %s", change.Source.URL, change.Path, change.FromRev, change.ToRev))
			}
			assert.Equal(t, test.want, got)
			require.Len(t, now, 1)
			assert.Equal(t, test.notes, now[0].Notes)
			assert.Equal(t, test.want[0], fmt.Sprintf("%s %s %s to %s", now[0].Source.URL, now[0].Path, now[0].FromRev, now[0].ToRev))
		})
	}
}

// A repository of values is every applier's: its commits are not the changes of one.
func TestASourceThatOnlyLendsFilesHasItsDeploymentsAlone(t *testing.T) {
	t.Parallel()
	object := app("ns/a", func(o *gitopsprovider.Object) {
		o.Sources = []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: shopURL, Lends: true}, Applied: commitB}}
	}, deployed("12:00 "+commitB, "09:00 "+commitA))
	differ := &repository{history: map[string]gitopsprovider.History{"": {Commits: []gitopsprovider.Commit{commit(commitC, "11:00")}}}}
	list := changes(t, differ, newMemory(object), lastHours, gitopsprovider.Selector{})
	assert.Equal(t, []string{"App ns/a: aaaaaaaaaaaa to bbbbbbbbbbbb current at 12:00", "App ns/a: aaaaaaaaaaaa at 09:00"}, commits(list))
	assert.Empty(t, differ.histories)
	for _, change := range list.Changes {
		assert.Equal(t, []string{"nothing of it is applied by itself: the other sources draw files from it, and it may have many others"}, change.Notes)
	}
}

func TestWhichCommitIsApplied(t *testing.T) {
	t.Parallel()
	oci := repo("ns/oci", "oci://registry.example.com/shop")
	oci.Source.Type = gitopsprovider.SourceOCI
	oci.Source.Origin = gitopsprovider.Origin{URL: shopURL, Revision: "main@sha1:" + commitA}
	chart := func(name string, source gitopsprovider.Source, from string) gitopsprovider.Object {
		return gitopsprovider.Object{Workload: workload("Chart", name), Source: &source, Sources: []gitopsprovider.SourceUse{
			{Source: gitopsprovider.Source{Object: workload("Repo", from)}, Path: "charts/shop"},
		}}
	}
	including := repo("ns/including", shopURL)
	including.Source.Incomplete = "the source includes Repo other"
	helm := repo("ns/helm", "https://charts.example.com")
	helm.Source.Type = gitopsprovider.SourceHelm
	built := gitopsprovider.Source{Revision: "1.2.3", BuiltFrom: "main@sha1:" + commitB}
	sources := []gitopsprovider.Object{
		repo("ns/r", shopURL), oci, including, helm, chart("ns/git", built, "ns/r"), chart("ns/helm", built, "ns/helm"), chart("ns/lost", built, "ns/gone"),
	}
	digest := "latest@sha256:" + strings.Repeat("1", 64)
	for name, test := range map[string]struct {
		source, applied string
		commit, path    string
		kind            gitopsprovider.SourceType
		notes           []string
	}{
		"a branch":                          {"Repo ns/r", "main@sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a branch as it was once written":   {"Repo ns/r", "main/" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a bare commit":                     {"Repo ns/r", commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a hash without a branch":           {"Repo ns/r", "sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a tag":                             {"Repo ns/r", "v1@sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a full ref":                        {"Repo ns/r", "refs/heads/main@sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"a branch with @ in its name":       {"Repo ns/r", "feat/x@y@sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit, nil},
		"the digest of an artifact is none": {"Repo ns/oci", digest, "", "apps", gitopsprovider.SourceOCI, nil},
		"a source that includes another": {"Repo ns/including", "main@sha1:" + commitB, commitB, "apps", gitopsprovider.SourceGit,
			[]string{"the commit does not name the content in full: the source includes Repo other"}},
		"a chart of a Git repository": {"Chart ns/git", "1.2.3", commitB, "charts/shop", gitopsprovider.SourceGit, nil},
		"a chart that was built anew since": {"Chart ns/git", "1.2.2", "", "charts/shop", gitopsprovider.SourceGit,
			[]string{"the commit of 1.2.2 is not known: Chart ns/git now holds 1.2.3"}},
		"a chart of a Helm repository": {"Chart ns/helm", "1.2.2", "", "charts/shop", gitopsprovider.SourceHelm, nil},
		"a chart whose source is gone": {"Chart ns/lost", "1.2.3", "", "charts/shop", "",
			[]string{"Repo ns/gone is not known: it does not exist, or could not be read"}},
		"a source that is gone": {"Repo ns/gone", "main@sha1:" + commitB, "", "apps", "",
			[]string{"Repo ns/gone is not known: it does not exist, or could not be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := changesNow(t, append(slices.Clone(sources), app("ns/a", applies(test.source, "apps", test.applied)))...)
			require.Len(t, list.Changes, 1)
			change := list.Changes[0]
			assert.Equal(t, test.applied, change.ToRev)
			assert.Equal(t, test.commit, change.ToCommit)
			assert.Equal(t, test.path, change.Path)
			assert.Equal(t, test.kind, change.Source.Type)
			assert.Equal(t, test.notes, change.Notes)
		})
	}
}

// Two sources of one repository are told apart by their names, never by their URL.
func TestASourceIsFoundByItsName(t *testing.T) {
	t.Parallel()
	pinned := repo("ns/pinned", shopURL)
	pinned.Source.Ref, pinned.Source.Branch, pinned.Source.Revision = "v1", "", "v1@sha1:"+commitA
	list := changesNow(t, repo("ns/main", shopURL), pinned, repo("other/pinned", shopURL), app("ns/a", applies("Repo ns/pinned", "", "v1@sha1:"+commitA)))
	assert.Equal(t, "v1", list.Changes[0].Source.Ref)
	assert.Equal(t, commitA, list.Changes[0].ToCommit)
}

func TestAnApplierWithSeveralSourcesHasAChangeForEach(t *testing.T) {
	t.Parallel()
	object := app("ns/a", applies("Repo ns/r", "apps", commitB), applies("Repo ns/helm", "web", "1.2.3"))
	object.Deployments = []gitopsprovider.Deployment{
		{Revisions: []gitopsprovider.DeployedRevision{{Revision: commitB}, {Revision: "1.2.3"}}, At: at("12:00")},
		{Revisions: []gitopsprovider.DeployedRevision{{Revision: commitA}, {Revision: "1.2.3"}}, At: at("11:00")},
		{Revisions: []gitopsprovider.DeployedRevision{{Revision: commitA}}, At: at("10:00")},
	}
	helm := repo("ns/helm", "https://charts.example.com")
	helm.Source.Type = gitopsprovider.SourceHelm
	list := changesNow(t, object, repo("ns/r", shopURL), helm)

	require.Len(t, list.Changes, 2)
	assert.Equal(t, []string{commitA + " to " + commitB + " at 12:00", " to 1.2.3 at 11:00"}, ranges(list))
}

// ranges are the changes in a line each.
func ranges(list gitopsprovider.ChangeList) []string {
	out := []string{}
	for _, change := range list.Changes {
		line := change.FromRev + " to " + change.ToRev
		if !change.DeployedAt.IsZero() {
			line += " at " + change.DeployedAt.Format("15:04")
		}
		out = append(out, line)
	}
	return out
}

func TestWhatWasAttemptedIsNotWhatIsApplied(t *testing.T) {
	t.Parallel()
	for inPart, want := range map[bool]string{
		false: "main@sha1:" + commitB + " was attempted since, and failed",
		true:  "main@sha1:" + commitB + " was attempted since, and failed; it may be applied in part",
	} {
		object := app("ns/a", applies("Repo ns/r", "", "main@sha1:"+commitA))
		object.InPart = inPart
		object.Sources[0].Attempted = "main@sha1:" + commitB
		change := changesNow(t, object, repo("ns/r", shopURL)).Changes[0]
		assert.Equal(t, commitA, change.ToCommit)
		assert.Equal(t, []string{want}, change.Notes)
		object.Sources[0].Attempted = "sha1:" + commitA
		assert.Empty(t, changesNow(t, object, repo("ns/r", shopURL)).Changes[0].Notes, "a retry of what is applied")
	}
}

// moved is an applier that has another address and folder now than those that it applied.
func moved() gitopsprovider.Object {
	was := func(clock, revision string) gitopsprovider.Deployment {
		return gitopsprovider.Deployment{At: at(clock), Revisions: []gitopsprovider.DeployedRevision{{
			Type: gitopsprovider.SourceGit, URL: shopURL, Path: "old", Revision: revision,
		}}}
	}
	return app("ns/a", func(o *gitopsprovider.Object) {
		o.Sources = []gitopsprovider.SourceUse{{
			Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/other", Branch: "next"}, Path: "new", Applied: commitB,
		}}
		o.Deployments = []gitopsprovider.Deployment{was("12:00", commitB), was("10:00", commitA)}
	})
}

// A commit of one repository must not be looked for in another.
func TestWhatIsAppliedIsOfTheSourceThatItWasAppliedFrom(t *testing.T) {
	t.Parallel()
	list := changesNow(t, moved())
	require.Len(t, list.Changes, 1)
	change := list.Changes[0]
	assert.Equal(t, gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: shopURL}, change.Source)
	assert.Equal(t, "old", change.Path)
	assert.Equal(t, commitB, change.ToCommit)
	assert.Equal(t, commitA, change.FromCommit)
	assert.Equal(t, []string{"the applier names another source or path now (https://git.example.com/acme/other new), which was not applied yet"}, change.Notes)

	trace, err := views(t, gitopsprovider.NoDiffer{}, newMemory(moved())).Trace(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.TraceSource{Source: change.Source, Path: "old", Revision: commitB, Commit: commitB}, trace.Steps[0].Sources[0])
	assert.Contains(t, trace.Unknown, change.Notes[0])
}

func TestAWindowTellsTheSourceOfEachDeployment(t *testing.T) {
	t.Parallel()
	object := moved()
	object.Deployments = slices.Insert(object.Deployments, 0, gitopsprovider.Deployment{At: at("13:00"), Revisions: []gitopsprovider.DeployedRevision{{
		Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/other", Path: "new", Revision: commitC,
	}}})
	object.Sources[0].Applied = commitC
	list := changes(t, &repository{}, newMemory(object), lastHours, gitopsprovider.Selector{})
	var got []string
	for _, change := range list.Changes {
		got = append(got, fmt.Sprintf("%s %s %s %s %.3s from %.3s", change.DeployedAt.Format("15:04"), change.Source.URL, change.Source.Branch, change.Path, change.ToCommit, change.FromCommit))
	}
	assert.Equal(t, []string{
		"13:00 https://git.example.com/acme/other next new ccc from ",
		"12:00 " + shopURL + "  old bbb from aaa",
		"10:00 " + shopURL + "  old aaa from ",
	}, got)
}

func TestAnApplierThatAppliedNothingHasNoChange(t *testing.T) {
	t.Parallel()
	list := changesNow(t, repo("ns/r", shopURL), app("ns/a", applies("Repo ns/r", "", "")))
	assert.Equal(t, []gitopsprovider.Change{}, list.Changes, "an empty list in JSON, not null")
}

func TestASelectorMatchesTheAppliersNamespaceAndItsTarget(t *testing.T) {
	t.Parallel()
	into := func(namespace string) func(*gitopsprovider.Object) {
		return func(o *gitopsprovider.Object) { o.TargetNamespace = namespace }
	}
	uses := applies("Repo flux/r", "", "main@sha1:"+commitA)
	m := newMemory(repo("flux/r", shopURL), app("flux/a", uses, into("shop")), app("shop/b", uses), app("flux/c", uses, into("other")), app("shop/d", uses, into("other")))
	for sel, want := range map[gitopsprovider.Selector][]string{
		{}:                                {"flux/a", "flux/c", "shop/b", "shop/d"},
		{Namespace: "shop"}:               {"flux/a", "shop/b", "shop/d"},
		{Namespace: "shop", Name: "b"}:    {"shop/b"},
		{Name: "c"}:                       {"flux/c"},
		{Kind: "App", Namespace: "other"}: {"flux/c", "shop/d"},
		{Kind: "Other"}:                   {},
		{Namespace: "nowhere"}:            {},
	} {
		got := []string{}
		for _, change := range changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{}, sel).Changes {
			got = append(got, change.Workload.Namespace+"/"+change.Workload.Name)
		}
		assert.Equal(t, want, got, "%+v", sel)
	}
}

func TestAKindThatIsNoAppliersIsSaid(t *testing.T) {
	t.Parallel()
	list := changes(t, gitopsprovider.NoDiffer{}, newMemory(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Kind: "Repo"})
	assert.Empty(t, list.Changes)
	assert.Equal(t, []gitopsprovider.Read{{Kind: "Repo", Answer: gitopsprovider.AnswerNone, Message: "nothing was read: no engine here has appliers of kind Repo"}}, list.Reads)
	assert.NoError(t, list.Err())
}

func TestEachKindIsListedOnceAndNoObjectIsRead(t *testing.T) {
	t.Parallel()
	objects := []gitopsprovider.Object{repo("ns/r", shopURL), {
		Workload: workload("Chart", "ns/c"), Source: &gitopsprovider.Source{Revision: "1"},
		Sources: []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{Object: workload("Repo", "ns/r")}}},
	}}
	for i := range 100 {
		objects = append(objects, app(fmt.Sprintf("ns/a%d", i), applies("Repo ns/r", "", commitA)), app(fmt.Sprintf("ns/b%d", i), applies("Chart ns/c", "", "1")))
	}
	m := newMemory(objects...)
	list := changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	assert.Len(t, list.Changes, 200)
	assert.Equal(t, map[string]int{"App in all": 1, "Repo in all": 1, "Chart in all": 1}, m.lists)
	assert.Empty(t, m.gets)
}

func TestWhatAnEmptyListEstablishes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		answer gitopsprovider.Answer
		fails  string
	}{
		"nothing is deployed":   {nil, gitopsprovider.AnswerFound, ""},
		"no engine is there":    {notServed(), gitopsprovider.AnswerNotServed, ""},
		"a forbidden list":      {forbidden("apps"), gitopsprovider.AnswerForbidden, "this identity may not read the objects of kind App in cluster test"},
		"a list without answer": {errSilent, gitopsprovider.AnswerUnknown, "the objects of kind App in cluster test could not be read: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			m.failing["App"] = test.err
			list := changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
			assert.Empty(t, list.Changes)
			require.Len(t, list.Reads, 1)
			assert.Equal(t, test.answer, list.Reads[0].Answer)
			assert.Equal(t, "App", list.Reads[0].Kind)
			if test.fails == "" {
				assert.NoError(t, list.Err())
			} else {
				assert.ErrorContains(t, list.Err(), test.fails)
			}
		})
	}
}

func TestAnIdentityOfOneNamespaceSeesThatNamespace(t *testing.T) {
	t.Parallel()
	m := newMemory(app("ns/a", applies("Repo ns/r", "", "main@sha1:"+commitA)), app("other/a", applies("Repo ns/r", "", "main@sha1:"+commitA)), repo("ns/r", shopURL))
	m.failing["App"], m.failing["Repo"] = forbidden("apps"), forbidden("repos")
	list := changes(t, gitopsprovider.NoDiffer{}, m, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: "ns"})

	require.Len(t, list.Changes, 1)
	assert.Equal(t, commitA, list.Changes[0].ToCommit)
	require.Len(t, list.Reads, 2)
	assert.Equal(t, "ns", list.Reads[0].Namespace)
	assert.Equal(t, gitopsprovider.AnswerFound, list.Reads[0].Answer)
	assert.Contains(t, list.Reads[0].Message, "may list the objects of kind App in namespace ns alone")
}
