package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	applications    = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
)

// manifestFile is the one file that this program writes in a repository.
const manifestFile = "gitops-applier-quickstart.yaml"

// manifest is a ConfigMap with a value, in a namespace, or in the one that who applies it says.
func manifest(namespace, value string) string {
	if namespace != "" {
		namespace = "\n  namespace: " + namespace
	}
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: gitops-applier-quickstart%s\ndata:\n  pushed: %q\n", namespace, value)
}

const brokenManifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: [this is no manifest\n"

// pushTo commits a manifest into the folder that the Kustomization applies, and pushes it.
func pushTo(ctx context.Context, connection dynamic.Interface, o options, source *applier.Source) (string, error) {
	ks, err := connection.Resource(kustomizations).Namespace(o.kustomization.Namespace).Get(ctx, o.kustomization.Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	path, _, err := unstructured.NestedString(ks.Object, "spec", "path")
	if err != nil {
		return "", err
	}
	namespace := o.kustomization.Namespace
	if o.application.Name != "" {
		namespace = "" // each of the two puts it into its own
	}
	content := manifest(namespace, time.Now().Format(time.RFC3339Nano))
	if o.broken {
		content = brokenManifest
	}
	return push(ctx, source.URL, source.Revision, filepath.Join(path, manifestFile), content)
}

// push commits one file on a branch of a repository, pushes it, and returns the commit.
func push(ctx context.Context, url, branch, name, content string) (string, error) {
	dir, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if _, err := git(ctx, "", "clone", "--quiet", "--depth=1", "--branch="+branch, "--", url, dir); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"add", "--", name},
		{"-c", "user.name=quickstart", "-c", "user.email=quickstart@localhost", "commit", "--quiet", "--message=Try gitops-applier"},
		{"push", "--quiet", "origin", "HEAD:refs/heads/" + branch},
	} {
		if _, err := git(ctx, dir, args...); err != nil {
			return "", err
		}
	}
	return git(ctx, dir, "rev-parse", "HEAD")
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	var failure bytes.Buffer
	command.Stderr = &failure
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, gitref.RedactText(strings.TrimSpace(failure.String())))
	}
	return strings.TrimSpace(string(output)), nil
}
