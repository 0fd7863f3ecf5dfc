package lab_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestFluxAppliesACommit(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	first := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
	l.GitRepository(t, ns, "app", repo)
	l.Kustomization(t, ns, "app", "app")
	l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Applied(first))

	second := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")})
	stamp(t, l, ns, "app", "token-1")
	l.WaitFor(t, lab.GitRepositories, ns, "app", lab.Handled("token-1"))
	l.WaitFor(t, lab.GitRepositories, ns, "app", lab.Fetched(second))
	l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Applied(second))

	data := l.Get(t, lab.ConfigMaps, ns, "cm").Object["data"]
	assert.Equal(t, map[string]any{"key": "two"}, data)
}

func TestDeletionIsSeen(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns := l.Namespace(t)
	l.Kustomization(t, ns, "app", "absent")
	err := l.Dynamic().Resource(lab.Kustomizations).Namespace(ns).Delete(t.Context(), "app", metav1.DeleteOptions{})
	require.NoError(t, err)
	assert.Nil(t, l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Gone))
}

func TestKubeconfigReachesTheAPIServer(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	require.NoError(t, err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	version, err := client.ServerVersion()
	require.NoError(t, err)
	assert.Regexp(t, `^v1\.36\.\d+$`, version.GitVersion)
}

func TestHelmReleasesAreServed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	list, err := l.Dynamic().Resource(lab.HelmReleases).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Equal(t, "HelmReleaseList", list.GetKind())
}

func TestBareControlPlaneServesNoFluxKind(t *testing.T) {
	t.Parallel()
	l := lab.StartBare(t)
	_, err := l.Dynamic().Resource(lab.Kustomizations).List(t.Context(), metav1.ListOptions{})
	assert.True(t, apierrors.IsNotFound(err), "got %v", err)
	_, err = l.Dynamic().Resource(lab.ConfigMaps).Namespace(l.Namespace(t)).List(t.Context(), metav1.ListOptions{})
	assert.NoError(t, err)
}

func TestServiceAccountMayDoWhatItsRulesSay(t *testing.T) {
	t.Parallel()
	read := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}
	l := lab.Start(t)
	own, other := l.Namespace(t), l.Namespace(t)

	t.Run("in its namespace", func(t *testing.T) {
		client, err := dynamic.NewForConfig(l.ServiceAccount(t, own, read))
		require.NoError(t, err)
		_, err = client.Resource(lab.ConfigMaps).Namespace(own).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		_, err = client.Resource(lab.ConfigMaps).Namespace(other).List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), "got %v", err)
		_, err = client.Resource(lab.Kustomizations).Namespace(own).List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), "got %v", err)
	})

	t.Run("in all namespaces", func(t *testing.T) {
		client, err := dynamic.NewForConfig(l.ClusterServiceAccount(t, own, read))
		require.NoError(t, err)
		_, err = client.Resource(lab.ConfigMaps).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	})
}
