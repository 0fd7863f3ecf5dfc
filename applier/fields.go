package applier

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Fields reads the fields of an object for a backend, which cannot rely on their types: it keeps the first field that has
// the wrong one, for Err, and reads it as if it were not there. It is not safe for concurrent use.
type Fields struct {
	fields map[string]any
	at     string
	err    *error
}

// FieldsOf returns the fields of an object, which it does not change.
func FieldsOf(object *unstructured.Unstructured) *Fields {
	return &Fields{fields: object.Object, err: new(error)}
}

// Field returns the field at path, or the zero value where it is missing, null, or of another type than T. The types
// are those of decoded JSON: string, bool, int64, float64, map[string]any and []any. The value is the object's own.
func Field[T any](f *Fields, path ...string) T {
	value, found, err := unstructured.NestedFieldNoCopy(f.fields, path...)
	typed, ok := value.(T)
	switch {
	case err != nil:
		f.Fail("is inside something that is no object", path...)
	case found && value != nil && !ok:
		f.Fail(fmt.Sprintf("is %T, not %T", value, typed), path...)
	}
	return typed
}

// Has reports whether there is a field at path that is not null.
func (f *Fields) Has(path ...string) bool {
	value, found, err := unstructured.NestedFieldNoCopy(f.fields, path...)
	return err == nil && found && value != nil
}

// Each returns the objects in the list at path, each as fields that share f's error. An entry that is no object is
// left out.
func (f *Fields) Each(path ...string) []*Fields {
	var entries []*Fields
	for i, entry := range Field[[]any](f, path...) {
		at := append(slices.Clone(path), strconv.Itoa(i))
		fields, ok := entry.(map[string]any)
		if !ok {
			f.Fail(fmt.Sprintf("is %T, not an object", entry), at...)
			continue
		}
		entries = append(entries, &Fields{fields: fields, at: f.named(at), err: f.err})
	}
	return entries
}

// Fail keeps what is wrong with the field at path, if it is the first: a phrase such as "is 3, not a version".
func (f *Fields) Fail(wrong string, path ...string) {
	if *f.err == nil {
		*f.err = fmt.Errorf("field %s %s", f.named(path), wrong)
	}
}

// Err returns what is wrong with the first field read that had the wrong type, if any had.
func (f *Fields) Err() error { return *f.err }

func (f *Fields) named(path []string) string { return f.at + "." + strings.Join(path, ".") }
