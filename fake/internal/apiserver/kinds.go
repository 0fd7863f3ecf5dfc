package apiserver

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A kind is one resource with all its versions. Kinds are the same for every Server of a process and never change.
type kind struct {
	group      string
	names      names
	namespaced bool
	versions   []*version
	storage    *version
	rules      rules
	// sharedWith is the kind that keeps this kind's objects, where one object is served under two groups.
	sharedWith *kind
}

type names struct {
	Plural     string   `json:"plural"`
	Singular   string   `json:"singular"`
	Kind       string   `json:"kind"`
	ListKind   string   `json:"listKind"`
	ShortNames []string `json:"shortNames"`
	Categories []string `json:"categories"`
}

// A version is one form that a kind's objects are served in.
type version struct {
	kind       *kind
	name       string
	deprecated string
	// subresources lists what is served below an object, "status" first.
	subresources []string
	// managers keep managedFields: one for the object, one for each subresource.
	managers func(subresource string) *managedfields.FieldManager
}

// rules are what a kind does in its own way.
type rules interface {
	// coerce gives an object the form its kind has: fields it does not know are removed, and returned as paths.
	coerce(v *version, object map[string]any, strict bool) (unknown []string, err error)
	// setDefaults fills in what the kind defaults. The object has been coerced.
	setDefaults(v *version, object map[string]any)

	// convert turns an object of any version of the kind into the given one.
	convert(to *version, object map[string]any) error
	// relabel is the conversion that managed fields are kept by. It may leave what the version does not have.
	relabel(to *version, object map[string]any) error

	// persist gives the bytes that are kept, and what reading them gives, before defaults. The object stays as it is.
	persist(v *version, object map[string]any) (read map[string]any, data []byte, err error)

	prepareCreate(v *version, object map[string]any)
	prepareUpdate(v *version, object, old map[string]any)
	// prepareSubresource makes of object what an update of a subresource may change.
	prepareSubresource(v *version, object, old map[string]any, subresource string)

	validate(v *version, object map[string]any) field.ErrorList
	validateUpdate(v *version, object, old map[string]any) field.ErrorList
	validateSubresource(v *version, object, old map[string]any) field.ErrorList

	// warnings are what the server says of an object that it takes; old is nil for a new one.
	warnings(object, old map[string]any) []string

	// unconditionalUpdate says whether an update without a resourceVersion is taken.
	unconditionalUpdate() bool
	// createOnUpdate says whether an update may create.
	createOnUpdate() bool
	// selectableFields are the fields, beside name and namespace, that a field selector may name.
	selectableFields(v *version, object map[string]any) fields.Set
}

func (v *version) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: v.kind.group, Version: v.name, Kind: v.kind.names.Kind}
}

func (v *version) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v.kind.group, Version: v.name, Resource: v.kind.names.Plural}
}

func (v *version) apiVersion() string { return v.gvk().GroupVersion().String() }

func (v *version) serves(subresource string) bool {
	return subresource == "" || slices.Contains(v.subresources, subresource)
}

// deprecations are the warnings that every answer in a deprecated version carries.
func (v *version) deprecations() []string {
	if v.deprecated == "" {
		return nil
	}
	return []string{v.deprecated}
}

// store is the kind whose objects this kind's requests work on.
func (k *kind) store() *kind {
	if k.sharedWith != nil {
		return k.sharedWith
	}
	return k
}

func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.group, Resource: k.names.Plural}
}

// verbs are what discovery says of the kind.
func (k *kind) verbs() metav1.Verbs {
	return metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
}
