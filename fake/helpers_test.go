package fake_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/fake"
)

var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	events          = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

const team = "team-a"

// newCluster starts a cluster that has the namespace team-a.
func newCluster(t testing.TB) *fake.Cluster {
	t.Helper()
	c := fake.NewCluster(fake.Options{Namespaces: []string{team}})
	t.Cleanup(c.Stop)
	return c
}

// object reads an object from YAML.
func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	// Numbers as decoding JSON gives them.
	data, err := u.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

const shopYAML = `
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: team-a}
spec:
  interval: 10m
  prune: true
  sourceRef: {kind: GitRepository, name: shop}
`

// createShop creates the Kustomization team-a/shop.
func createShop(t testing.TB, client dynamic.Interface) *unstructured.Unstructured {
	t.Helper()
	created, err := client.Resource(kustomizations).Namespace(team).Create(t.Context(), object(t, shopYAML), metav1.CreateOptions{FieldManager: "creator"})
	require.NoError(t, err)
	return created
}
