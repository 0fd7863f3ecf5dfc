package fake_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/fake"
)

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

type fields = map[string]any

// argoWorld is a cluster with Argo CD and a repository, in a bubble where time passes by itself.
type argoWorld struct {
	*testing.T
	cluster *fake.Cluster
	argo    *fake.ArgoCD
	repo    *fake.Repository
	// called are the commits by the name that a test gave them.
	called map[string]string
}

// inArgo runs a test in a world of its own. Whatever it started has to be over when the cluster has stopped.
func inArgo(t *testing.T, test func(w *argoWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewCluster(fake.Options{Namespaces: []string{team, "team-b"}})
		defer cluster.Stop()
		simulated := fake.StartArgoCD(cluster, fake.ArgoCDOptions{})
		test(&argoWorld{T: t, cluster: cluster, argo: simulated, repo: simulated.Remote().Repository(repositoryURL), called: map[string]string{}})
	})
}

// push commits to main, under a name that states are shown with.
func (w *argoWorld) push(name string, files fake.Files) string {
	commit := w.repo.Commit(files)
	w.called[commit] = name
	return commit
}

func (w *argoWorld) applications() dynamic.ResourceInterface {
	return w.cluster.Resource(applications).Namespace(team)
}

// application creates the Application app, which nobody has synced.
func (w *argoWorld) application(mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	app := fake.NewApplication(team, "app", repositoryURL)
	for _, f := range mutate {
		f(app)
	}
	_, err := w.applications().Create(w.Context(), app, metav1.CreateOptions{FieldManager: "creator"})
	require.NoError(w, err)
	synctest.Wait()
}

// synced is a world whose Application app has synced the commit one, which has the ConfigMap cm.
func (w *argoWorld) synced(mutate ...func(*unstructured.Unstructured)) {
	w.Helper()
	one := w.push("one", value("one"))
	w.application(mutate...)
	w.operate(operation("first", fields{"revision": one}))
	require.Equal(w, `- Succeeded first sr=one hist=1 (successfully synced (all tasks run))`, w.app(), "at the start")
}

// operation is one with a token.
func operation(token string, sync fields, others ...fields) fields {
	o := fields{"sync": sync, "info": []any{fields{"name": "token", "value": token}}}
	for _, other := range others {
		for key, value := range other {
			o[key] = value
		}
	}
	return o
}

// operate sets .operation, and removes the record of the previous one, as Argo CD's API server does.
func (w *argoWorld) operate(operation fields) {
	w.Helper()
	w.update(func(app fields) {
		app["operation"] = operation
		unstructured.RemoveNestedField(app, "status", "operationState")
	})
}

// operateUncleared sets .operation, and leaves the record of the previous one.
func (w *argoWorld) operateUncleared(operation fields) {
	w.Helper()
	w.update(func(app fields) { app["operation"] = operation })
}

// update changes the Application, and waits until the controller has done what there is to do by then.
func (w *argoWorld) update(change func(app fields)) {
	w.Helper()
	app, err := w.applications().Get(w.Context(), "app", metav1.GetOptions{})
	require.NoError(w, err)
	change(app.Object)
	_, err = w.applications().Update(w.Context(), app, metav1.UpdateOptions{FieldManager: "somebody"})
	require.NoError(w, err)
	synctest.Wait()
}

func (w *argoWorld) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *argoWorld) get() *unstructured.Unstructured {
	w.Helper()
	app, err := w.applications().Get(w.Context(), "app", metav1.GetOptions{})
	require.NoError(w, err)
	return app
}

// app shows the operation of the Application.
func (w *argoWorld) app() string {
	w.Helper()
	return w.show(w.get())
}

