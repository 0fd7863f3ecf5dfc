package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// customRules are the rules of a kind that a CustomResourceDefinition defines.
type customRules struct {
	versions map[string]*customVersion
}

type customVersion struct {
	// shape and the validators are made when the kind is first used.
	shape      func() *structural
	whole      func() *validate.SchemaValidator
	statusPart func() *validate.SchemaValidator
	// hasStatus: the status is written through the subresource only.
	hasStatus bool
	// hasCEL: the schema has rules in CEL. They are not evaluated, but an object that fails otherwise is told so.
	hasCEL     bool
	selectable []string
}

func customKind(d resourceDefinition) *kind {
	r := &customRules{versions: map[string]*customVersion{}}
	k := &kind{group: d.Group, names: d.Names, namespaced: d.Scope == "Namespaced", rules: r}
	for _, dv := range d.Versions {
		raw := dv.Schema.OpenAPIV3Schema
		cv := &customVersion{
			hasStatus: dv.Subresources.Status != nil,
			hasCEL:    bytes.Contains(raw, []byte(`"x-kubernetes-validations"`)),
			shape: sync.OnceValue(func() *structural {
				s := newStructural(parseSchema(raw))
				s.pruneDefaults()
				return s
			}),
			whole: sync.OnceValue(func() *validate.SchemaValidator {
				s := parseSchema(raw)
				prepareForValidation(s)
				return newValidator(s)
			}),
			statusPart: sync.OnceValue(func() *validate.SchemaValidator {
				s := parseSchema(raw)
				prepareForValidation(s)
				status, ok := s.Properties["status"]
				if !ok {
					return nil
				}
				return newValidator(&status)
			}),
		}
		for _, f := range dv.SelectableFields {
			cv.selectable = append(cv.selectable, strings.TrimPrefix(f.JSONPath, "."))
		}
		r.versions[dv.Name] = cv
		v := &version{kind: k, name: dv.Name}
		if cv.hasStatus {
			v.subresources = []string{"status"}
		}
		if dv.Deprecated {
			v.deprecated = dv.DeprecationWarning
			if v.deprecated == "" {
				v.deprecated = fmt.Sprintf("%s/%s %s is deprecated", d.Group, dv.Name, d.Names.Kind)
			}
		}
		if dv.Storage {
			k.storage = v
		}
		if dv.Served {
			k.versions = append(k.versions, v)
		}
	}
	models := sync.OnceValue(func() typeConverter { return customTypes(d) })
	for _, v := range k.versions {
		v.managers = fieldManagers(v, models, r.resetFields(k))
	}
	return k
}

func (r *customRules) coerce(v *version, object map[string]any, strict bool) ([]string, error) {
	for _, name := range []string{"kind", "apiVersion"} {
		if _, _, err := unstructured.NestedString(object, name); err != nil {
			return nil, err
		}
	}
	meta, unknown, err := readMeta(object, strict)
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(object["apiVersion"].(string))
	if err != nil {
		return nil, err
	}
	if gv.Group == v.kind.group && object["kind"] == v.kind.names.Kind {
		// A version that does not exist has no fields.
		shape := &structural{}
		if known := r.versions[gv.Version]; known != nil {
			shape = known.shape()
		}
		removed := shape.prune(object)
		shape.pruneNulls(object)
		if strict {
			unknown = append(unknown, removed...)
		}
	}
	return unknown, writeMeta(object, meta)
}

// setDefaults goes by the version that the object says it is of, as the real server does.
func (r *customRules) setDefaults(_ *version, object map[string]any) {
	gv, err := schema.ParseGroupVersion(text(object, "apiVersion"))
	if err != nil {
		return
	}
	if known := r.versions[gv.Version]; known != nil {
		known.shape().setDefaults(object)
	}
}

// relabel makes an object one of another version, and nothing else: the kinds here have no conversion webhook.
func (r *customRules) relabel(to *version, object map[string]any) error {
	object["apiVersion"] = to.apiVersion()
	return nil
}

func (r *customRules) convert(to *version, object map[string]any) error {
	if object["apiVersion"] == to.apiVersion() {
		return nil
	}
	object["apiVersion"] = to.apiVersion()
	_, err := r.coerce(to, object, false)
	return err
}

// persist keeps a custom resource as it is. Only reading it back gives it its shape, and its numbers their type.
func (r *customRules) persist(v *version, object map[string]any) (map[string]any, []byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	read := map[string]any{}
	if err := utiljson.Unmarshal(data, &read); err != nil {
		return nil, nil, err
	}
	_, err = r.coerce(v, read, false)
	return read, data, err
}

func (r *customRules) prepareCreate(v *version, object map[string]any) {
	if r.versions[v.name].hasStatus {
		delete(object, "status")
	}
	(&unstructured.Unstructured{Object: object}).SetGeneration(1)
}

func (r *customRules) prepareUpdate(v *version, object, old map[string]any) {
	if r.versions[v.name].hasStatus {
		keep(object, old, "status")
	}
	if !equality.Semantic.DeepEqual(withoutMeta(object), withoutMeta(old)) {
		generation := (&unstructured.Unstructured{Object: old}).GetGeneration()
		(&unstructured.Unstructured{Object: object}).SetGeneration(generation + 1)
	}
}

