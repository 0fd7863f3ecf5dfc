package apiserver

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas.json.gz holds what a real API server publishes, without descriptions: under "definitions" the OpenAPI
// schemas of the built-in kinds served here, under "resources" the spec of each CustomResourceDefinition.
//
//go:embed schemas.json.gz
var packedSchemas []byte

type schemas struct {
	Definitions map[string]*spec.Schema `json:"definitions"`
	Resources   []resourceDefinition    `json:"resources"`
}

// A resourceDefinition is the spec of a CustomResourceDefinition, as far as it is used here.
type resourceDefinition struct {
	Group    string `json:"group"`
	Scope    string `json:"scope"`
	Names    names  `json:"names"`
	Versions []struct {
		Name               string `json:"name"`
		Served             bool   `json:"served"`
		Storage            bool   `json:"storage"`
		Deprecated         bool   `json:"deprecated"`
		DeprecationWarning string `json:"deprecationWarning"`
		Schema             struct {
			// Raw until the kind is used: most tests use two or three.
			OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
		} `json:"schema"`
		Subresources struct {
			Status *struct{} `json:"status"`
			Scale  *struct{} `json:"scale"`
		} `json:"subresources"`
		SelectableFields []struct {
			JSONPath string `json:"jsonPath"`
		} `json:"selectableFields"`
	} `json:"versions"`
}

// published is parsed once per process.
var published = sync.OnceValue(func() *schemas {
	reader, err := gzip.NewReader(bytes.NewReader(packedSchemas))
	if err != nil {
		panic(fmt.Sprintf("embedded schemas: %v", err))
	}
	var out schemas
	if err := json.NewDecoder(reader).Decode(&out); err != nil {
		panic(fmt.Sprintf("embedded schemas: %v", err))
	}
	return &out
})

// clone copies a definition, since the libraries that take one may change it.
func clone(s *spec.Schema) *spec.Schema {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("embedded schemas: %v", err))
	}
	return parseSchema(data)
}

func parseSchema(data []byte) *spec.Schema {
	out := &spec.Schema{}
	if err := json.Unmarshal(data, out); err != nil {
		panic(fmt.Sprintf("embedded schemas: %v", err))
	}
	return out
}
