package fake_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/fake"
)

// shops are the Kustomizations of team-a, told in the words of these tests.
type shops struct {
	t      testing.TB
	client dynamic.ResourceInterface
}

func newShops(t testing.TB, c *fake.Cluster) shops {
	return shops{t: t, client: c.Resource(kustomizations).Namespace(team)}
}

// body is an apply of the Kustomization shop with the given metadata and spec; a nil spec is left out.
func body(metadata, spec map[string]any) map[string]any {
	b := map[string]any{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": map[string]any{"name": "shop"},
	}
	for name, value := range metadata {
		b["metadata"].(map[string]any)[name] = value
	}
	if spec != nil {
		b["spec"] = spec
	}
	return b
}

func suspend(value bool) map[string]any { return map[string]any{"suspend": value} }

func token(value string) map[string]any {
	return map[string]any{"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": value}}
}

// apply sends a body as it is, without what client-go's Apply would add or check.
func (s shops) apply(manager string, force bool, body map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(body)
	require.NoError(s.t, err)
	return s.client.Patch(s.t.Context(), "shop", types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: manager, Force: &force})
}

func (s shops) mustApply(manager string, force bool, body map[string]any) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.apply(manager, force, body)
	require.NoError(s.t, err)
	return u
}

func (s shops) merge(manager, patch string) *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.client.Patch(s.t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	require.NoError(s.t, err)
	return u
}

func (s shops) get() *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.client.Get(s.t.Context(), "shop", metav1.GetOptions{})
	require.NoError(s.t, err)
	return u
}

// field is the value at a path, nil if there is none.
func field(u *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return value
}

// owners lists who manages a field, as "manager Operation".
func owners(u *unstructured.Unstructured, path ...string) []string {
	out := []string{}
	for _, entry := range u.GetManagedFields() {
		var fields map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		keys := make([]string, len(path))
		for i, name := range path {
			keys[i] = "f:" + name
		}
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, keys...); found {
			out = append(out, entry.Manager+" "+string(entry.Operation))
		}
	}
	return out
}

// status is the code and reason of an error, with the fields and messages of its causes.
func status(t testing.TB, err error) (code int, reason metav1.StatusReason, causes []string) {
	t.Helper()
	var api apierrors.APIStatus
	require.ErrorAs(t, err, &api, "an answer of the API server, got %v", err)
	if details := api.Status().Details; details != nil {
		for _, cause := range details.Causes {
			causes = append(causes, fmt.Sprintf("%s: %s", cause.Field, cause.Message))
		}
	}
	return int(api.Status().Code), api.Status().Reason, causes
}

func TestApplyChecksTheResourceVersionItCarries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		version func(latest, before string) any
		code    int
		says    string
	}{
		{"the current one", func(latest, _ string) any { return latest }, 200, ""},
		{"a stale one", func(_, before string) any { return before }, 409, "the object has been modified"},
		{"garbage", func(_, _ string) any { return "garbage" }, 500, "strconv.ParseUint"},
		{"empty", func(_, _ string) any { return "" }, 422, "must be specified for an update"},
		{"zero", func(_, _ string) any { return "0" }, 422, "must be specified for an update"},
	} {
		for _, force := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, force %v", tc.name, force), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				before := createShop(t, c).GetResourceVersion()
				s := newShops(t, c)
				latest := s.mustApply("lib", true, body(nil, suspend(true))).GetResourceVersion()

				_, err := s.apply("lib", force, body(map[string]any{"resourceVersion": tc.version(latest, before)}, suspend(true)))
				if tc.code == 200 {
					require.NoError(t, err)
					return
				}
				code, _, causes := status(t, err)
				assert.Equal(t, tc.code, code)
				assert.ErrorContains(t, err, tc.says)
				if tc.code == 409 {
					assert.Empty(t, causes, "a stale resourceVersion is a conflict without causes")
				}
			})
		}
	}
}

func TestApplyRefusesABodyThatIsNotAnApply(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)

	_, err := s.apply("lib", true, body(map[string]any{"managedFields": []any{map[string]any{"manager": "lib"}}}, suspend(true)))
	assert.True(t, apierrors.IsBadRequest(err), "managed fields in the body: %v", err)

	_, err = s.apply("lib", true, body(map[string]any{"name": "other"}, suspend(true)))
	assert.True(t, apierrors.IsBadRequest(err), "another name in the body: %v", err)

	_, err = s.apply("", true, body(nil, suspend(true)))
	code, reason, causes := status(t, err)
	assert.Equal(t, 422, code)
	assert.Equal(t, metav1.StatusReasonInvalid, reason)
	assert.Equal(t, []string{"fieldManager: Required value: is required for apply patch"}, causes)
}

