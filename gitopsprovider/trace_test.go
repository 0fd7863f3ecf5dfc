package gitopsprovider_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func trace(t *testing.T, w gitopsprovider.Workload, readers ...gitopsprovider.Reader) gitopsprovider.Trace {
	t.Helper()
	trace, err := views(t, gitopsprovider.NoDiffer{}, readers...).Trace(t.Context(), w)
	require.NoError(t, err)
	return trace
}

// steps are the objects of a trace with what led to them.
func steps(trace gitopsprovider.Trace) []string {
	var steps []string
	for _, step := range trace.Steps {
		text := step.Workload.String()
		if step.By != "" {
			text += " by " + step.By
		}
		if step.Confirmed {
			text += ", confirmed"
		}
		if step.Answer != gitopsprovider.AnswerFound {
			text += ", " + string(step.Answer)
		}
		steps = append(steps, text)
	}
	return steps
}

var configMap = gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "ns", Name: "cm"}

func plain(w gitopsprovider.Workload, set ...func(*gitopsprovider.Object)) gitopsprovider.Object {
	return with(gitopsprovider.Object{Workload: w}, set...)
}

func TestATraceLeadsUpToRepositoryPathAndCommit(t *testing.T) {
	t.Parallel()
	m := newMemory(
		plain(configMap, labelled("Delivery", "App/ns/web")),
		app("ns/web", applies("Chart flux/web", "", "1.2.3"), made(configMap), labelled("Delivery", "App/flux/all")),
		app("flux/all", applies("Repo flux/main", "apps/shop", "main@sha1:"+commitA), made(workload("App", "ns/web"), workload("App", "flux/all")),
			labelled("Delivery", "App/flux/all")),
		repo("flux/main", "https://git.example.com/acme/shop"),
		gitopsprovider.Object{Workload: workload("Chart", "flux/web"), Ready: ready, Source: &gitopsprovider.Source{
			Type: gitopsprovider.SourceHelm, URL: "https://charts.example.com", Revision: "1.2.3",
		}},
	)
	got := trace(t, configMap, m)

	assert.Equal(t, []string{"ConfigMap ns/cm", "App ns/web by label Delivery, confirmed", "App flux/all by label Delivery, confirmed"}, steps(got))
	assert.Empty(t, got.Unknown)
	origin := got.Origin()
	assert.Equal(t, "https://git.example.com/acme/shop", origin.Source.URL)
	assert.Equal(t, "apps/shop", origin.Path)
	assert.Equal(t, commitA, origin.Commit)
	assert.Equal(t, "main@sha1:"+commitA, origin.Revision)
	require.Len(t, got.Steps[1].Sources, 1)
	assert.Equal(t, gitopsprovider.SourceHelm, got.Steps[1].Sources[0].Source.Type)
	for w, gets := range m.gets {
		assert.Equal(t, 1, gets, "reads of %s", w)
	}
	assert.Empty(t, m.lists)
}

// Whoever manages the applier has the applier's manifest in its own repository, and not the object's.
func TestTheOriginOfAnObjectIsThatOfTheNearestApplier(t *testing.T) {
	t.Parallel()
	m := newMemory(
		plain(configMap, labelled("Delivery", "App/ns/web")),
		app("ns/web", applies("Repo ns/web", "deploy", "main@sha1:"+commitA), made(configMap), labelled("Delivery", "App/flux/all")),
		app("flux/all", applies("Repo flux/main", "clusters/prod", "main@sha1:"+commitB), made(workload("App", "ns/web"))),
		repo("ns/web", "https://git.example.com/acme/web"),
		repo("flux/main", "https://git.example.com/acme/fleet"),
	)
	origin := trace(t, configMap, m).Origin()
	assert.Equal(t, "https://git.example.com/acme/web", origin.Source.URL)
	assert.Equal(t, "deploy", origin.Path)
	assert.Equal(t, commitA, origin.Commit)
	assert.Equal(t, "clusters/prod", trace(t, workload("App", "ns/web"), m).Origin().Path, "the manifest of the applier itself")
}

