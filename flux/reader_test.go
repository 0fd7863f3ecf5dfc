package flux_test

import (
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
