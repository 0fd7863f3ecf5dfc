package fake_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/fake"
)

const broken = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm\n data: [\n"

const invalidService = `apiVersion: v1
kind: Service
metadata: {name: svc}
spec: {ports: [{port: 70000}]}
`

// What a watch shows of a Kustomization that was held at the first commit and is resumed with a token, for each way its run
// can end. The states are those that the real controllers showed.
func TestAResumedKustomizationIsSeenTo(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		spec  map[string]any
		given func(w *world)
		want  []string
	}{
		{
			name: "apply the revision that it had applied",
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Detecting drift) att=one app=one",
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@3 att=one app=one",
				"gen=3 og=3 handled=go Ready=True/ReconciliationSucceeded@3 att=one app=one",
			},
		},
		{
			name:  "apply a new revision",
			given: func(w *world) { w.push("two", value("two")); w.fetch() },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=two app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Detecting drift) att=two app=one",
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@3 att=two app=one",
				"gen=3 og=3 handled=go Ready=True/ReconciliationSucceeded@3 att=two app=two",
			},
		},
		{
			name:  "fail to build broken YAML",
			given: func(w *world) { w.push("two", fake.Files{"cm.yaml": broken}); w.fetch() },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=two app=one",
				"gen=3 og=2 handled=hold Ready=False/BuildFailed@3 Reconciling=True/ProgressingWithRetry@3 (Building manifests) att=two app=one",
				"gen=3 og=2 handled=go Ready=False/BuildFailed@3 Reconciling=True/ProgressingWithRetry@3 (Building manifests) att=two app=one",
			},
		},
		{
			name:  "fail to apply what the API server refuses",
			given: func(w *world) { w.push("two", fake.Files{"svc.yaml": invalidService}); w.fetch() },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=two app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Detecting drift) att=two app=one",
				"gen=3 og=2 handled=hold Ready=False/ReconciliationFailed@3 Reconciling=True/ProgressingWithRetry@3 (Detecting drift) att=two app=one",
				"gen=3 og=2 handled=go Ready=False/ReconciliationFailed@3 Reconciling=True/ProgressingWithRetry@3 (Detecting drift) att=two app=one",
			},
		},
		{
			name: "fail to apply as a service account that does not exist",
			spec: map[string]any{"serviceAccountName": "nobody"},
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Detecting drift) att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/ReconciliationFailed@3 Reconciling=True/ProgressingWithRetry@3 (Detecting drift) att=one app=one",
				"gen=3 og=2 handled=go Ready=False/ReconciliationFailed@3 Reconciling=True/ProgressingWithRetry@3 (Detecting drift) att=one app=one",
			},
		},
		{
			name:  "wait for a dependency that does not exist",
			spec:  map[string]any{"dependsOn": []any{map[string]any{"name": "missing"}}},
			given: func(w *world) { w.push("two", value("two")); w.fetch() },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/DependencyNotReady@3 att=one app=one",
				"gen=3 og=2 handled=go Ready=False/DependencyNotReady@3 att=one app=one",
			},
		},
		{
			name:  "miss its path",
			spec:  map[string]any{"path": "./apps"},
			given: func(w *world) { w.push("two", value("two")); w.fetch() },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/ArtifactFailed@3 Reconciling=True/ProgressingWithRetry@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=go Ready=False/ArtifactFailed@3 Reconciling=True/ProgressingWithRetry@3 (Fetching manifests) att=one app=one",
			},
		},
		{
			name: "miss its source",
			spec: map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "missing"}},
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/ArtifactFailed@3 att=one app=one",
				"gen=3 og=2 handled=go Ready=False/ArtifactFailed@3 att=one app=one",
			},
		},
		{
			name: "miss the artifact of its source",
			spec: map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "empty"}},
			given: func(w *world) {
				empty := fake.NewGitRepository(team, "empty", "https://git.example.com/acme/none")
				w.create(gitRepositories, empty)
			},
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/ArtifactFailed@3 att=one app=one",
				"gen=3 og=2 handled=go Ready=False/ArtifactFailed@3 att=one app=one",
			},
		},
		{
			name:  "miss the artifact's archive",
			given: func(w *world) { w.flux.DropArtifacts(team, "app") },
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=False/ArtifactFailed@3 Reconciling=True/ProgressingWithRetry@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=go Ready=False/ArtifactFailed@3 Reconciling=True/ProgressingWithRetry@3 (Fetching manifests) att=one app=one",
			},
		},
		{
			name: "wait for health",
			spec: map[string]any{"wait": true},
			want: []string{
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Fetching manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Building manifests) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Detecting drift) att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Running health checks) Healthy=Unknown/Progressing@3 att=one app=one",
				"gen=3 og=2 handled=hold Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Running health checks) Healthy=True/Succeeded@3 att=one app=one",
				"gen=3 og=2 handled=hold Ready=True/ReconciliationSucceeded@3 Healthy=True/Succeeded@3 att=one app=one",
				"gen=3 og=3 handled=go Ready=True/ReconciliationSucceeded@3 Healthy=True/Succeeded@3 att=one app=one",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.applied(set("10s", "spec", "retryInterval"))
				w.hold(true, "hold")
				synctest.Wait()
				if test.given != nil {
					test.given(w)
				}
				synctest.Wait()
				seen := w.watch(kustomizations, "app")
				seen()
				spec := map[string]any{"suspend": false}
				for key, value := range test.spec {
					spec[key] = value
				}
				w.apply("lib-hold", spec, "go")
				assert.Equal(w, test.want, seen())
			})
		})
	}
}
