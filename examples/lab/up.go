package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// What up puts into the new control plane.
const (
	demoNamespace = "demo"
	demoName      = "app"
)

func build(ctx context.Context, _ io.Writer, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	return lab.Build(ctx, lab.Options{})
}

func up(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) (err error) {
	if err := parse(flags, args); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Options{})
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

  git clone %[2]s
  cd %[4]s, change configmap.yaml, commit, and git push; Flux looks once a minute

The Kustomization %[3]s/%[4]s applies that repository. Logs are in %[5]s.
Ctrl-C stops everything and removes its state.

`, l.Kubeconfig(), url, demoNamespace, demoName, l.Logs())
	<-ctx.Done()
	fmt.Fprintln(out, "Stopping.")
	return nil
}

// seed makes a repository, and the objects by which Flux applies it, and
// returns the repository's URL.
func seed(ctx context.Context, l *lab.Lab) (string, error) {
	repo, err := l.NewRepository(ctx, demoName)
	if err != nil {
		return "", err
	}
	_, err = repo.Write(ctx, lab.Files{"configmap.yaml": lab.ConfigMap("greeting", "text", "Hello from the lab.")})
	if err != nil {
		return "", err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": demoNamespace},
	}}
	source := lab.NewGitRepository(demoNamespace, demoName, repo.URL())
	applier := lab.NewKustomization(demoNamespace, demoName, demoName)
	lab.Set("1m", "spec", "interval")(source)

	client := l.Dynamic()
	if _, err := client.Resource(lab.Namespaces).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	_, err = client.Resource(lab.GitRepositories).Namespace(demoNamespace).Create(ctx, source, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	_, err = client.Resource(lab.Kustomizations).Namespace(demoNamespace).Create(ctx, applier, metav1.CreateOptions{})
	return repo.URL(), err
}
