package lab_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// template is a chart's template of a ConfigMap.
const template = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\ndata:\n  chart: {{ .Chart.Version | quote }}\n"

func TestHelmReleaseOfAChartInGit(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	first := repo.Commit(t, lab.Chart("charts/app", "0.1.0", lab.Files{"cm.yaml": template}))
	l.GitRepository(t, ns, "source", repo)
	l.HelmRelease(t, ns, "app", "source", "charts/app")
	l.WaitFor(t, lab.HelmReleases, ns, "app", lab.Released(first))
	data := l.Get(t, lab.ConfigMaps, ns, "app").Object["data"]
	assert.Equal(t, map[string]any{"chart": "0.1.0+" + first[:12]}, data)

	second := repo.Commit(t, lab.Chart("charts/app", "0.2.0", nil))
	stamp(t, l, ns, "source", "token-1")
	release := l.WaitFor(t, lab.HelmReleases, ns, "app", lab.Released(second))
	history, _, err := unstructured.NestedSlice(release.Object, "status", "history")
	require.NoError(t, err)
	assert.Len(t, history, 2)
}

func TestHelmReleaseThatIsDeletedIsUninstalled(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	commit := repo.Commit(t, lab.Chart("app", "0.1.0", lab.Files{"cm.yaml": template}))
	l.GitRepository(t, ns, "source", repo)
	l.HelmRelease(t, ns, "app", "source", "app")
	l.WaitFor(t, lab.HelmReleases, ns, "app", lab.Released(commit))

	err := l.Dynamic().Resource(lab.HelmReleases).Namespace(ns).Delete(t.Context(), "app", metav1.DeleteOptions{})
	require.NoError(t, err)
	l.WaitFor(t, lab.HelmReleases, ns, "app", lab.Gone)
	l.WaitFor(t, lab.ConfigMaps, ns, "app", lab.Gone)
}
