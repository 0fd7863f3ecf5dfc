package flux_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// crowd writes n Kustomizations that apply folders of ten GitRepositories.
func crowd(t testing.TB, c *fake.Cluster, n int) {
	t.Helper()
	for i := range 10 {
		write(t, c, fmt.Sprintf(`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: flux-system, name: repo-%d}, spec: {interval: 1m, url: "https://git.example.com/acme/repo-%d"}}`, i, i))
	}
	for i := range n {
		write(t, c, fmt.Sprintf(`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: app-%05d},
  spec: {interval: 1m, prune: true, path: apps/%d, targetNamespace: ns-%d, sourceRef: {kind: GitRepository, name: repo-%d, namespace: flux-system}},
  status: {observedGeneration: 1, lastAppliedRevision: "%s", lastAttemptedRevision: "%s", conditions: [{type: Ready, status: "True", reason: ReconciliationSucceeded, message: "Applied revision", observedGeneration: 1, lastTransitionTime: "2026-05-04T12:00:00Z"}],
    inventory: {entries: [{id: team-a_web_apps_Deployment, v: v1}, {id: team-a_web__Service, v: v1}, {id: team-a_web__ConfigMap, v: v1}]},
    history: [{digest: d2, firstReconciled: "2026-05-04T10:00:00Z", lastReconciled: "2026-05-04T11:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 9, metadata: {revision: "%s"}},
      {digest: d1, firstReconciled: "2026-05-03T10:00:00Z", lastReconciled: "2026-05-04T09:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 9, metadata: {revision: "%s"}}]}}`,
			i, i, i%50, i%10, revisionB, revisionB, revisionB, revisionA))
	}
}

// requestsOf counts the requests of a view by verb and resource.
func requestsOf(view *fake.View) map[string]int {
	counts := map[string]int{}
	for _, r := range view.Requests() {
		counts[r.Verb+" "+r.Resource]++
	}
	return counts
}

func TestChangesListEachKindPageByPageAndReadNoObject(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	crowd(t, c, 1200)
	view := c.As("reader", nil)
	list, err := viewsOf(t, view).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	require.NoError(t, err)
	assert.Len(t, list.Changes, 1200)
	assert.False(t, slices.ContainsFunc(list.Changes, func(c gitopsprovider.Change) bool {
		return !strings.HasPrefix(c.Source.URL, "https://git.example.com/acme/")
	}))
	assert.Equal(t, map[string]int{"list kustomizations": 3, "list helmreleases": 1, "list gitrepositories": 1}, requestsOf(view))
}

func BenchmarkChangesOf10000(b *testing.B) {
	c := viewed(b)
	crowd(b, c, 10_000)
	view := c.As("reader", nil)
	v := viewsOf(b, view)
	requests := 0
	for b.Loop() {
		view.ResetRequests()
		list, err := v.Changes(b.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
		if err != nil || len(list.Changes) != 10_000 {
			b.Fatal(len(list.Changes), err)
		}
		requests = len(view.Requests())
	}
	b.ReportMetric(float64(requests), "requests/op")
}

func BenchmarkDependencyTreeOf1000(b *testing.B) {
	c := viewed(b)
	write(b, c, `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: team-a, name: repo}, spec: {interval: 1m, url: "https://git.example.com/acme/shop"}}`)
	for i := range 1000 {
		write(b, c, fmt.Sprintf(`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: ks-%d},
  spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}, dependsOn: [{name: ks-%d}, {name: ks-%d}, {name: ks-%d}]}}`,
			i, min(2*i+1, 999), min(2*i+2, 999), i/2))
	}
	view := c.As("reader", nil)
	v := viewsOf(b, view)
	requests := 0
	for b.Loop() {
		view.ResetRequests()
		tree, err := v.DependencyTree(b.Context(), of("Kustomization", "team-a", "ks-0"))
		if err != nil || len(tree.Children) != 4 {
			b.Fatal(tree, err)
		}
		requests = len(view.Requests())
	}
	b.ReportMetric(float64(requests), "requests/op")
}
