package fake_test

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

// A commit is pushed, its sync is asked for, and the outcome is shown, with the real client against a simulated Argo CD. What
// the commit holds is in the cluster then; a commit that Argo CD cannot load fails as it would there.
func ExampleArgoCD() {
	ctx := context.Background()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	simulated := fake.StartArgoCD(cluster, fake.ArgoCDOptions{})
	repository := simulated.Remote().Repository("https://git.example.com/acme/shop")
	application := fake.NewApplication("team-a", "shop", repository.URL())
	// Without this a sync that fails is retried five times, as Argo CD's automated syncs are.
	application.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{"retry": map[string]any{"limit": int64(0)}}
	_, _ = cluster.Resource(applications).Namespace("team-a").Create(ctx, application, metav1.CreateOptions{})

	client, _ := argocd.New("prod", cluster, argocd.Options{Initiator: "acme-deployer"})
	push := func(files fake.Files) {
		end, err := applier.Apply(ctx, client, types.NamespacedName{Namespace: "team-a", Name: "shop"}, applier.Ask{
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
	// Succeeded Succeeded
	// Failed Error
	// map[open:always]
}
