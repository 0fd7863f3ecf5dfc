package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// connect returns the name of the cluster and its views. It makes no request.
func connect(o options) (string, gitopsprovider.Provider, error) {
	config, cluster, err := clusterOf(o)
	if err != nil {
		return "", nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", nil, err
	}
	differ, err := newDiffer(o)
	if err != nil {
		return "", nil, err
	}
	views, err := gitopsprovider.New(cluster, differ, flux.NewReader(client), argocd.NewReader(client))
	return cluster, views, err
}

// clusterOf reads the kubeconfig. The cluster is called by the name of its context, or by its address.
func clusterOf(o options) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", errors.New("no kubeconfig names a cluster: pass -kubeconfig FILE, or set KUBECONFIG")
	case err != nil:
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	// A cluster that does not answer is given up, and client-go's own limit is meant for controllers.
	config.Timeout, config.QPS, config.Burst = 30*time.Second, 50, 100
	name := o.context
	if raw, err := loader.RawConfig(); err == nil && name == "" {
		name = raw.CurrentContext
	}
	if name == "" {
		name = config.Host
	}
	return config, name, nil
}

// newDiffer returns a Differ that keeps what it fetches in the user's cache folder, if one is needed.
func newDiffer(o options) (gitopsprovider.Differ, error) {
	if o.since == 0 && !o.diff {
		return gitopsprovider.NoDiffer{}, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("a folder for what is fetched from Git: %w", err)
	}
	return gitdiff.New(gitdiff.Options{Dir: filepath.Join(cache, "whatchanged"), Credentials: credentials})
}

// credentials are what the environment has for a site.
func credentials(_ context.Context, site string) (gitdiff.Credentials, error) {
	if site != strings.ToLower(strings.TrimSuffix(os.Getenv("WHATCHANGED_GIT_SITE"), "/")) {
		return gitdiff.Credentials{}, nil
	}
	return gitdiff.Credentials{Username: os.Getenv("WHATCHANGED_GIT_USERNAME"), Password: os.Getenv("WHATCHANGED_GIT_PASSWORD")}, nil
}
