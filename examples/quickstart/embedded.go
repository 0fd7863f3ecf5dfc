package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// repositoryURL is the address of the embedded repository. Nothing is sent there.
const repositoryURL = "https://git.example.com/acme/shop"

// runEmbedded runs on a cluster in memory with a simulated Flux: a commit that is applied, and one that cannot be.
func runEmbedded(ctx context.Context, out io.Writer, o options) error {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{o.kustomization.Namespace}})
	defer cluster.Stop()
	repository := fake.StartFlux(cluster, fake.FluxOptions{}).Remote().Repository(repositoryURL)
	repository.Commit(fake.Files{manifestFile: fmt.Sprintf(manifest, o.kustomization.Namespace, "first")})
	if err := createEmbedded(ctx, cluster, o); err != nil {
		return err
	}
	client, err := flux.New("embedded", cluster, flux.Options{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	if err := hold(ctx, client, o.kustomization); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s on the embedded cluster is held: it applies only when asked.\n\nA commit is pushed and asked for:\n", o.kustomization)

	push := func(content string) applier.Ask {
		return applier.Ask{
			Want:   applier.Binding{Repository: repositoryURL, Branch: fake.DefaultBranch},
			Commit: repository.Commit(fake.Files{manifestFile: content}),
		}
	}
	if err := ask(ctx, out, client, o.kustomization, push(fmt.Sprintf(manifest, o.kustomization.Namespace, "second"))); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nA commit that cannot be built is pushed and asked for:")
	err = ask(ctx, out, client, o.kustomization, push(brokenManifest))
	if !errors.Is(err, applier.ErrFailed) {
		return fmt.Errorf("the broken commit did not fail: %w", err)
	}
	fmt.Fprintln(out, "It is suspended again, and what was applied before still stands.")
	return nil
}

// createEmbedded creates what Flux applies: a GitRepository and a Kustomization of the same name.
func createEmbedded(ctx context.Context, cluster *fake.Cluster, o options) error {
	namespace, name := o.kustomization.Namespace, o.kustomization.Name
	gitRepositories := schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	_, err := cluster.Resource(gitRepositories).Namespace(namespace).Create(ctx, fake.NewGitRepository(namespace, name, repositoryURL), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = cluster.Resource(kustomizations).Namespace(namespace).Create(ctx, fake.NewKustomization(namespace, name, name), metav1.CreateOptions{})
	return err
}
