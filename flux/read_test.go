package flux

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// fromJSON is an object as the dynamic client reads it.
func fromJSON(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &u.Object))
	return u
}

const wholeKustomization = `{
	"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
	"metadata": {
		"namespace": "ns", "name": "app", "uid": "uid-1", "resourceVersion": "7", "generation": 3,
		"annotations": {"reconcile.fluxcd.io/requestedAt": "token", "other": "value"},
		"managedFields": [
			{"manager": "lib", "operation": "Apply", "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "fieldsType": "FieldsV1",
			 "fieldsV1": {"f:metadata": {"f:annotations": {"f:reconcile.fluxcd.io/requestedAt": {}}}, "f:spec": {"f:suspend": {}}}},
			{"manager": "kustomize-controller", "operation": "Update", "subresource": "status",
			 "fieldsV1": {"f:status": {".": {}, "f:conditions": {}}}}
		]
	},
	"spec": {"suspend": true, "sourceRef": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "repo", "namespace": "sources"}},
	"status": {
		"lastHandledReconcileAt": "token", "lastAppliedRevision": "main@sha1:a", "lastAttemptedRevision": "main@sha1:b",
		"conditions": [
			{"type": "Reconciling", "status": "True"},
			{"type": "Ready", "status": "False", "reason": "BuildFailed", "message": "bad", "observedGeneration": 3, "lastTransitionTime": "2026-01-02T15:04:05Z"}
		],
		"history": [{"digest": "sha256:1", "totalReconciliations": 2}, {"digest": "sha256:0"}]
	}
}`

func TestAKustomizationIsReadWhole(t *testing.T) {
	t.Parallel()
	ks, err := parseKustomization(fromJSON(t, wholeKustomization))

	require.NoError(t, err)
	assert.Equal(t, kustomization{
		object: object{
			name: types.NamespacedName{Namespace: "ns", Name: "app"}, uid: "uid-1", resourceVersion: "7",
			suspended: true, requested: "token", handled: "token",
			ready: condition{status: "False", reason: "BuildFailed", message: "bad", observedGeneration: 3, lastTransitionTime: "2026-01-02T15:04:05Z"},
		},
		sourceKind: "GitRepository", sourceGroup: "source.toolkit.fluxcd.io", source: types.NamespacedName{Namespace: "sources", Name: "repo"},
		lastApplied: "main@sha1:a", lastAttempted: "main@sha1:b", lastRun: `{"digest":"sha256:1","totalReconciliations":2}`,
		owners: owners{applied: []string{"lib"}}, stampers: owners{applied: []string{"lib"}},
	}, ks)
}