// show is the token of .operation, the phase of the record, its token, the commit in its result, how many syncs the history
// has, and the message.
func (w *argoWorld) show(app *unstructured.Unstructured) string {
	var out strings.Builder
	if asked, ok := app.Object["operation"].(fields); ok {
		out.WriteString("op=" + tokenIn(asked))
	} else {
		out.WriteString("-")
	}
	state, _, _ := unstructured.NestedMap(app.Object, "status", "operationState")
	if state != nil {
		carried, _ := state["operation"].(fields)
		fmt.Fprintf(&out, " %v %s", state["phase"], tokenIn(carried))
		if result, ok := state["syncResult"].(fields); ok {
			fmt.Fprintf(&out, " sr=%v", w.name(result["revision"]))
		}
	}
	history, _, _ := unstructured.NestedSlice(app.Object, "status", "history")
	fmt.Fprintf(&out, " hist=%d", len(history))
	if message, ok := state["message"].(string); ok {
		out.WriteString(" (" + message + ")")
	}
	return out.String()
}

func (w *argoWorld) name(commit any) string {
	text, _ := commit.(string)
	if name, ok := w.called[text]; ok {
		return name
	}
	return text
}

func tokenIn(operation fields) string {
	info, _ := operation["info"].([]any)
	if len(info) == 0 {
		return "?"
	}
	return fmt.Sprint(info[0].(fields)["value"])
}

// field is a field of the Application.
func (w *argoWorld) field(path ...string) any {
	w.Helper()
	value, _, err := unstructured.NestedFieldCopy(w.get().Object, path...)
	require.NoError(w, err)
	return value
}

// data is the value of a ConfigMap, "" where there is none.
func (w *argoWorld) data(name string) string {
	w.Helper()
	u, err := w.cluster.Resource(configMaps).Namespace(team).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(w, err)
	value, _, _ := unstructured.NestedString(u.Object, "data", "key")
	return value
}

// timeline watches the Application, and returns a function that returns how it stood after each change so far.
func (w *argoWorld) timeline() (seen func() []string) {
	w.Helper()
	var lines []string
	stop := w.watchApp(func(app *unstructured.Unstructured) {
		if line := w.show(app); len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
	})
	return func() []string {
		stop()
		return lines
	}
}

// watch shows each record of an operation from now on, until the function that it returns is called.
func (w *argoWorld) watch(see func(state fields)) (stop func()) {
	w.Helper()
	return w.watchApp(func(app *unstructured.Unstructured) {
		if state, _, _ := unstructured.NestedMap(app.Object, "status", "operationState"); state != nil {
			see(state)
		}
	})
}

func (w *argoWorld) watchApp(see func(app *unstructured.Unstructured)) (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	watcher, err := w.applications().Watch(ctx, metav1.ListOptions{ResourceVersion: w.get().GetResourceVersion()})
	require.NoError(w, err)
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range watcher.ResultChan() {
			app, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return
			}
			see(app)
		}
	})
	return func() {
		synctest.Wait()
		cancel()
		watching.Wait()
	}
}

// wave is a ConfigMap that is applied in a wave.
func wave(name, value, number string) string {
	return strings.Replace(configMap(name, value), "metadata:\n", "metadata:\n  annotations: {argocd.argoproj.io/sync-wave: \""+number+"\"}\n", 1)
}

// waves is a commit with a value for cm in wave 0, and for second in wave 1.
func waves(value string) fake.Files {
	return fake.Files{"cm.yaml": wave("cm", value, "0"), "second.yaml": wave("second", value, "1")}
}

// hook is a Job that runs before the sync.
const hook = `apiVersion: batch/v1
kind: Job
metadata:
  name: hook
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: hook, image: hook}]
`

// endHook lets the hook complete.
func (w *argoWorld) endHook() {
	w.Helper()
	_, err := w.cluster.Resource(jobs).Namespace(team).Patch(w.Context(), "hook", types.MergePatchType,
		[]byte(`{"status":{"startTime":"2026-01-01T00:00:00Z","completionTime":"2026-01-01T00:00:01Z","succeeded":1,"conditions":[`+
			`{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	require.NoError(w, err)
	synctest.Wait()
}
