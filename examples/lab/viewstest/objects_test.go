package viewstest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// reading are the rules that let an identity read a group's kinds.
func reading(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list"}}
}

func TestTheStatusOfAFailureHasItsEvents(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "one"), "web/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.source()
	w.kustomization("app", "app")
	w.kustomization("app-2", "web")
	w.wait(lab.Kustomizations, "app", lab.Applied(first))
	w.wait(lab.Kustomizations, "app-2", lab.Applied(first))
	w.commit(lab.Files{"app/cm.yaml": "kind: [\n"})
	w.fetch()
	w.wait(lab.Kustomizations, "app", lab.Failed("BuildFailed"))

	// An identity may read one API of Events or the other: the server shows the same Events in both.
	kustomizations := reading("kustomize.toolkit.fluxcd.io", "kustomizations")
	of := func(rules ...rbacv1.PolicyRule) gitopsprovider.ResourceStatus {
		views := viewsAs(t, w.lab.ServiceAccount(t, w.ns, append(rules, kustomizations)...))
		status, err := views.ResourceStatus(t.Context(), w.of("Kustomization", "app"))
		require.NoError(t, err)
		return status
	}
	var core gitopsprovider.ResourceStatus
	require.Eventually(t, func() bool { // Events are written a moment after the status
		core = of(reading("", "events"))
		return len(core.Events) > 0 && core.Events[len(core.Events)-1].Reason == "BuildFailed"
	}, lab.WaitTimeout, 200*time.Millisecond)
	assert.Equal(t, gitopsprovider.StateFailing, core.Ready.State)
	assert.Equal(t, "BuildFailed", core.Ready.Reason)
	assert.Contains(t, core.References, gitopsprovider.Reference{Field: "sourceRef", Value: "GitRepository " + w.ns + "/source"})
	assert.Equal(t, "Progressing", core.Events[0].Reason, "the oldest comes first")
	last := core.Events[len(core.Events)-1]
	assert.True(t, last.Warning)
	assert.Equal(t, "kustomize-controller", last.From)
	for _, event := range core.Events {
		assert.False(t, event.Time.IsZero())
		assert.NotContains(t, event.Message, "app-2", "an object whose name begins the same")
	}
	assert.Equal(t, core.Events, of(reading("events.k8s.io", "events")).Events)
	assert.Equal(t, core.Events, of(reading("events.k8s.io", "events"), reading("", "events")).Events)

	none := of()
	assert.Equal(t, gitopsprovider.AnswerFound, none.Answer)
	assert.Equal(t, gitopsprovider.AnswerForbidden, none.EventsAnswer)
	assert.Contains(t, none.EventsMessage, "grant it")
}

