package argocd_test

import (
	"errors"
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

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// healthy is the status of an Application that is, and degraded of one that is not.
const (
	healthy  = "reconciledAt: '2026-05-04T12:00:00Z', health: {status: Healthy}"
	degraded = "reconciledAt: '2026-05-04T12:00:00Z', health: {status: Degraded, message: pods crash}"
)

func child(name string) string {
	return "{group: argoproj.io, kind: Application, namespace: argocd, name: " + name + ", version: v1alpha1}"
}

// By default Argo CD does not carry the health of a child up to its parent.
func TestATreeOfAppsOfAppsShowsEachOnesOwnHealth(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, app("parent", "", healthy+", resources: ["+child("one")+", "+child("two")+", {kind: ConfigMap, namespace: shop, name: cm, version: v1}]")+"\n---\n"+
		app("one", "", healthy)+"\n---\n"+app("two", "", degraded))
	tree, err := viewsOf(t, c).DependencyTree(t.Context(), application("parent"))
	require.NoError(t, err)
	assert.Equal(t, `Application argocd/parent  Ready
├─ applies Application argocd/one  Ready
└─ applies Application argocd/two  Failing: Degraded: pods crash

Root causes:
  Application argocd/two  Failing: Degraded: pods crash
`, tree.Text())
}

// What an Application follows and never applied is nothing that it depends on. Where the health of each object is kept
// elsewhere, as it is by default, OutOfSync is all that is said of it.
func TestATreeHasNoObjectsThatWereNeverApplied(t *testing.T) {
	t.Parallel()
	one := func(state string) string { return strings.Replace(child("one"), "}", ", "+state+"}", 1) }
	const synced = "history: [{id: 1, deployedAt: '2026-05-04T10:00:00Z', revision: " + commitA + ", source: {repoURL: 'https://git.example.com/acme/shop'}}], "
	for name, test := range map[string]struct {
		status string
		want   int
	}{
		"missing":                       {"resources: [" + one("status: OutOfSync, health: {status: Missing}") + "]", 0},
		"out of sync":                   {"resources: [" + one("status: OutOfSync") + "]", 0},
		"there before it":               {"resources: [" + one("status: OutOfSync, health: {status: Healthy}") + "]", 1},
		"applied by a sync that failed": {"resources: [" + one("status: Synced") + "]", 1},
		"missing since it was applied":  {synced + "resources: [" + one("status: OutOfSync, health: {status: Missing}") + "]", 1},
		"out of sync, and applied once": {synced + "resources: [" + one("status: OutOfSync") + "]", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, app("parent", "", "reconciledAt: '2026-05-04T12:00:00Z', health: {status: Healthy}, sync: {status: OutOfSync}, "+test.status))
			tree, err := viewsOf(t, c).DependencyTree(t.Context(), application("parent"))
			require.NoError(t, err)
			assert.Len(t, tree.Children, test.want)
			assert.Len(t, tree.RootCauses(), test.want)
		})
	}
}

func TestATreeOfAnApplicationSet(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, set("all", "{type: ErrorOccurred, status: 'True', reason: RenderError, message: bad template, lastTransitionTime: '2026-05-04T12:00:00Z'}", child("gone-since")))
	owned := strings.Replace(app("one", "", healthy), "name: one}", "name: one, ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: all, uid: u, controller: true}]}", 1)
	write(t, c, owned)

	tree, err := viewsOf(t, c).DependencyTree(t.Context(), gitopsprovider.Workload{Kind: "ApplicationSet", Namespace: "argocd", Name: "all"})
	require.NoError(t, err)
	assert.Equal(t, `ApplicationSet argocd/all  Failing: RenderError: bad template
└─ generates Application argocd/one  Ready

Root causes:
  ApplicationSet argocd/all  Failing: RenderError: bad template
`, tree.Text())

	tree, err = viewsOf(t, c).DependencyTree(t.Context(), application("one"))
	require.NoError(t, err)
	require.Len(t, tree.Children, 1)
	assert.Equal(t, gitopsprovider.RelationOwnedBy, tree.Children[0].Relation)
	assert.Empty(t, tree.Children[0].Children, "not its siblings")
}

