package fake_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/fake"
)

func BenchmarkNewCluster(b *testing.B) {
	for b.Loop() {
		fake.NewCluster(fake.Options{}).Stop()
	}
}

func BenchmarkApply(b *testing.B) {
	c := newCluster(b)
	createShop(b, c)
	shops := c.Resource(kustomizations).Namespace(team)
	suspend := object(b, `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop}
spec: {suspend: true}
`)
	resume := suspend.DeepCopy()
	resume.Object["spec"] = map[string]any{"suspend": false}
	options := metav1.ApplyOptions{FieldManager: "bench"}
	for b.Loop() {
		if _, err := shops.Apply(b.Context(), "shop", suspend, options); err != nil {
			b.Fatal(err)
		}
		suspend, resume = resume, suspend
		c.ResetRequests()
	}
}

func BenchmarkListOf10000(b *testing.B) {
	c := newCluster(b)
	shop := object(b, shopYAML)
	shops := c.Resource(kustomizations).Namespace(team)
	for i := range 10_000 {
		shop.SetName(fmt.Sprintf("shop-%05d", i))
		if _, err := shops.Create(b.Context(), shop, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		options := metav1.ListOptions{Limit: 500}
		for {
			page, err := shops.List(b.Context(), options)
			if err != nil {
				b.Fatal(err)
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
}
