package flux_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// The views of package gitopsprovider over the objects of Flux.
func ExampleNewReader() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	_, err := cluster.Resource(resources["Kustomization"]).Namespace("team-a").
		Create(ctx, fake.NewKustomization("team-a", "shop", "repo"), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	views, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, flux.NewReader(cluster))
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := views.DependencyTree(ctx, gitopsprovider.Workload{Kind: "Kustomization", Namespace: "team-a", Name: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, cause := range tree.RootCauses() {
		fmt.Println(cause.Message)
	}
	// Output:
	// GitRepository team-a/repo in cluster prod does not exist
}
