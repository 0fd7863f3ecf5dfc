package events

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

var newEvents = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}

// Which fields of Events can be selected by, and what is then found, in both API groups.
func TestFieldSelectors(t *testing.T) {
	t.Parallel()
	simulated := inMemory(t, func(*fake.Cluster) *fake.Remote { return fake.NewRemote() })
	real := inTheLab(t)
	for _, s := range []*side{simulated, real} {
		for _, name := range []string{"a", "b"} {
			s.create(lab.Events, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": name},
				"involvedObject": map[string]any{
					"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "namespace": s.namespace, "name": name, "uid": "u-" + name,
				},
				"source": map[string]any{"component": "c-" + name}, "reportingComponent": "r-" + name, "reason": name, "type": "Normal", "message": name,
			}})
		}
	}
	fields := []string{"metadata.name=a", "metadata.uid=a", "reason=a", "type=Normal", "type=Warning", "message=a", "count=1",
		"source=c-a", "source=r-a", "reportingComponent=r-a", "reportingController=r-a", "deprecatedSource=c-a"}
	for _, about := range []string{"involvedObject", "regarding"} {
		for _, field := range []string{
			"apiVersion=source.toolkit.fluxcd.io/v1", "kind=GitRepository", "namespace=elsewhere", "name=a", "uid=u-a", "resourceVersion=", "fieldPath=", "labels=",
		} {
			fields = append(fields, about+"."+field)
		}
	}
	for _, resource := range []schema.GroupVersionResource{lab.Events, newEvents} {
		for _, field := range fields {
			assert.Equal(t, real.selected(resource, field), simulated.selected(resource, field), "%s by %s", resource.GroupVersion(), field)
		}
	}
	require.Equal(t, "[a]", simulated.selected(lab.Events, "involvedObject.name=a"))
}

// selected is what a field selector finds, or what the server says against it.
func (s *side) selected(resource schema.GroupVersionResource, selector string) string {
	list, err := s.api.Resource(resource).Namespace(s.namespace).List(s.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return err.Error()
	}
	names := []string{}
	for _, event := range list.Items {
		names = append(names, event.GetName())
	}
	return fmt.Sprint(names)
}
