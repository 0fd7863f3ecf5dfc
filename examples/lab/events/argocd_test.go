package events

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

func startArgoCD(cluster *fake.Cluster) *fake.Remote {
	return fake.StartArgoCD(cluster, fake.ArgoCDOptions{}).Remote()
}

// compared is satisfied by an Application that was compared with what it is to be, with the given result.
func compared(status string) lab.Condition {
	return func(object *unstructured.Unstructured) bool {
		if object == nil {
			return false
		}
		found, _, _ := unstructured.NestedString(object.Object, "status", "sync", "status")
		return found == status
	}
}

// ended is satisfied by an Application whose operation has ended in the given phase.
func ended(phase string) lab.Condition {
	return func(object *unstructured.Unstructured) bool {
		if object == nil || object.Object["operation"] != nil {
			return false
		}
		found, _, _ := unstructured.NestedString(object.Object, "status", "operationState", "phase")
		return found == phase
	}
}

// sync asks for an operation, and takes the record of the previous one away.
func (s *side) sync(name string, operation map[string]any) {
	s.Helper()
	s.merge(lab.Applications, name, map[string]any{
		"operation": map[string]any{"sync": operation}, "status": map[string]any{"operationState": nil},
	})
}

func TestArgoCDOnOperations(t *testing.T) {
	t.Parallel()
	compare(t, startArgoCD, func(s *side) {
		first := s.commit("one.yaml", lab.ConfigMap("one", "key", "first"))
		s.create(lab.Applications, lab.NewApplication(s.namespace, "app", s.url))
		s.await(lab.Applications, "app", compared("OutOfSync"))
		s.settle()

		s.sync("app", map[string]any{"revision": first})
		s.await(lab.Applications, "app", ended("Succeeded"))
		s.await(lab.Applications, "app", compared("Synced"))
		s.settle()

		broken := s.commit("broken.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {}\n")
		s.sync("app", map[string]any{"revision": broken})
		s.await(lab.Applications, "app", ended("Failed"))
		s.await(lab.Applications, "app", compared("OutOfSync"))
		s.settle()

		s.sync("app", map[string]any{"revision": first, "resources": []any{map[string]any{"kind": "ConfigMap", "name": "one"}}})
		s.await(lab.Applications, "app", ended("Succeeded"))
	})
}

func TestArgoCDOnAutomatedSync(t *testing.T) {
	t.Parallel()
	compare(t, startArgoCD, func(s *side) {
		s.commit("one.yaml", lab.ConfigMap("one", "key", "first"))
		app := lab.NewApplication(s.namespace, "app", s.url)
		lab.Set(map[string]any{}, "spec", "syncPolicy", "automated")(app)
		s.create(lab.Applications, app)
		s.await(lab.Applications, "app", ended("Succeeded"))
		s.await(lab.Applications, "app", compared("Synced"))
	})
}
