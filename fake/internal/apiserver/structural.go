package apiserver

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// structural is the part of a custom resource's schema that shapes objects: what is pruned, what is defaulted,
// which lists are sets or maps. Validation has its own form of the same schema.
type structural struct {
	properties map[string]*structural
	// open says that properties not listed are allowed, with the schema additional (nil: of no known shape).
	open       bool
	additional *structural
	items      *structural

	preserveUnknown bool
	nullable        bool
	hasDefault      bool
	defaultValue    any
	listType        string
	listMapKeys     []string
}

func newStructural(s *spec.Schema) *structural {
	out := &structural{
		nullable:     s.Nullable,
		hasDefault:   s.Default != nil,
		defaultValue: jsonNumbers(s.Default),
	}
	out.preserveUnknown, _ = s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields")
	out.listType, _ = s.Extensions.GetString("x-kubernetes-list-type")
	out.listMapKeys, _ = s.Extensions.GetStringSlice("x-kubernetes-list-map-keys")
	if len(s.Properties) > 0 {
		out.properties = make(map[string]*structural, len(s.Properties))
		for name := range s.Properties {
			property := s.Properties[name]
			out.properties[name] = newStructural(&property)
		}
	}
	if s.AdditionalProperties != nil {
		out.open = true
		if s.AdditionalProperties.Schema != nil {
			out.additional = newStructural(s.AdditionalProperties.Schema)
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		out.items = newStructural(s.Items.Schema)
	}
	return out
}

// jsonNumbers gives whole numbers the type that decoding an object gives them, so that a default equals the same
// value when it was sent.
func jsonNumbers(v any) any {
	switch v := v.(type) {
	case float64:
		if whole := int64(v); float64(whole) == v {
			return whole
		}
		return v
	case map[string]any:
		for key, value := range v {
			v[key] = jsonNumbers(value)
		}
		return v
	case []any:
		for i, value := range v {
			v[i] = jsonNumbers(value)
		}
		return v
	default:
		return v
	}
}

// field is the schema of one property, nil if it has none.
func (s *structural) field(name string) *structural {
	if s == nil {
		return nil
	}
	if property, ok := s.properties[name]; ok {
		return property
	}
	return s.additional
}

func isMetaField(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}

// prune removes from a custom resource what its schema does not name and returns the paths of what went, sorted.
func (s *structural) prune(object map[string]any) []string {
	p := &pruner{}
	p.prune(object, s, "")
	slices.Sort(p.removed)
	return p.removed
}

type pruner struct{ removed []string }

func (p *pruner) prune(x any, s *structural, path string) {
	if s != nil && s.preserveUnknown {
		p.descend(x, s, path)
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, value := range x {
			if path == "" && isMetaField(name) {
				continue
			}
			if s != nil {
				if property, ok := s.properties[name]; ok {
					p.prune(value, property, join(path, name))
					continue
				}
				if s.open {
					p.prune(value, s.additional, join(path, name))
					continue
				}
			}
			p.removed = append(p.removed, join(path, name))
			delete(x, name)
		}
	case []any:
		var items *structural
		if s != nil {
			items = s.items
		}
		for i, value := range x {
			p.prune(value, items, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

// descend looks for pruned parts below one that preserves unknown fields.
func (p *pruner) descend(x any, s *structural, path string) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, value := range x {
			if path == "" && isMetaField(name) {
				continue
			}
			if property, ok := s.properties[name]; ok {
				p.prune(value, property, join(path, name))
			} else if s.open {
				p.prune(value, s.additional, join(path, name))
			}
		}
	case []any:
		for i, value := range x {
			p.descend(value, s.items, fmt.Sprintf("%s[%d]", path, i))
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// pruneNulls removes nulls where the schema neither allows null nor has a default to put in its place.
func (s *structural) pruneNulls(x any) {
	switch x := x.(type) {
	case map[string]any:
		for name, value := range x {
			property := s.field(name)
			if value == nil && property != nil && !property.nullable && !property.hasDefault {
				delete(x, name)
				continue
			}
			property.pruneNulls(value)
		}
	case []any:
		var items *structural
		if s != nil {
			items = s.items
		}
		for _, value := range x {
			items.pruneNulls(value)
		}
	}
}

// setDefaults fills in the schema's defaults where a value is absent, or null where null is not allowed.
func (s *structural) setDefaults(x any) {
	if s == nil {
		return
	}
	switch x := x.(type) {
	case map[string]any:
		for name, property := range s.properties {
			if !property.hasDefault {
				continue
			}
			if value, found := x[name]; !found || value == nil && !property.nullable {
				x[name] = runtime.DeepCopyJSONValue(property.defaultValue)
			}
		}
		for name := range x {
			if property, ok := s.properties[name]; ok {
				property.setDefaults(x[name])
			} else if s.additional != nil {
				if x[name] == nil && !s.additional.nullable {
					x[name] = runtime.DeepCopyJSONValue(s.additional.defaultValue)
				}
				s.additional.setDefaults(x[name])
			}
		}
	case []any:
		for i := range x {
			if x[i] == nil && s.items != nil && !s.items.nullable {
				x[i] = runtime.DeepCopyJSONValue(s.items.defaultValue)
			}
			s.items.setDefaults(x[i])
		}
	}
}

// pruneDefaults prunes the defaults themselves, as the real server does before it uses them.
func (s *structural) pruneDefaults() {
	if s == nil {
		return
	}
	if s.hasDefault {
		(&pruner{}).prune(s.defaultValue, s, "")
	}
	for name := range maps.Keys(s.properties) {
		s.properties[name].pruneDefaults()
	}
	s.additional.pruneDefaults()
	s.items.pruneDefaults()
}
