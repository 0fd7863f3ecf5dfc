package fake_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/fake"
)

// said lists the Events about an object in the order they were made, with how often each was repeated.
func said(t testing.TB, cluster *fake.Cluster, kind, name string) []string {
	t.Helper()
	list, err := cluster.Resource(events).Namespace(team).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name,
	})
	require.NoError(t, err)
	var lines []string
	for _, event := range list.Items {
		line := fmt.Sprintf("%v %v: %v", event.Object["type"], event.Object["reason"], event.Object["message"])
		if count := event.Object["count"]; count != int64(1) {
			line = fmt.Sprintf("%dx %s", count, line)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestFluxSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set("1h", "spec", "interval"))
		assert.Equal(w, []string{"Normal NewArtifact: stored artifact for commit 'Change 1 of main'"}, said(w, w.cluster, "GitRepository", "app"))
		assert.Equal(w, []string{
			"Normal Progressing: ConfigMap/team-a/cm created",
			"Normal ReconciliationSucceeded: Reconciliation finished in 1ns, next run in 1h0m0s",
		}, said(w, w.cluster, "Kustomization", "app"))

		w.stamp(kustomizations, "again")
		synctest.Wait()
		assert.Len(w, said(w, w.cluster, "Kustomization", "app"), 3, "each success is an Event of its own")
	})
}

// Every retry fails the same way: at once, and four times in 41 seconds.
func TestFluxCountsWhatIsRepeated(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("broken", fake.Files{"service.yaml": "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {}}"})
		w.source()
		synctest.Wait()
		w.kustomization(set("10s", "spec", "retryInterval"))
		w.after(41 * time.Second)
		events := said(w, w.cluster, "Kustomization", "app")
		require.Len(w, events, 1)
		assert.Contains(w, events[0], `5x Warning ReconciliationFailed: Service/team-a/s dry-run failed (Invalid): Service "s" is invalid`)
	})
}

// From the tenth similar Event within ten minutes on they are combined into one, and what comes after the 25th is dropped: here five
// of the thirty. One more is let through every five minutes.
func TestFluxDoesNotSayTooMuchOfOneObject(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", fake.Files{"cm.yaml": configMap("cm", "one")})
		w.source()
		synctest.Wait()
		w.kustomization(set("10s", "spec", "retryInterval"), set("./absent", "spec", "path"))
		w.after(5*time.Minute - 9*time.Second)
		events := said(w, w.cluster, "Kustomization", "app")
		require.Len(w, events, 10, "each message names another folder")
		for _, event := range events[:9] {
			assert.Contains(w, event, "Warning ArtifactFailed: kustomization path not found")
		}
		assert.Contains(w, events[9], "16x Warning ArtifactFailed: (combined from similar events): kustomization path not found")
	})
}

func TestArgoCDSaysWhatItDoes(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.LoadStep, "no such path")
		w.operate(operation("second", fields{"revision": w.push("two", value("two"))}))
		events := strings.Join(said(w, w.cluster, "Application", "app"), "\n")
		for commit, name := range w.called {
			events = strings.ReplaceAll(events, commit, name)
		}
		assert.Equal(w, strings.Join([]string{
			"Normal ResourceUpdated: Updated sync status:  -> OutOfSync",
			"Normal ResourceUpdated: Updated health status:  -> Healthy",
			"Normal OperationCompleted: Sync operation to one succeeded",
			"Normal ResourceUpdated: Updated sync status: OutOfSync -> Synced",
			"Warning OperationCompleted: Sync operation to two failed: ComparisonError: Failed to load target state: no such path",
			"Normal ResourceUpdated: Updated sync status: Synced -> OutOfSync",
		}, "\n"), events)
	})
}

func TestEventsAreAnObjectOfBothGroups(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		newEvents := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
		selector := metav1.ListOptions{FieldSelector: "regarding.name=app,regarding.kind=GitRepository,reportingController=source-controller"}
		list, err := w.cluster.Resource(newEvents).Namespace(team).List(w.Context(), selector)
		require.NoError(w, err)
		require.Len(w, list.Items, 1)
		event := list.Items[0].Object
		assert.Equal(w, "NewArtifact", event["reason"])
		assert.Equal(w, "stored artifact for commit 'Change 1 of main'", event["note"])
		regarding, _, err := unstructured.NestedStringMap(event, "regarding")
		require.NoError(w, err)
		assert.Equal(w, string(w.get(gitRepositories, "app").GetUID()), regarding["uid"])
		annotations, _, err := unstructured.NestedStringMap(event, "metadata", "annotations")
		require.NoError(w, err)
		assert.Equal(w, "main@sha1:"+w.repo.Head("main"), annotations["source.toolkit.fluxcd.io/revision"])
	})
}

// What a test counts and strikes are its own requests.
func TestEventsOfControllersAreNoRequestsOfATest(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		struck := 0
		w.cluster.Inject(fake.Fault{Resource: "events", Match: func(fake.Request) bool { struck++; return false }})
		w.applied()
		assert.Zero(w, struck)
		for _, request := range w.cluster.Requests() {
			assert.NotEqual(w, "events", request.Resource)
		}
		assert.NotEmpty(w, said(w, w.cluster, "Kustomization", "app"))
	})
}

func TestEventsInANamespaceThatGoesAreDropped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		before := said(w, w.cluster, "Kustomization", "app")
		require.NoError(w, w.cluster.Resource(namespaces).Delete(w.Context(), team, metav1.DeleteOptions{}))
		w.patch(kustomizations, "app", `{"spec":{"path":"./absent"}}`)
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "Ready=False/ArtifactFailed")
		assert.Equal(w, before, said(w, w.cluster, "Kustomization", "app"))
	})
}
