package viewstest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// manifest is the YAML of an object.
func (w *world) manifest(object *unstructured.Unstructured, mutate ...func(*unstructured.Unstructured)) string {
	w.Helper()
	for _, mutate := range mutate {
		mutate(object)
	}
	text, err := yaml.Marshal(object.Object)
	require.NoError(w, err)
	return string(text)
}

// applied is the manifest of a Kustomization of a folder of its own name.
func (w *world) applied(name string, dependsOn ...string) string {
	w.Helper()
	var dependencies []any
	for _, dependency := range dependsOn {
		dependencies = append(dependencies, map[string]any{"name": dependency})
	}
	kustomization := lab.NewKustomization(w.ns, name, "source")
	if len(dependencies) > 0 {
		lab.Set(dependencies, "spec", "dependsOn")(kustomization)
	}
	return w.manifest(kustomization, lab.Set("./"+name, "spec", "path"))
}

// all is a Kustomization that applies others, the last of which cannot be built, and a HelmRelease.
func (w *world) all() {
	w.Helper()
	files := lab.Chart("charts/app", "0.1.0", lab.Files{"cm.yaml": template + "one\n"})
	for path, content := range map[string]string{
		"all/db.yaml":      w.applied("db"),
		"all/queue.yaml":   w.applied("queue", "db"),
		"all/web.yaml":     w.applied("web", "queue"),
		"all/release.yaml": w.manifest(lab.NewHelmRelease(w.ns, "release", "source", "./charts/app")),
		"db/cm.yaml":       "kind: [\n",
		"queue/cm.yaml":    lab.ConfigMap("queue", "key", "one"),
		"web/cm.yaml":      lab.ConfigMap("web", "key", "one"),
	} {
		files[path] = content
	}
	commit := w.commit(files)
	w.source()
	w.kustomization("all", "all")
	w.wait(lab.Kustomizations, "all", lab.Applied(commit))
	w.wait(lab.HelmReleases, "release", lab.Released(commit))
	w.wait(lab.Kustomizations, "db", lab.Failed("BuildFailed"))
	w.wait(lab.Kustomizations, "queue", lab.Failed("DependencyNotReady"))
	w.wait(lab.Kustomizations, "web", lab.Failed("DependencyNotReady"))
}

func TestTreesOfFlux(t *testing.T) {
	w := inLab(t)
	w.all()
	views := w.views()
	for name, kind := range map[string]string{"all": "Kustomization", "web": "Kustomization", "release": "HelmRelease"} {
		tree, err := views.DependencyTree(t.Context(), w.of(kind, name))
		require.NoError(t, err)
		w.golden(name+".txt", tree.Text())
		w.golden(name+".mmd", tree.Mermaid())
	}
	tree, err := views.DependencyTree(t.Context(), w.of("Kustomization", "web"))
	require.NoError(t, err)
	roots := tree.RootCauses()
	require.Len(t, roots, 1)
	assert.Equal(t, "db", roots[0].Workload.Name)
}

// A HelmRelease says of a chart that cannot be made only that it is not ready.
func TestTheRootCauseOfAReleaseWithoutChart(t *testing.T) {
	w := inLab(t)
	w.commit(lab.Files{"README.md": "no chart"})
	w.source()
	w.lab.HelmRelease(t, w.ns, "app", "source", "./charts/app")
	w.wait(lab.HelmReleases, "app", failing)
	w.wait(lab.HelmCharts, w.ns+"-app", failing)
	views := w.views()
	var roots []*gitopsprovider.DepNode
	require.Eventually(t, func() bool { // the chart is retried, is at work in between, and may have come before the source was fetched
		tree, err := views.DependencyTree(t.Context(), w.of("HelmRelease", "app"))
		require.NoError(t, err)
		roots = tree.RootCauses()
		return len(roots) == 1 && roots[0].Workload.Kind == "HelmChart" && strings.Contains(roots[0].Ready.Message, "no such file or directory")
	}, lab.WaitTimeout, 200*time.Millisecond, "%v", roots)
}

// generated is satisfied by an Application that its set has made.
func generated(object *unstructured.Unstructured) bool {
	return object != nil && len(object.GetOwnerReferences()) == 1
}

func TestTreesOfArgoCD(t *testing.T) {
	w := inLab(t)
	child := lab.NewApplication(w.ns, "child", w.repo.URL())
	commit := w.commit(lab.Files{
		"apps/child.yaml":  w.manifest(child, lab.Set("child", "spec", "source", "path")),
		"apps/absent.yaml": w.manifest(lab.NewApplication(w.ns, "broken", w.repo.URL()), lab.Set("broken", "spec", "source", "path"), lab.Set(int64(0), "spec", "syncPolicy", "retry", "limit")),
		"child/cm.yaml":    lab.ConfigMap("child", "key", "one"),
		"broken/cm.yaml":   "apiVersion: v1\nkind: ConfigMap\nmetadata: [this is no manifest\n",
		"set/cm.yaml":      lab.ConfigMap("set", "key", "one"),
	})
	w.application("parent", "apps")
	w.lab.ApplicationSet(t, w.ns, "set", w.repo, []string{"one", "two"}, lab.Set("set", "spec", "template", "spec", "source", "path"))
	w.wait(lab.Applications, "one", generated)
	w.wait(lab.Applications, "two", generated)
	require.NoError(t, w.sync("parent", commit))
	w.synced("child", commit)
	assert.Error(t, w.sync("broken", commit))
	w.wait(lab.ApplicationSets, "set", upToDate)
	w.wait(lab.Applications, "parent", compared)
	w.wait(lab.Applications, "one", judged)
	w.wait(lab.Applications, "two", judged)

	views := w.views()
	for _, name := range []string{"parent", "one"} {
		tree, err := views.DependencyTree(t.Context(), w.of("Application", name))
		require.NoError(t, err)
		w.golden(name+".txt", tree.Text())
	}
	tree, err := views.DependencyTree(t.Context(), w.of("ApplicationSet", "set"))
	require.NoError(t, err)
	w.golden("set.txt", tree.Text())
}

// upToDate is satisfied by an ApplicationSet whose Applications are as it says.
func upToDate(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "ResourcesUpToDate" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// judged is satisfied by an Application whose health is known.
func judged(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	health, _, _ := unstructured.NestedString(object.Object, "status", "health", "status")
	return health != ""
}

// hasValue is satisfied by a ConfigMap whose key has a value.
func hasValue(value string) func(*unstructured.Unstructured) bool {
	return func(object *unstructured.Unstructured) bool {
		if object == nil {
			return false
		}
		got, _, _ := unstructured.NestedString(object.Object, "data", "key")
		return got == value
	}
}

// otherVersion is satisfied by an object that was written since it had a version.
func otherVersion(seen string) lab.Condition {
	return func(object *unstructured.Unstructured) bool {
		return object != nil && object.GetResourceVersion() != seen
	}
}
