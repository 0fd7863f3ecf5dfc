package argocd_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

// An Application is asked for a commit, here on a cluster in memory with a simulated Argo CD. What the commit no longer has
// stays, because nobody said to prune.
func ExampleClient() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	repository := fake.StartArgoCD(cluster, fake.ArgoCDOptions{}).Remote().Repository("https://git.example.com/acme/shop")
	_, err := cluster.Resource(applications).Namespace("team-a").
		Create(ctx, fake.NewApplication("team-a", "shop", repository.URL()), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
	}

	client, err := argocd.New("prod", cluster, argocd.Options{Initiator: "acme-deployer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	shop := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	apply := func(commit string) {
		end, err := applier.Apply(ctx, client, shop, applier.Ask{
			Want:   applier.Binding{Repository: "git@git.example.com:acme/shop.git", Branch: "main"},
			Commit: commit,
		}, nil)
		fmt.Println(end.AppliedCommit == commit, end.Message, err)
	}
	apply(repository.Commit(fake.Files{
		"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}}",
		"old.yaml":  "{apiVersion: v1, kind: ConfigMap, metadata: {name: old}}",
	}))
	apply(repository.Remove("old.yaml"))
	// Output:
	// true successfully synced (all tasks run) <nil>
	// true successfully synced (all tasks run); not pruned: ConfigMap team-a/old <nil>
}
