package apiserver

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
		return nil, apierrors.NewBadRequest(err.Error())
	}
	invalid := func(err error) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), string(p.request.Body), err.Error())})
	}
	if complaints, err = shape(p.version, merged, complaints); err != nil {
		return nil, invalid(err)
	}
	if err := p.complain(complaints, invalid); err != nil {
		return nil, err
	}
	return p.managed(old, &unstructured.Unstructured{Object: merged}), nil
}
