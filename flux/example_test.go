package flux_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// A Kustomization is held, asked for a commit, and handed back, here on a cluster in memory with a simulated Flux.
func ExampleClient() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	repository := fake.StartFlux(cluster, fake.FluxOptions{}).Remote().Repository("https://git.example.com/acme/shop")
	for resource, object := range map[string]func() error{
		"gitrepositories": func() error {
			gvr := schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
			_, err := cluster.Resource(gvr).Namespace("team-a").
				Create(ctx, fake.NewGitRepository("team-a", "shop", repository.URL()), metav1.CreateOptions{})
			return err
		},
		"kustomizations": func() error {
			gvr := schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
			_, err := cluster.Resource(gvr).Namespace("team-a").
				Create(ctx, fake.NewKustomization("team-a", "shop", "shop"), metav1.CreateOptions{})
			return err
		},
	} {
		if err := object(); err != nil {
			fmt.Println(resource, err)
		}
	}

	client, err := flux.New("prod", cluster, flux.Options{FieldManager: "acme-deployer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	app := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	if _, err := client.Suspend(ctx, app); err != nil {
		fmt.Println(err)
	}
	end, err := applier.Apply(ctx, client, app, applier.Ask{
		Want:   applier.Binding{Repository: repository.URL(), Branch: "main"},
		Commit: repository.Commit(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}}"}),
	}, nil)
	fmt.Println(end.State, err)
	suspension, err := client.Suspension(ctx, app)
	fmt.Println("held:", suspension.Held && suspension.Handled, err)
	keeper, err := client.Release(ctx, app)
	fmt.Printf("kept suspended by %q %v\n", keeper, err)
	// Output:
	// Succeeded <nil>
	// held: true <nil>
	// kept suspended by "" <nil>
}
