package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// builtinRules are the rules of a kind that is compiled into the real server. Each field but the first may be empty.
type builtinRules struct {
	// new returns the kind's Go type, which gives its objects their shape.
	new func() runtime.Object
	// validName checks a name; nil takes a DNS subdomain.
	validName apivalidation.ValidateNameFunc
	// subresources are written on their own: status, and finalize for namespaces.
	subresources []string
	// numbered objects have a generation, which a change of anything but metadata and status moves.
	numbered bool
	// upsert: an update creates what is missing.
	upsert bool
	// conditional: an update has to name the resourceVersion it was made on.
	conditional bool
	// uncollected: the garbage collector does not know the kind, so that a deletion sets no finalizer for it.
	uncollected bool
	// meta says how often the metadata is checked beyond what is checked of every object. It shows: an error is listed
	// once for each check.
	meta metaChecks

	defaults     func(object map[string]any)
	beforeCreate func(object map[string]any)
	beforeUpdate func(object, old map[string]any)
	check        func(v *version, object map[string]any) field.ErrorList
	checkUpdate  func(v *version, object, old map[string]any) field.ErrorList
	selectable   func(v *version, object map[string]any) fields.Set
	// rename turns an object of another group's kind into this one's fields.
	rename func(to *version, object map[string]any)
}

// metaChecks says when a kind checks metadata that is checked for every object anyway.
type metaChecks int

const (
	// metaAlways is on create and on update, where changes are checked as well.
	metaAlways metaChecks = iota
	// metaOnCreate is on create; on update only changes are checked.
	metaOnCreate
	metaNever
)

func builtinKind(group, name string, n names, namespaced bool, r *builtinRules) *kind {
	if n.Singular == "" {
		n.Singular = n.Kind
	}
	n.ListKind = n.Kind + "List"
	k := &kind{group: group, names: n, namespaced: namespaced, rules: r}
	v := &version{kind: k, name: name, subresources: r.subresources}
	v.managers = fieldManagers(v, builtinTypes, func(subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
		if len(r.subresources) == 0 {
			return nil
		}
		set := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
		if subresource == "status" {
			set = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
			if r.numbered {
				set = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("metadata", "labels"))
			}
		}
		return map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(v.apiVersion()): set}
	})
	k.versions, k.storage = []*version{v}, v
	return k
}

// allKinds are all the kinds the server knows.
var allKinds = sync.OnceValue(func() []*kind {
	kinds := builtinKinds()
	for _, d := range published().Resources {
		kinds = append(kinds, customKind(d))
	}
	return kinds
})

// coerce sends the object through the kind's Go type.
func (r *builtinRules) coerce(_ *version, object map[string]any, strict bool) ([]string, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	typed := r.new()
	var unknown []string
	if strict {
		var strictErrs []error
		strictErrs, err = kjson.UnmarshalStrict(data, typed)
		for _, strictErr := range strictErrs {
			var inField kjson.FieldError
			if errors.As(strictErr, &inField) {
				unknown = append(unknown, inField.FieldPath())
			}
		}
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(data, typed)
	}
	if err != nil {
		return nil, err
	}
	return unknown, writeTyped(object, typed)
}

// writeTyped makes object what the typed one is.
func writeTyped(object map[string]any, typed runtime.Object) error {
	data, err := json.Marshal(typed)
	if err != nil {
		return err
	}
	clear(object)
	return utiljson.Unmarshal(data, &object)
}

func (r *builtinRules) setDefaults(_ *version, object map[string]any) {
	if r.defaults != nil {
		r.defaults(object)
	}
}

func (r *builtinRules) hasStatus() bool { return slices.Contains(r.subresources, "status") }

func (r *builtinRules) prepareCreate(_ *version, object map[string]any) {
	if r.hasStatus() {
		if _, found := object["status"]; found {
			object["status"] = map[string]any{}
		}
	}
	if r.numbered {
		(&unstructured.Unstructured{Object: object}).SetGeneration(1)
	}
	if r.beforeCreate != nil {
		r.beforeCreate(object)
	}
}

func (r *builtinRules) prepareUpdate(_ *version, object, old map[string]any) {
	if r.hasStatus() {
		keep(object, old, "status")
	}
	if r.beforeUpdate != nil {
		r.beforeUpdate(object, old)
	}
	if r.numbered && !equality.Semantic.DeepEqual(object["spec"], old["spec"]) {
		generation := (&unstructured.Unstructured{Object: old}).GetGeneration()
		(&unstructured.Unstructured{Object: object}).SetGeneration(generation + 1)
	}
}

