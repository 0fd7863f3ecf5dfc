package events

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

func startFlux(cluster *fake.Cluster) *fake.Remote {
	return fake.StartFlux(cluster, fake.FluxOptions{}).Remote()
}

// begin applies a first commit with two ConfigMaps. A Kustomization that is made at the moment when its source gets the first artifact may
// be reconciled twice.
func begin(s *side) {
	s.Helper()
	s.commit("app/one.yaml", lab.ConfigMap("one", "key", "first"))
	commit := s.commit("app/two.yaml", lab.ConfigMap("two", "key", "first"))
	s.create(lab.GitRepositories, lab.NewGitRepository(s.namespace, "source", s.url))
	s.await(lab.GitRepositories, "source", lab.Ready)
	kustomization := lab.NewKustomization(s.namespace, "app", "source")
	lab.Set("./app", "spec", "path")(kustomization)
	s.create(lab.Kustomizations, kustomization)
	s.await(lab.Kustomizations, "app", applied(commit))
}

// applied is satisfied once all writes of a reconcile that applied the commit were made.
func applied(commit string) lab.Condition {
	return func(object *unstructured.Unstructured) bool {
		return lab.Applied(commit)(object) && lab.Ready(object)
	}
}

func TestFluxOnCommits(t *testing.T) {
	t.Parallel()
	compare(t, startFlux, func(s *side) {
		begin(s)
		s.ask(lab.Kustomizations, "app")
		s.ask(lab.GitRepositories, "source")
		for _, commit := range []func() string{
			func() string { return s.commit("app/one.yaml", lab.ConfigMap("one", "key", "second")) },
			func() string { return s.commit("elsewhere.yaml", lab.ConfigMap("other", "key", "first")) },
			func() string { return s.remove("app/two.yaml") },
		} {
			made := commit()
			s.ask(lab.GitRepositories, "source")
			s.await(lab.Kustomizations, "app", applied(made))
		}
	})
}

func TestFluxOnFailures(t *testing.T) {
	t.Parallel()
	compare(t, startFlux, func(s *side) {
		begin(s)
		for _, broken := range []struct{ content, reason string }{
			{"apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {}\n", "ReconciliationFailed"},
			{"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n bad: b\n", "BuildFailed"},
		} {
			s.commit("app/broken.yaml", broken.content)
			s.ask(lab.GitRepositories, "source")
			s.await(lab.Kustomizations, "app", lab.Failed(broken.reason))
		}
		commit := s.remove("app/broken.yaml")
		s.ask(lab.GitRepositories, "source")
		s.await(lab.Kustomizations, "app", applied(commit))

		s.merge(lab.Kustomizations, "app", map[string]any{"spec": map[string]any{"path": "./absent"}})
		s.await(lab.Kustomizations, "app", lab.Failed("ArtifactFailed"))
		s.merge(lab.Kustomizations, "app", map[string]any{"spec": map[string]any{"path": "./app"}})
		s.await(lab.Kustomizations, "app", applied(commit))

		for _, ask := range []struct {
			name   string
			field  string
			value  any
			reason string
		}{
			{"unsourced", "sourceRef", map[string]any{"kind": "GitRepository", "name": "absent"}, "ArtifactFailed"},
			{"dependent", "dependsOn", []any{map[string]any{"name": "absent"}}, "DependencyNotReady"},
		} {
			kustomization := lab.NewKustomization(s.namespace, ask.name, "source")
			lab.Set(ask.value, "spec", ask.field)(kustomization)
			s.create(lab.Kustomizations, kustomization)
			s.await(lab.Kustomizations, ask.name, lab.Failed(ask.reason))
		}
	})
}

func TestFluxOnSources(t *testing.T) {
	t.Parallel()
	compare(t, startFlux, func(s *side) {
		begin(s)
		ref := func(ref map[string]any) {
			s.merge(lab.GitRepositories, "source", map[string]any{"spec": map[string]any{"ref": ref}})
		}
		ref(map[string]any{"branch": "absent"})
		s.await(lab.GitRepositories, "source", lab.Failed("GitOperationFailed"))
		ref(map[string]any{"branch": lab.DefaultBranch})
		s.await(lab.GitRepositories, "source", lab.Ready)
		ref(map[string]any{"commit": s.commits[1]})
		s.await(lab.GitRepositories, "source", lab.Ready)
		s.merge(lab.GitRepositories, "source", map[string]any{"spec": map[string]any{"suspend": true}})
		s.ask(lab.GitRepositories, "source")
		s.delete(lab.GitRepositories, "source")
	})
}

func TestFluxOnHealth(t *testing.T) {
	t.Parallel()
	compare(t, startFlux, func(s *side) {
		begin(s)
		s.merge(lab.Kustomizations, "app", map[string]any{"spec": map[string]any{"wait": true}})
		s.await(lab.Kustomizations, "app", lab.Ready)
		s.ask(lab.Kustomizations, "app")
		commit := s.commit("app/one.yaml", lab.ConfigMap("one", "key", "second"))
		s.ask(lab.GitRepositories, "source")
		s.await(lab.Kustomizations, "app", applied(commit))
		s.delete(lab.Kustomizations, "app")
	})
}
