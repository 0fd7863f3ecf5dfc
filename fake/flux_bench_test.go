package fake_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// One whole operation in real time: a commit is pushed, fetched, applied, and its Kustomization is held again.
func BenchmarkFluxOperation(b *testing.B) {
	cluster := newCluster(b)
	repository := fake.StartFlux(cluster, fake.FluxOptions{}).Remote().Repository(repositoryURL)
	ctx := b.Context()
	_, err := cluster.Resource(gitRepositories).Namespace(team).Create(ctx, fake.NewGitRepository(team, "app", repositoryURL), metav1.CreateOptions{})
	require.NoError(b, err)
	_, err = cluster.Resource(kustomizations).Namespace(team).Create(ctx, fake.NewKustomization(team, "app", "app"), metav1.CreateOptions{})
	require.NoError(b, err)
	client, err := flux.New("bench", cluster, flux.Options{FieldManager: "bench"})
	require.NoError(b, err)
	app := types.NamespacedName{Namespace: team, Name: "app"}
	_, err = client.Suspend(ctx, app)
	require.NoError(b, err)
	for b.Loop() {
		_, err := applier.Apply(ctx, client, app, applier.Ask{
			Want: applier.Binding{Repository: repositoryURL, Branch: "main"}, Commit: repository.Commit(value("x")),
		}, nil)
		require.NoError(b, err)
		cluster.ResetRequests()
	}
}
