package fake

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

const inCluster = "https://kubernetes.default.svc"

// checkDestination refuses any destination but the cluster itself.
func checkDestination(app *unstructured.Unstructured) error {
	server, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "server")
	name, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "name")
	switch {
	case server == inCluster, server == "" && name == "in-cluster":
		return nil
	case server == "":
		return fmt.Errorf("error getting cluster by name %q: cluster not found", name)
	}
	return fmt.Errorf("error getting cluster by server %q: cluster not found", server)
}

// resolveRevision finds the commit that a revision of a source names. A short hash names a commit as well.
func (r *Repository) resolveRevision(revision string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lower := strings.ToLower(revision)
	branch := strings.TrimPrefix(revision, "refs/heads/")
	switch {
	case revision == "" || revision == "HEAD":
		branch = DefaultBranch
	case r.commits[lower].number > 0:
		return lower, nil
	case gitref.IsCommit(lower):
		return "", fmt.Errorf("rpc error: code = Internal desc = Failed to checkout revision %[1]s: `git fetch origin %[1]s --tags --force --prune` failed exit status 128: fatal: remote error: upload-pack: not our ref %[1]s", revision)
	}
	if commit, ok := r.branches[branch]; ok {
		return commit, nil
	}
	if commit, ok := r.tags[strings.TrimPrefix(revision, "refs/tags/")]; ok {
		return commit, nil
	}
	if shortHash.MatchString(revision) {
		for commit := range r.commits {
			if strings.HasPrefix(commit, revision) {
				return commit, nil
			}
		}
	}
	return "", fmt.Errorf("rpc error: code = Unknown desc = unable to resolve '%s' to a commit SHA", revision)
}

var shortHash = regexp.MustCompile(`^[0-9a-f]{7,}$`)

// load makes objects of the manifests of an Application's source at a revision, and returns the commit that it names.
func (c *applicationController) load(app *unstructured.Unstructured, source map[string]any, revision string) ([]*unstructured.Unstructured, string, error) {
	objects, commit, err := c.manifests(app, source, revision)
	if err != nil {
		err = fmt.Errorf("failed to generate manifest for source 1 of 1: %w", err)
	}
	return objects, commit, err
}

func (c *applicationController) manifests(app *unstructured.Unstructured, source map[string]any, revision string) ([]*unstructured.Unstructured, string, error) {
	if len(source) == 0 {
		return nil, revision, errors.New("the simulated application-controller syncs spec.source, and there is none")
	}
	for _, field := range []string{"chart", "directory", "helm", "kustomize", "plugin"} {
		if source[field] != nil {
			return nil, revision, fmt.Errorf("the simulated application-controller does not support %s in a source", field)
		}
	}
	url, _ := source["repoURL"].(string)
	repository, ok := c.argo.remote.find(url)
	if !ok {
		return nil, revision, fmt.Errorf("rpc error: code = Unknown desc = failed to list refs: repository not found: %s", gitref.Redact(url))
	}
	if target, _ := source["targetRevision"].(string); revision == "" {
		revision = target
	}
	commit, err := repository.resolveRevision(revision)
	if err != nil {
		return nil, revision, err
	}
	folder, _ := source["path"].(string)
	objects, err := plainManifests(repository.Files(commit), folder)
	for _, object := range objects {
		c.localize(app, object)
	}
	return objects, commit, err
}

// plainManifests reads the manifests in the files of a folder, and not in the folders below it.
func plainManifests(files Files, folder string) ([]*unstructured.Unstructured, error) {
	files, err := below(files, folder)
	if err != nil {
		return nil, fmt.Errorf("rpc error: code = Unknown desc = %s: app path does not exist", folder)
	}
	var objects []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch {
		case strings.Contains(name, "/"):
		case name == "Chart.yaml" || slices.Contains(kustomizationFiles, name):
			return nil, fmt.Errorf("the simulated application-controller syncs plain manifests, and not what %s makes", name)
		case slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)):
			made, err := decodeYAML(files[name])
			if err != nil && looksLikeManifest(files[name]) {
				return nil, fmt.Errorf("rpc error: code = FailedPrecondition desc = Failed to unmarshal %q: failed to unmarshal manifest: %w", name, err)
			}
			if err != nil {
				continue
			}
			objects = append(objects, slices.DeleteFunc(made, func(o *unstructured.Unstructured) bool { return o.GetKind() == "" || o.GetAPIVersion() == "" })...)
		}
	}
	return objects, checkHooks(objects)
}

// looksLikeManifest reports whether a file that is no YAML is taken for a broken manifest. Any other such file is passed over.
func looksLikeManifest(content string) bool {
	return strings.Contains(content, "apiVersion") && strings.Contains(content, "kind")
}

func checkHooks(objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		if hook := object.GetAnnotations()[hookAnnotation]; hook != "" && (hook != preSync || object.GetKind() != "Job") {
			return fmt.Errorf("the simulated application-controller knows only hooks that are Jobs and %s, not the %s hook of kind %s", preSync, hook, object.GetKind())
		}
	}
	return nil
}

// localize puts an object into the Application's destination, unless it names a namespace, and marks it as the Application's.
func (c *applicationController) localize(app, object *unstructured.Unstructured) {
	_, isNamespaced, served := c.argo.cluster.server.ResourceOf(object.GroupVersionKind())
	switch {
	case served && !isNamespaced:
		object.SetNamespace("")
	case object.GetNamespace() == "":
		namespace, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "namespace")
		object.SetNamespace(namespace)
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[trackingAnnotation] = tracking(app, object)
	object.SetAnnotations(annotations)
}
