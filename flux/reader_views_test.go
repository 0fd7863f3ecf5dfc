package flux_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// An empty namespace is that of the object that names; an explicit one is honoured. The same names are in both.
func TestANamespaceThatIsNotGivenIsTheObjectsOwn(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	kustomization := func(namespace, name, more string) string {
		return fmt.Sprintf(`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: %s, name: %s}, spec: {interval: 1m, prune: true%s}}`, namespace, name, more)
	}
	repository := func(namespace string) string {
		return fmt.Sprintf(`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: %s, name: repo}, spec: {interval: 1m, url: "https://git.example.com/%s"}}`, namespace, namespace)
	}
	own := ", sourceRef: {kind: GitRepository, name: repo}"
	write(t, c, strings.Join([]string{
		repository("team-a"), repository("flux-system"),
		kustomization("team-a", "db", own), kustomization("flux-system", "db", own),
		kustomization("team-a", "shop", own+", dependsOn: [{name: db}]"),
		kustomization("team-a", "other", ", sourceRef: {kind: GitRepository, name: repo, namespace: flux-system}, dependsOn: [{name: db, namespace: flux-system}]"),
	}, "\n---\n"))
	for name, namespace := range map[string]string{"shop": "team-a", "other": "flux-system"} {
		tree, err := viewsOf(t, c).DependencyTree(t.Context(), of("Kustomization", "team-a", name))
		require.NoError(t, err)
		require.Len(t, tree.Children, 2)
		assert.Equal(t, of("Kustomization", namespace, "db"), tree.Children[0].Workload)
		assert.Equal(t, of("GitRepository", namespace, "repo"), tree.Children[1].Workload)
	}
}

func TestATreeLeadsFromAReleaseToItsRepository(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, releases)
	tree, err := viewsOf(t, c).DependencyTree(t.Context(), gitopsprovider.Workload{Kind: "HelmRelease", Namespace: "team-a", Name: "web"})
	require.NoError(t, err)
	assert.Equal(t, `HelmRelease team-a/web  Failing: UpgradeFailed: m (1.2.3+bbbbbbbbbbbb)
├─ dependsOn HelmRelease team-a/db  Absent: HelmRelease team-a/db in cluster prod does not exist
└─ chart HelmChart flux-system/team-a-web  Unknown (1.2.3+bbbbbbbbbbbb)
   └─ source GitRepository flux-system/charts  Unknown

Root causes:
  HelmRelease team-a/db  Absent: HelmRelease team-a/db in cluster prod does not exist
`, tree.Text())
}

func TestATraceFollowsFluxsLabels(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, releases+`---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-a, name: of-release, labels: {helm.toolkit.fluxcd.io/name: web, helm.toolkit.fluxcd.io/namespace: team-a}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-a, name: of-helm, annotations: {meta.helm.sh/release-name: shop-web, meta.helm.sh/release-namespace: shop}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: team-a, name: by-hand, annotations: {meta.helm.sh/release-name: other, meta.helm.sh/release-namespace: shop}}}
`)
	for name, want := range map[string]string{"of-release": "label helm.toolkit.fluxcd.io/name", "of-helm": "annotation meta.helm.sh/release-name"} {
		trace, err := viewsOf(t, c).Trace(t.Context(), of("ConfigMap", "team-a", name))
		require.NoError(t, err)
		require.Len(t, trace.Steps, 2)
		assert.Equal(t, of("HelmRelease", "team-a", "web"), trace.Steps[1].Workload)
		assert.Equal(t, want, trace.Steps[1].By)
		assert.Equal(t, "charts/web", trace.Origin().Path)
		assert.Equal(t, strings.TrimPrefix(revisionB, "main@sha1:"), trace.Origin().Commit)
		assert.Len(t, trace.Unknown, 1, "it is not in the release's inventory")
	}
	trace, err := viewsOf(t, c).Trace(t.Context(), of("ConfigMap", "team-a", "by-hand"))
	require.NoError(t, err)
	assert.Len(t, trace.Steps, 1)
	assert.Contains(t, trace.Unknown[0], "ConfigMap team-a/by-hand is of the Helm release shop/other")
}

// simulated is a cluster with a simulated Flux, one repository, and the Kustomization flux-system/all that applies it.
type simulated struct {
	*fake.Cluster
	flux *fake.Flux
	repo *fake.Repository
}

func simulate(t *testing.T, test func(t *testing.T, s *simulated)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		defer c.Stop()
		f := fake.StartFlux(c, fake.FluxOptions{})
		test(t, &simulated{Cluster: c, flux: f, repo: f.Remote().Repository("https://git.example.com/acme/shop")})
	})
}

