package flux_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"

	revisionA = "main@sha1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	revisionB = "main@sha1:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// resources are the kinds that these tests write, by name.
var resources = map[string]schema.GroupVersionResource{
	"Kustomization":    {Group: kustomizeGroup, Version: "v1", Resource: "kustomizations"},
	"HelmRelease":      {Group: helmGroup, Version: "v2", Resource: "helmreleases"},
	"GitRepository":    {Group: sourceGroup, Version: "v1", Resource: "gitrepositories"},
	"OCIRepository":    {Group: sourceGroup, Version: "v1", Resource: "ocirepositories"},
	"Bucket":           {Group: sourceGroup, Version: "v1", Resource: "buckets"},
	"HelmRepository":   {Group: sourceGroup, Version: "v1", Resource: "helmrepositories"},
	"HelmChart":        {Group: sourceGroup, Version: "v1", Resource: "helmcharts"},
	"ExternalArtifact": {Group: sourceGroup, Version: "v1", Resource: "externalartifacts"},
	"ConfigMap":        {Version: "v1", Resource: "configmaps"},
	"Event":            {Version: "v1", Resource: "events"},
}

// viewed is a cluster without controllers, in which tests write what controllers would.
func viewed(t testing.TB) *fake.Cluster {
	t.Helper()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"flux-system", "team-a"}})
	t.Cleanup(c.Stop)
	return c
}

// write creates objects from YAML documents, with their status.
func write(t testing.TB, client dynamic.Interface, documents string) {
	t.Helper()
	for document := range strings.SplitSeq(documents, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		data, err := u.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, u.UnmarshalJSON(data))
		resource := client.Resource(resources[u.GetKind()]).Namespace(u.GetNamespace())
		created, err := resource.Create(t.Context(), u, metav1.CreateOptions{})
		require.NoError(t, err, document)
		if u.Object["status"] == nil {
			continue
		}
		created.Object["status"] = u.Object["status"]
		_, err = resource.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
		require.NoError(t, err, document)
	}
}

func of(kind, namespace, name string) gitopsprovider.Workload {
	return gitopsprovider.Workload{Group: resources[kind].Group, Kind: kind, Namespace: namespace, Name: name}
}

// read reads one object, without what differs in every run.
func read(t testing.TB, client dynamic.Interface, w gitopsprovider.Workload) gitopsprovider.Object {
	t.Helper()
	o, err := flux.NewReader(client).Get(t.Context(), w)
	require.NoError(t, err)
	require.NoError(t, o.Err)
	assert.NotEmpty(t, o.UID)
	o.UID = ""
	return o
}

func utc(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func viewsOf(t testing.TB, client dynamic.Interface) *gitopsprovider.Views {
	t.Helper()
	v, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, flux.NewReader(client))
	require.NoError(t, err)
	return v
}

