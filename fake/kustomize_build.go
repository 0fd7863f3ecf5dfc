package fake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// manifests are what a folder was built into.
type manifests struct {
	objects []*unstructured.Unstructured
	text    []byte
}

// unsupported are the fields of a Kustomization that change what is built or applied, and that the simulation does not
// know. A Kustomization that sets one fails, since it would be applied as something else than Flux makes of it.
var unsupported = []string{
	"commonMetadata", "components", "decryption", "force", "healthCheckExprs", "ignore", "images", "kubeConfig",
	"namePrefix", "nameSuffix", "patches", "postBuild",
}

// kustomizationFiles are the names that a kustomization.yaml may have.
var kustomizationFiles = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// build makes objects of the files in a folder: of those that its kustomization.yaml lists, or of all that are YAML.
func (c *kustomizeController) build(ctx context.Context, ks *managed, files Files) (manifests, error) {
	if err := c.flux.faults.step(ctx, BuildStep, ks.name()); err != nil {
		return manifests{}, err
	}
	for _, field := range unsupported {
		if value := spec[any](ks, field); value != nil && value != false {
			return manifests{}, fmt.Errorf("the simulated kustomize-controller does not support spec.%s", field)
		}
	}
	objects, err := buildFolder(files, ".", true)
	if err != nil {
		return manifests{}, err
	}
	var built manifests
	seen := map[string]bool{}
	for _, object := range objects {
		if object.GetName() == "" || object.GetKind() == "" || object.GetAPIVersion() == "" {
			return manifests{}, fmt.Errorf("failed to decode Kubernetes apiVersion, kind and name from: %v", object.Object)
		}
		if namespace := spec[string](ks, "targetNamespace"); namespace != "" && c.isNamespaced(object) {
			object.SetNamespace(namespace)
		}
		id := fmt.Sprintf("%s/%s", object.GroupVersionKind(), nameOf(object))
		if seen[id] {
			return manifests{}, fmt.Errorf("kustomize build failed: may not add resource with an already registered id: %s.%s.%s/%s.%s",
				object.GetKind(), object.GroupVersionKind().Version, object.GroupVersionKind().Group, object.GetName(), object.GetNamespace())
		}
		seen[id] = true
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return manifests{}, err
		}
		built.objects = append(built.objects, object)
		built.text = append(append(built.text, "---\n"...), text...)
	}
	return built, nil
}

// buildFolder builds one folder of files. Only at the top a folder without a kustomization.yaml is built all the same.
func buildFolder(files Files, folder string, top bool) ([]*unstructured.Unstructured, error) {
	for _, name := range kustomizationFiles {
		if content, ok := files[path.Join(folder, name)]; ok {
			return buildListed(files, folder, name, content)
		}
	}
	if !top {
		return nil, fmt.Errorf("kustomize build failed: unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '%s'",
			path.Join(temporary(), folder))
	}
	return buildAll(files)
}

// buildAll builds every YAML file, except that a folder with a kustomization.yaml of its own is built by that.
func buildAll(files Files) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	built := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var made []*unstructured.Unstructured
		var err error
		switch folder := kustomizedFolder(files, name); {
		case folder != "" && built[folder]:
		case folder != "":
			built[folder] = true
			made, err = buildFolder(files, folder, false)
		case strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"):
			made, err = decode(name, files[name])
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, made...)
	}
	return objects, nil
}

// kustomizedFolder is the outermost folder around a file that has a kustomization.yaml, or "".
func kustomizedFolder(files Files, name string) string {
	parts := strings.Split(path.Dir(name), "/")
	for i := range parts {
		folder := path.Join(parts[:i+1]...)
		for _, kustomization := range kustomizationFiles {
			if _, ok := files[path.Join(folder, kustomization)]; ok {
				return folder
			}
		}
	}
	return ""
}

// buildListed builds what a kustomization.yaml lists as resources, which is all of one that is supported.
func buildListed(files Files, folder, name, content string) ([]*unstructured.Unstructured, error) {
	var kustomization map[string]any
	if err := yaml.Unmarshal([]byte(content), &kustomization); err != nil {
		return nil, fmt.Errorf("kustomize build failed: invalid Kustomization: %w", err)
	}
	for field := range kustomization {
		if !slices.Contains([]string{"apiVersion", "kind", "resources"}, field) {
			return nil, fmt.Errorf("kustomize build failed: the simulated kustomize-controller supports only resources in a %s, not %s", name, field)
		}
	}
	resources, _, err := unstructured.NestedStringSlice(kustomization, "resources")
	if err != nil {
		return nil, fmt.Errorf("kustomize build failed: invalid Kustomization: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range resources {
		at := path.Join(folder, resource)
		content, isFile := files[at]
		var made []*unstructured.Unstructured
		switch {
		case isFile:
			made, err = decode(at, content)
		case hasFolder(files, at):
			made, err = buildFolder(files, at, false)
		default:
			err = fmt.Errorf("kustomize build failed: accumulating resources: accumulation err='accumulating resources from '%s': open %s: no such file or directory'",
				resource, path.Join(temporary(), at))
		}
		if err != nil {
			return nil, err
		}
		objects = append(objects, made...)
	}
	return objects, nil
}

func hasFolder(files Files, folder string) bool {
	for name := range files {
		if strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

// decode reads the objects in a YAML file, and fails in the words of kustomize-controller.
func decode(name, content string) ([]*unstructured.Unstructured, error) {
	objects, err := decodeYAML(content)
	if err != nil {
		return nil, fmt.Errorf("failed to decode Kubernetes YAML from %s: MalformedYAMLError: %s", path.Join(temporary(), name),
			strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	return objects, nil
}

func decodeYAML(content string) ([]*unstructured.Unstructured, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(content)), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) == 0:
		case object.IsList():
			_ = object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
		default:
			objects = append(objects, object)
		}
	}
}