func (s *simulated) create(t *testing.T) {
	t.Helper()
	_, err := s.Resource(resources["GitRepository"]).Namespace("flux-system").
		Create(t.Context(), fake.NewGitRepository("flux-system", "repo", s.repo.URL()), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = s.Resource(resources["Kustomization"]).Namespace("flux-system").
		Create(t.Context(), fake.NewKustomization("flux-system", "all", "repo"), metav1.CreateOptions{})
	require.NoError(t, err)
	synctest.Wait()
}

// fetch has source-controller fetch what was pushed.
func (s *simulated) fetch(t *testing.T) {
	t.Helper()
	_, err := s.Resource(resources["GitRepository"]).Namespace("flux-system").Patch(t.Context(), "repo", types.MergePatchType,
		[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().String())), metav1.PatchOptions{})
	require.NoError(t, err)
	synctest.Wait()
}

func configMapIn(namespace, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata: {key: %q}\n", namespace, name, value)
}

func TestChangesFollowWhatFluxApplies(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulated) {
		first := s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "1")})
		s.create(t)
		v := viewsOf(t, s)
		now := func() gitopsprovider.Change {
			list, err := v.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Name: "all"})
			require.NoError(t, err)
			require.NoError(t, list.Err())
			require.Len(t, list.Changes, 1)
			return list.Changes[0]
		}
		change := now()
		assert.Equal(t, first, change.ToCommit)
		assert.Empty(t, change.FromCommit)
		assert.Equal(t, s.repo.URL(), change.Source.URL)
		assert.Equal(t, gitopsprovider.StateReady, change.Ready.State)

		time.Sleep(time.Hour)
		second := s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "2")})
		deployed := time.Now()
		s.fetch(t)
		change = now()
		assert.Equal(t, second, change.ToCommit)
		assert.Equal(t, first, change.FromCommit)
		assert.WithinDuration(t, deployed, change.DeployedAt, time.Second)

		time.Sleep(time.Hour)
		s.flux.Inject(fake.StepFault{Step: fake.BuildStep, Message: "no such base"})
		third := s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "3")})
		s.fetch(t)
		change = now()
		assert.Equal(t, second, change.ToCommit, "a commit that failed is not what is applied")
		assert.Equal(t, gitopsprovider.StateFailing, change.Ready.State)
		require.Len(t, change.Notes, 1)
		assert.Contains(t, change.Notes[0], "was attempted since, and failed")

		window, err := v.Changes(t.Context(), gitopsprovider.TimeWindow{Since: deployed.Add(-time.Minute)}, gitopsprovider.Selector{})
		require.NoError(t, err)
		require.Len(t, window.Changes, 2)
		assert.Equal(t, []string{"", third}, []string{window.Changes[0].ToCommit, window.Changes[0].AttemptedCommit})
		assert.Equal(t, second, window.Changes[1].ToCommit)
	})
}

func TestATraceAndATreeOfWhatFluxApplied(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulated) {
		commit := s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "1"), "child.yaml": `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {namespace: flux-system, name: child}
spec: {interval: 10m, prune: true, path: ./child, sourceRef: {kind: GitRepository, name: repo}}
`})
		s.create(t)
		trace, err := viewsOf(t, s).Trace(t.Context(), of("ConfigMap", "flux-system", "cm"))
		require.NoError(t, err)
		assert.Empty(t, trace.Unknown)
		require.Len(t, trace.Steps, 2)
		assert.True(t, trace.Steps[1].Confirmed, "the inventory lists it")
		assert.Equal(t, of("Kustomization", "flux-system", "all"), trace.Steps[1].Workload)
		assert.Equal(t, commit, trace.Origin().Commit)

		tree, err := viewsOf(t, s).DependencyTree(t.Context(), of("Kustomization", "flux-system", "all"))
		require.NoError(t, err)
		require.Len(t, tree.Children, 2)
		assert.Equal(t, gitopsprovider.RelationSource, tree.Children[0].Relation)
		child := tree.Children[1]
		assert.Equal(t, gitopsprovider.RelationApplies, child.Relation)
		assert.Equal(t, "ArtifactFailed", child.Ready.Reason, "the commit does not have its path")
		require.Len(t, tree.RootCauses(), 1)
		assert.Equal(t, child, tree.RootCauses()[0])
	})
}

// A retry writes Ready False, Unknown and False again, and names another temporary folder each time.
func TestFailuresOfFluxAreReportedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, s *simulated) {
		s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "1")})
		s.create(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events, err := viewsOf(t, s).WatchFailures(ctx, gitopsprovider.FailureOptions{Recoveries: true})
		require.NoError(t, err)
		take := func() []string {
			var out []string
			for {
				synctest.Wait()
				select {
				case event := <-events:
					out = append(out, fmt.Sprintf("%s %s: %s", event.Type, event.Workload, event.Ready.Reason))
				default:
					return out
				}
			}
		}
		assert.Empty(t, take())
		remove := s.flux.Inject(fake.StepFault{Step: fake.BuildStep, Message: "no such base"})
		s.repo.Commit(fake.Files{"cm.yaml": configMapIn("flux-system", "cm", "2")})
		s.fetch(t)
		assert.Equal(t, []string{"Failed Kustomization flux-system/all: BuildFailed"}, take())
		time.Sleep(3 * time.Hour)
		assert.Empty(t, take(), "a retry is no news")
		remove()
		time.Sleep(3 * time.Hour)
		assert.Equal(t, []string{"Recovered Kustomization flux-system/all: ReconciliationSucceeded"}, take())
	})
}