func TestAReaderDescribesAKustomization(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {namespace: team-a, name: shop, labels: {kustomize.toolkit.fluxcd.io/name: all, kustomize.toolkit.fluxcd.io/namespace: flux-system}}
spec:
  interval: 10m
  prune: true
  path: ./apps/shop/
  targetNamespace: shop
  kubeConfig: {secretRef: {name: edge}}
  sourceRef: {kind: GitRepository, name: repo}
  dependsOn: [{name: db}, {name: queue, namespace: flux-system}]
status:
  observedGeneration: 1
  lastAppliedRevision: `+revisionA+`
  lastAttemptedRevision: `+revisionB+`
  conditions:
  - {type: Reconciling, status: "True", reason: ProgressingWithRetry, message: x, lastTransitionTime: "2026-05-04T12:00:00Z"}
  - {type: Ready, status: "False", reason: HealthCheckFailed, message: "timeout waiting", observedGeneration: 1, lastTransitionTime: "2026-05-04T12:01:00Z"}
  inventory:
    entries:
    - {id: team-a_web_apps_Deployment, v: v1}
    - {id: flux-system_child_kustomize.toolkit.fluxcd.io_Kustomization, v: v1}
    - {id: _system__reader_rbac.authorization.k8s.io_ClusterRole, v: v1}
    - {id: team-a_my-map__ConfigMap, v: v1}
  history:
  - {digest: d3, firstReconciled: "2026-05-04T11:59:00Z", lastReconciled: "2026-05-04T12:01:00Z", lastReconciledDuration: 1s, lastReconciledStatus: HealthCheckFailed, totalReconciliations: 2, metadata: {revision: `+revisionB+`}}
  - {digest: d2, firstReconciled: "2026-05-04T10:00:00Z", lastReconciled: "2026-05-04T11:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 9, metadata: {revision: `+revisionA+`}}
  - {digest: d1, firstReconciled: "2026-05-03T10:00:00Z", lastReconciled: "2026-05-04T09:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 9, metadata: {revision: old@sha1:1}}
`)
	assert.Equal(t, gitopsprovider.Object{
		Workload: of("Kustomization", "team-a", "shop"), Engine: flux.Engine,
		Labels:          map[string]string{"kustomize.toolkit.fluxcd.io/name": "all", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"},
		Ready:           gitopsprovider.Condition{State: gitopsprovider.StateFailing, Reason: "HealthCheckFailed", Message: "timeout waiting", Since: utc("2026-05-04T12:01:00Z")},
		TargetNamespace: "shop", TargetCluster: "that of kubeConfig edge",
		Sources: []gitopsprovider.SourceUse{{
			Relation: gitopsprovider.RelationSource, Path: "apps/shop", Applied: revisionA, Attempted: revisionB,
			Source: gitopsprovider.Source{Object: of("GitRepository", "team-a", "repo")},
		}},
		Deployments: []gitopsprovider.Deployment{
			{Revisions: []gitopsprovider.DeployedRevision{{Revision: revisionA}}, At: utc("2026-05-04T10:00:00Z")},
			{Revisions: []gitopsprovider.DeployedRevision{{Revision: "old@sha1:1"}}, At: utc("2026-05-03T10:00:00Z")},
		},
		InPart: true,
		Links: []gitopsprovider.Link{
			{Relation: gitopsprovider.RelationDependsOn, To: of("Kustomization", "team-a", "db")},
			{Relation: gitopsprovider.RelationDependsOn, To: of("Kustomization", "flux-system", "queue")},
		},
		Applies: []gitopsprovider.Workload{
			{Group: "apps", Kind: "Deployment", Namespace: "team-a", Name: "web"}, of("Kustomization", "flux-system", "child"),
			{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:reader"}, {Kind: "ConfigMap", Namespace: "team-a", Name: "my-map"},
		},
		References: []gitopsprovider.Reference{
			{Field: "sourceRef", Value: "GitRepository team-a/repo"}, {Field: "path", Value: "./apps/shop/"},
			{Field: "dependsOn", Value: "team-a/db"}, {Field: "dependsOn", Value: "flux-system/queue"},
		},
	}, read(t, c, of("Kustomization", "team-a", "shop")))
}

func TestHowAFluxObjectIsDoing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec, status string
		want         gitopsprovider.State
		reason       string
	}{
		"Ready":                      {"", `conditions: [{type: Ready, status: "True", reason: Succeeded, message: m, observedGeneration: 1, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateReady, "Succeeded"},
		"not Ready":                  {"", `conditions: [{type: Ready, status: "False", reason: BuildFailed, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateFailing, "BuildFailed"},
		"at work":                    {"", `conditions: [{type: Ready, status: Unknown, reason: Progressing, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateProgressing, "Progressing"},
		"new":                        {"", `observedGeneration: -1`, gitopsprovider.StateUnknown, ""},
		"Ready without a generation": {"", `conditions: [{type: Ready, status: "True", reason: Succeeded, message: m, observedGeneration: 0, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateReady, "Succeeded"},
		// An object that was created suspended has no condition, and its observedGeneration stays -1 for ever.
		"created suspended":           {", suspend: true", `observedGeneration: -1`, gitopsprovider.StateSuspended, ""},
		"suspended while Ready":       {", suspend: true", `conditions: [{type: Ready, status: "True", reason: Succeeded, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateSuspended, "Succeeded"},
		"suspended while at work":     {", suspend: true", `conditions: [{type: Ready, status: Unknown, reason: Progressing, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateSuspended, "Progressing"},
		"suspended after its failure": {", suspend: true", `conditions: [{type: Ready, status: "False", reason: BuildFailed, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]`, gitopsprovider.StateFailing, "BuildFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: shop},
  spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}`+test.spec+`}, status: {`+test.status+`}}`)
			status, err := viewsOf(t, c).ResourceStatus(t.Context(), of("Kustomization", "team-a", "shop"))
			require.NoError(t, err)
			assert.Equal(t, test.want, status.Ready.State)
			assert.Equal(t, test.reason, status.Ready.Reason)
			assert.Equal(t, test.spec != "", status.Suspended)
		})
	}
}

func TestAKustomizationWhoseSpecIsNotReconciledYetIsAtWork(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: shop},
  spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}},
  status: {conditions: [{type: Ready, status: "True", reason: Succeeded, message: applied, observedGeneration: 1, lastTransitionTime: "2026-05-04T12:00:00Z"}]}}`)
	resource := c.Resource(resources["Kustomization"]).Namespace("team-a")
	u, err := resource.Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(u.Object, "2m", "spec", "interval"))
	_, err = resource.Update(t.Context(), u, metav1.UpdateOptions{})
	require.NoError(t, err)

	ready := read(t, c, of("Kustomization", "team-a", "shop")).Ready
	assert.Equal(t, gitopsprovider.StateProgressing, ready.State)
	assert.Equal(t, "generation 2 is not reconciled yet; of the one before: applied", ready.Message)
}

// Flux counts the runs of one content in one entry, which a rollback moves to the front.
func TestARollbackHasNoTimeOfItsOwn(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: shop},
  spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}}, status: {lastAppliedRevision: `+revisionA+`, history: [
  {digest: d1, firstReconciled: "2026-05-04T09:00:00Z", lastReconciled: "2026-05-04T12:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 2, metadata: {revision: `+revisionA+`}},
  {digest: d2, firstReconciled: "2026-05-04T10:00:00Z", lastReconciled: "2026-05-04T11:00:00Z", lastReconciledDuration: 1s, lastReconciledStatus: ReconciliationSucceeded, totalReconciliations: 9, metadata: {revision: `+revisionB+`}}]}}`)
	deployments := read(t, c, of("Kustomization", "team-a", "shop")).Deployments
	require.Len(t, deployments, 2)
	assert.Zero(t, deployments[0].At)
	assert.Equal(t, utc("2026-05-04T11:00:00Z"), deployments[0].After, "after the last run of what it replaced")
	assert.Equal(t, revisionA, deployments[0].Revisions[0].Revision)
	assert.Equal(t, utc("2026-05-04T10:00:00Z"), deployments[1].At)
}

