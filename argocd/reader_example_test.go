package argocd_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// The views of package gitopsprovider over the objects of Argo CD.
func ExampleNewReader() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	_, err := cluster.Resource(applications).Namespace("team-a").
		Create(ctx, fake.NewApplication("team-a", "shop", "https://git.example.com/acme/shop"), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	views, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, argocd.NewReader(cluster))
	if err != nil {
		fmt.Println(err)
		return
	}
	status, err := views.ResourceStatus(ctx, gitopsprovider.Workload{Kind: "Application", Namespace: "team-a", Name: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(status.Ready.State)
	for _, reference := range status.References {
		fmt.Println(reference.Field, reference.Value)
	}
	// Output:
	// Unknown
	// source https://git.example.com/acme/shop . main
	// destination https://kubernetes.default.svc team-a
	// project default
}
