package fake_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
)

func TestAFreshObject(t *testing.T) {
	t.Parallel()
	created := createShop(t, newCluster(t))
	assert.NotEmpty(t, created.GetUID())
	assert.NotNil(t, field(created, "metadata", "creationTimestamp"))
	assert.Equal(t, int64(1), created.GetGeneration())
	assert.Equal(t, map[string]any{"observedGeneration": int64(-1)}, field(created, "status"), "the default of the CRD")
	assert.Equal(t, false, field(created, "spec", "force"), "a default within the spec")
	assert.Equal(t, []string{"creator Update"}, owners(created, "spec", "interval"))
}

func TestCreate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, object string
		code         int
		reason       metav1.StatusReason
		causes       []string
	}{
		{
			name: "without required fields", code: 422, reason: metav1.StatusReasonInvalid,
			object: "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 1m}}",
			causes: []string{"spec.prune: Required value", "spec.sourceRef: Required value"},
		},
		{
			name: "with a value of the wrong type", code: 422, reason: metav1.StatusReasonInvalid,
			object: `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 1m, prune: "yes", sourceRef: {kind: Bucket, name: b}}}`,
			causes: []string{`spec.prune: Invalid value: "string": spec.prune in body must be of type boolean: "string"`},
		},
		{
			name: "with a value that the schema does not list", code: 422, reason: metav1.StatusReasonInvalid,
			object: "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: 1m, prune: true, sourceRef: {kind: Nothing, name: b}}}",
			causes: []string{`spec.sourceRef.kind: Unsupported value: "Nothing": supported values: "OCIRepository", "GitRepository", "Bucket", "ExternalArtifact"`},
		},
		{
			name: "with a value that does not match the pattern", code: 422, reason: metav1.StatusReasonInvalid,
			object: "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: x}, spec: {interval: soon, prune: true, sourceRef: {kind: Bucket, name: b}}}",
			causes: []string{`spec.interval: Invalid value: "soon": spec.interval in body should match '^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$'`},
		},
		{
			name: "of a name that exists", code: 409, reason: metav1.StatusReasonAlreadyExists,
			object: shopYAML,
		},
		{
			name: "with a name that is not valid", code: 422, reason: metav1.StatusReasonInvalid,
			object: strings.Replace(shopYAML, "name: shop,", "name: Shop,", 1),
		},
		{
			name: "with another version in the body", code: 400, reason: metav1.StatusReasonBadRequest,
			object: "{apiVersion: kustomize.toolkit.fluxcd.io/v9, kind: Kustomization, metadata: {name: x}}",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			createShop(t, c)
			_, err := c.Resource(kustomizations).Namespace(team).Create(t.Context(), object(t, tc.object), metav1.CreateOptions{})
			code, reason, causes := status(t, err)
			assert.Equal(t, tc.code, code)
			assert.Equal(t, tc.reason, reason)
			assert.Subset(t, causes, tc.causes)
		})
	}
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	withUnknown := strings.Replace(shopYAML, "prune: true", "prune: true\n  bogus: {deep: 1}", 1)
	t.Run("are dropped", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		created, err := c.Resource(kustomizations).Namespace(team).Create(t.Context(), object(t, withUnknown), metav1.CreateOptions{FieldValidation: "Ignore"})
		require.NoError(t, err)
		assert.Nil(t, field(created, "spec", "bogus"))
	})
	t.Run("are refused where the request is strict", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		_, err := c.Resource(kustomizations).Namespace(team).Create(t.Context(), object(t, withUnknown), metav1.CreateOptions{FieldValidation: "Strict"})
		assert.True(t, apierrors.IsBadRequest(err))
		assert.ErrorContains(t, err, `unknown field "spec.bogus"`)
	})
}

func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	u := object(t, shopYAML)
	u.SetName("")
	u.SetGenerateName("shop-")
	created, err := c.Resource(kustomizations).Namespace(team).Create(t.Context(), u, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Regexp(t, `^shop-[a-z0-9]{5}$`, created.GetName())
}

