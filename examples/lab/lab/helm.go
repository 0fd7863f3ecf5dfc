package lab

import (
	"fmt"
	"path"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// HelmRelease creates a Flux HelmRelease of the chart in a folder of a
// GitRepository beside it, into its own namespace. Each commit that the
// GitRepository fetches makes a new version of the chart, whatever the chart
// says its version is; otherwise it looks once an hour. The functions may
// change it before it is created. Nobody installs it but a Lab of [All].
func (l *Lab) HelmRelease(t testing.TB, namespace, name, gitRepository, folder string,
	mutate ...func(*unstructured.Unstructured),
) *unstructured.Unstructured {
	t.Helper()
	return l.Create(t, HelmReleases, NewHelmRelease(namespace, name, gitRepository, folder), mutate...)
}

// NewHelmRelease is the object that Lab.HelmRelease creates.
func NewHelmRelease(namespace, name, gitRepository, folder string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": HelmReleases.GroupVersion().String(),
		"kind":       "HelmRelease",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"interval": "1h",
			"chart": map[string]any{"spec": map[string]any{
				"chart":             folder,
				"interval":          "1h",
				"reconcileStrategy": "Revision",
				"sourceRef":         map[string]any{"kind": "GitRepository", "name": gitRepository},
			}},
		},
	}}
}

// Chart is the files of a Helm chart in a folder, which bears the folder's
// name. The templates are named by their paths below templates.
func Chart(folder, version string, templates Files) Files {
	files := Files{
		path.Join(folder, "Chart.yaml"): fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", path.Base(folder), version),
	}
	for name, content := range templates {
		files[path.Join(folder, "templates", name)] = content
	}
	return files
}

// Released is satisfied by a HelmRelease that is ready at its generation, with
// the chart that was made of the given commit. The chart's version then ends
// in + and the commit's first twelve digits.
func Released(commit string) Condition {
	return func(object *unstructured.Unstructured) bool {
		if !Ready(object) {
			return false
		}
		history, _, _ := unstructured.NestedSlice(object.Object, "status", "history")
		if len(history) == 0 {
			return false
		}
		latest, _ := history[0].(map[string]any)
		version, _ := latest["chartVersion"].(string)
		return after(version, "+") == commit[:min(len(commit), 12)]
	}
}