func TestTheStatusOfEveryKind(t *testing.T) {
	w := inLab(t)
	w.commit(lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.release("app")
	w.lab.ApplicationSet(t, w.ns, "set", w.repo, []string{"one"})
	w.wait(lab.Applications, "one", generated)
	w.wait(lab.ApplicationSets, "set", upToDate)
	w.wait(lab.Applications, "one", judged)
	views := w.views()
	for name, test := range map[string]struct {
		workload gitopsprovider.Workload
		state    gitopsprovider.State
		reason   string
	}{
		"a release":        {w.of("HelmRelease", "app"), gitopsprovider.StateReady, "InstallSucceeded"},
		"its chart":        {w.of("HelmChart", w.ns+"-app"), gitopsprovider.StateReady, "ChartPackageSucceeded"},
		"its source":       {w.of("GitRepository", "source"), gitopsprovider.StateReady, "Succeeded"},
		"a set":            {w.of("ApplicationSet", "set"), gitopsprovider.StateReady, "ApplicationSetUpToDate"},
		"its application":  {w.of("Application", "one"), gitopsprovider.StateUnknown, "NeverSynced"},
		"what is applied":  {w.of("ConfigMap", "app"), gitopsprovider.StateUnknown, ""},
		"an unknown group": {gitopsprovider.Workload{Group: "example.com", Kind: "Widget", Namespace: w.ns, Name: "app"}, gitopsprovider.StateUnknown, ""},
	} {
		status, err := views.ResourceStatus(t.Context(), test.workload)
		require.NoError(t, err, name)
		assert.Equal(t, test.state, status.Ready.State, name)
		assert.Equal(t, test.reason, status.Ready.Reason, name)
		want := gitopsprovider.AnswerFound
		if test.workload.Kind == "Widget" {
			want = gitopsprovider.AnswerUnknown // Its plural is guessed.
			assert.Contains(t, status.Message, "guessed", name)
		}
		assert.Equal(t, want, status.Answer, name)
	}
}

func TestWhatIsAppliedIsTracedToItsCommit(t *testing.T) {
	w := inLab(t)
	w.commit(lab.Files{
		"all/ks.yaml": w.applied("app"), "app/cm.yaml": lab.ConfigMap("of-flux", "key", "one"), "argo/cm.yaml": lab.ConfigMap("of-argo", "key", "one"),
	})
	commit := w.chart("release", "one")
	w.source()
	w.kustomization("all", "all")
	w.lab.HelmRelease(t, w.ns, "release", "source", "./charts/release")
	w.application("argo", "argo")
	w.wait(lab.Kustomizations, "app", lab.Applied(commit))
	w.wait(lab.HelmReleases, "release", lab.Released(commit))
	w.synced("argo", commit)

	views := w.views()
	for name, want := range map[string]struct {
		managers []string
		path     string
	}{
		"of-flux": {[]string{"Kustomization app", "Kustomization all"}, "app"},
		"release": {[]string{"HelmRelease release"}, "charts/release"},
		"of-argo": {[]string{"Application argo"}, "argo"},
	} {
		trace, err := views.Trace(t.Context(), w.of("ConfigMap", name))
		require.NoError(t, err)
		var managers []string
		for _, step := range trace.Steps[1:] {
			managers = append(managers, step.Workload.Kind+" "+step.Workload.Name)
			assert.True(t, step.Confirmed, "%s lists %s", step.Workload, name)
			assert.Equal(t, gitopsprovider.StateReady, step.Ready.State)
		}
		assert.Equal(t, want.managers, managers)
		sources := trace.Steps[1].Sources
		require.Len(t, sources, 1)
		assert.Equal(t, []string{w.repo.URL(), want.path, commit}, []string{sources[0].Source.URL, sources[0].Path, sources[0].Commit}, name)
	}
	trace, err := views.Trace(t.Context(), w.of("ConfigMap", "of-flux"))
	require.NoError(t, err)
	assert.Equal(t, "app", trace.Origin().Path, "where to change it for good")
}

// Who copies an object copies its labels and annotations.
func TestACopyOfWhatIsAppliedIsNotTakenForIt(t *testing.T) {
	w := inLab(t)
	commit := w.commit(lab.Files{"flux/cm.yaml": lab.ConfigMap("of-flux", "key", "one"), "argo/cm.yaml": lab.ConfigMap("of-argo", "key", "one")})
	w.source()
	w.kustomization("flux", "flux")
	w.application("argo", "argo")
	w.wait(lab.Kustomizations, "flux", lab.Applied(commit))
	w.synced("argo", commit)
	for _, name := range []string{"of-flux", "of-argo"} {
		object := w.lab.Get(t, lab.ConfigMaps, w.ns, name)
		w.lab.Create(t, lab.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": object.Object["data"], "metadata": map[string]any{
				"namespace": w.ns, "name": name + "-copy", "labels": object.Object["metadata"].(map[string]any)["labels"],
				"annotations": object.Object["metadata"].(map[string]any)["annotations"],
			},
		}})
	}
	views := w.views()
	trace, err := views.Trace(t.Context(), w.of("ConfigMap", "of-flux-copy"))
	require.NoError(t, err)
	require.Len(t, trace.Steps, 2)
	assert.False(t, trace.Steps[1].Confirmed, "a label names the Kustomization, which lists no such object")
	require.NotEmpty(t, trace.Unknown)
	assert.Contains(t, trace.Unknown[0], "the mark may have been left behind")
	trace, err = views.Trace(t.Context(), w.of("ConfigMap", "of-argo-copy"))
	require.NoError(t, err)
	assert.Len(t, trace.Steps, 1, "the annotation names another object")
	require.NotEmpty(t, trace.Unknown)
	assert.Contains(t, trace.Unknown[0], "it names /ConfigMap:"+w.ns+"/of-argo")
}