func TestEveryKindOfFluxFailsAndRecovers(t *testing.T) {
	for kind, spec := range map[string]string{
		"Kustomization":    "interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: r}",
		"HelmRelease":      "interval: 1m, chart: {spec: {chart: web, sourceRef: {kind: HelmRepository, name: r}}}",
		"GitRepository":    "interval: 1m, url: 'https://git.example.com/acme/shop'",
		"OCIRepository":    "interval: 1m, url: 'oci://registry.example.com/shop'",
		"Bucket":           "interval: 1m, endpoint: s3.example.com, bucketName: shop",
		"HelmRepository":   "interval: 1m, url: 'https://charts.example.com'",
		"HelmChart":        "interval: 1m, chart: web, sourceRef: {kind: HelmRepository, name: r}",
		"ExternalArtifact": "sourceRef: {apiVersion: source.extensions.fluxcd.io/v1beta1, kind: ArtifactGenerator, name: gen}",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := viewed(t)
				defer c.Stop()
				write(t, c, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: team-a, name: it}, spec: {%s}}", resources[kind].GroupVersion(), kind, spec))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{Recoveries: true})
				require.NoError(t, err)
				for _, step := range []struct{ status, reason, want string }{
					{"True", "Succeeded", ""},
					{"False", "Broken", "Failed " + kind + " team-a/it: Broken"},
					{"Unknown", "Progressing", ""},
					{"False", "Broken", ""},
					{"True", "Succeeded", "Recovered " + kind + " team-a/it: Succeeded"},
				} {
					judge(t, c, kind, step.status, step.reason)
					got := ""
					select {
					case event := <-events:
						got = fmt.Sprintf("%s %s: %s", event.Type, event.Workload, event.Ready.Reason)
					default:
					}
					assert.Equal(t, step.want, got, step.status)
				}
			})
		})
	}
}

// judge writes the condition Ready of the object team-a/it, and waits until it was seen.
func judge(t *testing.T, c *fake.Cluster, kind, status, reason string) {
	t.Helper()
	synctest.Wait()
	resource := c.Resource(resources[kind]).Namespace("team-a")
	u, err := resource.Get(t.Context(), "it", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(u.Object, []any{map[string]any{
		"type": "Ready", "status": status, "reason": reason, "message": "m", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}, "status", "conditions"))
	_, err = resource.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
	require.NoError(t, err)
	synctest.Wait()
}

// A run that cannot fetch its artifact leaves lastAttemptedRevision at what is applied, which is not to blame.
func TestAFailureNamesNoRevisionThatIsAppliedAlready(t *testing.T) {
	for attempted, want := range map[string]string{revisionA: "", revisionB: revisionB} {
		t.Run(attempted, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: shop}, spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}},
  status: {lastAppliedRevision: "`+revisionA+`", lastAttemptedRevision: "`+attempted+`", conditions: [{type: Ready, status: "False", reason: ArtifactFailed, message: m, lastTransitionTime: "2026-05-04T12:00:00Z"}]}}`)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			events, err := viewsOf(t, c).WatchFailures(ctx, gitopsprovider.FailureOptions{})
			require.NoError(t, err)
			assert.Equal(t, want, (<-events).Revision)
		})
	}
}

func TestEachFluxKindHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"flux-system", "team-a"}, Unserved: []schema.GroupResource{resources["HelmRelease"].GroupResource()}})
	t.Cleanup(c.Stop)
	write(t, c, `
{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {namespace: team-a, name: repo}, spec: {interval: 1m, url: "https://git.example.com/acme/shop"}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {namespace: team-a, name: shop}, spec: {interval: 1m, prune: true, sourceRef: {kind: GitRepository, name: repo}}, status: {lastAppliedRevision: `+revisionA+`}}
`)
	view := c.As("reader", func(a authorizationv1.ResourceAttributes) bool { return a.Resource != "gitrepositories" })
	list, err := viewsOf(t, view).Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	require.NoError(t, err)
	answers := map[string]gitopsprovider.Answer{}
	for _, read := range list.Reads {
		answers[read.Kind] = read.Answer
	}
	assert.Equal(t, map[string]gitopsprovider.Answer{
		"Kustomization": gitopsprovider.AnswerFound, "HelmRelease": gitopsprovider.AnswerNotServed, "GitRepository": gitopsprovider.AnswerForbidden,
	}, answers)
	require.ErrorContains(t, list.Err(), "GitRepository")
	require.Len(t, list.Changes, 1)
	assert.Equal(t, revisionA, list.Changes[0].ToRev)
	assert.Empty(t, list.Changes[0].ToCommit, "whether it is a commit is not known without its source")

	_, err = flux.NewReader(view).Get(t.Context(), of("GitRepository", "team-a", "repo"))
	assert.Equal(t, gitopsprovider.AnswerForbidden, gitopsprovider.AnswerOf(err))
}
