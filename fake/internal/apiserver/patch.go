package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const maxJSONPatchOperations = 10_000

func (s *Server) patch(r *Request, v *version) (*Response, error) {
	if supported := patchTypes(v); !slices.Contains(supported, r.ContentType) {
		return nil, unsupportedMediaType(supported...)
	}
	kind := types.PatchType(r.ContentType)
	var options metav1.PatchOptions
	if err := r.options(&options); err != nil {
		return nil, err
	}
	if errs := validation.ValidatePatchOptions(&options, kind); len(errs) > 0 {
		return nil, invalidOptions("PatchOptions", errs)
	}
	p := &patcher{request: r, version: v, options: options}
	change := p.merge
	switch kind {
	case types.ApplyYAMLPatchType:
		change = p.apply
	case types.StrategicMergePatchType:
		change = p.strategicMerge
	}
	return s.write(r, v, write{
		createMissing: kind == types.ApplyYAMLPatchType && r.Subresource == "",
		dryRun:        len(options.DryRun) > 0,
		object: func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			object, err := change(old)
			if err != nil {
				return nil, err
			}
			return object, p.check(object, old)
		},
	})
}

func patchTypes(v *version) []string {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if _, custom := v.kind.rules.(*customRules); !custom {
		supported = append(supported, string(types.StrategicMergePatchType))
	}
	return append(supported, string(types.ApplyYAMLPatchType))
}

func unsupportedMediaType(supported ...string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "the body of the request was in an unknown format - accepted media types include: " + strings.Join(supported, ", "),
	}}
}

type patcher struct {
	request *Request
	version *version
	options metav1.PatchOptions
}

// check refuses a patched object that is not the one the request names.
func (p *patcher) check(object, old *unstructured.Unstructured) error {
	r := p.request
	if object.GetUID() != "" && old.GetUID() == "" {
		return apierrors.NewConflict(r.groupResource(), r.Name, fmt.Errorf(
			"uid mismatch: the provided object specified uid %s, and no existing object was found", object.GetUID()))
	}
	if err := matchNamespace(p.version.namespaceOf(r), object); err != nil {
		return err
	}
	return checkName(object, r.Name, r.Namespace)
}

// complain refuses or warns of fields that the kind does not have, by the request's field validation.
func (p *patcher) complain(complaints []string, refuse func(error) error) error {
	switch {
	case len(complaints) == 0 || p.options.FieldValidation == metav1.FieldValidationIgnore:
		return nil
	case p.options.FieldValidation == metav1.FieldValidationStrict:
		return refuse(strictError(complaints))
	default:
		p.request.warn(complaints...)
		return nil
	}
}

func (p *patcher) apply(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	config := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal(p.request.Body, &config.Object); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	force := p.options.Force != nil && *p.options.Force
	object, err := p.version.managers(p.request.Subresource).Apply(old, config, p.options.FieldManager, force)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(p.request.Body, &map[string]any{}); err != nil {
		refuse := func(error) error { return apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", err)) }
		if err := p.complain([]string{err.Error()}, refuse); err != nil {
			return nil, err
		}
	}
	return object.(*unstructured.Unstructured), nil
}

func (p *patcher) merge(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	current, err := p.version.encode(old.Object)
	if err != nil {
		return nil, err
	}
	patched, complaints, err := p.patched(current)
	if err != nil {
		return nil, err
	}
	invalid := func(err error) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
			field.Invalid(field.NewPath("patch"), string(patched), err.Error()),
		})
	}
	object, repeated, err := decode(p.version, patched)
	if err != nil {
		return nil, invalid(err)
	}
	complaints, err = shape(p.version, object.Object, append(complaints, repeated...))
	if err != nil {
		return nil, invalid(err)
	}
	if err := p.complain(complaints, invalid); err != nil {
		return nil, err
	}
	return p.managed(old, object), nil
}

// encode writes an object as the server does before it patches it. The order of fields shows in error messages.
func (v *version) encode(object map[string]any) ([]byte, error) {
	if r, builtin := v.kind.rules.(*builtinRules); builtin {
		return r.typedJSON(object)
	}
	return json.Marshal(object)
}

func (p *patcher) managed(old, object *unstructured.Unstructured) *unstructured.Unstructured {
	m := p.version.managers(p.request.Subresource)
	return m.UpdateNoErrors(old, object, p.request.manager(p.options.FieldManager)).(*unstructured.Unstructured)
}

// patched applies a JSON patch or a merge patch to the object's JSON.
func (p *patcher) patched(current []byte) ([]byte, []string, error) {
	body := p.request.Body
	if types.PatchType(p.request.ContentType) == types.MergePatchType {
		complaints, err := repeatedFields(body, &map[string]any{})
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		patched, err := jsonpatch.MergePatch(current, body)
		if err == jsonpatch.ErrBadJSONPatch {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
		return patched, complaints, err
	}
	complaints, err := repeatedFields(body, &[]struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		From  string `json:"from"`
		Value any    `json:"value"`
	}{})
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	for i := range complaints {
		complaints[i] = "json patch " + complaints[i]
	}
	operations, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(operations) > maxJSONPatchOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"The allowed maximum operations in a JSON patch is %d, got %d", maxJSONPatchOperations, len(operations)))
	}
	patched, err := operations.Apply(current)
	if err != nil {
		return nil, nil, unprocessable(err)
	}
	return patched, complaints, nil
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func repeatedFields(data []byte, into any) ([]string, error) {
	strictErrs, err := kjson.UnmarshalStrict(data, into)
	var complaints []string
	for _, strictErr := range strictErrs {
		complaints = append(complaints, strictErr.Error())
	}
	return complaints, err
}