func TestAReaderDescribesSources(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	artifact := func(revision string) string {
		return "status: {artifact: {revision: " + revision + ", digest: 'sha256:1', path: p, url: 'http://x', lastUpdateTime: '2026-05-04T12:00:00Z'}"
	}
	write(t, c, `
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: team-a, name: branch}, spec: {interval: 1m, url: "https://bot:s3cret@git.example.com/acme/shop", ref: {name: refs/heads/main}}, `+artifact(revisionA)+`}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: team-a, name: default}, spec: {interval: 1m, url: "ssh://git@git.example.com/acme/shop"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: team-a, name: tag}, spec: {interval: 1m, url: "https://git.example.com/acme/shop", ref: {branch: main, tag: v1}, include: [{repository: {name: other}}]}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: OCIRepository, metadata: {namespace: team-a, name: oci}, spec: {interval: 1m, url: "oci://registry.example.com/shop", ref: {tag: latest}}, `+artifact("latest@sha256:1")[:len(artifact("latest@sha256:1"))-1]+`, metadata: {org.opencontainers.image.source: "https://git.example.com/acme/shop", org.opencontainers.image.revision: "`+revisionA+`"}}}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: Bucket, metadata: {namespace: team-a, name: bucket}, spec: {interval: 1m, endpoint: s3.example.com, bucketName: shop}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {namespace: team-a, name: helm}, spec: {interval: 1m, url: "https://charts.example.com"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: HelmRepository, metadata: {namespace: team-a, name: helm-oci}, spec: {interval: 1m, type: oci, url: "oci://registry.example.com/charts"}}
---
{apiVersion: source.toolkit.fluxcd.io/v1, kind: ExternalArtifact, metadata: {namespace: team-a, name: external}, spec: {sourceRef: {apiVersion: source.extensions.fluxcd.io/v1beta1, kind: ArtifactGenerator, name: gen}}, `+artifact("latest@sha256:2")+`}}
`)
	for w, want := range map[gitopsprovider.Workload]gitopsprovider.Source{
		of("GitRepository", "team-a", "branch"):  {Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/shop", Ref: "main", Branch: "main", Revision: revisionA},
		of("GitRepository", "team-a", "default"): {Type: gitopsprovider.SourceGit, URL: "ssh://git@git.example.com/acme/shop", Ref: "master", Branch: "master"},
		of("GitRepository", "team-a", "tag"):     {Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/shop", Ref: "v1", Incomplete: "the source includes GitRepository other"},
		of("OCIRepository", "team-a", "oci"): {Type: gitopsprovider.SourceOCI, URL: "oci://registry.example.com/shop", Ref: "latest", Revision: "latest@sha256:1",
			Origin: gitopsprovider.Origin{URL: "https://git.example.com/acme/shop", Revision: revisionA}},
		of("Bucket", "team-a", "bucket"):             {Type: gitopsprovider.SourceBucket, URL: "s3.example.com/shop"},
		of("HelmRepository", "team-a", "helm"):       {Type: gitopsprovider.SourceHelm, URL: "https://charts.example.com"},
		of("HelmRepository", "team-a", "helm-oci"):   {Type: gitopsprovider.SourceHelm, URL: "oci://registry.example.com/charts"},
		of("ExternalArtifact", "team-a", "external"): {Type: "ExternalArtifact", Revision: "latest@sha256:2"},
	} {
		o := read(t, c, w)
		require.NotNil(t, o.Source)
		assert.Equal(t, want, *o.Source, w.String())
	}
	assert.Equal(t, []gitopsprovider.Link{{Relation: gitopsprovider.RelationSource, To: of("GitRepository", "team-a", "other")}},
		read(t, c, of("GitRepository", "team-a", "tag")).Links, "what it includes")
	assert.Equal(t, []gitopsprovider.Link{{Relation: gitopsprovider.RelationSource, To: gitopsprovider.Workload{
		Group: "source.extensions.fluxcd.io", Kind: "ArtifactGenerator", Namespace: "team-a", Name: "gen",
	}}}, read(t, c, of("ExternalArtifact", "team-a", "external")).Links)
	assert.Equal(t, gitopsprovider.StateReady, read(t, c, of("HelmRepository", "team-a", "helm-oci")).Ready.State, "nothing is fetched for it, and it has no status")
	assert.Equal(t, gitopsprovider.StateUnknown, read(t, c, of("HelmRepository", "team-a", "helm")).Ready.State)
}

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