func TestATraceFollowsArgoCDsMarks(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	configMap := func(name, metadata string) string {
		return "---\n{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: " + name + ", " + metadata + "}}\n"
	}
	write(t, c, app("shop", "", history("2026-05-04T10:00:00Z="+commitA)+", resources: [{kind: ConfigMap, namespace: shop, name: tracked, version: v1}, {kind: ConfigMap, namespace: shop, name: labelled, version: v1}]")+"\n"+
		configMap("tracked", `annotations: {argocd.argoproj.io/tracking-id: "shop:/ConfigMap:shop/tracked"}`)+
		configMap("elsewhere", `annotations: {argocd.argoproj.io/tracking-id: "argocd_shop:/ConfigMap:shop/elsewhere"}`)+
		configMap("copied", `annotations: {argocd.argoproj.io/tracking-id: "shop:/ConfigMap:shop/tracked"}`)+
		configMap("odd", `annotations: {argocd.argoproj.io/tracking-id: "shop"}`)+
		configMap("labelled", `labels: {app.kubernetes.io/instance: shop}`)+
		configMap("of-helm", `labels: {app.kubernetes.io/instance: shop}`))
	for name, test := range map[string]struct {
		by        string
		confirmed bool
		unknown   string
	}{
		"tracked":   {"annotation argocd.argoproj.io/tracking-id", true, ""},
		"elsewhere": {"annotation argocd.argoproj.io/tracking-id", false, "does not list it among what it applied"},
		"copied":    {"", false, "which is not about it: it names /ConfigMap:shop/tracked"},
		"odd":       {"", false, `which is not about it: it is "shop", not application:group/kind:namespace/name`},
		"labelled":  {"label app.kubernetes.io/instance", true, ""},
		"of-helm":   {"", false, "no label, annotation or owner"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trace, err := viewsOf(t, c).Trace(t.Context(), gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "shop", Name: name})
			require.NoError(t, err)
			if test.unknown == "" {
				assert.Empty(t, trace.Unknown)
			} else {
				assert.Contains(t, strings.Join(trace.Unknown, "\n"), test.unknown)
			}
			if test.by == "" {
				assert.Len(t, trace.Steps, 1)
				return
			}
			require.Len(t, trace.Steps, 2)
			assert.Equal(t, application("shop"), trace.Steps[1].Workload)
			assert.Equal(t, test.by, trace.Steps[1].By)
			assert.Equal(t, test.confirmed, trace.Steps[1].Confirmed)
			assert.Equal(t, commitA, trace.Origin().Commit)
			assert.Equal(t, "apps/shop", trace.Origin().Path)
		})
	}
}

