package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// What up puts into the new control plane: one repository, applied by Flux into
// one namespace and by Argo CD into another.
const (
	demoName        = "app"
	fluxNamespace   = "demo"
	argoCDNamespace = "demo-argocd"
)

func build(ctx context.Context, _ io.Writer, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	return lab.Build(ctx, lab.Options{Parts: lab.All})
}

func up(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) (err error) {
	if err := parse(flags, args); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Options{Parts: lab.All})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; nothing was left running")
		}
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()

	url, err := seed(ctx, l)
	if err != nil {
		return fmt.Errorf("seed the control plane: %w", err)
	}
	fmt.Fprintf(out, `
The lab is up. In another terminal:

  export KUBECONFIG=%[1]s
  kubectl -n %[3]s get gitrepositories,kustomizations,configmaps
  kubectl -n %[4]s get applications,configmaps

  git clone %[2]s
  cd %[5]s, change configmap.yaml, commit, and git push; Flux looks once a minute,
  and Argo CD syncs when it is asked

The Kustomization %[3]s/%[5]s and the Application %[4]s/%[5]s apply that
repository, each into its own namespace. Logs are in %[6]s.
Ctrl-C stops everything and removes its state.

`, l.Kubeconfig(), url, fluxNamespace, argoCDNamespace, demoName, l.Logs())
	<-ctx.Done()
	fmt.Fprintln(out, "Stopping.")
	return nil
}

// seed makes a repository, and the objects by which Flux and Argo CD apply it,
// and returns the repository's URL.
func seed(ctx context.Context, l *lab.Lab) (string, error) {
	repo, err := l.NewRepository(ctx, demoName)
	if err != nil {
		return "", err
	}
	_, err = repo.Write(ctx, lab.Files{"configmap.yaml": lab.ConfigMap("greeting", "text", "Hello from the lab.")})
	if err != nil {
		return "", err
	}
	source := lab.NewGitRepository(fluxNamespace, demoName, repo.URL())
	lab.Set("1m", "spec", "interval")(source)
	for _, seeded := range []struct {
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
	}{
		{lab.Namespaces, namespace(fluxNamespace)},
		{lab.GitRepositories, source},
		{lab.Kustomizations, lab.NewKustomization(fluxNamespace, demoName, demoName)},
		{lab.Namespaces, namespace(argoCDNamespace)},
		{lab.Applications, lab.NewApplication(argoCDNamespace, demoName, repo.URL())},
	} {
		_, err := l.Dynamic().Resource(seeded.resource).Namespace(seeded.object.GetNamespace()).
			Create(ctx, seeded.object, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
	}
	return repo.URL(), nil
}

func namespace(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}
