package applier_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/gitops-applier/gitops-applier/applier"
)

func fieldsOf(t *testing.T, text string) *applier.Fields {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal([]byte(text), &u.Object))
	return applier.FieldsOf(u)
}

func TestFieldsAreReadByTheirType(t *testing.T) {
	t.Parallel()
	f := fieldsOf(t, `{"spec": {"name": "a", "on": true, "count": 3, "part": 0.5, "list": [{"name": "b"}, {"name": "c"}], "null": null}}`)

	assert.Equal(t, "a", applier.Field[string](f, "spec", "name"))
	assert.True(t, applier.Field[bool](f, "spec", "on"))
	assert.Equal(t, int64(3), applier.Field[int64](f, "spec", "count"))
	assert.InDelta(t, 0.5, applier.Field[float64](f, "spec", "part"), 0)
	assert.Len(t, applier.Field[map[string]any](f, "spec"), 6)
	var names []string
	for _, entry := range f.Each("spec", "list") {
		names = append(names, applier.Field[string](entry, "name"))
	}
	assert.Equal(t, []string{"b", "c"}, names)
	assert.True(t, f.Has("spec", "name"))
	require.NoError(t, f.Err())
}

func TestAFieldThatIsMissingOrNullIsItsZeroValueAndNoError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{}`, `{"spec": null}`, `{"spec": {}}`, `{"spec": {"name": null, "list": null}}`, `null`} {
		f := fieldsOf(t, text)
		assert.Empty(t, applier.Field[string](f, "spec", "name"))
		assert.Empty(t, f.Each("spec", "list"))
		assert.False(t, f.Has("spec", "name"))
		assert.NoError(t, f.Err(), text)
	}
}

func TestTheFirstFieldOfTheWrongTypeIsKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read func(f *applier.Fields)
		says string
	}{
		"a text":      {read: func(f *applier.Fields) { applier.Field[bool](f, "spec", "name") }, says: "field .spec.name is string, not bool"},
		"inside it":   {read: func(f *applier.Fields) { applier.Field[string](f, "spec", "name", "x") }, says: "field .spec.name.x is inside something that is no object"},
		"a list":      {read: func(f *applier.Fields) { f.Each("spec", "name") }, says: "field .spec.name is string, not []interface {}"},
		"an entry":    {read: func(f *applier.Fields) { f.Each("spec", "list") }, says: "field .spec.list.1 is string, not an object"},
		"in an entry": {read: func(f *applier.Fields) { applier.Field[bool](f.Each("spec", "good")[0], "name") }, says: "field .spec.good.0.name is string, not bool"},
		"the first": {
			read: func(f *applier.Fields) {
				applier.Field[bool](f, "spec", "name")
				applier.Field[string](f, "spec")
			}, says: "field .spec.name is string, not bool",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fieldsOf(t, `{"spec": {"name": "a", "list": [{}, "b"], "good": [{"name": "c"}]}}`)
			test.read(f)
			require.ErrorContains(t, f.Err(), test.says)
			assert.False(t, f.Has("spec", "name", "x"), "what is inside a text is not there")
		})
	}
}
