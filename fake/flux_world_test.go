package fake_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

const repositoryURL = "https://git.example.com/acme/shop"

// world is a cluster with Flux and a repository, in a bubble where time passes by itself.
type world struct {
	*testing.T
	cluster *fake.Cluster
	flux    *fake.Flux
	repo    *fake.Repository
	// called are the commits by the name that a test gave them.
	called map[string]string
	// observer is a client that no fault strikes.
	observer *flux.Client
	// standing is the commit that the artifact holds, for the flows that need not fetch, and standingValue its value.
	standing, standingValue string
}

// inWorld runs a test in a world of its own. Whatever it started has to be over when the cluster has stopped.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	inWorldOf(t, fake.FluxOptions{}, test)
}

func inWorldOf(t *testing.T, options fake.FluxOptions, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewCluster(fake.Options{Namespaces: []string{team, "team-b"}})
		defer cluster.Stop()
		simulated := fake.StartFlux(cluster, options)
		test(&world{T: t, cluster: cluster, flux: simulated, repo: simulated.Remote().Repository(repositoryURL), called: map[string]string{}})
	})
}

func value(value string) fake.Files { return fake.Files{"cm.yaml": configMap("cm", value)} }

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  key: %q\n", name, value)
}

// push commits to main, under a name that states are shown with.
func (w *world) push(name string, files fake.Files) string {
	commit := w.repo.Commit(files)
	w.called[commit] = name
	return commit
}

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, value, path...) }
}

func (w *world) create(gvr schema.GroupVersionResource, u *unstructured.Unstructured, mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	for _, f := range mutate {
		f(u)
	}
	_, err := w.cluster.Resource(gvr).Namespace(u.GetNamespace()).Create(w.Context(), u, metav1.CreateOptions{FieldManager: "creator"})
	require.NoError(w, err)
}

// source creates the GitRepository app.
func (w *world) source(mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	w.create(gitRepositories, fake.NewGitRepository(team, "app", repositoryURL), mutate...)
}

// kustomization creates the Kustomization app.
func (w *world) kustomization(mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	w.create(kustomizations, fake.NewKustomization(team, "app", "app"), mutate...)
}

// applied is a world whose Kustomization app has applied the commit one.
func (w *world) applied(mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	w.push("one", value("one"))
	w.source()
	synctest.Wait()
	w.kustomization(mutate...)
	synctest.Wait()
	require.Contains(w, w.ks("app"), "Ready=True", "at the start")
}

func (w *world) get(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	u, err := w.cluster.Resource(gvr).Namespace(team).Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return u
}

func (w *world) ks(name string) string {
	w.Helper()
	return w.show(w.get(kustomizations, name))
}

func (w *world) gr() string {
	w.Helper()
	return w.show(w.get(gitRepositories, "app"))
}

// message is that of the Ready condition.
func (w *world) message(gvr schema.GroupVersionResource, name string) string {
	w.Helper()
	message, _ := condition(w.get(gvr, name), "Ready")["message"].(string)
	return message
}

// hold applies spec.suspend and a token, as the library does.
func (w *world) hold(suspend bool, token string) {
	w.Helper()
	w.apply("lib-hold", map[string]any{"suspend": suspend}, token)
}

func (w *world) apply(manager string, spec map[string]any, token string) {
	w.Helper()
	body := map[string]any{
		"apiVersion": kustomizations.GroupVersion().String(), "kind": "Kustomization",
		"metadata": map[string]any{"name": "app", "namespace": team, "annotations": map[string]any{fluxmeta.ReconcileRequestAnnotation: token}},
		"spec":     spec,
	}
	_, err := w.cluster.Resource(kustomizations).Namespace(team).
		Apply(w.Context(), "app", &unstructured.Unstructured{Object: body}, metav1.ApplyOptions{FieldManager: manager, Force: true})
	require.NoError(w, err)
}

// stamp sets the reconcile request by a merge patch.
func (w *world) stamp(gvr schema.GroupVersionResource, token string) {
	w.Helper()
	w.patch(gvr, "app", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, fluxmeta.ReconcileRequestAnnotation, token))
}

// fetch makes source-controller look at the remote.
func (w *world) fetch() {
	w.Helper()
	w.stamp(gitRepositories, "fetch")
	synctest.Wait()
}

func (w *world) patch(gvr schema.GroupVersionResource, name, patch string) {
	w.Helper()
	_, err := w.cluster.Resource(gvr).Namespace(team).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "user"})
	require.NoError(w, err)
}

func (w *world) delete(gvr schema.GroupVersionResource) {
	w.Helper()
	require.NoError(w, w.cluster.Resource(gvr).Namespace(team).Delete(w.Context(), "app", metav1.DeleteOptions{}))
}

// data is what the ConfigMap of that name holds, and "" if there is none.
func (w *world) data(name string) string {
	u, err := w.cluster.Resource(configMaps).Namespace(team).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(u.Object, "data", "key")
	return text
}

// watch records the states of an object from now on. The returned function tells those so far, one a line.
func (w *world) watch(gvr schema.GroupVersionResource, name string) func() []string {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	watcher, err := w.cluster.Resource(gvr).Namespace(team).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(w, err)
	var mu sync.Mutex
	var seen []string
	go func() {
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			line := w.show(object)
			if event.Type != "MODIFIED" {
				line = string(event.Type) + " " + line
			}
			mu.Lock()
			seen = append(seen, line)
			mu.Unlock()
		}
	}()
	return func() []string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		out := seen
		seen = nil
		return out
	}
}

func condition(u *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}

// show is a line that says how an object stands.
func (w *world) show(u *unstructured.Unstructured) string {
	var line strings.Builder
	fmt.Fprintf(&line, "gen=%d", u.GetGeneration())
	if observed, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); found {
		fmt.Fprintf(&line, " og=%d", observed)
	}
	if handled, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt"); handled != "" {
		fmt.Fprintf(&line, " handled=%s", handled)
	}
	for _, kind := range []string{"Ready", "Reconciling", "Healthy", "ArtifactOutdated"} {
		if c := condition(u, kind); c != nil {
			fmt.Fprintf(&line, " %s=%s/%s@%v", kind, c["status"], c["reason"], c["observedGeneration"])
			if doing, _, found := strings.Cut(c["message"].(string), " for revision"); found && kind == "Reconciling" {
				fmt.Fprintf(&line, " (%s)", doing)
			}
		}
	}
	for _, field := range [][]string{{"att", "lastAttemptedRevision"}, {"app", "lastAppliedRevision"}, {"art", "artifact", "revision"}} {
		name, path := field[0], field[1:]
		if revision, _, _ := unstructured.NestedString(u.Object, append([]string{"status"}, path...)...); revision != "" {
			known := w.called[gitref.CommitOf(revision)]
			fmt.Fprintf(&line, " %s=%s", name, known)
		}
	}
	return line.String()
}

// after lets a time pass, and everything that happens in it.
func (w *world) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
