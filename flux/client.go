package flux

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// DefaultWait is how long a request waits for an operation in progress, unless the ask says.
const DefaultWait = 5 * time.Minute

// Options are the options of a [Client]. FieldManager is required; the zero value of every other field is good.
type Options struct {
	// FieldManager is the host's name: the field manager of every write. Required. A Kustomization is
	// held under this name, so two programs must not share one: each would take the other's hold for its own.
	FieldManager string
	// FormerFieldManagers are names that this host wrote under before it was renamed. What they hold counts as
	// held, and is released with the rest.
	FormerFieldManagers []string
	// SameRepository compares the repository of an ask with a GitRepository's spec.url. Nil is gitref.SameRepository.
	SameRepository func(a, b string) bool
	// Access is the check that Validate makes. Nil asks the API server for the identity of the client.
	Access applier.AccessCheck
	// Tokens makes the tokens of suspends and source stamps. Nil is applier.NewToken.
	Tokens applier.Tokens
	// Now is the clock of Started.RequestedAt. Nil is time.Now.
	Now func() time.Time
	// PollInterval is how often a request reads an object that it waits for and may not watch. Zero is
	// applier.DefaultPollInterval.
	PollInterval time.Duration
}

// Client asks Flux Kustomizations of one cluster to apply. It is an applier.Client, Holder, Prefetcher and Watcher, and
// safe for concurrent use. It keeps no state but the watches that are open, which its callers share: keep one for each
// cluster.
type Client struct {
	cluster string
	dynamic dynamic.Interface
	options Options
	watches *applier.ObjectWatches
}

var (
	_ applier.Client     = (*Client)(nil)
	_ applier.Holder     = (*Client)(nil)
	_ applier.Prefetcher = (*Client)(nil)
	_ applier.Watcher    = (*Client)(nil)
)

var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	helmCharts      = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "helmcharts"}
	helmReleases    = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
)

// Kind is the kind of applier that this package serves.
var Kind = schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}

// New returns a client for the Kustomizations of a cluster, whose name is for messages. It makes no request. It fails
// without a field manager.
func New(cluster string, client dynamic.Interface, options Options) (*Client, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	if client == nil {
		return nil, errors.New("flux: no dynamic client for cluster " + cluster)
	}
	if options.SameRepository == nil {
		options.SameRepository = gitref.SameRepository
	}
	if options.Access == nil {
		options.Access = applier.SelfSubjectAccessCheck(client)
	}
	if options.Tokens == nil {
		options.Tokens = applier.NewToken
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.PollInterval <= 0 {
		options.PollInterval = applier.DefaultPollInterval
	}
	watches := applier.NewObjectWatches(client.Resource(kustomizations))
	return &Client{cluster: cluster, dynamic: client, options: options, watches: watches}, nil
}

// Backend returns the backend for Kustomizations. applier.NewBackends refuses one without a field manager.
func Backend(options Options) applier.Backend {
	return applier.Backend{
		Kind: Kind,
		Err:  options.validate(),
		New: func(cluster string, client dynamic.Interface) (applier.Client, error) {
			c, err := New(cluster, client, options)
			if err != nil {
				return nil, err // not a nil *Client in an interface that is not nil
			}
			return c, nil
		},
	}
}

// maxFieldManager is the longest name that the API server takes for a field manager.
const maxFieldManager = 128

func (o Options) validate() error {
	for _, name := range append([]string{o.FieldManager}, o.FormerFieldManagers...) {
		switch {
		case name == "":
			return errors.New("flux: Options.FieldManager is required: set it, and every former one, to a name of the host's own")
		case len(name) > maxFieldManager:
			return fmt.Errorf("flux: the field manager %q is longer than %d characters", name, maxFieldManager)
		}
	}
	return nil
}

// named names an object in a message.
func (c *Client) named(kind string, ref types.NamespacedName) string {
	return fmt.Sprintf("%s %s in cluster %s", kind, ref, c.cluster)
}
