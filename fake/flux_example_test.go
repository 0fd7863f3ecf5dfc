package fake_test

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// A commit is pushed, its apply is asked for, and the outcome is shown, with the real client against a simulated Flux. What
// the commit holds is in the cluster then; a commit that Flux cannot build fails as it would there.
func ExampleFlux() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	simulated := fake.StartFlux(cluster, fake.FluxOptions{})
	repository := simulated.Remote().Repository("https://git.example.com/acme/shop")
	_, _ = cluster.Resource(gitRepositories).Namespace("team-a").Create(ctx, fake.NewGitRepository("team-a", "shop", repository.URL()), metav1.CreateOptions{})
	_, _ = cluster.Resource(kustomizations).Namespace("team-a").Create(ctx, fake.NewKustomization("team-a", "shop", "shop"), metav1.CreateOptions{})

	client, _ := flux.New("prod", cluster, flux.Options{FieldManager: "acme-deployer"})
	app := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	if _, err := client.Suspend(ctx, app); err != nil {
		fmt.Println(err)
	}
	push := func(files fake.Files) {
		end, err := applier.Apply(ctx, client, app, applier.Ask{
			Want:   applier.Binding{Repository: repository.URL(), Branch: "main"},
			Commit: repository.Commit(files),
		}, nil)
		if err != nil && !errors.Is(err, applier.ErrFailed) {
			fmt.Println(err)
		}
		fmt.Println(end.State, end.Reason)
	}
	push(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}, data: {open: always}}"})
	push(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop"})

	shop, _ := cluster.Resource(configMaps).Namespace("team-a").Get(ctx, "shop", metav1.GetOptions{})
	fmt.Println(shop.Object["data"])
	// Output:
	// Succeeded ReconciliationSucceeded
	// Failed BuildFailed
	// map[open:always]
}
