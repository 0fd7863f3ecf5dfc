package lab

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that tests deal with.
var (
	Kustomizations   = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	GitRepositories  = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	OCIRepositories  = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "ocirepositories"}
	Buckets          = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "buckets"}
	HelmRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "helmrepositories"}
	HelmCharts       = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "helmcharts"}
	HelmReleases     = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	Applications     = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	ApplicationSets  = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
	AppProjects      = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"}
	ConfigMaps       = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Events           = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	Namespaces       = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

var names atomic.Int64

// uniqueName is a name that says which test it belongs to.
func uniqueName(t testing.TB) string {
	return fmt.Sprintf("%s-%d", slug(t.Name(), 40), names.Add(1))
}

// Namespace makes a namespace of the test's own and returns its name. When the
// test has ended, the objects that the controllers would go on working for are
// deleted, and then the namespace. Nobody empties it any further, since no
// kube-controller-manager runs.
func (l *Lab) Namespace(t testing.TB) string {
	t.Helper()
	name := uniqueName(t)
	l.Create(t, Namespaces, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.clear(ctx, name); err != nil {
			t.Errorf("clear namespace %s: %v", name, err)
		}
	})
	return name
}

// clear deletes what controllers act on in a namespace.
func (l *Lab) clear(ctx context.Context, namespace string) error {
	var worked []schema.GroupVersionResource
	if l.ApplicationController != nil {
		// First what would make the others anew.
		worked = append(worked, ApplicationSets, Applications)
	}
	if l.KustomizeController != nil {
		worked = append(worked, Kustomizations, HelmReleases, HelmCharts, GitRepositories,
			OCIRepositories, HelmRepositories, Buckets)
	}
	for _, gvr := range worked {
		err := l.dynamic.Resource(gvr).Namespace(namespace).
			DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("delete the %s: %w", gvr.Resource, err)
		}
	}
	return l.dynamic.Resource(Namespaces).Delete(ctx, namespace, metav1.DeleteOptions{})
}

// GitRepository creates a Flux GitRepository that follows the main branch of
// repo once an hour. The functions may change it before it is created.
func (l *Lab) GitRepository(t testing.TB, namespace, name string, repo *Repository,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	return l.Create(t, GitRepositories, NewGitRepository(namespace, name, repo.URL()), mutate...)
}

// Kustomization creates a Flux Kustomization that applies the root folder of a
// GitRepository beside it into its own namespace, prunes, and does so by itself
// only once an hour. The functions may change it before it is created.
func (l *Lab) Kustomization(t testing.TB, namespace, name, gitRepository string,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	return l.Create(t, Kustomizations, NewKustomization(namespace, name, gitRepository), mutate...)
}

// NewGitRepository is the object that Lab.GitRepository creates.
func NewGitRepository(namespace, name, url string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": GitRepositories.GroupVersion().String(),
		"kind":       "GitRepository",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"interval": "1h",
			"url":      url,
			"ref":      map[string]any{"branch": DefaultBranch},
		},
	}}
}

// NewKustomization is the object that Lab.Kustomization creates.
func NewKustomization(namespace, name, gitRepository string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Kustomizations.GroupVersion().String(),
		"kind":       "Kustomization",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"interval":        "1h",
			"path":            "./",
			"prune":           true,
			"targetNamespace": namespace,
			"sourceRef":       map[string]any{"kind": "GitRepository", "name": gitRepository},
		},
	}}
}

// Create creates an object as the administrator and returns it as stored.
func (l *Lab) Create(t testing.TB, gvr schema.GroupVersionResource, object *unstructured.Unstructured,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	for _, f := range mutate {
		f(object)
	}
	created, err := l.dynamic.Resource(gvr).Namespace(object.GetNamespace()).
		Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %s/%s: %v", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return created
}

// Get reads an object as the administrator.
func (l *Lab) Get(t testing.TB, gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := l.dynamic.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get %s %s/%s: %v", gvr.Resource, namespace, name, err)
	}
	return object
}

// Set returns a function that sets one field of an object, named by its path:
// Set(true, "spec", "suspend").
func Set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
			panic(fmt.Sprintf("set %s: %v", strings.Join(path, "."), err))
		}
	}
}

// ConfigMap is the manifest of a ConfigMap with one key.
func ConfigMap(name, key, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  %s: %q\n", name, key, value)
}
