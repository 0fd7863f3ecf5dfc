package viewstest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// A watch is WatchFailures, of which the events of one world are read.
type watch struct {
	*world
	events <-chan gitopsprovider.FailureEvent
}

func (w *world) watch() *watch {
	w.Helper()
	events, err := w.views().WatchFailures(w.Context(), gitopsprovider.FailureOptions{Recoveries: true})
	require.NoError(w, err)
	return &watch{w, events}
}

// next returns the next event about an object of the world, or about a kind.
func (w *watch) next() gitopsprovider.FailureEvent {
	w.Helper()
	deadline := time.After(lab.WaitTimeout)
	for {
		select {
		case event, open := <-w.events:
			require.True(w, open)
			if event.Workload.Namespace == w.ns || event.Workload.Name == "" {
				return event
			}
		case <-deadline:
			w.Fatal("no event came")
		}
	}
}

// until reads events until one is of an object and a type. It returns how many there were of each object, with the type and reason.
func (w *watch) until(workload gitopsprovider.Workload, what gitopsprovider.FailureType) (gitopsprovider.FailureEvent, map[string]int) {
	w.Helper()
	seen := map[string]int{}
	for {
		event := w.next()
		seen[fmt.Sprintf("%s %s %s: %s", event.Workload.Kind, event.Workload.Name, event.Type, event.Ready.Reason)]++
		if event.Workload.Kind == workload.Kind && event.Workload.Name == workload.Name && event.Type == what {
			return event, seen
		}
	}
}

func TestAFailingKustomizationIsReportedOnce(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.source()
	w.kustomization("app", "app", lab.Set("1s", "spec", "retryInterval"))
	w.wait(lab.Kustomizations, "app", lab.Applied(first))
	failures := w.watch()
	broken := w.commit(lab.Files{"app/broken.yaml": "kind: [\n"})
	w.fetch()
	event, _ := failures.until(w.of("Kustomization", "app"), gitopsprovider.FailureBegan)
	assert.Equal(t, "BuildFailed", event.Ready.Reason)
	assert.Equal(t, "main@sha1:"+broken, event.Revision)
	assert.False(t, event.Standing)

	// It is tried again every second, in another folder each time.
	for range 3 {
		seen := w.lab.Get(t, lab.Kustomizations, w.ns, "app").GetResourceVersion()
		w.wait(lab.Kustomizations, "app", otherVersion(seen))
		w.wait(lab.Kustomizations, "app", lab.Failed("BuildFailed"))
	}
	w.repo.Remove(t, "app/broken.yaml")
	w.fetch()
	recovery, seen := failures.until(w.of("Kustomization", "app"), gitopsprovider.FailureRecovered)
	assert.Equal(t, event.Key, recovery.Key)
	assert.Equal(t, "BuildFailed", recovery.Failure.Reason)
	assert.Equal(t, map[string]int{"Kustomization app Recovered: ReconciliationSucceeded": 1}, seen, "a failure that goes on is no news")
}

func TestAFailingReleaseIsReportedOnce(t *testing.T) {
	w := inLab(t)
	w.release("app")
	failures := w.watch()
	w.commit(lab.Chart("charts/app", "0.1.0", lab.Files{"cm.yaml": "{{ fail \"no way\" }}\n"}))
	w.fetch()
	event, _ := failures.until(w.of("HelmRelease", "app"), gitopsprovider.FailureBegan)
	assert.Equal(t, "UpgradeFailed", event.Ready.Reason)
	assert.Contains(t, event.Ready.Message, "no way")
	w.chart("app", "two")
	w.fetch()
	_, seen := failures.until(w.of("HelmRelease", "app"), gitopsprovider.FailureRecovered)
	assert.Equal(t, map[string]int{"HelmRelease app Recovered: UpgradeSucceeded": 1}, seen)
}

func TestAFailingApplicationIsReportedOnce(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.application("app", "app")
	w.synced("app", first)
	failures := w.watch()
	broken := w.commit(lab.Files{"app/service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {}\n"})
	require.Error(t, w.sync("app", broken))
	event, _ := failures.until(w.of("Application", "app"), gitopsprovider.FailureBegan)
	assert.Equal(t, "Failed", event.Ready.Reason)
	assert.Equal(t, broken, event.Revision)
	require.NoError(t, w.sync("app", w.repo.Remove(t, "app/service.yaml")))
	// After a sync Argo CD compares with the commit that it last knew the branch at, until it looks again.
	w.annotate(lab.Applications, "app", "argocd.argoproj.io/refresh", "normal")
	w.wait(lab.Applications, "app", compared)
	_, seen := failures.until(w.of("Application", "app"), gitopsprovider.FailureRecovered)
	assert.Zero(t, seen["Application app Failed: Failed"], "a comparison is no news: %v", seen)
}

// While the API server is away, something begins to fail; and what failed before is no news afterwards.
func TestFailuresAreReportedThroughARestartOfTheAPIServer(t *testing.T) {
	l := lab.Alone(t)
	w := newWorld(t, l)
	first := w.commit(lab.Files{"one/cm.yaml": "kind: [\n", "two/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.source()
	// kustomize-controller 1.9.6 may fail to write its status just after the restart ("failed to update status: timed out waiting for the
	// condition"), and does so when it tries again.
	for _, name := range []string{"one", "two"} {
		w.kustomization(name, name, lab.Set("2s", "spec", "retryInterval"))
	}
	w.wait(lab.Kustomizations, "one", lab.Failed("BuildFailed"))
	w.wait(lab.Kustomizations, "two", lab.Applied(first))
	failures := w.watch()
	event, _ := failures.until(w.of("Kustomization", "one"), gitopsprovider.FailureBegan)
	assert.True(t, event.Standing)

	w.commit(lab.Files{"two/cm.yaml": "kind: [\n"})
	l.APIServer.Stop(t)
	l.APIServer.Start(t)
	w.fetch()
	w.wait(lab.Kustomizations, "two", lab.Failed("BuildFailed"))
	_, seen := failures.until(w.of("Kustomization", "two"), gitopsprovider.FailureBegan)
	assert.Zero(t, seen["Kustomization one Failed: BuildFailed"], "%v", seen)
}

func TestAKindThatMayNotBeWatchedIsSaid(t *testing.T) {
	w := inLab(t)
	rule := reading("kustomize.toolkit.fluxcd.io", "kustomizations")
	rule.Verbs = append(rule.Verbs, "watch")
	events, err := viewsAs(t, w.lab.ClusterServiceAccount(t, w.ns, rule)).WatchFailures(t.Context(), gitopsprovider.FailureOptions{})
	require.NoError(t, err)
	failures := &watch{w, events}
	unwatched := map[string]bool{}
	for !unwatched["HelmRelease"] || !unwatched["Application"] {
		event := failures.next()
		if event.Type == gitopsprovider.FailureUnwatched {
			assert.Contains(t, event.Message, "this identity may not watch the objects of kind "+event.Workload.Kind)
			assert.NotEqual(t, "Kustomization", event.Workload.Kind)
			unwatched[event.Workload.Kind] = true
		}
	}
	commit := w.commit(lab.Files{"cm.yaml": "kind: [\n"})
	w.source()
	w.wait(lab.GitRepositories, "source", lab.Fetched(commit))
	w.kustomization("app", "")
	event, _ := failures.until(w.of("Kustomization", "app"), gitopsprovider.FailureBegan)
	assert.Equal(t, "BuildFailed", event.Ready.Reason)
}
