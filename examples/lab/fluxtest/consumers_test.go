package fluxtest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestConsumersAreAllThatAppliesASourceWhereverItIs(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	source, other := l.Namespace(t), l.Namespace(t)
	s := sharedSource(t, l, source, other)

	for name, config := range map[string]*rest.Config{
		"in one page":             l.RESTConfig(),
		"in pages of one object":  paged(l.RESTConfig(), 1),
		"in pages of two objects": paged(l.RESTConfig(), 2),
		"with no right but to list": l.ClusterServiceAccount(t, source,
			listing(lab.Kustomizations), listing(lab.HelmCharts), listing(lab.HelmReleases)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			consumers, err := client(t, config).Consumers(t.Context(), types.NamespacedName{Namespace: source, Name: "shared"})

			require.NoError(t, err)
			assert.Equal(t, s, consumers)
		})
	}
	t.Run("of a source that nothing applies", func(t *testing.T) {
		t.Parallel()
		consumers, err := client(t, l.RESTConfig()).Consumers(t.Context(), types.NamespacedName{Namespace: other, Name: "nobody"})

		require.NoError(t, err)
		assert.Empty(t, consumers)
	})
}

// What cannot be listed may hold a consumer, so nothing is known.
func TestConsumersAreUnknownWhereOneKindCannotBeListed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns := l.Namespace(t)
	all := []schema.GroupVersionResource{lab.Kustomizations, lab.HelmCharts, lab.HelmReleases}
	for _, missing := range all {
		t.Run("forbidden "+missing.Resource, func(t *testing.T) {
			t.Parallel()
			var rules []rbacv1.PolicyRule
			for _, resource := range all {
				if resource != missing {
					rules = append(rules, listing(resource))
				}
			}

			consumers, err := client(t, l.ClusterServiceAccount(t, ns, rules...)).Consumers(t.Context(), types.NamespacedName{Namespace: ns, Name: "app"})

			require.Error(t, err)
			assert.Empty(t, consumers)
			assert.Equal(t, applier.AbsenceForbidden, applier.AbsenceOf(err))
			assert.ErrorContains(t, err, "cannot list the objects of kind "+kindOf[missing]+" in cluster lab: ")
		})
	}
	t.Run("allowed in one namespace only", func(t *testing.T) {
		t.Parallel()
		config := l.ServiceAccount(t, ns, listing(lab.Kustomizations), listing(lab.HelmCharts), listing(lab.HelmReleases))

		_, err := client(t, config).Consumers(t.Context(), types.NamespacedName{Namespace: ns, Name: "app"})

		assert.Equal(t, applier.AbsenceForbidden, applier.AbsenceOf(err))
	})
	for n := range 5 {
		t.Run("request "+strconv.Itoa(n+1)+" is not answered", func(t *testing.T) {
			t.Parallel()
			sharedSource(t, l, l.Namespace(t), l.Namespace(t))
			faults := lab.NewTransport()
			faults.On(lab.Verb("list"), n+1, lab.Fail(nil))
			config := paged(l.RESTConfig(), 2)
			config.Wrap(faults.Wrap)

			consumers, err := client(t, config).Consumers(t.Context(), types.NamespacedName{Namespace: ns, Name: "app"})

			require.ErrorIs(t, err, lab.ErrLost)
			assert.Empty(t, consumers)
		})
	}
}

func TestConsumersOfAKindThatIsNotServedAreNone(t *testing.T) {
	t.Parallel()
	t.Run("on a cluster without Flux", func(t *testing.T) {
		t.Parallel()
		consumers, err := client(t, lab.StartBare(t).RESTConfig()).Consumers(t.Context(), types.NamespacedName{Namespace: "default", Name: "app"})

		require.NoError(t, err)
		assert.Empty(t, consumers)
	})
	t.Run("on a cluster without helm-controller", func(t *testing.T) {
		t.Parallel()
		l, err := lab.Up(t.Context(), lab.Options{Parts: lab.CRDs, Progress: t.Output()})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, l.Stop()) })
		withdraw(t, l, lab.HelmReleases)
		ns := l.Namespace(t)
		l.Kustomization(t, ns, "app", "app")
		source := types.NamespacedName{Namespace: ns, Name: "app"}
		c := client(t, l.RESTConfig())

		consumers, err := c.Consumers(t.Context(), source)
		require.NoError(t, err)
		assert.Equal(t, []fluxmeta.NamespacedObjectKindReference{
			{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Namespace: ns, Name: "app"},
		}, consumers)

		// A chart is built from it, and whoever releases it cannot be seen.
		l.Create(t, lab.HelmCharts, helmChart(ns, "chart", "app"))
		consumers, err = c.Consumers(t.Context(), source)
		require.EqualError(t, err, "who applies GitRepository "+source.String()+" in cluster lab is not known: a HelmChart is built from it, "+
			"and the cluster does not serve helmreleases.helm.toolkit.fluxcd.io v2")
		assert.Empty(t, consumers)
		consumers, err = c.Consumers(t.Context(), types.NamespacedName{Namespace: ns, Name: "other"})
		require.NoError(t, err, "no chart is built from this one")
		assert.Empty(t, consumers)
	})
}

var kindOf = map[schema.GroupVersionResource]string{
	lab.Kustomizations: "Kustomization", lab.HelmCharts: "HelmChart", lab.HelmReleases: "HelmRelease",
}

func listing(resource schema.GroupVersionResource) rbacv1.PolicyRule {
	return may(resource, "list")
}

