package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// repositoryURL is the address of the embedded repository. Nothing is sent there.
const repositoryURL = "https://git.example.com/acme/shop"

// embeddedApplication is the Application of the embedded cluster, in a namespace of its own.
var embeddedApplication = types.NamespacedName{Namespace: "demo-argocd", Name: "app"}

// runEmbedded runs on a cluster in memory with a simulated Flux and a simulated Argo CD: a commit that both apply, and one that neither can.
func runEmbedded(ctx context.Context, out io.Writer, o options) error {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{o.kustomization.Namespace, embeddedApplication.Namespace}})
	defer cluster.Stop()
	remote := fake.NewRemote()
	fake.StartFlux(cluster, fake.FluxOptions{Remote: remote})
	fake.StartArgoCD(cluster, fake.ArgoCDOptions{Remote: remote})
	repository := remote.Repository(repositoryURL)
	repository.Commit(fake.Files{manifestFile: manifest("", "first")})
	if err := createEmbedded(ctx, cluster, o); err != nil {
		return err
	}
	kustomization, err := flux.New("embedded", cluster, flux.Options{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	application, err := argocd.New("embedded", cluster, argocd.Options{Initiator: fieldManager})
	if err != nil {
		return err
	}
	if err := hold(ctx, kustomization, o.kustomization); err != nil {
		return err
	}
	fmt.Fprintf(out, "On the embedded cluster, the Kustomization %s is held: it applies only when asked, as the Application %s does.\n",
		o.kustomization, embeddedApplication)

	engines := []engine{{"Flux", kustomization, "Kustomization", o.kustomization}, {"Argo CD", application, "Application", embeddedApplication}}
	push := func(content string) applier.Ask {
		return applier.Ask{
			Want:   applier.Binding{Repository: repositoryURL, Branch: fake.DefaultBranch},
			Commit: repository.Commit(fake.Files{manifestFile: content}),
		}
	}
	fmt.Fprintln(out, "\nA commit is pushed and asked for:")
	if err := errors.Join(ask(ctx, out, engines, push(manifest("", "second")))...); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWhat is applied now, what it changed, and what it depends on:")
	views, err := gitopsprovider.New("embedded", remote, flux.NewReader(cluster), argocd.NewReader(cluster))
	if err != nil {
		return err
	}
	if err := look(ctx, out, views, engines); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nA commit that cannot be built is pushed and asked for:")
	for i, err := range ask(ctx, out, engines, push(brokenManifest)) {
		if !errors.Is(err, applier.ErrFailed) {
			return fmt.Errorf("the broken commit did not fail with %s: %w", engines[i].name, err)
		}
	}
	fmt.Fprintln(out, "The Kustomization is suspended again, and what both had applied before still stands.")
	return nil
}

// createEmbedded creates a GitRepository, a Kustomization of the same name, and an Application.
func createEmbedded(ctx context.Context, cluster *fake.Cluster, o options) error {
	application := fake.NewApplication(embeddedApplication.Namespace, embeddedApplication.Name, repositoryURL)
	// As it is not said otherwise, a sync that fails is retried five times, within minutes.
	if err := unstructured.SetNestedField(application.Object, int64(0), "spec", "syncPolicy", "retry", "limit"); err != nil {
		return err
	}
	namespace, name := o.kustomization.Namespace, o.kustomization.Name
	for _, made := range []struct {
		resource schema.GroupVersionResource
		object   *unstructured.Unstructured
	}{
		{gitRepositories, fake.NewGitRepository(namespace, name, repositoryURL)},
		{kustomizations, fake.NewKustomization(namespace, name, name)},
		{applications, application},
	} {
		_, err := cluster.Resource(made.resource).Namespace(made.object.GetNamespace()).Create(ctx, made.object, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}