func TestWhatATraceEstablishes(t *testing.T) {
	t.Parallel()
	pod := gitopsprovider.Workload{Kind: "Pod", Namespace: "ns", Name: "web-1-x"}
	set := gitopsprovider.Workload{Group: "apps", Kind: "ReplicaSet", Namespace: "ns", Name: "web-1"}
	for name, test := range map[string]struct {
		objects []gitopsprovider.Object
		failing map[string]error
		of      gitopsprovider.Workload
		steps   []string
		unknown []string
	}{
		"an object that is absent": {
			of: configMap, steps: []string{"ConfigMap ns/cm, Absent"},
			unknown: []string{"ConfigMap ns/cm in cluster test does not exist"},
		},
		"an object without marks": {
			objects: []gitopsprovider.Object{plain(configMap)},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"no label, annotation or owner of ConfigMap ns/cm in cluster test names what manages it"},
		},
		"an owner leads to what is marked": {
			objects: []gitopsprovider.Object{
				plain(pod, func(o *gitopsprovider.Object) { o.Owners = []gitopsprovider.Workload{set} }),
				plain(set, labelled("Delivery", "App/ns/web")), app("ns/web", made(set)),
			},
			of: pod, steps: []string{"Pod ns/web-1-x", "ReplicaSet ns/web-1 by ownerReference", "App ns/web by label Delivery, confirmed"},
		},
		"a mark that was left behind": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/ns/web")), app("ns/web", made(workload("App", "ns/other")))},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App ns/web by label Delivery"},
			unknown: []string{"ConfigMap ns/cm names App ns/web by label Delivery, which does not list it among what it applied: the mark may have been left behind"},
		},
		"a manager that lists nothing is neither confirmed nor doubted": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/ns/web")), app("ns/web")},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App ns/web by label Delivery"},
		},
		"a manager that is gone": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/ns/web"))},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App ns/web by label Delivery, Absent"},
			unknown: []string{"App ns/web in cluster test does not exist"},
		},
		"a manager that may not be read": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/ns/web"))}, failing: map[string]error{"App": errSilent},
			of: configMap, steps: []string{"ConfigMap ns/cm", "App ns/web by label Delivery, Unknown"},
			unknown: []string{"App ns/web in cluster test could not be read: connection refused"},
		},
		"a mark that was copied with its object": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery/copied", "App/ns/web")), app("ns/web")},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{
				"ConfigMap ns/cm has label Delivery/copied, which is not about it: it names another object",
				"no label, annotation or owner of ConfigMap ns/cm in cluster test names what manages it",
			},
		},
		"a manager that deploys into another cluster": {
			objects: []gitopsprovider.Object{
				plain(configMap, labelled("Delivery", "App/ns/web")), app("ns/web", made(configMap), func(o *gitopsprovider.Object) { o.TargetCluster = "edge" }),
			},
			of: configMap, steps: []string{"ConfigMap ns/cm", "App ns/web by label Delivery"},
			unknown: []string{"App ns/web deploys into a cluster that it names (edge): whether that is this one is not known, so that the ConfigMap ns/cm which it lists may be another"},
		},
		"a shared mark of one that deploys into another cluster": {
			objects: []gitopsprovider.Object{
				plain(configMap, labelled("Delivery/shared", "App/*/web")), app("ns/web", made(configMap), func(o *gitopsprovider.Object) { o.TargetCluster = "edge" }),
			},
			of: configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"no label, annotation or owner of ConfigMap ns/cm in cluster test names what manages it"},
		},
		"a mark without a namespace": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web")), app("somewhere/web"), app("somewhere/other")},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App somewhere/web by label Delivery"},
		},
		"of two with that name the one that lists the object": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web")), app("one/web"), app("two/web", made(configMap))},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App two/web by label Delivery, confirmed"},
		},
		"two with that name": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web")), app("one/web"), app("two/web")},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{
				"ConfigMap ns/cm names its manager by label Delivery, which several have: [App one/web App two/web]",
			},
		},
		"a mark of a manager that is gone": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web")), app("ns/other")},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"ConfigMap ns/cm names App web by label Delivery, which does not exist"},
		},
		"a mark of a kind that is not served": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web"))}, failing: map[string]error{"App": notServed()},
			of: configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"ConfigMap ns/cm names App web by label Delivery, which does not exist"},
		},
		"a mark whose appliers cannot be listed": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "App/*/web"))}, failing: map[string]error{"App": errSilent},
			of: configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"whether a App manages ConfigMap ns/cm by label Delivery is not known: they could not be listed"},
		},
		"a label that others use counts if it is confirmed": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery/shared", "App/*/web")), app("two/web", made(configMap))},
			of:      configMap, steps: []string{"ConfigMap ns/cm", "App two/web by label Delivery/shared, confirmed"},
		},
		"a label that others use does not count by itself": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery/shared", "App/*/web")), app("two/web")},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{"no label, annotation or owner of ConfigMap ns/cm in cluster test names what manages it"},
		},
		"a label whose appliers cannot be listed": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery/shared", "App/*/web"))}, failing: map[string]error{"App": forbidden("apps")},
			of: configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{
				"whether a App manages ConfigMap ns/cm by label Delivery/shared is not known: they could not be listed",
			},
		},
		"a release that an applier deploys": {
			objects: []gitopsprovider.Object{
				plain(configMap, labelled("Delivery", "release/ns/web")),
				app("ns/web-release", func(o *gitopsprovider.Object) { o.Release = gitopsprovider.Release{Namespace: "ns", Name: "web"} }),
			},
			of: configMap, steps: []string{"ConfigMap ns/cm", "App ns/web-release by label Delivery"},
		},
		"a release that was installed by hand": {
			objects: []gitopsprovider.Object{plain(configMap, labelled("Delivery", "release/ns/web"))},
			of:      configMap, steps: []string{"ConfigMap ns/cm"},
			unknown: []string{
				"ConfigMap ns/cm is of the Helm release ns/web (label Delivery), which no App of the cluster deploys: it was installed by other means",
			},
		},
		"a source that is gone": {
			objects: []gitopsprovider.Object{app("ns/web", applies("Repo ns/gone", "", "main@sha1:"+commitA))},
			of:      workload("App", "ns/web"), steps: []string{"App ns/web"},
			unknown: []string{
				"Repo ns/gone in cluster test does not exist",
				"no label, annotation or owner of App ns/web in cluster test names what manages it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(test.objects...)
			for kind, err := range test.failing {
				m.failing[kind] = err
			}
			got := trace(t, test.of, m)
			assert.Equal(t, test.steps, steps(got))
			assert.Equal(t, test.unknown, got.Unknown)
		})
	}
}

func TestTwoEnginesThatClaimAnObjectAreBothNamed(t *testing.T) {
	t.Parallel()
	other := newMemory()
	other.engine = "Other"
	m := newMemory(plain(configMap, labelled("Delivery", "App/ns/web"), labelled("Other", "App/ns/rival")), app("ns/web", made(configMap)))
	got := trace(t, configMap, m, other)
	assert.Equal(t, []string{"ConfigMap ns/cm", "App ns/web by label Delivery, confirmed"}, steps(got))
	assert.Equal(t, []string{"ConfigMap ns/cm is marked as managed by App ns/rival as well, by label Other"}, got.Unknown)
}

func TestATraceEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	_, err := views(t, gitopsprovider.NoDiffer{}, newMemory()).Trace(ctx, configMap)
	require.ErrorIs(t, err, errSilent)
}

// Values that lie beside a chart are where to change it only if the chart itself is in no repository.
func TestAnOriginIsWhatIsAppliedBeforeWhatIsLent(t *testing.T) {
	t.Parallel()
	values := gitopsprovider.TraceSource{Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/values", Lends: true}}
	helm := gitopsprovider.TraceSource{Source: gitopsprovider.Source{Type: gitopsprovider.SourceHelm}}
	git := gitopsprovider.TraceSource{Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: shopURL}}
	of := func(sources ...gitopsprovider.TraceSource) gitopsprovider.Trace {
		return gitopsprovider.Trace{Steps: []gitopsprovider.TraceStep{{}, {Sources: sources}, {Sources: []gitopsprovider.TraceSource{git}}}}
	}
	assert.Equal(t, git, of(values, git).Origin())
	assert.Equal(t, values, of(values, helm).Origin())
}