func TestCreateInANamespaceThatIsNotThere(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	create := func(namespace string) error {
		u := object(t, shopYAML)
		u.SetNamespace(namespace)
		_, err := c.Resource(kustomizations).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
		return err
	}
	assert.EqualError(t, create("nowhere"), `namespaces "nowhere" not found`)

	require.NoError(t, c.Resource(namespaces).Delete(t.Context(), team, metav1.DeleteOptions{}))
	err := create(team)
	assert.True(t, apierrors.IsForbidden(err))
	assert.True(t, apierrors.HasStatusCause(err, "NamespaceTerminating"))
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShops(t, c)
	created := createShop(t, c)

	changed := created.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(changed.Object, "5m", "spec", "interval"))
	require.NoError(t, unstructured.SetNestedField(changed.Object, "t1", "status", "lastHandledReconcileAt"))
	updated, err := s.client.Update(t.Context(), changed, metav1.UpdateOptions{FieldManager: "editor"})
	require.NoError(t, err)
	assert.Equal(t, int64(2), updated.GetGeneration())
	assert.Nil(t, field(updated, "status", "lastHandledReconcileAt"), "the status is the subresource's")
	assert.Equal(t, []string{"editor Update"}, owners(updated, "spec", "interval"))

	_, err = s.client.Update(t.Context(), changed, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsConflict(err), "a stale object")

	unversioned := updated.DeepCopy()
	unversioned.SetResourceVersion("")
	_, err = s.client.Update(t.Context(), unversioned, metav1.UpdateOptions{})
	assert.ErrorContains(t, err, "metadata.resourceVersion: Invalid value: 0: must be specified for an update")

	foreign := updated.DeepCopy()
	foreign.SetUID("another")
	_, err = s.client.Update(t.Context(), foreign, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsConflict(err), "another UID")
	assert.ErrorContains(t, err, "Precondition failed: UID in precondition: another")

	missing := updated.DeepCopy()
	missing.SetName("missing")
	_, err = s.client.Update(t.Context(), missing, metav1.UpdateOptions{})
	assert.True(t, apierrors.IsNotFound(err))

	same, err := s.client.Update(t.Context(), updated, metav1.UpdateOptions{FieldManager: "somebody"})
	require.NoError(t, err)
	assert.Equal(t, updated, same, "an update that changes nothing is no write")
}

func TestUpdateOfTheStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShops(t, c)
	created := createShop(t, c)

	changed := created.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(changed.Object, true, "spec", "suspend"))
	changed.SetLabels(map[string]string{"a": "b"})
	require.NoError(t, unstructured.SetNestedField(changed.Object, int64(1), "status", "observedGeneration"))
	updated, err := s.client.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{FieldManager: "controller"})
	require.NoError(t, err)
	assert.Equal(t, int64(1), field(updated, "status", "observedGeneration"))
	assert.Nil(t, field(updated, "spec", "suspend"))
	assert.Empty(t, updated.GetLabels())
	assert.Equal(t, created.GetGeneration(), updated.GetGeneration())

	require.NoError(t, unstructured.SetNestedField(updated.Object, "one", "status", "observedGeneration"))
	_, err = s.client.UpdateStatus(t.Context(), updated, metav1.UpdateOptions{})
	_, _, causes := status(t, err)
	assert.Contains(t, causes, `status.observedGeneration: Invalid value: "string": observedGeneration in body must be of type integer: "string"`)
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		kind  types.PatchType
		patch string
		code  int
		want  any
	}{
		{"merge sets", types.MergePatchType, `{"spec":{"suspend":true}}`, 200, true},
		{"merge removes", types.MergePatchType, `{"spec":{"suspend":null}}`, 200, nil},
		{"merge that is no JSON", types.MergePatchType, `{`, 400, nil},
		{"merge that makes it invalid", types.MergePatchType, `{"spec":{"interval":null}}`, 422, nil},
		{"merge with a stale resourceVersion", types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`, 409, nil},
		{"JSON sets", types.JSONPatchType, `[{"op":"add","path":"/spec/suspend","value":true}]`, 200, true},
		{"JSON tests in vain", types.JSONPatchType, `[{"op":"test","path":"/spec/prune","value":false}]`, 422, nil},
		{"JSON that is no list", types.JSONPatchType, `{}`, 400, nil},
		{"strategic merge, which custom resources do not have", types.StrategicMergePatchType, `{}`, 415, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			createShop(t, c)
			patched, err := newShops(t, c).client.Patch(t.Context(), "shop", tc.kind, []byte(tc.patch), metav1.PatchOptions{})
			if tc.code == 200 {
				require.NoError(t, err)
				assert.Equal(t, tc.want, field(patched, "spec", "suspend"))
				return
			}
			code, _, _ := status(t, err)
			assert.Equal(t, tc.code, code, "%v", err)
		})
	}
}

func TestStrategicMergeOfABuiltinKind(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	deployments := c.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(team)
	_, err := deployments.Create(t.Context(), object(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: web, image: "web:1"}, {name: log, image: "log:1"}]}
`), metav1.CreateOptions{})
	require.NoError(t, err)
	patched, err := deployments.Patch(t.Context(), "shop", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	containers, _, err := unstructured.NestedSlice(patched.Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	assert.Len(t, containers, 2, "merged by name")
	assert.Equal(t, "web:2", containers[0].(map[string]any)["image"])
	assert.Equal(t, int64(2), patched.GetGeneration())
	assert.Equal(t, int64(1), field(patched, "spec", "replicas"), "defaulted")
}

func TestDelete(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShops(t, c)
	created := createShop(t, c)

	wrong := types.UID("another")
	err := s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &wrong}})
	assert.True(t, apierrors.IsConflict(err))
	stale := "1"
	err = s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &stale}})
	assert.True(t, apierrors.IsConflict(err))

	s.merge("flux", `{"metadata":{"finalizers":["finalizers.fluxcd.io"]}}`)
	uid := created.GetUID()
	require.NoError(t, s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	deleting := s.get()
	assert.NotNil(t, deleting.GetDeletionTimestamp())
	assert.Equal(t, created.GetGeneration()+1, deleting.GetGeneration())

	require.NoError(t, s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{}))
	assert.Equal(t, deleting, s.get(), "a second deletion changes nothing")

	_, err = s.client.Create(t.Context(), object(t, shopYAML), metav1.CreateOptions{})
	assert.True(t, apierrors.IsAlreadyExists(err))
	assert.ErrorContains(t, err, "object is being deleted")

	_, err = s.client.Patch(t.Context(), "shop", types.MergePatchType, []byte(`{"metadata":{"finalizers":["another.example.com/hold"]}}`), metav1.PatchOptions{})
	assert.ErrorContains(t, err, "no new finalizers can be added if the object is being deleted")

	s.merge("flux", `{"metadata":{"finalizers":null}}`)
	_, err = s.client.Get(t.Context(), "shop", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "it goes with its last finalizer")
	assert.EqualError(t, err, `kustomizations.kustomize.toolkit.fluxcd.io "shop" not found`)
}

