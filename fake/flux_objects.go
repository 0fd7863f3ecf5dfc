package fake

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// NewGitRepository is a GitRepository that follows the main branch of a repository once an hour.
func NewGitRepository(namespace, name, url string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gitRepositoryResource.GroupVersion().String(),
		"kind":       "GitRepository",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"interval": "1h",
			"url":      url,
			"ref":      map[string]any{"branch": DefaultBranch},
		},
	}}
}

// NewKustomization is a Kustomization that applies the root folder of the GitRepository beside it into its own namespace,
// prunes, and does so by itself once an hour.
func NewKustomization(namespace, name, gitRepository string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kustomizationResource.GroupVersion().String(),
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
