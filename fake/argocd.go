package fake

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The resources that the simulated application-controller watches.
var (
	applicationResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	jobResource         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

const (
	argoManager   = "argocd-controller"
	argoNamespace = "argocd"
)

// The steps of Argo CD's controller, in the order in which they come. ApplyStep comes between LoadStep and WaveStep, once for each
// wave: where it fails, the sync has Failed.
const (
	// ProjectStep is the look at an Application's project, at the start of each pass over an operation. It fails as Error with
	// "InvalidSpecError: ", as 3.2.11 often does right after a start, when it has not read the projects yet:
	// "Application referencing project default which does not exist".
	ProjectStep Step = "project"
	// LoadStep is the load of an operation's manifests. It fails as Error.
	LoadStep Step = "load"
	// WaveStep is the pause after a wave that others follow, in the same pass. The real controller's is two seconds. It
	// cannot fail.
	WaveStep Step = "wave"
)

// ArgoCDOptions are the options of StartArgoCD. The zero value is good.
type ArgoCDOptions struct {
	// Remote holds the Git repositories, and may be that of a Flux. Nil makes one, which ArgoCD.Remote returns.
	Remote *Remote
}

// ArgoCD is a simulated Argo CD in a Cluster: an application-controller that syncs the Applications of all namespaces from a Remote.
// It behaves as application-controller 3.2.11 was measured to: how it takes up .operation and carries it out in passes, which
// writes it makes of status.operationState and in which order, what it makes of an operation that is removed, replaced
// or terminated meanwhile, its retries, sync waves and windows, and what is left of an operation when it is
// killed. It also has that version's fault of merging an operation into the record of the previous one, unless whoever
// sets .operation removes that record.
//
// What is in the folder of the source is really applied, as plain manifests with the annotation
// argocd.argoproj.io/tracking-id, pruned where the operation says so, and refused as the cluster refuses it. Steps take no time,
// unless a StepFault says otherwise.
//
// It differs from the real one in this:
//
//   - Manifests are plain files of one folder of one Git source. Helm, Kustomize, plugins and spec.sources end in an Error
//     that says so.
//   - Of hooks it knows Jobs that are PreSync, which it recreates for each sync. Nobody runs them: a test writes their status.
//   - Projects are not looked at, and the only destination is the cluster itself. The window of Block or BlockAutomated is
//     everybody's.
//   - Everything is applied by server-side apply, and syncOptions are not looked at.
//   - Each wave is healthy at once, and health says no more than whether everything exists that Argo CD has a health of.
//   - status.sync is never late: the tip of the branch is looked at anew each time. An Application is compared after its spec has
//     changed, after an operation, when it is asked to refresh, and every two minutes, but not when what it applied changed.
//   - Objects are read from the API server, never from a cache that lags behind.
//
// It stops with the cluster. It is safe for concurrent use.
type ArgoCD struct {
	// Controller is the application-controller, to be stopped and started.
	*Controller

	cluster *Cluster
	remote  *Remote
	faults  stepFaults

	mu     sync.Mutex
	window syncWindow
	// again makes the running controller look at every Application.
	again func()
	// applied are the kinds that were ever applied, among which there may be something to prune.
	applied map[schema.GroupVersionKind]bool
}

// StartArgoCD starts Argo CD in a cluster.
func StartArgoCD(cluster *Cluster, options ArgoCDOptions) *ArgoCD {
	if options.Remote == nil {
		options.Remote = NewRemote()
	}
	a := &ArgoCD{cluster: cluster, remote: options.Remote, again: func() {}, applied: map[schema.GroupVersionKind]bool{}}
	identity := identify(cluster, argoNamespace, "argocd-application-controller")
	a.Controller = &Controller{run: func(ctx context.Context) { newApplicationController(a, identity).run(ctx) }}
	a.Start()
	cluster.onStop(a.Stop)
	return a
}

// Remote holds the Git repositories that are synced from.
func (a *ArgoCD) Remote() *Remote { return a.remote }

// Inject makes a fault strike from now on, until the returned function is called.
func (a *ArgoCD) Inject(fault StepFault) (remove func()) { return a.faults.inject(fault) }

// FailNext makes the next time of a step, for whichever Application, fail with a message.
func (a *ArgoCD) FailNext(step Step, message string) {
	a.Inject(StepFault{Step: step, Nth: 1, Message: message})
}

// Block begins a sync window that denies every sync, those that persons ask for as well. An operation that starts in it, or
// goes on, waits for its end.
func (a *ArgoCD) Block() { a.setWindow(deniesAll) }

// BlockAutomated begins a sync window with manualSync: it denies what counts as automated alone. An operation that a person
// asked for says in its first pass that it is blocked, and then runs.
func (a *ArgoCD) BlockAutomated() { a.setWindow(deniesAutomated) }

// Unblock ends the window of Block or BlockAutomated. What it blocked goes on at once.
func (a *ArgoCD) Unblock() {
	a.setWindow(deniesNone)
	a.mu.Lock()
	again := a.again
	a.mu.Unlock()
	again()
}

// A syncWindow is what the window of the moment denies.
type syncWindow int

const (
	deniesNone syncWindow = iota
	deniesAutomated
	deniesAll
)

func (a *ArgoCD) setWindow(w syncWindow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.window = w
}

// denies reports whether the window of the moment denies a sync.
func (a *ArgoCD) denies(manual bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.window == deniesAll || a.window == deniesAutomated && !manual
}

// NewApplication is an Application that syncs the root folder of the main branch of a repository into its own namespace, when
// it is asked to.
func NewApplication(namespace, name, url string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": applicationResource.GroupVersion().String(),
		"kind":       "Application",
		"metadata":   map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"project":     "default",
			"source":      map[string]any{"repoURL": url, "path": ".", "targetRevision": DefaultBranch},
			"destination": map[string]any{"server": inCluster, "namespace": namespace},
		},
	}}
}
