package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// readMeta decodes metadata into its Go type, which also drops what that type does not have. Only in strict mode it
// returns the paths of what it dropped.
func readMeta(object map[string]any, path string, strict bool) (meta *metav1.ObjectMeta, unknown []string, err error) {
	value, found := object["metadata"]
	if !found {
		return nil, nil, nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, nil, err
	}
	meta = &metav1.ObjectMeta{}
	if !strict {
		return meta, nil, kjson.UnmarshalCaseSensitivePreserveInts(data, meta)
	}
	strictErrs, err := kjson.UnmarshalStrict(data, meta)
	for _, strictErr := range strictErrs {
		var inField kjson.FieldError
		if errors.As(strictErr, &inField) {
			unknown = append(unknown, join(path, "metadata")+"."+inField.FieldPath())
		}
	}
	return meta, unknown, err
}

func writeMeta(object map[string]any, meta *metav1.ObjectMeta) error {
	if meta == nil {
		return nil
	}
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(meta)
	if err != nil {
		return err
	}
	object["metadata"] = value
	return nil
}

// coerceEmbedded does for embedded objects what readMeta and writeMeta do for the object itself.
func coerceEmbedded(path *field.Path, x any, s *structural, strict bool, unknown *[]string) error {
	if s == nil {
		return nil
	}
	switch x := x.(type) {
	case map[string]any:
		if s.embedded {
			if err := coerceEmbeddedMeta(path, x, strict, unknown); err != nil {
				return err
			}
		}
		for name, value := range x {
			child, property := path.Child(name), s.properties[name]
			if property == nil {
				child, property = path.Key(name), s.additional
			}
			if err := coerceEmbedded(child, value, property, strict, unknown); err != nil {
				return err
			}
		}
	case []any:
		for i, value := range x {
			if err := coerceEmbedded(path.Index(i), value, s.items, strict, unknown); err != nil {
				return err
			}
		}
	}
	return nil
}

func coerceEmbeddedMeta(path *field.Path, x map[string]any, strict bool, unknown *[]string) error {
	for _, name := range []string{"apiVersion", "kind"} {
		if value, found := x[name]; found {
			if _, ok := value.(string); !ok {
				return field.Invalid(path.Child(name), value, "must be a string")
			}
		}
	}
	meta, dropped, err := readMeta(x, path.String(), strict)
	if err != nil {
		return field.Invalid(path.Child("metadata"), x["metadata"], err.Error())
	}
	*unknown = append(*unknown, dropped...)
	if meta == nil {
		return nil
	}
	if err := writeMeta(x, meta); err != nil {
		return field.Invalid(path.Child("metadata"), x["metadata"], err.Error())
	}
	if meta.CreationTimestamp.IsZero() {
		unstructured.RemoveNestedField(x, "metadata", "creationTimestamp")
	}
	return nil
}

// wipeSystemFields takes out what only the server sets.
func wipeSystemFields(object metav1.Object) {
	object.SetCreationTimestamp(metav1.Time{})
	object.SetUID("")
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	object.SetSelfLink("")
}

func fillSystemFields(object metav1.Object) {
	object.SetCreationTimestamp(metav1.Now())
	object.SetUID(uuid.NewUUID())
}

// matchNamespace makes the object's namespace the request's, or refuses one that differs.
func matchNamespace(want string, object metav1.Object) error {
	switch got := object.GetNamespace(); got {
	case want:
		return nil
	default:
		if want != "" {
			return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
		}
		fallthrough
	case "":
		object.SetNamespace(want)
		return nil
	}
}

func checkName(object metav1.Object, name, namespace string) error {
	if object.GetName() == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	}
	if object.GetName() != name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", object.GetName(), name))
	}
	if namespace != "" && object.GetNamespace() != "" && object.GetNamespace() != namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", object.GetNamespace(), namespace))
	}
	return nil
}

const afterAdmission = " after mutating admission happens"

// dropRepeatedOwners keeps the first of equal owner references.
func (r *Request) dropRepeatedOwners(object metav1.Object, when string) {
	var kept []metav1.OwnerReference
	var repeated []string
	for _, ref := range object.GetOwnerReferences() {
		if slices.ContainsFunc(kept, func(other metav1.OwnerReference) bool { return reflect.DeepEqual(ref, other) }) {
			repeated = append(repeated, string(ref.UID))
			continue
		}
		kept = append(kept, ref)
	}
	if len(repeated) == 0 {
		return
	}
	object.SetOwnerReferences(kept)
	r.warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, and may reject "+
		"such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s", when, strings.Join(repeated, ", ")))
}
