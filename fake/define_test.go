package fake_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const widgetsYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [color]
            properties:
              color: {type: string}
              size: {type: integer, default: 3}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, count: {type: integer}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - name: v1beta1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func TestACustomResourceOfTheTestsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	require.NoError(t, c.Define(object(t, widgetsYAML)))
	widgets := c.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace(team)
	apply := func(manager, spec string) error {
		u := object(t, "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: "+spec+"}")
		_, err := widgets.Apply(t.Context(), "w", u, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	require.NoError(t, apply("one", "{color: red, parts: [{name: a, count: 1}]}"))
	require.NoError(t, apply("two", "{parts: [{name: b, count: 2}]}"))
	assert.True(t, apierrors.IsConflict(apply("two", "{parts: [{name: a, count: 2}]}")))

	w, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Len(t, field(w, "spec", "parts"), 2, "a list of type map is merged by its keys")
	assert.Equal(t, int64(3), field(w, "spec", "size"))

	list, err := widgets.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=red"})
	require.NoError(t, err)
	assert.Len(t, list.Items, 1)

	beta := c.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "widgets"}).Namespace(team)
	same, err := beta.Get(t.Context(), "w", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "example.com/v1beta1", same.GetAPIVersion())
	assert.Equal(t, w.GetUID(), same.GetUID())
}

func TestADefinitionThatCannotBeServed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, crd, says string }{
		{"another kind", shopYAML, "is no CustomResourceDefinition"},
		{"no kind in it", strings.Replace(widgetsYAML, "kind: Widget", "kind: ''", 1), "spec.names needs plural and kind"},
		{"no scope", strings.Replace(widgetsYAML, "Namespaced", "Nowhere", 1), `spec.scope is "Nowhere"`},
		{"nothing stored", strings.Replace(widgetsYAML, "storage: true", "storage: false", 1), "needs exactly one that is served and stored, not 0"},
		{"a schema that is none", strings.Replace(widgetsYAML, "{type: integer, default: 3}", "{type: 3}", 1), "schema of version v1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			assert.ErrorContains(t, newCluster(t).Define(object(t, tc.crd)), tc.says)
		})
	}
	c := newCluster(t)
	require.NoError(t, c.Define(object(t, widgetsYAML)))
	assert.ErrorContains(t, c.Define(object(t, widgetsYAML)), "served already")
}