func TestApplyChecksTheUIDItCarries(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShops(t, c)
	old := createShop(t, c)
	require.NoError(t, s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{}))
	replaced := createShop(t, c)

	_, err := s.apply("lib", true, body(map[string]any{"uid": string(replaced.GetUID())}, suspend(true)))
	require.NoError(t, err, "the UID of the object that is there")

	_, err = s.apply("lib", true, body(map[string]any{"uid": string(old.GetUID())}, suspend(true)))
	code, _, causes := status(t, err)
	assert.Equal(t, 422, code, "the UID of the object that was replaced")
	immutable := fmt.Sprintf("metadata.uid: Invalid value: %q: field is immutable", old.GetUID())
	assert.Equal(t, []string{immutable, immutable}, causes)

	_, err = s.apply("lib", true, body(map[string]any{"uid": string(old.GetUID()), "resourceVersion": old.GetResourceVersion()}, suspend(true)))
	code, _, _ = status(t, err)
	assert.Equal(t, 409, code, "a stale resourceVersion is noticed before the UID")
}

func TestApplyToAMissingName(t *testing.T) {
	t.Parallel()
	complete := map[string]any{"interval": "10m", "prune": true, "sourceRef": map[string]any{"kind": "GitRepository", "name": "shop"}}
	held := map[string]any{"annotations": token("t1")["annotations"]}
	for _, tc := range []struct {
		name     string
		metadata map[string]any
		spec     map[string]any
		alone    int
	}{
		{"suspend and annotation", held, suspend(true), 422},
		{"nothing", nil, nil, 201},
		{"annotation only", held, nil, 201},
		{"an empty spec", nil, map[string]any{}, 422},
		{"a complete spec", nil, complete, 201},
	} {
		for _, with := range []struct {
			name         string
			precondition map[string]any
			code         int
		}{
			{"no precondition", nil, tc.alone},
			{"a resourceVersion", map[string]any{"resourceVersion": "7"}, tc.alone},
			{"a UID", map[string]any{"uid": "u1"}, 409},
			{"a UID and a resourceVersion", map[string]any{"uid": "u1", "resourceVersion": "7"}, 409},
		} {
			t.Run(tc.name+", "+with.name, func(t *testing.T) {
				t.Parallel()
				c := newCluster(t)
				metadata := map[string]any{}
				for _, from := range []map[string]any{tc.metadata, with.precondition} {
					for name, value := range from {
						metadata[name] = value
					}
				}
				_, err := newShops(t, c).apply("lib", true, body(metadata, tc.spec))

				requests := c.Requests()
				assert.Equal(t, with.code, requests[len(requests)-1].Code)
				switch with.code {
				case 409:
					assert.ErrorContains(t, err, "uid mismatch: the provided object specified uid u1, and no existing object was found")
				case 422:
					_, _, causes := status(t, err)
					for _, required := range []string{"spec.interval", "spec.prune", "spec.sourceRef"} {
						assert.Contains(t, causes, required+": Required value")
					}
				default:
					assert.NoError(t, err)
				}
			})
		}
	}
}

func TestApplyOfABuiltinKindCreatesIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	empty := object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}")
	_, err := c.Resource(configMaps).Namespace(team).Apply(t.Context(), "settings", empty, metav1.ApplyOptions{FieldManager: "lib"})
	require.NoError(t, err)
}

func TestApplyInAMissingNamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, err := c.Resource(kustomizations).Namespace("nowhere").Apply(t.Context(), "shop", object(t, strings.ReplaceAll(shopYAML, team, "nowhere")), metav1.ApplyOptions{FieldManager: "lib"})
	require.True(t, apierrors.IsNotFound(err))
	assert.EqualError(t, err, `namespaces "nowhere" not found`)
}

func TestApplyToAnObjectThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	s.merge("flux", `{"metadata":{"finalizers":["finalizers.fluxcd.io"]}}`)
	require.NoError(t, s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{}))

	held := s.mustApply("lib", true, body(token("t1"), suspend(true)))
	assert.Equal(t, true, field(held, "spec", "suspend"))
	released := s.mustApply("lib", true, body(nil, nil))
	assert.Nil(t, field(released, "spec", "suspend"))
	assert.NotNil(t, released.GetDeletionTimestamp())
}

