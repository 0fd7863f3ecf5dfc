package gitopsprovider_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// deployer has an engine apply a commit, which the branch then names.
type deployer struct {
	views  *gitopsprovider.Views
	repo   *fake.Repository
	deploy func(commit string)
}

func withFlux(t *testing.T, c *fake.Cluster) deployer {
	remote := fake.StartFlux(c, fake.FluxOptions{}).Remote()
	repo := remote.Repository(shopURL)
	_, err := c.Resource(gitRepositories).Namespace("ns").Create(t.Context(), fake.NewGitRepository("ns", "repo", shopURL), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Resource(kustomizations).Namespace("ns").Create(t.Context(), fake.NewKustomization("ns", "shop", "repo"), metav1.CreateOptions{})
	require.NoError(t, err)
	return deployer{views(t, remote, flux.NewReader(c)), repo, func(commit string) {
		repo.SetBranch(fake.DefaultBranch, commit)
		_, err := c.Resource(gitRepositories).Namespace("ns").Patch(t.Context(), "repo", types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now()), metav1.PatchOptions{})
		require.NoError(t, err)
	}}
}

func withArgoCD(t *testing.T, c *fake.Cluster) deployer {
	remote := fake.StartArgoCD(c, fake.ArgoCDOptions{}).Remote()
	repo := remote.Repository(shopURL)
	resource := c.Resource(applications).Namespace("ns")
	_, err := resource.Create(t.Context(), fake.NewApplication("ns", "shop", shopURL), metav1.CreateOptions{})
	require.NoError(t, err)
	return deployer{views(t, remote, argocd.NewReader(c)), repo, func(commit string) {
		repo.SetBranch(fake.DefaultBranch, commit)
		u, err := resource.Get(t.Context(), "shop", metav1.GetOptions{})
		require.NoError(t, err)
		unstructured.RemoveNestedField(u.Object, "status", "operationState")
		require.NoError(t, unstructured.SetNestedField(u.Object, commit, "operation", "sync", "revision"))
		_, err = resource.Update(t.Context(), u, metav1.UpdateOptions{})
		require.NoError(t, err)
	}}
}

// The same story, told by each engine's own history.
func TestTheWindowOfAnIncidentHasWhatWasRolledBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		engine func(*testing.T, *fake.Cluster) deployer
		commit string
		notes  int
	}{
		"Flux":   {withFlux, "good deployed false", 1},
		"ArgoCD": {withArgoCD, "good deployed true", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := fake.NewCluster(fake.Options{Namespaces: []string{"ns"}})
				defer c.Stop()
				engine := test.engine(t, c)
				commits := map[string]string{}
				apply := func(name, color string) {
					time.Sleep(time.Hour)
					if commits[name] == "" {
						commits[name] = engine.repo.Commit(fake.Files{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: ns, name: cm}\ndata: {color: " + color + "}\n"})
					}
					time.Sleep(time.Second)
					engine.deploy(commits[name])
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				began := time.Now()
				apply("good", "green")
				apply("bad", "red")
				outage := time.Now()
				apply("good", "green")
				names := map[string]string{"": "nothing", commits["good"]: "good", commits["bad"]: "bad"}

				list, err := engine.views.Changes(t.Context(), gitopsprovider.TimeWindow{Since: began}, gitopsprovider.Selector{})
				require.NoError(t, err)
				require.Len(t, list.Changes, 3)
				rollback, bad, good := list.Changes[0], list.Changes[1], list.Changes[2]
				assert.Equal(t, []string{"bad", "good"}, []string{names[rollback.FromCommit], names[rollback.ToCommit]})
				assert.Equal(t, []bool{true, false, false}, []bool{rollback.Current, bad.Current, good.Current})
				assert.Equal(t, "bad", names[bad.ToCommit])
				assert.WithinDuration(t, began.Add(2*time.Hour), bad.DeployedAt, 3*time.Minute)
				assert.Len(t, bad.Notes, test.notes)
				assert.Equal(t, test.commit, fmt.Sprintf("%s deployed %t", names[good.ToCommit], !good.DeployedAt.IsZero()))
				assert.NotNil(t, good.Commit)

				list, err = engine.views.Changes(t.Context(), gitopsprovider.TimeWindow{Since: began, Until: outage}, gitopsprovider.Selector{})
				require.NoError(t, err)
				require.Len(t, list.Changes, 2)
				assert.Equal(t, []string{"bad", "good"}, []string{names[list.Changes[0].ToCommit], names[list.Changes[1].ToCommit]}, "what ran at its end comes first")
			})
		})
	}
}
