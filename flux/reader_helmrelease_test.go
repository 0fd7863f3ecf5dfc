package flux_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const releases = `
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: flux-system, name: charts}, spec: {interval: 1m, url: "https://git.example.com/acme/charts", ref: {branch: main}}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {namespace: flux-system, name: team-a-web}
spec: {interval: 1m, chart: ./charts/web, version: "1.x", sourceRef: {kind: GitRepository, name: charts}, reconcileStrategy: Revision}
status:
  observedSourceArtifactRevision: ` + revisionB + `
  artifact: {revision: 1.2.3+bbbbbbbbbbbb, digest: 'sha256:1', path: p, url: 'http://x', lastUpdateTime: '2026-05-04T12:00:00Z'}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {namespace: team-a, name: web}
spec:
  interval: 1m
  targetNamespace: shop
  chart: {spec: {chart: ./charts/web, version: "1.x", sourceRef: {kind: GitRepository, name: charts, namespace: flux-system}}}
  dependsOn: [{name: db}]
status:
  helmChart: flux-system/team-a-web
  lastAttemptedRevision: 1.2.4
  conditions: [{type: Ready, status: "False", reason: UpgradeFailed, message: m, lastTransitionTime: "2026-05-04T12:10:00Z"}]
  inventory: {entries: [{id: shop_web_apps_Deployment, v: v1}]}
  history:
  - {name: shop-web, namespace: shop, version: 3, status: failed, chartName: web, chartVersion: 1.2.4, configDigest: d, digest: d, firstDeployed: "2026-05-04T09:00:00Z", lastDeployed: "2026-05-04T12:10:00Z"}
  - {name: shop-web, namespace: shop, version: 2, status: deployed, chartName: web, chartVersion: 1.2.3+bbbbbbbbbbbb, configDigest: d, digest: d, firstDeployed: "2026-05-04T09:00:00Z", lastDeployed: "2026-05-04T12:00:00Z"}
  - {name: shop-web, namespace: shop, version: 1, status: superseded, chartName: web, chartVersion: 1.2.2, configDigest: d, digest: d, firstDeployed: "2026-05-04T09:00:00Z", lastDeployed: "2026-05-04T09:00:00Z"}
`

func TestAReaderDescribesAHelmRelease(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, releases)
	assert.Equal(t, gitopsprovider.Object{
		Workload: of("HelmRelease", "team-a", "web"), Engine: flux.Engine,
		Ready:           gitopsprovider.Condition{State: gitopsprovider.StateFailing, Reason: "UpgradeFailed", Message: "m", Since: utc("2026-05-04T12:10:00Z")},
		TargetNamespace: "shop",
		Sources: []gitopsprovider.SourceUse{{
			Relation: gitopsprovider.RelationChart, Applied: "1.2.3+bbbbbbbbbbbb", Attempted: "1.2.4", Source: gitopsprovider.Source{Object: of("HelmChart", "flux-system", "team-a-web")},
		}},
		Deployments: []gitopsprovider.Deployment{
			{Revisions: []gitopsprovider.DeployedRevision{{Chart: "web", Revision: "1.2.3+bbbbbbbbbbbb"}}, At: utc("2026-05-04T12:00:00Z")},
			{Revisions: []gitopsprovider.DeployedRevision{{Chart: "web", Revision: "1.2.2"}}, At: utc("2026-05-04T09:00:00Z")},
		},
		InPart: true, Release: gitopsprovider.Release{Namespace: "shop", Name: "shop-web"},
		Links:   []gitopsprovider.Link{{Relation: gitopsprovider.RelationDependsOn, To: of("HelmRelease", "team-a", "db")}},
		Applies: []gitopsprovider.Workload{{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}},
		References: []gitopsprovider.Reference{
			{Field: "chart", Value: "./charts/web 1.x"}, {Field: "sourceRef", Value: "GitRepository flux-system/charts"}, {Field: "dependsOn", Value: "team-a/db"},
		},
	}, read(t, c, of("HelmRelease", "team-a", "web")))
}