func TestApplyOfWhatAnUpdaterSetShares(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	updated := s.merge("kubectl-patch", `{"spec":{"suspend":true}}`)

	shared := s.mustApply("lib", false, body(token("t1"), suspend(true)))
	assert.ElementsMatch(t, []string{"kubectl-patch Update", "lib Apply"}, owners(shared, "spec", "suspend"))
	assert.Equal(t, updated.GetGeneration(), shared.GetGeneration())

	released := s.mustApply("lib", false, body(nil, nil))
	assert.Equal(t, true, field(released, "spec", "suspend"), "the updater's value stays")
	assert.Empty(t, released.GetAnnotations(), "only our annotation goes")

	_, err := s.apply("lib", false, body(nil, suspend(false)))
	code, reason, causes := status(t, err)
	assert.Equal(t, 409, code)
	assert.Equal(t, metav1.StatusReasonConflict, reason)
	assert.Equal(t, []string{`.spec.suspend: conflict with "kubectl-patch" using kustomize.toolkit.fluxcd.io/v1`}, causes)

	forced := s.mustApply("lib", true, body(nil, suspend(false)))
	assert.Equal(t, []string{"lib Apply"}, owners(forced, "spec", "suspend"), "forcing takes the field from the updater")
	s.mustApply("lib", true, body(nil, suspend(true)))
	gone := s.mustApply("lib", true, body(nil, nil))
	assert.Nil(t, field(gone, "spec", "suspend"), "a field that nobody else has goes with its applier")
}

func TestAnUpdateOfWhatWasApplied(t *testing.T) {
	t.Parallel()
	t.Run("to the same value changes nothing and records nothing", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		createShop(t, c)
		s := newShops(t, c)
		held := s.mustApply("lib", true, body(nil, suspend(true)))
		same := s.merge("flux", `{"spec":{"suspend":true}}`)
		assert.Equal(t, held.GetResourceVersion(), same.GetResourceVersion())
		assert.Equal(t, []string{"lib Apply"}, owners(same, "spec", "suspend"))
		assert.Nil(t, field(s.mustApply("lib", true, body(nil, nil)), "spec", "suspend"))
	})
	t.Run("to another value takes the field away", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		createShop(t, c)
		s := newShops(t, c)
		s.mustApply("lib", true, body(token("t1"), suspend(true)))
		taken := s.merge("flux", `{"spec":{"suspend":false}}`)
		assert.Equal(t, []string{"flux Update"}, owners(taken, "spec", "suspend"))
		assert.Equal(t, []string{"lib Apply"}, owners(taken, "metadata", "annotations", "reconcile.fluxcd.io/requestedAt"))

		_, err := s.apply("lib", false, body(token("t2"), suspend(true)))
		assert.True(t, apierrors.IsConflict(err), "unforced")
		s.mustApply("lib", true, body(token("t2"), suspend(true)))
	})
	t.Run("to null removes the field from the applier", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		createShop(t, c)
		s := newShops(t, c)
		s.mustApply("lib", true, body(token("t1"), suspend(true)))
		resumed := s.merge("flux", `{"spec":{"suspend":null}}`)
		assert.Nil(t, field(resumed, "spec", "suspend"))
		assert.Empty(t, owners(resumed, "spec", "suspend"))
		assert.Equal(t, []string{"lib Apply"}, owners(resumed, "metadata", "annotations", "reconcile.fluxcd.io/requestedAt"))
	})
}

func TestApplyAfterManagedFieldsWereWiped(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	s.mustApply("lib", true, body(nil, suspend(true)))
	s.merge("wiper", `{"metadata":{"managedFields":[{}]}}`)

	forced := s.mustApply("lib", true, body(nil, suspend(false)))
	assert.Equal(t, []string{"lib Apply"}, owners(forced, "spec", "suspend"))
	assert.Equal(t, []string{"before-first-apply Update"}, owners(forced, "spec", "interval"))
	assert.Nil(t, field(s.mustApply("lib", true, body(nil, nil)), "spec", "suspend"), "the old value is lost")
}

