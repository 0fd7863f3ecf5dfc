package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Define serves the resource that a CustomResourceDefinition of apiextensions.k8s.io/v1 defines.
func (s *Server) Define(crd *unstructured.Unstructured) error {
	if crd.GetAPIVersion() != "apiextensions.k8s.io/v1" || crd.GetKind() != "CustomResourceDefinition" {
		return fmt.Errorf("%s %s is no CustomResourceDefinition of apiextensions.k8s.io/v1", crd.GetAPIVersion(), crd.GetKind())
	}
	data, err := json.Marshal(crd.Object["spec"])
	if err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	var d resourceDefinition
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: spec: %w", crd.GetName(), err)
	}
	if err := d.complete(); err != nil {
		return fmt.Errorf("CustomResourceDefinition %s: %w", crd.GetName(), err)
	}
	k := customKind(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.known {
		if other.groupResource() == k.groupResource() {
			return fmt.Errorf("CustomResourceDefinition %s: %s are served already", crd.GetName(), k.groupResource())
		}
	}
	s.add(k)
	return nil
}

// complete fills in what a CustomResourceDefinition may leave out, and says what it must not.
func (d *resourceDefinition) complete() error {
	switch {
	case d.Group == "":
		return fmt.Errorf("spec.group is empty")
	case d.Names.Plural == "" || d.Names.Kind == "":
		return fmt.Errorf("spec.names needs plural and kind")
	case d.Scope != "Namespaced" && d.Scope != "Cluster":
		return fmt.Errorf("spec.scope is %q, not Namespaced or Cluster", d.Scope)
	}
	if d.Names.Singular == "" {
		d.Names.Singular = strings.ToLower(d.Names.Kind)
	}
	if d.Names.ListKind == "" {
		d.Names.ListKind = d.Names.Kind + "List"
	}
	stored := 0
	for _, v := range d.Versions {
		if len(v.Schema.OpenAPIV3Schema) == 0 {
			return fmt.Errorf("version %s has no schema", v.Name)
		}
		if err := json.Unmarshal(v.Schema.OpenAPIV3Schema, &spec.Schema{}); err != nil {
			return fmt.Errorf("schema of version %s: %w", v.Name, err)
		}
		if v.Storage && v.Served {
			stored++
		}
	}
	if stored != 1 {
		return fmt.Errorf("spec.versions needs exactly one that is served and stored, not %d", stored)
	}
	return nil
}