// keep makes a field of object what it was in old.
func keep(object, old map[string]any, name string) {
	if value, ok := old[name]; ok {
		object[name] = value
	} else {
		delete(object, name)
	}
}

func withoutMeta(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for name, value := range object {
		if name != "metadata" {
			out[name] = value
		}
	}
	return out
}

func (r *customRules) prepareSubresource(_ *version, object, old map[string]any, _ string) {
	keepAllBut(object, old, "status")
}

// keepAllBut makes object what old was, except for one field and for the managed fields, which record its change.
func keepAllBut(object, old map[string]any, name string) {
	managed := (&unstructured.Unstructured{Object: object}).GetManagedFields()
	value, found := object[name]
	clear(object)
	for key, v := range (&unstructured.Unstructured{Object: old}).DeepCopy().Object {
		object[key] = v
	}
	(&unstructured.Unstructured{Object: object}).SetManagedFields(managed)
	if found {
		object[name] = value
	} else {
		delete(object, name)
	}
}

func (r *customRules) validate(v *version, object map[string]any) field.ErrorList {
	if list := validateType(v, object); len(list) > 0 {
		return list
	}
	cv := r.versions[v.name]
	list := apivalidation.ValidateObjectMetaAccessor(&unstructured.Unstructured{Object: object}, v.kind.namespaced,
		apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	list = append(list, validateSchema(nil, object, cv.whole())...)
	list = append(list, validateLists(nil, cv.shape(), object)...)
	return cv.blocked(list)
}

func (r *customRules) validateUpdate(v *version, object, old map[string]any) field.ErrorList {
	if list := validateType(v, object); len(list) > 0 {
		return list
	}
	cv := r.versions[v.name]
	list := apivalidation.ValidateObjectMetaAccessorUpdate(&unstructured.Unstructured{Object: object},
		&unstructured.Unstructured{Object: old}, field.NewPath("metadata"))
	list = append(list, validateSchema(nil, object, cv.whole())...)
	list = append(list, validateLists(nil, cv.shape(), object)...)
	return cv.blocked(list)
}

func (r *customRules) validateSubresource(v *version, object, old map[string]any) field.ErrorList {
	if list := validateType(v, object); len(list) > 0 {
		return list
	}
	cv := r.versions[v.name]
	list := apivalidation.ValidateObjectMetaAccessorUpdate(&unstructured.Unstructured{Object: object},
		&unstructured.Unstructured{Object: old}, field.NewPath("metadata"))
	// What did not change is not found fault with.
	if status, ok := object["status"]; ok && !equality.Semantic.DeepEqual(status, old["status"]) {
		list = append(list, validateSchema(field.NewPath("status"), status, cv.statusPart())...)
	}
	list = append(list, validateLists(nil, cv.shape(), object)...)
	return cv.blocked(list)
}

func validateType(v *version, object map[string]any) field.ErrorList {
	var list field.ErrorList
	if got, want := object["kind"], v.kind.names.Kind; got != want {
		list = append(list, field.Invalid(field.NewPath("kind"), got, "must be "+want))
	}
	if got, want := object["apiVersion"], v.apiVersion(); got != want {
		list = append(list, field.Invalid(field.NewPath("apiVersion"), got, "must be "+want))
	}
	return list
}

// blocked adds what the server says where a list of errors keeps it from evaluating CEL rules.
func (cv *customVersion) blocked(list field.ErrorList) field.ErrorList {
	if !cv.hasCEL {
		return list
	}
	for _, err := range list {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(list, field.Invalid(nil, nil,
				"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	return list
}

// warnings are about finalizers whose names others may take too.
func (r *customRules) warnings(object, old map[string]any) []string {
	before := (&unstructured.Unstructured{Object: old}).GetFinalizers()
	added := (&unstructured.Unstructured{Object: object}).GetFinalizers()
	slices.Sort(added)
	var warnings []string
	for _, name := range slices.Compact(added) {
		if !slices.Contains(before, name) {
			warnings = append(warnings, finalizerWarnings(name)...)
		}
	}
	return warnings
}

func finalizerWarnings(name string) []string {
	var warnings []string
	for _, msg := range validation.IsQualifiedName(name) {
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: %s", name, msg))
	}
	known := name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents || name == string(corev1.FinalizerKubernetes)
	switch {
	case strings.Contains(name, "/") || known:
	case strings.Contains(name, "."):
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name including a path (/) "+
			"to avoid accidental conflicts with other finalizer writers", name))
	default:
		warnings = append(warnings, fmt.Sprintf("metadata.finalizers: %q: prefer a domain-qualified finalizer name "+
			"to avoid accidental conflicts with other finalizer writers", name))
	}
	return warnings
}

func (r *customRules) unconditionalUpdate() bool { return false }
func (r *customRules) createOnUpdate() bool      { return false }

func (r *customRules) selectableFields(v *version, object map[string]any) fields.Set {
	set := fields.Set{}
	for _, path := range r.versions[v.name].selectable {
		value, found, err := unstructured.NestedFieldNoCopy(object, strings.Split(path, ".")...)
		set[path] = ""
		if found && err == nil {
			set[path] = fmt.Sprint(value)
		}
	}
	return set
}