func TestTwoAppliers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	s.mustApply("parent", false, body(nil, suspend(true)))
	shared := s.mustApply("lib", false, body(token("t1"), suspend(true)))
	assert.ElementsMatch(t, []string{"parent Apply", "lib Apply"}, owners(shared, "spec", "suspend"))

	left := s.mustApply("lib", false, body(token("t1"), nil))
	assert.Equal(t, true, field(left, "spec", "suspend"), "an empty apply leaves what another applies")
	assert.Equal(t, []string{"parent Apply"}, owners(left, "spec", "suspend"))

	s.mustApply("lib", true, body(token("t1"), suspend(false)))
	_, err := s.apply("parent", false, body(nil, suspend(true)))
	_, _, causes := status(t, err)
	assert.Equal(t, []string{`.spec.suspend: conflict with "lib"`}, causes)

	taken := s.mustApply("parent", true, body(nil, suspend(true)))
	assert.Equal(t, []string{"parent Apply"}, owners(taken, "spec", "suspend"))
	assert.Equal(t, []string{"lib Apply"}, owners(taken, "metadata", "annotations", "reconcile.fluxcd.io/requestedAt"))
}

func TestAnEmptyApplyMovesTheGenerationWhenAFieldGoes(t *testing.T) {
	t.Parallel()
	for _, value := range []bool{true, false} {
		t.Run(fmt.Sprintf("suspend %v", value), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			createShop(t, c)
			s := newShops(t, c)
			held := s.mustApply("lib", true, body(token("t1"), suspend(value)))
			released := s.mustApply("lib", true, body(nil, nil))
			assert.Nil(t, field(released, "spec", "suspend"))
			assert.Nil(t, field(released, "metadata", "annotations"), "the map goes with its last entry")
			assert.Equal(t, held.GetGeneration()+1, released.GetGeneration())
		})
	}
}

func TestARepeatedApplyIsNoWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	first := s.mustApply("lib", true, body(token("t1"), suspend(true)))
	again := s.mustApply("lib", true, body(token("t1"), suspend(true)))
	assert.Equal(t, first, again, "resourceVersion, generation and the times of managed fields included")

	other := s.mustApply("another", false, body(nil, suspend(true)))
	assert.NotEqual(t, first.GetResourceVersion(), other.GetResourceVersion(), "a new manager is a write")
	assert.Equal(t, first.GetGeneration(), other.GetGeneration(), "but no change of the spec")
}

func TestASmallerApplyDeletesWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	s.mustApply("lib", false, body(nil, suspend(true)))
	assert.Nil(t, field(s.mustApply("lib", false, body(token("t1"), nil)), "spec", "suspend"))

	s.mustApply("lib", false, body(nil, suspend(true)))
	kept := s.mustApply("lib", false, body(token("t1"), suspend(true)))
	assert.Equal(t, true, field(kept, "spec", "suspend"), "a body that states the field keeps it")
}

func TestApplyOfTheStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	applied := body(nil, suspend(true))
	applied["status"] = map[string]any{"lastHandledReconcileAt": "t1"}
	data, err := json.Marshal(applied)
	require.NoError(t, err)

	written, err := s.client.Patch(t.Context(), "shop", types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: "controller"}, "status")
	require.NoError(t, err)
	assert.Equal(t, "t1", field(written, "status", "lastHandledReconcileAt"))
	assert.Nil(t, field(written, "spec", "suspend"), "the subresource writes nothing else")
	for _, entry := range written.GetManagedFields() {
		if entry.Manager == "controller" {
			assert.Equal(t, "status", entry.Subresource)
		}
	}

	main := s.mustApply("lib", false, applied)
	assert.Equal(t, true, field(main, "spec", "suspend"))
	assert.Empty(t, owners(s.mustApply("lib", false, applied), "status", "lastHandledReconcileAt")[1:], "the status is not lib's")

	_, err = s.client.Patch(t.Context(), "missing", types.ApplyPatchType, []byte(strings.ReplaceAll(string(data), "shop", "missing")), metav1.PatchOptions{FieldManager: "controller"}, "status")
	assert.True(t, apierrors.IsNotFound(err), "a subresource creates nothing: %v", err)
}

func TestForcedAppliesAndOtherWritesDoNotGetInEachOthersWay(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	s := newShops(t, c)
	const writes = 50
	var wg sync.WaitGroup
	errs := make(chan error, 3*writes)
	for _, write := range []func(i int) error{
		func(i int) error {
			_, err := s.apply("lib", true, body(token(fmt.Sprint("t", i)), suspend(i%2 == 0)))
			return err
		},
		func(i int) error {
			patch := fmt.Sprintf(`{"spec":{"path":"./%d"}}`, i)
			_, err := s.client.Patch(t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "user"})
			return err
		},
		func(i int) error {
			patch := fmt.Sprintf(`{"status":{"lastHandledReconcileAt":"%d"}}`, i)
			_, err := s.client.Patch(t.Context(), "shop", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "controller"}, "status")
			return err
		},
	} {
		wg.Go(func() {
			for i := range writes {
				errs <- write(i)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}
