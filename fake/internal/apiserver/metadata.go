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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	kjson "sigs.k8s.io/json"
)

// readMeta decodes metadata into its Go type, which also drops what that type does not have. Only in strict mode it
// returns the paths of what it dropped.
func readMeta(object map[string]any, strict bool) (meta *metav1.ObjectMeta, unknown []string, err error) {
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
			unknown = append(unknown, "metadata."+inField.FieldPath())
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
