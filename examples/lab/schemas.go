package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// schemaKinds are the built-in kinds whose schemas are written, by API group and
// version.
var schemaKinds = map[schema.GroupVersion][]string{
	{Version: "v1"}:                                     {"ConfigMap", "Event", "Namespace", "Secret", "Service", "ServiceAccount"},
	{Group: "apps", Version: "v1"}:                      {"Deployment"},
	{Group: "batch", Version: "v1"}:                     {"Job"},
	{Group: "coordination.k8s.io", Version: "v1"}:       {"Lease"},
	{Group: "events.k8s.io", Version: "v1"}:             {"Event"},
	{Group: "rbac.authorization.k8s.io", Version: "v1"}: {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
}

// schemas writes what package fake embeds: under "definitions" the OpenAPI
// schemas that the API server publishes for its built-in kinds, under
// "resources" the specs of the CustomResourceDefinitions. Neither has
// descriptions.
func schemas(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) (err error) {
	file := flags.String("out", "", "`file` to write; compressed if its name ends in .gz")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *file == "" {
		return errors.New("schemas needs -out FILE")
	}
	l, err := lab.Up(ctx, lab.Options{Parts: lab.CRDs})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()

	client, err := discovery.NewDiscoveryClientForConfig(l.RESTConfig())
	if err != nil {
		return err
	}
	definitions, err := collectSchemas(client)
	if err != nil {
		return err
	}
	resources, err := collectResources(ctx, l.Dynamic())
	if err != nil {
		return err
	}
	content, err := json.Marshal(map[string]any{"definitions": definitions, "resources": resources})
	if err != nil {
		return err
	}
	if strings.HasSuffix(*file, ".gz") {
		var zipped bytes.Buffer
		w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		if err != nil {
			return err
		}
		w.Write(content)
		if err := w.Close(); err != nil {
			return err
		}
		content = zipped.Bytes()
	}
	if err := os.WriteFile(*file, content, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d schemas, %d resources, %d bytes: %s\n", len(definitions), len(resources), len(content), *file)
	return nil
}

// collectResources returns the specs of the CustomResourceDefinitions, as far as
// they say how objects are stored and served.
func collectResources(ctx context.Context, client dynamic.Interface) ([]any, error) {
	crds, err := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var specs []any
	for _, crd := range crds.Items {
		spec, _, err := unstructured.NestedMap(crd.Object, "spec")
		if err != nil {
			return nil, err
		}
		delete(spec, "conversion")
		versions, _ := spec["versions"].([]any)
		for _, version := range versions {
			if version, ok := version.(map[string]any); ok {
				delete(version, "additionalPrinterColumns")
			}
		}
		stripDescriptions(spec)
		specs = append(specs, spec)
	}
	return specs, nil
}

// collectSchemas merges the OpenAPI v3 documents of the groups above into one
// set of schemas: the wanted kinds and all that they refer to, without
// descriptions.
func collectSchemas(client discovery.DiscoveryInterface) (map[string]any, error) {
	documents, err := client.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	collected := make(map[string]any)
	for gv, kinds := range schemaKinds {
		path := "apis/" + gv.String()
		if gv.Group == "" {
			path = "api/" + gv.Version
		}
		document, ok := documents[path]
		if !ok {
			return nil, fmt.Errorf("the API server publishes no OpenAPI document for %s", path)
		}
		text, err := document.Schema("application/json")
		if err != nil {
			return nil, fmt.Errorf("read the OpenAPI document of %s: %w", path, err)
		}
		var parsed struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(text, &parsed); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document of %s: %w", path, err)
		}
		found := 0
		for name, definition := range parsed.Components.Schemas {
			if wanted(definition, gv, kinds) {
				found++
				collect(collected, parsed.Components.Schemas, name)
			}
		}
		if found < len(kinds) {
			return nil, fmt.Errorf("the OpenAPI document of %s describes %d of the kinds %v", path, found, kinds)
		}
	}
	return collected, nil
}

// wanted says whether a schema describes one of the kinds.
func wanted(definition map[string]any, gv schema.GroupVersion, kinds []string) bool {
	declared, _ := definition["x-kubernetes-group-version-kind"].([]any)
	// Types such as DeleteOptions declare themselves for every group.
	if len(declared) != 1 {
		return false
	}
	gvk, _ := declared[0].(map[string]any)
	if gvk["group"] != gv.Group || gvk["version"] != gv.Version {
		return false
	}
	kind, _ := gvk["kind"].(string)
	return slices.Contains(kinds, kind)
}

// collect adds a schema and those it refers to.
func collect(to map[string]any, from map[string]map[string]any, name string) {
	if _, done := to[name]; done || from[name] == nil {
		return
	}
	definition := from[name]
	to[name] = definition
	stripDescriptions(definition)
	for _, referred := range references(definition) {
		collect(to, from, referred)
	}
}

// stripDescriptions removes the text of a schema and of those within it. A
// property may be called description too; that one is a schema, not a string.
func stripDescriptions(node any) {
	switch node := node.(type) {
	case map[string]any:
		if _, text := node["description"].(string); text {
			delete(node, "description")
		}
		for _, child := range node {
			stripDescriptions(child)
		}
	case []any:
		for _, child := range node {
			stripDescriptions(child)
		}
	}
}

// references lists the names of the schemas that a schema refers to.
func references(node any) []string {
	var names []string
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			names = append(names, strings.TrimPrefix(ref, "#/components/schemas/"))
		}
		for _, child := range node {
			names = append(names, references(child)...)
		}
	case []any:
		for _, child := range node {
			names = append(names, references(child)...)
		}
	}
	return names
}
