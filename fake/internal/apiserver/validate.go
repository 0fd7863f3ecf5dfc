package apiserver

import (
	"encoding/json"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// newValidator prepares a custom resource's schema for validation. The schema is changed: what the real server
// ignores in a CustomResourceDefinition is taken out.
func newValidator(s *spec.Schema) *validate.SchemaValidator {
	return validate.NewSchemaValidator(s, nil, "", strfmt.Default)
}

// crdFormats are the string formats that a CustomResourceDefinition may use; others are ignored.
var crdFormats = []string{
	"bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email", "hexcolor", "hostname", "ipv4",
	"ipv6", "isbn", "isbn10", "isbn13", "k8s-long-name", "k8s-short-name", "mac", "password", "rgbcolor", "ssn", "uri", "uuid",
	"uuid3", "uuid4", "uuid5",
}

// prepareForValidation gives x-kubernetes-int-or-string its type and drops the formats the server does not check.
func prepareForValidation(s *spec.Schema) {
	if intOrString, _ := s.Extensions.GetBool("x-kubernetes-int-or-string"); intOrString {
		s.Type = spec.StringOrArray{"integer", "string"}
	}
	if s.Format != "" && !formatChecked(s) {
		s.Format = ""
	}
	for name := range s.Properties {
		property := s.Properties[name]
		prepareForValidation(&property)
		s.Properties[name] = property
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		prepareForValidation(s.AdditionalProperties.Schema)
	}
	if s.Items != nil && s.Items.Schema != nil {
		prepareForValidation(s.Items.Schema)
	}
	for _, list := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range list {
			prepareForValidation(&list[i])
		}
	}
	if s.Not != nil {
		prepareForValidation(s.Not)
	}
}

func formatChecked(s *spec.Schema) bool {
	kind := ""
	if len(s.Type) == 1 {
		kind = s.Type[0]
	}
	switch kind {
	case "", "string":
		return slices.Contains(crdFormats, strings.ReplaceAll(s.Format, "-", "")) || slices.Contains(crdFormats, s.Format)
	case "integer":
		return s.Format == "int32" || s.Format == "int64"
	case "number":
		return s.Format == "float" || s.Format == "double"
	default:
		return false
	}
}

// validateSchema checks a value against a schema and reports as the API server does.
func validateSchema(path *field.Path, value any, validator *validate.SchemaValidator) field.ErrorList {
	if validator == nil {
		return nil
	}
	var list field.ErrorList
	for _, err := range validator.Validate(value).Errors {
		list = append(list, fieldError(path, err))
	}
	return list
}

func fieldError(path *field.Path, err error) *field.Error {
	failed, ok := err.(*openapierrors.Validation)
	if !ok {
		return field.Invalid(path, "", err.Error())
	}
	if failed.Name != "" && failed.Name != "." {
		path = path.Child(strings.TrimPrefix(failed.Name, "."))
	}
	var value any = ""
	if failed.Value != nil {
		value = failed.Value
	}
	switch failed.Code() {
	case openapierrors.RequiredFailCode:
		return field.Required(path, "")
	case openapierrors.EnumFailCode:
		return field.NotSupported(path, failed.Value, allowedValues(failed.Values))
	case openapierrors.TooLongFailCode:
		return field.TooLong(path, "", count(failed.Valid))
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(path, count(failed.Value), count(failed.Valid))
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(path, value, failed.Error())
	default:
		return field.Invalid(path, value, failed.Error())
	}
}

func allowedValues(values []any) []string {
	allowed := []string{}
	for _, value := range values {
		if text, ok := value.(string); ok {
			allowed = append(allowed, text)
			continue
		}
		text, _ := json.Marshal(value)
		allowed = append(allowed, string(text))
	}
	return allowed
}

func count(v any) int {
	if n, ok := v.(int64); ok {
		return int(n)
	}
	return -1
}

// validateLists checks that lists of type set hold no value twice and lists of type map no key twice.
func validateLists(path *field.Path, s *structural, object map[string]any) field.ErrorList {
	if s == nil {
		return nil
	}
	var list field.ErrorList
	for name, value := range object {
		property, ok := s.properties[name]
		child := path.Child(name)
		if !ok {
			property, child = s.additional, path.Key(name)
		}
		if property != nil {
			list = append(list, validateListsIn(child, property, value)...)
		}
	}
	return list
}

func validateListsIn(path *field.Path, s *structural, value any) field.ErrorList {
	switch value := value.(type) {
	case map[string]any:
		return validateLists(path, s, value)
	case []any:
		list := validateUnique(path, s, value)
		if s.items != nil {
			for i, item := range value {
				list = append(list, validateListsIn(path.Index(i), s.items, item)...)
			}
		}
		return list
	default:
		return nil
	}
}

func validateUnique(path *field.Path, s *structural, values []any) field.ErrorList {
	keys := values
	switch s.listType {
	case "set":
	case "map":
		keys = make([]any, 0, len(values))
		for i, value := range values {
			item, ok := value.(map[string]any)
			if value != nil && !ok {
				return field.ErrorList{field.Invalid(path.Index(i), value, "must be an object for an array of list-type map")}
			}
			key := map[string]any{}
			for _, name := range s.listMapKeys {
				if v, ok := item[name]; ok {
					key[name] = v
				}
			}
			keys = append(keys, key)
		}
	default:
		return nil
	}
	var list field.ErrorList
	times := map[string]int{}
	for i, key := range keys {
		text, err := json.Marshal(key)
		if err != nil {
			return field.ErrorList{field.Invalid(path.Index(i), key, "internal error")}
		}
		times[string(text)]++
		if times[string(text)] == 2 {
			list = append(list, field.Duplicate(path.Index(i), key))
		}
	}
	return list
}
