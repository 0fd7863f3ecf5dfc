package argocd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// DefaultOperationWait is how long a request waits for an operation in progress.
const DefaultOperationWait = 5 * time.Minute

// DefaultInfoKey is the name of the entry of operation.info that holds a request's token.
const DefaultInfoKey = "gitops-applier.github.io/token"

// Options are the options of a [Client]. Initiator is required; the zero value of every other field is good.
type Options struct {
	// Initiator is the host's name: Argo CD shows it as the initiator of every sync, and it is the field manager of the
	// write. Required.
	Initiator string
	// Manual makes syncs count as started by a person: a sync window with manualSync lets them through, and status.sync is
	// compared anew at their end. By default they count as automated: such a window holds them up, and status.sync may
	// lag behind a sync for minutes (3.2.11).
	Manual bool
	// Prune deletes what the commit no longer has, whatever the Application says. Without it, the prune of a
	// disabled spec.syncPolicy.automated decides. Argo CD's guard against a commit without any manifest
	// (allowEmpty) holds for its own automated syncs alone: with prune, such a commit deletes everything.
	Prune bool
	// InfoKey is the name under which the token stands in operation.info. Empty is DefaultInfoKey. A request is recognised
	// by it: one that is followed with another InfoKey than it was made with is not found.
	InfoKey string
	// OperationWait bounds how long a request waits for an operation in progress, unless the ask says. Zero is
	// DefaultOperationWait; negative does not wait.
	OperationWait time.Duration
	// SameRepository compares the repository of an ask with spec.source.repoURL. Nil is gitref.SameRepository.
	SameRepository func(a, b string) bool
	// Access is the check that Validate makes. Nil asks the API server for the identity of the client.
	Access applier.AccessCheck
	// Now is the clock of Started.RequestedAt. Nil is time.Now.
	Now func() time.Time
	// PollInterval is how often a request reads an Application that it waits for and may not watch. Zero is
	// applier.DefaultPollInterval.
	PollInterval time.Duration
}

// Client asks Argo CD Applications of one cluster to sync. It is an applier.Client and Watcher, and safe for concurrent
// use. It keeps no state but the watches that are open, which its callers share: keep one for each cluster.
type Client struct {
	cluster string
	dynamic dynamic.Interface
	options Options
	watches *applier.ObjectWatches
}

var (
	_ applier.Client  = (*Client)(nil)
	_ applier.Watcher = (*Client)(nil)
)

// Kind is the kind of applier that this package serves.
var Kind = schema.GroupKind{Group: "argoproj.io", Kind: "Application"}

var applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// New returns a client for the Applications of a cluster, whose name is for messages. It makes no request. It fails
// without a dynamic client or an initiator, and with an initiator that is longer than a field manager may be (128).
func New(cluster string, client dynamic.Interface, options Options) (*Client, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("argocd: no dynamic client for cluster " + cluster)
	}
	if options.InfoKey == "" {
		options.InfoKey = DefaultInfoKey
	}
	if options.OperationWait == 0 {
		options.OperationWait = DefaultOperationWait
	}
	if options.SameRepository == nil {
		options.SameRepository = gitref.SameRepository
	}
	if options.Access == nil {
		options.Access = applier.SelfSubjectAccessCheck(client)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.PollInterval <= 0 {
		options.PollInterval = applier.DefaultPollInterval
	}
	watches := applier.NewObjectWatches(client.Resource(applications))
	return &Client{cluster: cluster, dynamic: client, options: options, watches: watches}, nil
}

// Backend returns the backend for Applications. applier.NewBackends refuses one without an initiator.
func Backend(options Options) applier.Backend {
	return applier.Backend{
		Kind: Kind,
		Err:  options.validate(),
		New: func(cluster string, client dynamic.Interface) (applier.Client, error) {
			return New(cluster, client, options)
		},
	}
}

// maxFieldManager is the longest name that the API server takes for a field manager.
const maxFieldManager = 128

func (o Options) validate() error {
	switch {
	case o.Initiator == "":
		return errors.New("argocd: Options.Initiator is required: set it to a name of the host's own")
	case len(o.Initiator) > maxFieldManager:
		return fmt.Errorf("argocd: the initiator %q is longer than %d characters", o.Initiator, maxFieldManager)
	}
	return nil
}

// Watch shows the Application ref as it changes. Up to three are watched one by one; from the fourth on, all share one
// watch of the cluster's Applications, each for one read more, where the identity may list and watch them in the whole
// cluster. See applier.ObjectWatches for what it costs, and where it may not.
func (c *Client) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	return c.watches.Watch(ctx, ref)
}

func (c *Client) resource(ref types.NamespacedName) dynamic.ResourceInterface {
	return c.dynamic.Resource(applications).Namespace(ref.Namespace)
}

// named names an Application in a message.
func (c *Client) named(ref types.NamespacedName) string {
	return fmt.Sprintf("Application %s in cluster %s", ref, c.cluster)
}
