package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// runOnCluster runs on the cluster that the kubeconfig names.
func runOnCluster(ctx context.Context, out io.Writer, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	connection, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := flux.New(config.Host, connection, flux.Options{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	verdict := client.Validate(ctx, o.kustomization)
	if !verdict.OK {
		return verdict.AsError()
	}
	engines := []engine{{"Flux", client, "Kustomization", o.kustomization}}
	if o.application.Name != "" {
		application, err := argocd.New(config.Host, connection, argocd.Options{Initiator: fieldManager})
		if err != nil {
			return err
		}
		engines = append(engines, engine{"Argo CD", application, "Application", o.application})
	}
	if err := hold(ctx, client, o.kustomization); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is held: it applies only when asked.\n", o.kustomization)

	commit := o.commit
	if commit == "" {
		if commit, err = pushTo(ctx, connection, o, verdict.Source); err != nil {
			return err
		}
		fmt.Fprintf(out, "Pushed %s to branch %s of %s.\n", applier.DescribeCommit(commit), verdict.Source.Revision, verdict.Source.URL)
	}
	failed := errors.Join(ask(ctx, out, engines, applier.Ask{
		Want:   applier.Binding{Repository: verdict.Source.URL, Branch: verdict.Source.Revision},
		Commit: commit,
	})...)
	if failed == nil {
		failed = lookAtCluster(ctx, out, config.Host, connection, engines)
	}
	if o.release {
		if err := release(ctx, out, client, o.kustomization); err != nil {
			return err
		}
	}
	return failed
}

// lookAtCluster shows what was applied, from the repository itself.
func lookAtCluster(ctx context.Context, out io.Writer, cluster string, connection dynamic.Interface, engines []engine) error {
	cache, err := os.MkdirTemp("", "quickstart-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	differ, err := gitdiff.New(gitdiff.Options{Dir: cache})
	if err != nil {
		return err
	}
	views, err := gitopsprovider.New(cluster, differ, flux.NewReader(connection), argocd.NewReader(connection))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWhat is applied now, what it changed, and what it depends on:")
	return look(ctx, out, views, engines)
}

// hold suspends a Kustomization, unless it is held already. A request waits until that is handled.
func hold(ctx context.Context, client *flux.Client, ref types.NamespacedName) error {
	suspension, err := client.Suspension(ctx, ref)
	if err != nil || suspension.Held {
		return err
	}
	_, err = client.Suspend(ctx, ref)
	return err
}

func release(ctx context.Context, out io.Writer, client *flux.Client, ref types.NamespacedName) error {
	keeper, err := client.Release(ctx, ref)
	switch {
	case err != nil:
		return err
	case keeper != "":
		fmt.Fprintf(out, "%s is released, and %s keeps it suspended.\n", ref, keeper)
	default:
		fmt.Fprintf(out, "%s is released: Flux applies it again by itself.\n", ref)
	}
	return nil
}