// An identity that may read one kind has an answer about that kind, and is told about the others.
func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	w := inLab(t)
	w.all()
	config := w.lab.ClusterServiceAccount(t, w.ns, reading("kustomize.toolkit.fluxcd.io", "kustomizations"), reading("source.toolkit.fluxcd.io", "gitrepositories"))
	views := viewsAs(t, config)

	list, err := views.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: w.ns})
	require.NoError(t, err)
	applied := slices.DeleteFunc(list.Changes, func(c gitopsprovider.Change) bool { return c.ToRev == "" })
	require.Len(t, applied, 1)
	assert.Equal(t, "all", applied[0].Workload.Name)
	assert.Equal(t, w.repo.URL(), applied[0].Source.URL)
	answers := map[string]gitopsprovider.Answer{}
	for _, read := range list.Reads {
		answers[read.Kind] = read.Answer
	}
	assert.Equal(t, map[string]gitopsprovider.Answer{
		"Kustomization": gitopsprovider.AnswerFound, "GitRepository": gitopsprovider.AnswerFound,
		"HelmRelease": gitopsprovider.AnswerForbidden, "Application": gitopsprovider.AnswerForbidden,
	}, answers)
	assert.ErrorContains(t, list.Err(), "this identity may not read the objects of kind HelmRelease in cluster lab: grant it")

	tree, err := views.DependencyTree(t.Context(), w.of("Kustomization", "all"))
	require.NoError(t, err)
	text := tree.Text()
	assert.Contains(t, text, "applies HelmRelease "+w.ns+"/release  Forbidden: this identity may not read HelmRelease")
	_, causes, _ := strings.Cut(text, "\nRoot causes:\n")
	assert.True(t, strings.HasPrefix(causes, "  Kustomization "+w.ns+"/db  Failing: BuildFailed"), causes)
	assert.NotContains(t, causes, "Forbidden", "what could not be read is not blamed")
}

// An identity of one namespace sees that namespace.
func TestAnIdentityOfOneNamespace(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.source()
	w.kustomization("app", "")
	w.wait(lab.Kustomizations, "app", lab.Applied(first))
	config := w.lab.ServiceAccount(t, w.ns, reading("kustomize.toolkit.fluxcd.io", "kustomizations"), reading("source.toolkit.fluxcd.io", "gitrepositories"))
	list, err := viewsAs(t, config).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: w.ns, Kind: "Kustomization"})
	require.NoError(t, err)
	require.NoError(t, list.Err())
	require.Equal(t, []string{first}, commitsOf(list.Changes))
	assert.Contains(t, list.Reads[0].Message+list.Reads[1].Message, "alone: those of other namespaces are missing")
}

// A cluster without the engines serves none of their kinds, and says so.
func TestAClusterWithoutEngines(t *testing.T) {
	t.Parallel()
	views := viewsAs(t, lab.StartBare(t).RESTConfig())
	list, err := views.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	require.NoError(t, err)
	assert.NoError(t, list.Err())
	assert.Empty(t, list.Changes)
	require.NotEmpty(t, list.Reads)
	for _, read := range list.Reads {
		assert.Equal(t, gitopsprovider.AnswerNotServed, read.Answer, read.Kind)
	}
	w := gitopsprovider.Workload{Kind: "Application", Namespace: "default", Name: "app"}
	tree, err := views.DependencyTree(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, "Application default/app  NotServed: Application default/app in cluster lab: the cluster does not serve this kind: is what defines it installed there?",
		strings.SplitN(tree.Text(), "\n", 2)[0])
	status, err := views.ResourceStatus(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.AnswerNotServed, status.Answer)
	trace, err := views.Trace(t.Context(), gitopsprovider.Workload{Kind: "Namespace", Name: "default"})
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.AnswerFound, trace.Steps[0].Answer)
	assert.Len(t, trace.Steps, 1)
}