// sharedSource creates what applies the GitRepository source/shared, and, beside each, what looks like it and does not. It returns
// the former. None of it reconciles anything: helm-controller does not run, and the GitRepository does not exist.
func sharedSource(t *testing.T, l *lab.Lab, source, other string) []fluxmeta.NamespacedObjectKindReference {
	t.Helper()
	idle := lab.Set(true, "spec", "suspend")
	l.Kustomization(t, source, "b-same-namespace", "shared", idle)
	l.Kustomization(t, source, "a-explicit", "shared", idle, lab.Set(source, "spec", "sourceRef", "namespace"))
	l.Kustomization(t, other, "elsewhere", "shared", idle, lab.Set(source, "spec", "sourceRef", "namespace"))
	l.Kustomization(t, other, "not-same-name-elsewhere", "shared", idle)
	l.Kustomization(t, source, "not-another-source", "shared2", idle)
	l.Kustomization(t, source, "not-another-kind", "shared", idle, lab.Set("OCIRepository", "spec", "sourceRef", "kind"))

	l.Create(t, lab.HelmReleases, helmRelease(source, "by-source"), chartFrom("GitRepository", "shared", ""))
	l.Create(t, lab.HelmReleases, helmRelease(other, "by-source"), chartFrom("GitRepository", "shared", source))
	l.Create(t, lab.HelmReleases, helmRelease(other, "not-by-source"), chartFrom("GitRepository", "shared", ""))
	l.Create(t, lab.HelmReleases, helmRelease(source, "not-from-helm"), chartFrom("HelmRepository", "shared", ""))

	l.Create(t, lab.HelmCharts, helmChart(source, "chart", "shared"), idle)
	l.Create(t, lab.HelmCharts, helmChart(other, "chart", "shared"), idle) // of the GitRepository other/shared
	l.Create(t, lab.HelmCharts, helmChart(source, "from-helm", "shared"), idle, lab.Set("HelmRepository", "spec", "sourceRef", "kind"))
	l.Create(t, lab.HelmReleases, helmRelease(source, "by-chart"), chartRef("HelmChart", "chart", ""))
	l.Create(t, lab.HelmReleases, helmRelease(other, "by-chart"), chartRef("HelmChart", "chart", source))
	l.Create(t, lab.HelmReleases, helmRelease(other, "not-by-chart"), chartRef("HelmChart", "chart", ""))
	l.Create(t, lab.HelmReleases, helmRelease(source, "not-by-oci"), chartRef("OCIRepository", "chart", ""))
	l.Create(t, lab.HelmReleases, helmRelease(source, "not-by-missing-chart"), chartRef("HelmChart", "missing", ""))
	l.Create(t, lab.HelmReleases, helmRelease(source, "not-by-helm-chart"), chartRef("HelmChart", "from-helm", ""))

	kustomization := func(namespace, name string) fluxmeta.NamespacedObjectKindReference {
		return fluxmeta.NamespacedObjectKindReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Namespace: namespace, Name: name}
	}
	release := func(namespace, name string) fluxmeta.NamespacedObjectKindReference {
		return fluxmeta.NamespacedObjectKindReference{APIVersion: "helm.toolkit.fluxcd.io/v2", Kind: "HelmRelease", Namespace: namespace, Name: name}
	}
	ofSource := []fluxmeta.NamespacedObjectKindReference{kustomization(source, "a-explicit"), kustomization(source, "b-same-namespace")}
	elsewhere := kustomization(other, "elsewhere")
	releases := []fluxmeta.NamespacedObjectKindReference{release(source, "by-chart"), release(source, "by-source")}
	releasesElsewhere := []fluxmeta.NamespacedObjectKindReference{release(other, "by-chart"), release(other, "by-source")}
	if other < source {
		return slices.Concat(releasesElsewhere, releases, []fluxmeta.NamespacedObjectKindReference{elsewhere}, ofSource)
	}
	return slices.Concat(releases, releasesElsewhere, ofSource, []fluxmeta.NamespacedObjectKindReference{elsewhere})
}

func helmRelease(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"interval": "1h"},
	}}
}

// chartFrom lets a HelmRelease have its chart built from a source; an empty namespace is left out.
func chartFrom(kind, name, namespace string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		lab.Set("./chart", "spec", "chart", "spec", "chart")(u)
		lab.Set(sourceRef(kind, name, namespace), "spec", "chart", "spec", "sourceRef")(u)
	}
}

// chartRef lets a HelmRelease use a chart.
func chartRef(kind, name, namespace string) func(*unstructured.Unstructured) {
	return lab.Set(sourceRef(kind, name, namespace), "spec", "chartRef")
}

func sourceRef(kind, name, namespace string) map[string]any {
	ref := map[string]any{"kind": kind, "name": name}
	if namespace != "" {
		ref["namespace"] = namespace
	}
	return ref
}

func helmChart(namespace, name, gitRepository string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"interval": "1h", "chart": "./chart",
			"sourceRef": map[string]any{"kind": "GitRepository", "name": gitRepository},
		},
	}}
}

// paged makes the API server answer lists in pages of so many objects.
func paged(config *rest.Config, limit int) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if query := r.URL.Query(); query.Has("limit") {
				r = r.Clone(r.Context())
				query.Set("limit", strconv.Itoa(limit))
				r.URL.RawQuery = query.Encode()
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// withdraw makes a cluster serve a kind no longer.
func withdraw(t *testing.T, l *lab.Lab, kind schema.GroupVersionResource) {
	t.Helper()
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	name := kind.GroupResource().String()
	require.NoError(t, l.Dynamic().Resource(definitions).Delete(t.Context(), name, metav1.DeleteOptions{}))
	l.WaitFor(t, definitions, "", name, lab.Gone)
	require.Eventually(t, func() bool { return notServed(t.Context(), l.Dynamic(), kind) }, lab.WaitTimeout, 1e7)
}

// notServed asks the API server itself.
func notServed(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource) bool {
	_, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
	return err != nil
}
