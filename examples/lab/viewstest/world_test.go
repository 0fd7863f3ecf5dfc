package viewstest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// A world is a namespace of the lab, and a repository whose commits are applied there.
type world struct {
	*testing.T
	lab   *lab.Lab
	ns    string
	repo  *lab.Repository
	asked int
	// commits are those made so far.
	commits []string
}

func newWorld(t *testing.T, l *lab.Lab) *world {
	t.Helper()
	return &world{T: t, lab: l, ns: l.Namespace(t), repo: l.Repository(t)}
}

// inLab is the world of a test that shares the lab with others.
func inLab(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newWorld(t, lab.Start(t))
}

// viewsAs are the views of an identity.
func viewsAs(t testing.TB, config *rest.Config) *gitopsprovider.Views {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	differ, err := gitdiff.New(gitdiff.Options{Dir: t.TempDir()})
	require.NoError(t, err)
	views, err := gitopsprovider.New("lab", differ, flux.NewReader(client), argocd.NewReader(client))
	require.NoError(t, err)
	return views
}

func (w *world) views() *gitopsprovider.Views {
	w.Helper()
	return viewsAs(w, w.lab.RESTConfig())
}

func (w *world) commit(files lab.Files) string {
	w.Helper()
	w.commits = append(w.commits, w.repo.Commit(w, files))
	return w.commits[len(w.commits)-1]
}

// source creates the GitRepository of the world.
func (w *world) source() {
	w.Helper()
	w.lab.GitRepository(w, w.ns, "source", w.repo)
}

// kustomization creates a Kustomization that applies a folder.
func (w *world) kustomization(name, folder string, mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	w.lab.Kustomization(w, w.ns, name, "source", append(mutate, lab.Set("./"+folder, "spec", "path"))...)
}

// application creates an Application that syncs a folder.
func (w *world) application(name, folder string, mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	w.lab.Application(w, w.ns, name, w.repo, append(mutate, lab.Set(folder, "spec", "source", "path"), lab.Set(int64(0), "spec", "syncPolicy", "retry", "limit"))...)
}

func (w *world) wait(resource schema.GroupVersionResource, name string, condition lab.Condition) *unstructured.Unstructured {
	w.Helper()
	return w.lab.WaitFor(w, resource, w.ns, name, condition)
}

// merge changes an object by a merge patch.
func (w *world) merge(resource schema.GroupVersionResource, name string, patch map[string]any) {
	w.Helper()
	body, err := json.Marshal(patch)
	require.NoError(w, err)
	_, err = w.lab.Dynamic().Resource(resource).Namespace(w.ns).Patch(w.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(w, err)
}

func (w *world) annotate(resource schema.GroupVersionResource, name, annotation, value string) {
	w.Helper()
	w.merge(resource, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
}

// fetch has source-controller look at the repository.
func (w *world) fetch() {
	w.Helper()
	w.asked++
	token := fmt.Sprint(w.asked)
	w.annotate(lab.GitRepositories, "source", "reconcile.fluxcd.io/requestedAt", token)
	w.wait(lab.GitRepositories, "source", lab.Handled(token))
}

// sync asks an Application for a commit, and returns how that ended.
func (w *world) sync(name, commit string) error {
	w.Helper()
	client, err := argocd.New("lab", w.lab.Dynamic(), argocd.Options{Initiator: "viewstest"})
	require.NoError(w, err)
	_, err = applier.Apply(w.Context(), client, types.NamespacedName{Namespace: w.ns, Name: name}, applier.Ask{
		Want: applier.Binding{Repository: w.repo.URL(), Branch: lab.DefaultBranch}, Commit: commit,
	}, nil)
	return err
}

// synced syncs a commit, and waits until the Application was compared again.
func (w *world) synced(name, commit string) {
	w.Helper()
	require.NoError(w, w.sync(name, commit))
	w.wait(lab.Applications, name, compared)
}

// compared is satisfied by an Application that was judged since its last sync.
func compared(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	finished, _, _ := unstructured.NestedString(object.Object, "status", "operationState", "finishedAt")
	judged, _, _ := unstructured.NestedString(object.Object, "status", "reconciledAt")
	health, _, _ := unstructured.NestedString(object.Object, "status", "health", "status")
	return finished != "" && judged >= finished && health == "Healthy"
}

// of names an object in the world's namespace.
func (w *world) of(kind, name string) gitopsprovider.Workload {
	return gitopsprovider.Workload{Kind: kind, Namespace: w.ns, Name: name}
}

// changes are those of an applier, and of nothing else.
func (w *world) changes(views *gitopsprovider.Views, window gitopsprovider.TimeWindow, kind, name string) []gitopsprovider.Change {
	w.Helper()
	list, err := views.Changes(w.Context(), window, gitopsprovider.Selector{Namespace: w.ns, Kind: kind, Name: name})
	require.NoError(w, err)
	require.NoError(w, list.Err())
	require.False(w, list.Cut)
	return list.Changes
}

// theChange is the one change of an applier.
func (w *world) theChange(views *gitopsprovider.Views, kind, name string) gitopsprovider.Change {
	w.Helper()
	changes := w.changes(views, gitopsprovider.TimeWindow{}, kind, name)
	require.Len(w, changes, 1)
	return changes[0]
}

// commitsOf are the commits of changes, in their order.
func commitsOf(changes []gitopsprovider.Change) []string {
	var commits []string
	for _, change := range changes {
		commits = append(commits, change.ToCommit)
	}
	return commits
}

// currentOf tells which changes are current.
func currentOf(changes []gitopsprovider.Change) []bool {
	var current []bool
	for _, change := range changes {
		current = append(current, change.Current)
	}
	return current
}

var (
	update = flag.Bool("update", false, "write the golden files")

	// What differs from run to run.
	folders = regexp.MustCompile(`/[^ ']*kustomization-[0-9]+`)
	chart   = regexp.MustCompile(`\+[0-9a-f]{12}`)
)

// golden compares a text with a file, without what differs from run to run.
func (w *world) golden(name, got string) {
	w.Helper()
	for i, commit := range w.commits {
		got = strings.ReplaceAll(got, commit, fmt.Sprintf("COMMIT%d", i+1))
		got = strings.ReplaceAll(got, commit[:12], fmt.Sprintf("COMMIT%d", i+1))
	}
	got = strings.ReplaceAll(strings.ReplaceAll(got, w.repo.URL(), "URL"), w.ns, "NAMESPACE")
	got = chart.ReplaceAllString(folders.ReplaceAllString(got, "FOLDER"), "+COMMIT")
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(w, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(w, err)
	assert.Equal(w, string(want), got)
}

// failing is satisfied by an object that has the condition Ready False, whatever the reason.
func failing(object *unstructured.Unstructured) bool {
	if object == nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Ready" {
			return condition["status"] == "False"
		}
	}
	return false
}

const template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  key: "

// release creates a HelmRelease of a chart in the folder charts/NAME, and returns the commit that it was deployed from.
func (w *world) release(name string, mutate ...func(*unstructured.Unstructured)) string {
	w.Helper()
	commit := w.chart(name, "one")
	w.source()
	w.lab.HelmRelease(w, w.ns, name, "source", "./charts/"+name, mutate...)
	w.wait(lab.HelmReleases, name, lab.Released(commit))
	return commit
}

// chart commits a chart with one ConfigMap that holds a value.
func (w *world) chart(name, value string) string {
	w.Helper()
	return w.commit(lab.Chart("charts/"+name, "0.1.0", lab.Files{"cm.yaml": template + value + "\n"}))
}
