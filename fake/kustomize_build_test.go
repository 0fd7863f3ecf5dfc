package fake_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/fake"
)

var clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}

const clusterRole = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: viewer}\nrules: []\n"

func TestWhatIsBuilt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files fake.Files
		path  string
		want  map[string]string
	}{
		{
			name: "every YAML file below the path",
			path: "./apps",
			files: fake.Files{
				"apps/a.yaml": configMap("a", "1") + "---\n" + configMap("b", "2"), "apps/deep/c.yml": configMap("c", "3"),
				"apps/README.md": "no manifest", "other/d.yaml": configMap("d", "4"),
			},
			want: map[string]string{"a": "1", "b": "2", "c": "3", "d": ""},
		},
		{
			name: "what a kustomization.yaml lists, files and folders",
			files: fake.Files{
				"kustomization.yaml": "resources: [a.yaml, base]", "a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "2"),
				"base/kustomization.yaml": "resources: [c.yaml]", "base/c.yaml": configMap("c", "3"), "base/d.yaml": configMap("d", "4"),
			},
			want: map[string]string{"a": "1", "b": "", "c": "3", "d": ""},
		},
		{
			name:  "a folder with a kustomization.yaml of its own",
			files: fake.Files{"a.yaml": configMap("a", "1"), "base/kustomization.yaml": "resources: []", "base/b.yaml": configMap("b", "2")},
			want:  map[string]string{"a": "1", "b": ""},
		},
		{
			name:  "nothing",
			files: fake.Files{"README.md": "no manifest"},
			want:  map[string]string{},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.push("one", test.files)
				w.source()
				synctest.Wait()
				w.kustomization(set(test.path, "spec", "path"))
				synctest.Wait()
				require.Contains(w, w.ks("app"), "Ready=True", w.message(kustomizations, "app"))
				got := map[string]string{}
				for name := range test.want {
					got[name] = w.data(name)
				}
				assert.Equal(w, test.want, got)
			})
		})
	}
}

func TestWhatCannotBeAppliedFails(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, reason, want string
		files              fake.Files
		spec               map[string]any
	}{
		{"broken YAML", "BuildFailed", `^failed to decode Kubernetes YAML from /tmp/kustomization-\d+/cm\.yaml: MalformedYAMLError: `, fake.Files{"cm.yaml": broken}, nil},
		{"a missing resource", "BuildFailed", `^kustomize build failed: accumulating resources: .*'a\.yaml'.*no such file or directory`, fake.Files{"kustomization.yaml": "resources: [a.yaml]"}, nil},
		{"a kustomization that the simulation does not know", "BuildFailed", `supports only resources`, fake.Files{"kustomization.yaml": "namePrefix: x-"}, nil},
		{"a spec that the simulation does not know", "BuildFailed", `does not support spec\.postBuild`, value("one"), map[string]any{"postBuild": map[string]any{"substitute": map[string]any{"a": "b"}}}},
		{"one object twice", "BuildFailed", `already registered id`, fake.Files{"a.yaml": configMap("a", "1"), "b.yaml": configMap("a", "2")}, nil},
		{"a missing path", "ArtifactFailed", `^kustomization path not found: stat /tmp/kustomization-\d+/apps/x: no such file or directory$`, value("one"), map[string]any{"path": "./apps/x"}},
		{"an invalid object", "ReconciliationFailed", `^Service/team-a/svc dry-run failed \(Invalid\): Service "svc" is invalid: `, fake.Files{"svc.yaml": invalidService}, nil},
		{"an unknown kind", "ReconciliationFailed", `^Widget/team-a/w dry-run failed: no matches for kind "Widget" in version "example\.com/v1"`, fake.Files{"w.yaml": "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}}"}, nil},
		{"a missing namespace", "ReconciliationFailed", `^ConfigMap/nowhere/cm not found: namespaces "nowhere" not found`, value("one"), map[string]any{"targetNamespace": "nowhere"}},
		{"a missing service account", "ReconciliationFailed", `^ConfigMap/team-a/cm dry-run failed \(Forbidden\): .*"system:serviceaccount:team-a:nobody" cannot patch resource "configmaps"`, value("one"), map[string]any{"serviceAccountName": "nobody"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.push("one", test.files)
				w.source()
				synctest.Wait()
				ks := fake.NewKustomization(team, "app", "app")
				for key, value := range test.spec {
					set(value, "spec", key)(ks)
				}
				w.create(kustomizations, ks)
				synctest.Wait()
				assert.Contains(w, w.ks("app"), "Ready=False/"+test.reason)
				assert.Regexp(w, test.want, w.message(kustomizations, "app"))
			})
		})
	}
}

