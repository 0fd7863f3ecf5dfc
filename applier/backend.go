package applier

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Clients resolves a cluster, by the host's name for it, to the client that reaches it as the identity that is to
// write there. A cluster that is not known is an error, and one that is gone for good a [Permanent] error: what was started
// there can be followed no more. It is called for each request and prefetch, once a minute for each cluster in which operations are
// followed, and again and again for one that cannot be reached; from several goroutines. Return the same client each time, and another one only
// when the credentials have changed. Whoever follows an operation in the cluster then starts anew by that, within a minute or two.
type Clients func(ctx context.Context, cluster string) (dynamic.Interface, error)

// Backend makes clients for one kind of applier. flux.Backend and argocd.Backend return one; a host makes its own for a
// kind of its own.
type Backend struct {
	// Kind is the kind of applier that it serves.
	Kind schema.GroupKind
	// New returns a client for the appliers of one cluster, whose name is for messages. It makes no request.
	New func(cluster string, client dynamic.Interface) (Client, error)
	// Err is what is wrong with the options that the backend was made from, if anything; [NewBackends]
	// returns it.
	Err error
}

// Backends is a set of backends, one for each kind. The zero value holds none. It does not change and is safe for
// concurrent use.
type Backends struct {
	byKind map[schema.GroupKind]Backend
}

// NewBackends returns the set of backends. It refuses two of one kind, one with no kind, and one with bad options.
func NewBackends(backends ...Backend) (Backends, error) {
	set := Backends{byKind: make(map[schema.GroupKind]Backend, len(backends))}
	for _, backend := range backends {
		switch _, twice := set.byKind[backend.Kind]; {
		case backend.Err != nil:
			return Backends{}, fmt.Errorf("backend for %s: %w", backend.Kind, backend.Err)
		case backend.Kind.Kind == "":
			return Backends{}, errors.New("a backend serves no kind: set Backend.Kind")
		case backend.New == nil:
			return Backends{}, fmt.Errorf("the backend for %s makes no client: set Backend.New", backend.Kind)
		case twice:
			return Backends{}, fmt.Errorf("two backends serve %s: pass one", backend.Kind)
		}
		set.byKind[backend.Kind] = backend
	}
	return set, nil
}

// Client returns a client for the appliers of kind in a cluster. A kind that no backend serves is a permanent error.
func (b Backends) Client(kind schema.GroupKind, cluster string, client dynamic.Interface) (Client, error) {
	backend, ok := b.byKind[kind]
	if !ok {
		return nil, Permanent(fmt.Errorf("no backend serves %s in cluster %s: pass one to NewBackends", kind, cluster))
	}
	return backend.New(cluster, client)
}
