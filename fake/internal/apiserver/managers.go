package apiserver

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

type typeConverter = managedfields.TypeConverter

const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// customTypes builds the types that server-side apply merges a custom resource by, as the real server builds them:
// the schema of each version, with the server's own metadata.
func customTypes(d resourceDefinition) typeConverter {
	models := map[string]*spec.Schema{}
	for _, name := range []string{
		objectMeta,
		"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
		"io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
		"io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
		"io.k8s.apimachinery.pkg.apis.meta.v1.Time",
	} {
		models[name] = clone(published().Definitions[name])
	}
	for _, v := range d.Versions {
		model := parseSchema(v.Schema.OpenAPIV3Schema)
		model.SetProperty("metadata", *spec.RefSchema("#/components/schemas/" + objectMeta))
		model.SetProperty("apiVersion", *spec.StringProperty())
		model.SetProperty("kind", *spec.StringProperty())
		model.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": d.Group, "version": v.Name, "kind": d.Names.Kind},
		})
		models[fmt.Sprintf("%s.%s.%s", d.Group, v.Name, d.Names.Kind)] = model
	}
	return newTypeConverter(models)
}

// builtinTypes are the types of all built-in kinds served here.
var builtinTypes = sync.OnceValue(func() typeConverter {
	models := map[string]*spec.Schema{}
	for name, definition := range published().Definitions {
		models[name] = clone(definition)
	}
	return newTypeConverter(models)
})

func newTypeConverter(models map[string]*spec.Schema) typeConverter {
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		panic(fmt.Sprintf("embedded schemas: %v", err))
	}
	return converter
}

// fieldManagers makes the field managers of one version when they are first used.
func fieldManagers(v *version, types func() typeConverter, reset func(subresource string) map[fieldpath.APIVersion]*fieldpath.Set) func(string) *managedfields.FieldManager {
	made := map[string]func() *managedfields.FieldManager{}
	for _, subresource := range append([]string{""}, v.subresources...) {
		made[subresource] = sync.OnceValue(func() *managedfields.FieldManager {
			build := managedfields.NewDefaultFieldManager
			if _, custom := v.kind.rules.(*customRules); custom {
				build = managedfields.NewDefaultCRDFieldManager
			}
			c := conversion{v.kind}
			m, err := build(types(), c, c, c, v.gvk(), v.gvk().GroupVersion(), subresource,
				fieldpath.NewExcludeFilterSetMap(reset(subresource)))
			if err != nil {
				panic(fmt.Sprintf("field manager of %s: %v", v.gvk(), err))
			}
			return m
		})
	}
	return func(subresource string) *managedfields.FieldManager { return made[subresource]() }
}

// resetFields are the fields that a write to one of a custom resource's endpoints leaves as they were.
func (r *customRules) resetFields(k *kind) func(string) map[fieldpath.APIVersion]*fieldpath.Set {
	return func(subresource string) map[fieldpath.APIVersion]*fieldpath.Set {
		out := map[fieldpath.APIVersion]*fieldpath.Set{}
		for _, v := range k.versions {
			if !r.versions[v.name].hasStatus {
				continue
			}
			set := fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
			if subresource == "status" {
				set = fieldpath.NewSet(fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"))
			}
			out[fieldpath.APIVersion(v.apiVersion())] = set
		}
		return out
	}
}

// conversion is what a field manager needs to know of a kind: how its versions convert, what it defaults, and what
// an empty object is.
type conversion struct{ kind *kind }

var (
	_ runtime.ObjectConvertor = conversion{}
	_ runtime.ObjectDefaulter = conversion{}
	_ runtime.ObjectCreater   = conversion{}
)

func (c conversion) ConvertToVersion(in runtime.Object, to runtime.GroupVersioner) (runtime.Object, error) {
	u := in.DeepCopyObject().(*unstructured.Unstructured)
	from := u.GroupVersionKind()
	target, ok := to.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok || c.version(from.GroupVersion()) == nil {
		return nil, runtime.NewNotRegisteredErrForKind("fake", from)
	}
	v := c.version(target.GroupVersion())
	if v == nil {
		return nil, runtime.NewNotRegisteredErrForKind("fake", target)
	}
	return u, c.kind.rules.relabel(v, u.Object)
}

func (c conversion) version(gv schema.GroupVersion) *version {
	for _, v := range c.kind.versions {
		if v.gvk().GroupVersion() == gv {
			return v
		}
	}
	return nil
}

func (c conversion) Convert(_, _, _ any) error {
	return fmt.Errorf("conversion of %s into a given object is not supported", c.kind.names.Kind)
}

func (c conversion) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (c conversion) Default(in runtime.Object) {
	u := in.(*unstructured.Unstructured)
	for _, v := range c.kind.versions {
		if v.gvk() == u.GroupVersionKind() {
			c.kind.rules.setDefaults(v, u.Object)
		}
	}
}

func (c conversion) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u, nil
}
