package apiserver

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// strategicMerge merges by the patch strategies of a built-in kind's Go type.
func (p *patcher) strategicMerge(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if old.GetUID() == "" {
		return nil, apierrors.NewNotFound(p.request.groupResource(), p.request.Name)
	}
	patch := map[string]any{}
	complaints, err := repeatedFields(p.request.Body, &patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	typed := p.version.kind.rules.(*builtinRules).new()
	merged, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(old.Object), patch, typed)
	if err != nil {
		return nil, mergeError(err)
	}
	invalid := func(err error) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), fmt.Sprintf("%+v", patch), err.Error())})
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(merged, typed, true)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, unknown := range strict.Errors() {
			complaints = append(complaints, unknown.Error())
		}
	} else if err != nil {
		return nil, invalid(err)
	}
	if err := p.complain(complaints, invalid); err != nil {
		return nil, err
	}
	if err := writeTyped(merged, typed); err != nil {
		return nil, err
	}
	p.version.kind.rules.setDefaults(p.version, merged)
	return p.managed(old, &unstructured.Unstructured{Object: merged}), nil
}

// mergeError gives the errors of a strategic merge the codes that the server gives them.
func mergeError(err error) error {
	switch err {
	case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat:
		return apierrors.NewBadRequest(err.Error())
	case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
		return unprocessable(err)
	default:
		return err
	}
}
