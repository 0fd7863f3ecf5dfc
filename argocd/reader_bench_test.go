package argocd_test

import (
	"fmt"
	"testing"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// crowd writes n Applications that apply folders of ten repositories.
func crowd(t testing.TB, c *fake.Cluster, n int) {
	t.Helper()
	for i := range n {
		source := fmt.Sprintf("{repoURL: 'https://git.example.com/acme/repo-%d', path: apps/%d, targetRevision: main}", i%10, i)
		entry := func(id int, at, commit string) string {
			return fmt.Sprintf("{id: %d, deployedAt: '%s', revision: %s, source: %s}", id, at, commit, source)
		}
		write(t, c, app(fmt.Sprintf("app-%05d", i), "source: "+source, healthy+", sync: {status: Synced, revision: "+commitB+"}, history: ["+
			entry(1, "2026-05-03T10:00:00Z", commitA)+", "+entry(2, "2026-05-04T10:00:00Z", commitB)+`],
  operationState: {phase: Succeeded, message: "successfully synced (all tasks run)", startedAt: "2026-05-04T10:00:00Z", finishedAt: "2026-05-04T10:00:01Z", operation: {sync: {revision: `+commitB+"}}, syncResult: {revision: "+commitB+", source: "+source+`}},
  resources: [{group: apps, kind: Deployment, namespace: shop, name: web, version: v1, status: Synced}, {kind: Service, namespace: shop, name: web, version: v1, status: Synced}, {kind: ConfigMap, namespace: shop, name: web, version: v1, status: Synced}]`))
	}
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