func TestTheCommitOfAChartIsKnown(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, releases)
	list, err := viewsOf(t, c).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: "shop"})
	require.NoError(t, err)
	require.Len(t, list.Changes, 1)
	change := list.Changes[0]
	assert.Equal(t, "1.2.3+bbbbbbbbbbbb", change.ToRev)
	assert.Equal(t, strings.TrimPrefix(revisionB, "main@sha1:"), change.ToCommit)
	assert.Equal(t, "1.2.2", change.FromRev)
	assert.Empty(t, change.FromCommit)
	assert.Equal(t, "charts/web", change.Path)
	assert.Equal(t, "https://git.example.com/acme/charts", change.Source.URL)
	assert.Equal(t, []string{"1.2.4 was attempted since, and failed; it may be applied in part"}, change.Notes)
}

// What a release deployed may be of another chart than the one that it names now.
func TestAReleaseThatMovedToAnotherChart(t *testing.T) {
	t.Parallel()
	snapshot := func(version int, status, chart, of string) string {
		return fmt.Sprintf(`{name: web, namespace: team-a, version: %d, status: %s, chartName: %s, chartVersion: %s, configDigest: d, digest: d, firstDeployed: "2026-05-04T09:00:00Z", lastDeployed: "2026-05-04T09:00:00Z"}`, version, status, chart, of)
	}
	const elsewhere, before = "the applier names another source or path now (https://charts.example.com shop), which was not applied yet", "another source or path was applied before"
	for name, test := range map[string]struct {
		source, chart, observed string
		history                 []string
		want, note              string
	}{
		"not deployed yet":               {"HelmRepository", "shop", "shop", []string{snapshot(1, "deployed", "web", "1.2.2")}, "web 1.2.2 from ", elsewhere},
		"not fetched yet":                {"HelmRepository", "shop", "web", []string{snapshot(1, "deployed", "web", "1.2.2")}, "web 1.2.2 from ", elsewhere},
		"deployed":                       {"HelmRepository", "shop", "shop", []string{snapshot(2, "deployed", "shop", "3.0.0"), snapshot(1, "superseded", "web", "1.2.2")}, "shop 3.0.0 from ", before},
		"deployed long ago":              {"HelmRepository", "shop", "shop", []string{snapshot(2, "deployed", "shop", "3.0.0"), snapshot(1, "superseded", "shop", "1.2.2")}, "shop 3.0.0 from 1.2.2", ""},
		"a folder named unlike it":       {"GitRepository", "./charts/frontend", "shop", []string{snapshot(1, "deployed", "shop", "3.0.0")}, "charts/frontend 3.0.0 from ", ""},
		"a folder of another chart":      {"GitRepository", "./charts/frontend", "shop", []string{snapshot(1, "deployed", "web", "3.0.0")}, "web 3.0.0 from ", strings.Replace(elsewhere, " shop", " charts/frontend", 1)},
		"a folder that was never packed": {"GitRepository", "./charts/frontend", "", []string{snapshot(1, "deployed", "web", "3.0.0")}, "charts/frontend 3.0.0 from ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, `{apiVersion: source.toolkit.fluxcd.io/v1, kind: `+test.source+`, metadata: {namespace: team-a, name: charts}, spec: {interval: 1m, url: "https://charts.example.com"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmChart, metadata: {namespace: team-a, name: team-a-web}, spec: {interval: 1m, chart: `+test.chart+`, reconcileStrategy: Revision, sourceRef: {kind: `+test.source+`, name: charts}},
  status: {observedChartName: "`+test.observed+`", observedSourceArtifactRevision: "`+revisionB+`", artifact: {revision: 3.0.0, digest: 'sha256:1', path: p, url: 'http://x', lastUpdateTime: '2026-05-04T12:00:00Z'}}}
---
{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {namespace: team-a, name: web}, spec: {interval: 1m, chart: {spec: {chart: `+test.chart+`, sourceRef: {kind: `+test.source+`, name: charts}}}}, status: {history: [`+strings.Join(test.history, ", ")+`]}}
`)
			list, err := viewsOf(t, c).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
			require.NoError(t, err)
			require.Len(t, list.Changes, 1)
			change := list.Changes[0]
			assert.Equal(t, test.want, change.Path+" "+change.ToRev+" from "+change.FromRev)
			assert.Equal(t, test.note, strings.Join(change.Notes, "\n"))
			moved := strings.HasPrefix(test.note, "the applier names")
			assert.Equal(t, moved, change.Source.URL == "", "where another chart is from is not known")
			assert.Equal(t, test.source == "GitRepository" && !moved, change.ToCommit != "")
		})
	}
}

// A release that was uninstalled because it failed leaves its predecessors in the history.
func TestAReleaseThatWasUninstalledAppliesNothing(t *testing.T) {
	t.Parallel()
	snapshot := func(version int, status, chart string) string {
		return fmt.Sprintf(`{name: web, namespace: team-a, version: %d, status: %s, chartName: web, chartVersion: %s, configDigest: d, digest: d, firstDeployed: "2026-05-04T09:00:00Z", lastDeployed: "2026-05-04T09:00:00Z"}`, version, status, chart)
	}
	for status, want := range map[string]string{"uninstalled": "", "uninstalling": "", "failed": "1.2.2", "pending-upgrade": "1.2.2"} {
		c := viewed(t)
		write(t, c, `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {namespace: team-a, name: web}, spec: {interval: 1m, chartRef: {kind: OCIRepository, name: web}}, status: {history: [`+
			snapshot(2, status, "1.2.3")+", "+snapshot(1, "superseded", "1.2.2")+"]}}")
		o := read(t, c, of("HelmRelease", "team-a", "web"))
		assert.Equal(t, want, o.Sources[0].Applied, status)
		assert.Len(t, o.Deployments, 1, "it was deployed all the same")
	}
}

func TestWhereAHelmReleaseHasItsChart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec string
		want gitopsprovider.Workload
	}{
		"a chart of its own": {`chart: {spec: {chart: web, sourceRef: {kind: HelmRepository, name: r}}}`, of("HelmChart", "team-a", "team-a-web")},
		"a chart of another namespace's source": {
			`chart: {spec: {chart: web, sourceRef: {kind: HelmRepository, name: r, namespace: flux-system}}}`, of("HelmChart", "flux-system", "team-a-web"),
		},
		"a reference":                      {`chartRef: {kind: OCIRepository, name: web}`, of("OCIRepository", "team-a", "web")},
		"a reference to another namespace": {`chartRef: {kind: HelmChart, name: web, namespace: flux-system}`, of("HelmChart", "flux-system", "web")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, `{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {namespace: team-a, name: web}, spec: {interval: 1m, `+test.spec+`}}`)
			o := read(t, c, of("HelmRelease", "team-a", "web"))
			require.Len(t, o.Sources, 1)
			assert.Equal(t, test.want, o.Sources[0].Source.Object)
			assert.Equal(t, gitopsprovider.Release{Namespace: "team-a", Name: "web"}, o.Release)
		})
	}
}

// Versions before v2 have no history, and what is applied in a field of its own.
func TestAHelmReleaseOfABetaVersion(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/helm.toolkit.fluxcd.io/v2beta1/namespaces/team-a/helmreleases/web" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"apiVersion": "helm.toolkit.fluxcd.io/v2beta1", "kind": "HelmRelease", "metadata": {"namespace": "team-a", "name": "web", "uid": "u"},
  "spec": {"interval": "1m", "chart": {"spec": {"chart": "web", "sourceRef": {"kind": "HelmRepository", "name": "charts"}}}},
  "status": {"helmChart": "team-a/team-a-web", "lastAppliedRevision": "1.2.2", "lastAttemptedRevision": "1.2.3", "lastReleaseRevision": 2,
    "conditions": [{"type": "Ready", "status": "False", "reason": "UpgradeFailed", "message": "m", "lastTransitionTime": "2026-05-04T12:00:00Z"}]}}`)
	}))
	t.Cleanup(server.Close)
	client, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	require.NoError(t, err)
	o := read(t, client, of("HelmRelease", "team-a", "web"))
	assert.Equal(t, []gitopsprovider.SourceUse{{
		Relation: gitopsprovider.RelationChart, Source: gitopsprovider.Source{Object: of("HelmChart", "team-a", "team-a-web")}, Applied: "1.2.2", Attempted: "1.2.3",
	}}, o.Sources)
	assert.Empty(t, o.Deployments)
}
