package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var customResourceDefinitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// copyCRDs copies the CRD files of a module that the tool's go.mod pins.
func copyCRDs(ctx context.Context, toolDir string, m crdModule, dir string) error {
	out, err := goCommand(ctx, toolDir, "mod", "download", "-json", m.module)
	if err != nil {
		return err
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &downloaded); err != nil {
		return err
	}
	var files []string
	for _, pattern := range m.files {
		found, err := filepath.Glob(filepath.Join(downloaded.Dir, filepath.FromSlash(pattern)))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return fmt.Errorf("%s has no CRDs in %s", downloaded.Dir, pattern)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// installCRDs creates every CRD in the given folders and waits until the API
// server serves their kinds.
func installCRDs(ctx context.Context, config *rest.Config, dirs []string) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	var served []schema.GroupVersionResource
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return err
		}
		for _, file := range files {
			crd, err := readCRD(file)
			if err != nil {
				return err
			}
			_, err = client.Resource(customResourceDefinitions).Create(ctx, crd, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("create CRD %s: %w", crd.GetName(), err)
			}
			resources, err := servedResources(crd)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			served = append(served, resources...)
		}
	}
	return waitServed(ctx, config, served)
}

func readCRD(file string) (*unstructured.Unstructured, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &crd.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return crd, nil
}

// servedResources lists the versions that a CRD makes the API server serve.
func servedResources(crd *unstructured.Unstructured) ([]schema.GroupVersionResource, error) {
	var spec struct {
		Spec struct {
			Group    string
			Names    struct{ Plural string }
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	content, err := json.Marshal(crd.Object)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &spec); err != nil {
		return nil, err
	}
	var served []schema.GroupVersionResource
	for _, version := range spec.Spec.Versions {
		if version.Served {
			served = append(served, schema.GroupVersionResource{
				Group: spec.Spec.Group, Version: version.Name, Resource: spec.Spec.Names.Plural,
			})
		}
	}
	return served, nil
}

// waitServed waits until discovery names all resources. That is later than the
// condition Established, and what a controller's start depends on.
func waitServed(ctx context.Context, config *rest.Config, resources []schema.GroupVersionResource) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	for _, resource := range resources {
		for {
			err := serves(client, resource)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the API server does not serve %s: %w", resource, errors.Join(context.Cause(ctx), err))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func serves(client discovery.DiscoveryInterface, resource schema.GroupVersionResource) error {
	list, err := client.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	for _, served := range list.APIResources {
		if served.Name == resource.Resource {
			return nil
		}
	}
	return fmt.Errorf("%s is not among its resources", resource)
}