func TestNothingOfAStageIsAppliedIfOneObjectIsRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.push("two", fake.Files{"a.yaml": configMap("a", "1"), "role.yaml": clusterRole, "svc.yaml": invalidService})
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "Ready=False/ReconciliationFailed")
		assert.Empty(w, w.data("a"), "of the same stage")
		_, err := w.cluster.Resource(clusterRoles).Get(w.Context(), "viewer", metav1.GetOptions{})
		assert.NoError(w, err, "of the stage before")
		assert.Equal(w, []any{map[string]any{"id": "team-a_cm__ConfigMap", "v": "v1"}}, w.inventory())
		assert.Contains(w, w.message(kustomizations, "app"), "\nClusterRole/viewer created\n")

		w.delete(kustomizations)
		synctest.Wait()
		_, err = w.cluster.Resource(clusterRoles).Get(w.Context(), "viewer", metav1.GetOptions{})
		assert.NoError(w, err, "what is in no inventory is never pruned")
	})
}

func (w *world) inventory() []any {
	inventory, _ := w.get(kustomizations, "app").Object["status"].(map[string]any)["inventory"].(map[string]any)
	entries, _ := inventory["entries"].([]any)
	return entries
}

func TestWhatIsAppliedCarriesItsKustomizationAndItsManager(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		cm := w.get(configMaps, "cm")
		assert.Equal(w, map[string]string{"kustomize.toolkit.fluxcd.io/name": "app", "kustomize.toolkit.fluxcd.io/namespace": team}, cm.GetLabels())
		require.Len(w, cm.GetManagedFields(), 1)
		assert.Equal(w, "kustomize-controller", cm.GetManagedFields()[0].Manager)
		assert.Equal(w, metav1.ManagedFieldsOperationApply, cm.GetManagedFields()[0].Operation)

		w.stamp(kustomizations, "again")
		synctest.Wait()
		assert.Equal(w, cm.GetResourceVersion(), w.get(configMaps, "cm").GetResourceVersion(), "what has not changed is not written")
	})
}

func TestWhatDisappearsIsPruned(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		kept := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, annotations: {kustomize.toolkit.fluxcd.io/prune: disabled}}\ndata: {key: kept}\n"
		w.push("one", fake.Files{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "2"), "kept.yaml": kept})
		w.source()
		synctest.Wait()
		w.kustomization()
		synctest.Wait()
		require.Equal(w, "2", w.data("b"))
		w.repo.Remove("b.yaml", "kept.yaml")
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.Equal(w, "1", w.data("a"))
		assert.Empty(w, w.data("b"))
		assert.Equal(w, "kept", w.data("kept"))
		assert.Len(w, w.inventory(), 1)
	})
}

func TestDeletingAKustomizationPrunesUnlessItIsSuspended(t *testing.T) {
	t.Parallel()
	for _, suspended := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.applied()
			w.hold(suspended, "hold")
			synctest.Wait()
			w.delete(kustomizations)
			synctest.Wait()
			_, err := w.cluster.Resource(kustomizations).Namespace(team).Get(w.Context(), "app", metav1.GetOptions{})
			assert.True(w, apierrors.IsNotFound(err), "%v", err)
			assert.Equal(w, suspended, w.data("cm") == "one")
		})
	}
}