func TestDeleteOfACollection(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	maps := c.Resource(configMaps).Namespace(team)
	for name, label := range map[string]string{"a": "one", "b": "two"} {
		u := object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", labels: {l: "+label+"}}}")
		_, err := maps.Create(t.Context(), u, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "l=one"}))
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "b", list.Items[0].GetName())
}

func TestADryRunChangesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := newShops(t, c)
	created := createShop(t, c)
	dry := []string{metav1.DryRunAll}

	patched, err := s.client.Patch(t.Context(), "shop", types.MergePatchType, []byte(`{"spec":{"suspend":true}}`), metav1.PatchOptions{DryRun: dry})
	require.NoError(t, err)
	assert.Equal(t, true, field(patched, "spec", "suspend"))
	assert.Equal(t, created.GetResourceVersion(), patched.GetResourceVersion())
	require.NoError(t, s.client.Delete(t.Context(), "shop", metav1.DeleteOptions{DryRun: dry}))
	assert.Equal(t, created, s.get())

	other := object(t, shopYAML)
	other.SetName("other")
	_, err = s.client.Create(t.Context(), other, metav1.CreateOptions{DryRun: dry})
	require.NoError(t, err)
	_, err = s.client.Get(t.Context(), "other", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
}

func TestKindsThatAreNotServed(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{Unserved: []schema.GroupResource{kustomizations.GroupResource()}})
	t.Cleanup(c.Stop)
	for _, resource := range []schema.GroupVersionResource{
		kustomizations,
		{Group: "kustomize.toolkit.fluxcd.io", Version: "v9", Resource: "kustomizations"},
		{Group: "example.com", Version: "v1", Resource: "things"},
		{Version: "v1", Resource: "things"},
	} {
		_, err := c.Resource(resource).Namespace("default").List(t.Context(), metav1.ListOptions{})
		assert.True(t, apierrors.IsNotFound(err), "%s", resource)
		assert.EqualError(t, err, "the server could not find the requested resource")
	}
	c.Serve(kustomizations.GroupResource())
	_, err := c.Resource(kustomizations).List(t.Context(), metav1.ListOptions{})
	assert.NoError(t, err)
}

func TestObjectsAreCopies(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	created := createShop(t, c)
	require.NoError(t, unstructured.SetNestedField(created.Object, "changed", "spec", "path"))
	assert.Nil(t, field(newShops(t, c).get(), "spec", "path"))
}

func TestEventsOfBothGroupsAreTheSame(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"shop", "shop-db"} {
		_, err := c.Resource(events).Namespace(team).Create(t.Context(), object(t, `
apiVersion: v1
kind: Event
metadata: {name: `+name+`.1}
involvedObject: {kind: Kustomization, name: `+name+`, namespace: team-a}
reason: ReconciliationSucceeded
message: done
type: Normal
`), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	list, err := c.Resource(events).Namespace(team).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=shop"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "shop.1", list.Items[0].GetName())

	newEvents := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	list, err = c.Resource(newEvents).Namespace(team).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=shop"})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, "done", field(&list.Items[0], "note"))

	_, err = c.Resource(events).Namespace(team).List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=shop"})
	assert.True(t, apierrors.IsBadRequest(err), "a field that cannot be selected by: %v", err)
}