// The annotation of an object of the whole cluster has the destination's namespace.
func TestAMarkOfAnObjectOfTheWholeClusterIsItsOwn(t *testing.T) {
	t.Parallel()
	marks := argocd.NewReader(nil).Managers(gitopsprovider.Object{
		Workload:    gitopsprovider.Workload{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"},
		Annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:rbac.authorization.k8s.io/ClusterRole:shop/reader"},
	})
	require.Len(t, marks, 1)
	assert.Empty(t, marks[0].Copied)
}

func TestTheViewsFollowWhatArgoCDSyncs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := viewed(t)
		defer c.Stop()
		simulated := fake.StartArgoCD(c, fake.ArgoCDOptions{})
		repo := simulated.Remote().Repository("https://git.example.com/acme/shop")
		first := repo.Commit(fake.Files{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n"})
		_, err := c.Resource(applications).Namespace(team).Create(t.Context(), fake.NewApplication(team, "shop", repo.URL()), metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		v := viewsOf(t, c)
		list, err := v.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
		require.NoError(t, err)
		assert.Empty(t, list.Changes, "nothing is synced yet")

		deployed := time.Now()
		syncTo(t, c, first)
		time.Sleep(time.Hour)
		second := repo.Commit(fake.Files{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\ndata: {a: b}\n"})
		syncTo(t, c, second)
		time.Sleep(5 * time.Minute)
		syncTo(t, c, second)
		list, err = v.Changes(t.Context(), gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: team})
		require.NoError(t, err)
		require.Len(t, list.Changes, 1)
		change := list.Changes[0]
		assert.Equal(t, second, change.ToCommit)
		assert.Equal(t, first, change.FromCommit)
		assert.WithinDuration(t, deployed.Add(time.Hour), change.DeployedAt, 2*time.Second, "that of its first sync")
		list, err = v.Changes(t.Context(), gitopsprovider.TimeWindow{Since: deployed.Add(-time.Minute)}, gitopsprovider.Selector{})
		require.NoError(t, err)
		assert.Len(t, list.Changes, 2)

		trace, err := v.Trace(t.Context(), gitopsprovider.Workload{Kind: "ConfigMap", Namespace: team, Name: "cm"})
		require.NoError(t, err)
		assert.Equal(t, second, trace.Origin().Commit)
		assert.Empty(t, trace.Unknown)
	})
}

// syncTo syncs the Application team-a/shop to a commit.
func syncTo(t *testing.T, c *fake.Cluster, commit string) {
	t.Helper()
	resource := c.Resource(applications).Namespace(team)
	u, err := resource.Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)
	unstructured.RemoveNestedField(u.Object, "status", "operationState")
	require.NoError(t, unstructured.SetNestedField(u.Object, commit, "operation", "sync", "revision"))
	_, err = resource.Update(t.Context(), u, metav1.UpdateOptions{})
	require.NoError(t, err)
	time.Sleep(time.Second)
	synctest.Wait()
}

// What is wrong with one engine is no matter of the other, and is not remembered.
func TestOneEnginesAnswersAreNotTheOthers(t *testing.T) {
	t.Parallel()
	kustomization := schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	for name, test := range map[string]struct {
		unserved bool
		err      error
		allowed  func(authorizationv1.ResourceAttributes) bool
		answer   gitopsprovider.Answer
		message  string
	}{
		"not served": {unserved: true, answer: gitopsprovider.AnswerNotServed, message: "does not serve this kind"},
		"forbidden": {
			allowed: func(a authorizationv1.ResourceAttributes) bool { return a.Group != "argoproj.io" },
			answer:  gitopsprovider.AnswerForbidden, message: "grant it the verbs get and list",
		},
		"no answer": {err: errors.New("connection timed out"), answer: gitopsprovider.AnswerUnknown, message: "connection timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			_, err := c.Resource(kustomization).Namespace("shop").Create(t.Context(), fake.NewKustomization("shop", "ks", "repo"), metav1.CreateOptions{})
			require.NoError(t, err)
			write(t, c, app("shop", "", healthy))
			view := c.As("reader", test.allowed)
			if test.unserved {
				c.Unserve(applications.GroupResource())
				c.Unserve(applicationSets.GroupResource())
			}
			mend := func() {}
			if test.err != nil {
				mend = view.Inject(fake.Fault{Group: "argoproj.io", Err: test.err})
			}
			v, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, flux.NewReader(view), argocd.NewReader(view))
			require.NoError(t, err)

			status, err := v.ResourceStatus(t.Context(), application("shop"))
			require.NoError(t, err)
			assert.Equal(t, test.answer, status.Answer)
			assert.Contains(t, status.Message, "Application argocd/shop in cluster prod")
			assert.Contains(t, status.Message, test.message)
			assert.Equal(t, gitopsprovider.StateUnknown, status.Ready.State)
			status, err = v.ResourceStatus(t.Context(), gitopsprovider.Workload{Kind: "Kustomization", Namespace: "shop", Name: "ks"})
			require.NoError(t, err)
			assert.Equal(t, gitopsprovider.AnswerFound, status.Answer)

			if test.answer == gitopsprovider.AnswerForbidden {
				return
			}
			mend()
			c.Serve(applications.GroupResource())
			status, err = v.ResourceStatus(t.Context(), application("shop"))
			require.NoError(t, err)
			assert.Equal(t, gitopsprovider.AnswerFound, status.Answer, "as soon as it can be read")
		})
	}
}