func (r *builtinRules) prepareSubresource(_ *version, object, old map[string]any, subresource string) {
	if subresource == "status" {
		keep(object, old, "spec")
		if r.numbered {
			(&unstructured.Unstructured{Object: object}).SetLabels((&unstructured.Unstructured{Object: old}).GetLabels())
		}
	} else {
		keep(object, old, "status")
	}
}

func (r *builtinRules) validate(v *version, object map[string]any) field.ErrorList {
	var list field.ErrorList
	if r.meta != metaNever {
		list = r.checkMeta(v, object)
	}
	return append(list, r.checkFields(v, object)...)
}

func (r *builtinRules) checkMeta(v *version, object map[string]any) field.ErrorList {
	valid := r.validName
	if valid == nil {
		valid = apivalidation.NameIsDNSSubdomain
	}
	return apivalidation.ValidateObjectMetaAccessor(&unstructured.Unstructured{Object: object}, v.kind.namespaced, valid, field.NewPath("metadata"))
}

func (r *builtinRules) checkFields(v *version, object map[string]any) field.ErrorList {
	if r.check == nil {
		return nil
	}
	return r.check(v, object)
}

func (r *builtinRules) validateUpdate(v *version, object, old map[string]any) field.ErrorList {
	var list field.ErrorList
	if r.meta != metaNever {
		list = checkMetaChange(object, old)
	}
	if r.meta == metaAlways {
		list = append(list, r.checkMeta(v, object)...)
	}
	list = append(list, r.checkFields(v, object)...)
	if r.checkUpdate != nil {
		list = append(list, r.checkUpdate(v, object, old)...)
	}
	return list
}

func checkMetaChange(object, old map[string]any) field.ErrorList {
	return apivalidation.ValidateObjectMetaAccessorUpdate(&unstructured.Unstructured{Object: object},
		&unstructured.Unstructured{Object: old}, field.NewPath("metadata"))
}

func (r *builtinRules) validateSubresource(_ *version, object, old map[string]any) field.ErrorList {
	return checkMetaChange(object, old)
}

func (r *builtinRules) warnings(_, _ map[string]any) []string { return nil }

func (r *builtinRules) unconditionalUpdate() bool { return !r.conditional }
func (r *builtinRules) createOnUpdate() bool      { return r.upsert }

func (r *builtinRules) selectableFields(v *version, object map[string]any) fields.Set {
	if r.selectable == nil {
		return nil
	}
	return r.selectable(v, object)
}

func (r *builtinRules) relabel(to *version, object map[string]any) error {
	return r.convert(to, object)
}

func (r *builtinRules) convert(to *version, object map[string]any) error {
	if r.rename != nil && object["apiVersion"] != to.apiVersion() {
		r.rename(to, object)
	}
	object["apiVersion"], object["kind"] = to.apiVersion(), to.kind.names.Kind
	typed := r.new()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return fmt.Errorf("unable to convert unstructured object to %s: %w", to.gvk(), err)
	}
	return writeTyped(object, typed)
}

// persist keeps a built-in kind as protobuf, which does not tell an empty list or map from none.
func (r *builtinRules) persist(v *version, object map[string]any) (map[string]any, []byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, nil, err
	}
	typed, back := r.new(), r.new()
	if err := json.Unmarshal(text, typed); err != nil {
		return nil, nil, err
	}
	data, err := typed.(protobuf).Marshal()
	if err != nil {
		return nil, nil, err
	}
	if err := back.(protobuf).Unmarshal(data); err != nil {
		return nil, nil, err
	}
	read := map[string]any{}
	if err := writeTyped(read, back); err != nil {
		return nil, nil, err
	}
	read["apiVersion"], read["kind"] = v.apiVersion(), v.kind.names.Kind
	return read, data, nil
}

// protobuf is what the Go types of the built-in kinds are generated with.
type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// typedJSON is the object's JSON with its fields in the order of the kind's Go type, as the real server writes it.
func (r *builtinRules) typedJSON(object map[string]any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	typed := r.new()
	if err := json.Unmarshal(data, typed); err != nil {
		return nil, err
	}
	return json.Marshal(typed)
}

// text reads a string that may be missing.
func text(object map[string]any, path ...string) string {
	value, _, _ := unstructured.NestedString(object, path...)
	return value
}

// fill sets a field that has no value.
func fill(object map[string]any, name string, value any) {
	if current, found := object[name]; !found || current == nil || current == "" {
		object[name] = value
	}
}

// part is the map at a field, made if it is missing.
func part(object map[string]any, name string) map[string]any {
	if m, ok := object[name].(map[string]any); ok {
		return m
	}
	m := map[string]any{}
	object[name] = m
	return m
}

// each calls do with every map of the list at a field.
func each(object map[string]any, name string, do func(map[string]any)) {
	list, _ := object[name].([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			do(m)
		}
	}
}
