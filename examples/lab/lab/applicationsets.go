package lab

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ApplicationSet creates an Argo CD ApplicationSet that lists Applications by
// their names and makes each as [NewApplication] does. The functions may change
// it before it is created. Nobody makes the Applications but a Lab of [All].
func (l *Lab) ApplicationSet(t testing.TB, namespace, name string, repo *Repository, applications []string,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	return l.Create(t, ApplicationSets, NewApplicationSet(namespace, name, repo.URL(), applications), mutate...)
}

// NewApplicationSet is the object that Lab.ApplicationSet creates.
func NewApplicationSet(namespace, name, url string, applications []string) *unstructured.Unstructured {
	elements := []any{}
	for _, application := range applications {
		elements = append(elements, map[string]any{"name": application})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ApplicationSets.GroupVersion().String(),
		"kind":       "ApplicationSet",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"goTemplate":        true,
			"goTemplateOptions": []any{"missingkey=error"},
			"generators":        []any{map[string]any{"list": map[string]any{"elements": elements}}},
			"template": map[string]any{
				"metadata": map[string]any{"name": "{{.name}}"},
				"spec":     NewApplication(namespace, "", url).Object["spec"],
			},
		},
	}}
}
