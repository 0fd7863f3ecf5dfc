package lab

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Application creates an Argo CD Application that syncs the root folder of
// repo's main branch into its own namespace when it is asked to, and not by
// itself. The functions may change it before it is created.
func (l *Lab) Application(t testing.TB, namespace, name string, repo *Repository,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	return l.Create(t, Applications, NewApplication(namespace, name, repo.URL()), mutate...)
}

// NewApplication is the object that Lab.Application creates.
func NewApplication(namespace, name, url string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Applications.GroupVersion().String(),
		"kind":       "Application",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"project": "default",
			"source": map[string]any{
				"repoURL":        url,
				"path":           ".",
				"targetRevision": DefaultBranch,
			},
			"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": namespace},
		},
	}}
}

// AppProject creates an Argo CD project of the test's own, which allows what
// the project default allows, and returns its name. The functions may change it
// before it is created.
func (l *Lab) AppProject(t testing.TB, mutate ...func(*unstructured.Unstructured)) string {
	t.Helper()
	project := NewAppProject(uniqueName(t))
	l.Create(t, AppProjects, project, mutate...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := l.dynamic.Resource(AppProjects).Namespace(ArgoCDNamespace).Delete(ctx, project.GetName(), metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("delete AppProject %s: %v", project.GetName(), err)
		}
	})
	return project.GetName()
}

// NewAppProject is a project that lets Applications of any namespace sync any
// repository to any destination.
func NewAppProject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": AppProjects.GroupVersion().String(),
		"kind":       "AppProject",
		"metadata":   map[string]any{"namespace": ArgoCDNamespace, "name": name},
		"spec": map[string]any{
			"sourceRepos":              []any{"*"},
			"sourceNamespaces":         []any{"*"},
			"destinations":             []any{map[string]any{"server": "*", "namespace": "*"}},
			"clusterResourceWhitelist": []any{map[string]any{"group": "*", "kind": "*"}},
		},
	}}
}

// Synced is satisfied by an Application whose last operation synced the given
// commit.
func Synced(commit string) Condition {
	return func(object *unstructured.Unstructured) bool {
		return field(object, "status", "operationState", "phase") == "Succeeded" &&
			field(object, "status", "operationState", "syncResult", "revision") == commit
	}
}
