package argocd_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestManyOperationsAreFollowedByOneWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const count = 10
		cluster := fake.NewCluster(fake.Options{Namespaces: []string{team}})
		t.Cleanup(cluster.Stop)
		simulated := fake.StartArgoCD(cluster, fake.ArgoCDOptions{})
		repository := simulated.Remote().Repository(conformanceURL)
		commit := repository.Commit(fake.Files{"app.yaml": fmt.Sprintf(manifest, "one")})
		for i := range count {
			app := fake.NewApplication(team, fmt.Sprint("app-", i), conformanceURL)
			_, err := cluster.Resource(applications).Namespace(team).Create(t.Context(), app, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		synctest.Wait()
		view := cluster.As("acme", nil)
		client, err := argocd.New("prod", view, argocd.Options{Initiator: "acme"})
		require.NoError(t, err)
		// None ends before all are followed.
		released := make(chan struct{})
		simulated.Inject(fake.StepFault{Step: fake.ApplyStep, Do: func() { <-released }})

		var operations sync.WaitGroup
		for i := range count {
			operations.Go(func() {
				ref := types.NamespacedName{Namespace: team, Name: fmt.Sprint("app-", i)}
				want := applier.Binding{Repository: conformanceURL, Branch: "main"}
				end, err := applier.Apply(t.Context(), client, ref, applier.Ask{Want: want, Commit: commit}, nil)
				assert.NoError(t, err)
				assert.Equal(t, commit, end.AppliedCommit)
			})
		}
		synctest.Wait()
		close(released)
		operations.Wait()

		shared := 0
		for _, r := range view.Requests() {
			if r.Verb == "watch" && r.Name == "" {
				shared++
			}
		}
		assert.Equal(t, 1, shared)
		assert.LessOrEqual(t, len(view.Requests()), 6*count)
	})
}