// What is missing, or null, is not there: a new object has no status, and Flux leaves empty fields out.
func TestWhatIsMissingIsNotThere(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"metadata": {"namespace": "ns", "name": "app"}}`,
		`{"metadata": {"namespace": "ns", "name": "app", "annotations": null, "managedFields": null, "deletionTimestamp": null}, "spec": null, "status": null}`,
		`{"metadata": {"namespace": "ns", "name": "app", "annotations": {}, "managedFields": []},
		  "spec": {"suspend": null, "sourceRef": null}, "status": {"conditions": null, "history": null, "lastAppliedRevision": null}}`,
		`{"metadata": {"namespace": "ns", "name": "app", "managedFields": [{}, {"manager": "a", "fieldsV1": null}, {"manager": "b", "fieldsV1": {"f:spec": null}}]},
		  "spec": {"sourceRef": {}}, "status": {"conditions": [{}, {"type": "Ready2", "status": "True"}], "history": []}}`,
	} {
		ks, err := parseKustomization(fromJSON(t, text))
		require.NoError(t, err, text)
		name := types.NamespacedName{Namespace: "ns", Name: "app"}
		assert.Equal(t, kustomization{object: object{name: name}, source: types.NamespacedName{Namespace: "ns"}}, ks, text)
		assert.False(t, ks.handledLatest(), "a token that was never asked for is not handled")

		repository, err := parseGitRepository(fromJSON(t, text))
		require.NoError(t, err, text)
		assert.Equal(t, gitRepository{object: object{name: name}}, repository, text)
		assert.False(t, repository.holds(""), "no commit is held by nothing")
	}
}

func TestWhatHasTheWrongTypeIsAnErrorThatNamesTheField(t *testing.T) {
	t.Parallel()
	both := []func(*unstructured.Unstructured) error{
		func(u *unstructured.Unstructured) error { _, err := parseKustomization(u); return err },
		func(u *unstructured.Unstructured) error { _, err := parseGitRepository(u); return err },
	}
	for text, want := range map[string]string{
		`{"spec": []}`:                                                    "spec",
		`{"spec": "x"}`:                                                   "spec",
		`{"spec": {"suspend": "true"}}`:                                   "field .spec.suspend is string, not bool",
		`{"spec": {"suspend": 1}}`:                                        "field .spec.suspend is int64, not bool",
		`{"status": 7}`:                                                   "status",
		`{"status": {"lastHandledReconcileAt": 7}}`:                       "field .status.lastHandledReconcileAt is int64, not string",
		`{"status": {"conditions": {}}}`:                                  "field .status.conditions is map[string]interface {}, not []interface {}",
		`{"status": {"conditions": ["Ready"]}}`:                           "field .status.conditions.0 is string, not an object",
		`{"status": {"conditions": [null]}}`:                              "field .status.conditions.0 is <nil>, not an object",
		`{"status": {"conditions": [{"type": 1}]}}`:                       "field .status.conditions.0.type is int64, not string",
		`{"status": {"conditions": [{"type": "Ready", "status": true}]}}`: "field .status.conditions.0.status is bool, not string",
		`{"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": "3"}]}}`:       "field .status.conditions.0.observedGeneration is string, not int64",
		`{"status": {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 3.5}]}}`:       "field .status.conditions.0.observedGeneration is float64, not int64",
		`{"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": {}}]}}`:        "field .status.conditions.0.lastTransitionTime is map[string]interface {}, not string",
		`{"status": {"conditions": [{"type": "Ready", "status": "True", "message": ["a"], "reason": "x"}]}}`: "field .status.conditions.0.message is []interface {}, not string",
		`{"metadata": {"annotations": []}}`:                                     "field .metadata.annotations.reconcile.fluxcd.io/requestedAt is inside something that is no object",
		`{"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": 7}}}`: "field .metadata.annotations.reconcile.fluxcd.io/requestedAt is int64, not string",
	} {
		for _, parse := range both {
			assert.ErrorContains(t, parse(fromJSON(t, text)), want, text)
		}
	}
	for text, want := range map[string]string{
		`{"spec": {"sourceRef": "repo"}}`:                                                  "sourceRef",
		`{"spec": {"sourceRef": {"kind": 1}}}`:                                             "field .spec.sourceRef.kind is int64, not string",
		`{"spec": {"sourceRef": {"name": {}}}}`:                                            "field .spec.sourceRef.name is map[string]interface {}, not string",
		`{"spec": {"sourceRef": {"namespace": 1}}}`:                                        "field .spec.sourceRef.namespace is int64, not string",
		`{"spec": {"sourceRef": {"apiVersion": "a/b/c"}}}`:                                 `field .spec.sourceRef.apiVersion is "a/b/c": unexpected GroupVersion string: a/b/c`,
		`{"status": {"lastAppliedRevision": 7}}`:                                           "field .status.lastAppliedRevision is int64, not string",
		`{"status": {"lastAttemptedRevision": []}}`:                                        "field .status.lastAttemptedRevision is []interface {}, not string",
		`{"status": {"history": {}}}`:                                                      "field .status.history is map[string]interface {}, not []interface {}",
		`{"metadata": {"managedFields": {}}}`:                                              "field .metadata.managedFields is map[string]interface {}, not []interface {}",
		`{"metadata": {"managedFields": ["lib"]}}`:                                         "field .metadata.managedFields.0 is string, not an object",
		`{"metadata": {"managedFields": [{"manager": 1}]}}`:                                "field .metadata.managedFields.0.manager is int64, not string",
		`{"metadata": {"managedFields": [{"operation": 1}]}}`:                              "field .metadata.managedFields.0.operation is int64, not string",
		`{"metadata": {"managedFields": [{"fieldsV1": "f:spec"}]}}`:                        "fieldsV1",
		`{"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:suspend": true}}}]}}`: "field .metadata.managedFields.0.fieldsV1.f:spec.f:suspend is bool, not map[string]interface {}",
	} {
		_, err := parseKustomization(fromJSON(t, text))
		assert.ErrorContains(t, err, want, text)
	}
	for text, want := range map[string]string{
		`{"spec": {"url": 1}}`:                         "field .spec.url is int64, not string",
		`{"spec": {"ref": "main"}}`:                    "ref",
		`{"spec": {"ref": {"branch": true}}}`:          "field .spec.ref.branch is bool, not string",
		`{"status": {"artifact": "main"}}`:             "artifact",
		`{"status": {"artifact": {"revision": [{}]}}}`: "field .status.artifact.revision is []interface {}, not string",
	} {
		_, err := parseGitRepository(fromJSON(t, text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestTheFirstWrongFieldIsTheOneNamed(t *testing.T) {
	t.Parallel()
	_, err := parseKustomization(fromJSON(t, `{"spec": {"suspend": 1, "sourceRef": {"apiVersion": "a/b/c"}}, "status": {"lastAppliedRevision": 7}}`))
	assert.EqualError(t, err, "field .spec.suspend is int64, not bool")
}

func TestAnObjectOfNothingIsRead(t *testing.T) {
	t.Parallel()
	ks, err := parseKustomization(&unstructured.Unstructured{})
	require.NoError(t, err)
	assert.Zero(t, ks)
	_, err = parseGitRepository(&unstructured.Unstructured{})
	require.NoError(t, err)
}
