package fake

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// The resources that the simulated controllers of Flux reconcile.
var (
	kustomizationResource = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositoryResource = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
)

// What the controllers' flags default to (source-controller v1.9.4, kustomize-controller v1.9.6).
const (
	defaultWorkers    = 4
	minRetryDelay     = 750 * time.Millisecond
	maxRetryDelay     = 15 * time.Minute
	dependencyRequeue = 30 * time.Second
)

// FluxOptions are the options of StartFlux. The zero value is good.
type FluxOptions struct {
	// Remote holds the Git repositories. Nil makes one, which Flux.Remote returns.
	Remote *Remote
	// Workers is how many Kustomizations are reconciled at once. Zero is 4, the controller's own default.
	Workers int
	// FirstReconcileDelay is how long after the pass that adds the finalizer a new object is reconciled. The real
	// controllers take 0.75 s; zero is at once.
	FirstReconcileDelay time.Duration
	// Health says how healthy an object is that a Kustomization waits for. Nil believes what its status says; see
	// HealthOf.
	Health func(*unstructured.Unstructured) Health
}

// Flux is a simulated Flux in a Cluster: a source-controller that fetches GitRepositories from a Remote, and a
// kustomize-controller that applies Kustomizations. Both behave as source-controller v1.9.4 and kustomize-controller
// v1.9.6 were measured to: which writes they make of a status and in which order, what makes them reconcile and when they
// try again, how they handle reconcile requests, also of suspended and failing objects, and what is left of a
// reconcile that is cut off.
//
// What is in the folder of a Kustomization is really applied, as plain manifests, pruned when it is no longer there, and
// refused as the cluster refuses it. Steps take no time, unless a StepFault says otherwise.
//
// It differs from the real one in this:
//
//   - A new object is reconciled at once after its finalizer was added, and intervals have no jitter.
//   - Objects are read from the API server, never from a cache that lags behind.
//   - There are no metrics or notifications, and no other controllers of Flux. Its Events are there at once, and none tell that old
//     artifacts were removed.
//   - Of a kustomization.yaml only resources are known, and of the sources of a Kustomization only GitRepositories. What
//     else would change what is applied (patches, substitutions, decryption, CEL, includes, ignored files and the like) makes the
//     object fail with a message that says so.
//   - A GitRepository's credentials are not looked at, and a service account that exists may apply everything.
//   - Of versions, constraints such as ">=1.0.0 <2.0.0", "~1.2.3", "^1.2.3" and "*" are known, without pre-releases.
//   - Artifacts are kept until they are dropped, and deletionPolicy WaitForTermination does not wait.
//   - Health is what HealthOf says, which knows no kinds.
//   - A repository with 64-digit hashes can be fetched, as "main@sha256:…", which the real one cannot do yet.
//
// It stops with the cluster. It is safe for concurrent use.
type Flux struct {
	// Source and Kustomize are the two controllers, to be stopped and started.
	Source, Kustomize *Controller

	cluster   *Cluster
	options   FluxOptions
	remote    *Remote
	artifacts *artifacts
	faults    stepFaults
}

// StartFlux starts Flux in a cluster.
func StartFlux(cluster *Cluster, options FluxOptions) *Flux {
	if options.Remote == nil {
		options.Remote = NewRemote()
	}
	if options.Workers <= 0 {
		options.Workers = defaultWorkers
	}
	if options.Health == nil {
		options.Health = HealthOf
	}
	f := &Flux{
		cluster: cluster, options: options, remote: options.Remote,
		artifacts: &artifacts{files: map[string]Files{}},
	}
	f.Source = &Controller{run: (&sourceController{flux: f, identity: identify(cluster, "flux-system", "source-controller")}).run}
	f.Kustomize = &Controller{run: (&kustomizeController{flux: f, identity: identify(cluster, "flux-system", "kustomize-controller")}).run}
	f.Start()
	cluster.onStop(f.Stop)
	return f
}

// Remote holds the Git repositories that source-controller fetches from.
func (f *Flux) Remote() *Remote { return f.remote }

// Start starts both controllers, as far as they do not run.
func (f *Flux) Start() {
	f.Source.Start()
	f.Kustomize.Start()
}

// Stop stops both controllers.
func (f *Flux) Stop() {
	f.Kustomize.Stop()
	f.Source.Stop()
}

// DropArtifacts removes the artifacts of a GitRepository from where source-controller keeps them. Whoever downloads one
// gets a 404, until source-controller fetches again.
func (f *Flux) DropArtifacts(namespace, name string) {
	f.artifacts.drop(namespaced(namespace, name))
}

// An identity is what a controller reaches the cluster as. Its requests are none of a test's, and no fault strikes them.
type identity struct {
	view   *View
	client dynamic.Interface
}

func identify(cluster *Cluster, namespace, serviceAccount string) identity {
	view := cluster.As("system:serviceaccount:"+namespace+":"+serviceAccount, nil)
	config := view.Config()
	// The controllers' finalizers are of a form that the API server warns of.
	config.WarningHandler = rest.NoWarnings{}
	return identity{view: view, client: dynamic.NewForConfigOrDie(config)}
}
