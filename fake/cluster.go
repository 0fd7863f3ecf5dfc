package fake

import (
	"sync"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/fake/internal/apiserver"
)

// Options say what a Cluster starts with. The zero value is a cluster with no namespaces but those that every
// cluster has: default, kube-system, kube-public and kube-node-lease.
type Options struct {
	// Namespaces are created at the start.
	Namespaces []string
	// Unserved are resources that the cluster does not serve, as one where their CustomResourceDefinition is missing.
	Unserved []schema.GroupResource
}

// A Cluster is an in-memory API server. It is a dynamic.Interface: the one of its own View, which may do everything.
//
// It serves the custom resources of Flux (Kustomization, HelmRelease, GitRepository, OCIRepository, Bucket,
// HelmRepository, HelmChart, ExternalArtifact) and of Argo CD (Application, AppProject, ApplicationSet), and of the
// built-in kinds ConfigMap, Secret, Namespace, Service, ServiceAccount, Event (in both groups), Deployment, Job, Lease,
// Role, ClusterRole and their bindings, and SelfSubjectAccessReview. Define adds others.
//
// It is safe for concurrent use. Stop it when the test is over.
type Cluster struct {
	*View

	server  *apiserver.Server
	events  *eventLog
	stopped atomic.Bool

	mu      sync.Mutex
	onStops []func()
}

var _ dynamic.Interface = (*Cluster)(nil)

// NewCluster starts a cluster.
func NewCluster(options Options) *Cluster {
	c := &Cluster{server: apiserver.New()}
	c.events = &eventLog{cluster: c}
	for _, namespace := range options.Namespaces {
		c.server.CreateNamespace(namespace)
	}
	for _, resource := range options.Unserved {
		c.server.Unserve(resource)
	}
	c.View = newView(c, "system:admin", nil)
	return c
}

// As returns a new view of the cluster for another identity. What the rule does not allow is answered with Forbidden,
// and a SelfSubjectAccessReview, which everybody may create, is answered by the rule as well. A nil rule allows everything.
//
// The rule is asked for each request by the verbs of RBAC: get, list, watch, create, update, patch, delete,
// deletecollection. It may be called from several goroutines at once.
func (c *Cluster) As(user string, allowed func(authorizationv1.ResourceAttributes) bool) *View {
	return newView(c, user, allowed)
}

// Define makes the cluster serve a custom resource of the test's own, as its CustomResourceDefinition says. Such a resource
// is pruned, defaulted, validated and applied by its schema like those the cluster knows. Objects of several versions differ
// in nothing but their apiVersion, and embedded resources are objects like others. The error says what is wrong with the definition, or that the resource is served already.
func (c *Cluster) Define(crd *unstructured.Unstructured) error { return c.server.Define(crd) }

// CreateNamespace creates a namespace, unless there is one of that name.
func (c *Cluster) CreateNamespace(name string) { c.server.CreateNamespace(name) }

// Unserve makes the cluster answer for a resource as if its CustomResourceDefinition had been deleted: requests get
// a 404 that is not the one of a missing object, and open watches end. The objects are kept for Serve.
func (c *Cluster) Unserve(resource schema.GroupResource) { c.server.Unserve(resource) }

// Serve undoes Unserve.
func (c *Cluster) Serve(resource schema.GroupResource) { c.server.ServeAgain(resource) }

// Compact makes the cluster forget the history of a resource, or of all of them for the zero value. A watch or a
// list that goes on from an earlier resourceVersion is then answered with 410 Gone.
func (c *Cluster) Compact(resource schema.GroupResource) { c.server.Compact(resource) }

// Bookmark sends a bookmark to every open watch of a resource that asked for bookmarks, or of all resources for the
// zero value.
func (c *Cluster) Bookmark(resource schema.GroupResource) { c.server.Bookmark(resource) }

// EndWatches ends every open watch of a resource, or of all resources for the zero value. Clients are free to watch
// again.
func (c *Cluster) EndWatches(resource schema.GroupResource) { c.server.EndWatches(resource) }

// Stop stops the controllers that were started in the cluster, ends all watches and refuses every further request with
// a connection error. It may be called more than once.
func (c *Cluster) Stop() {
	c.mu.Lock()
	stops := c.onStops
	c.onStops = nil
	c.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	c.stopped.Store(true)
	c.server.EndWatches(schema.GroupResource{})
}

// onStop has something stopped when the cluster is.
func (c *Cluster) onStop(stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onStops = append(c.onStops, stop)
}
