package applier

import (
	"context"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Holder is an optional capability of a [Client] whose appliers are held suspended between operations. Find
// it with [AsHolder]. Like the Client, it is safe for concurrent use. The order in which a host's reconciler calls it, and when
// it sets [TriggerStatus].Held, is in docs/embedding.md, and in the example of fake.Host about holding.
type Holder interface {
	// Suspend holds the applier ref suspended with a new token, which it returns once the write is made. Once
	// Suspension reports that it is handled, nothing that started before it is still running.
	//
	// It cuts an operation in progress short: its run goes on to its end, and nothing runs after it.
	//
	// A VerdictError with ReasonSuspendOwnedElsewhere or ReasonApplierNotFound is permanent. ErrUnconfirmed is a
	// write that may have been made, with the token that it carried: look at Suspension, or call again.
	Suspend(ctx context.Context, ref types.NamespacedName) (token string, err error)

	// Suspension reads how the applier ref stands. An applier that does not exist is a VerdictError with
	// ReasonApplierNotFound.
	Suspension(ctx context.Context, ref types.NamespacedName) (Suspension, error)

	// Release hands the applier ref back: it applies again when its own controller thinks fit. It returns
	// the field manager that still keeps it suspended, or "" once it is resumed. An applier that is gone needs no
	// release and is no error. ErrUnconfirmed is a write that may have been made: call again.
	//
	// Release no applier whose operation is still followed: at its end it is suspended again. Nor one of which a Suspend may
	// still be on its way, because it got no answer or its process died: it could be made after a Release that finds nothing
	// to do, and hold the applier for ever. Call Suspend until it is answered, and then Release: what was sent before can no
	// longer be made.
	Release(ctx context.Context, ref types.NamespacedName) (keeper string, err error)
}

// Suspension is how an applier that can be held stands.
type Suspension struct {
	// Suspended is whether it is suspended, by anybody.
	Suspended bool
	// Held is whether it is suspended under the client's own name.
	Held bool
	// Handled is whether the token last requested of it is handled: no apply that started before
	// it is still running. Held and Handled together let a request start.
	Handled bool
	// Applied is what its last apply reported, whoever asked for it. Its zero State says that none is known.
	Applied Progress
}

// Prefetcher is an optional capability of a [Client] whose appliers apply from a source object that fetches on
// its own. Find it with [AsPrefetcher].
type Prefetcher interface {
	// Consumers lists the objects of the cluster that apply from source, sorted by kind, namespace and name. A
	// kind that the cluster does not serve has none. After any error nothing is known, and the source is to be treated
	// as shared.
	Consumers(ctx context.Context, source types.NamespacedName) ([]fluxmeta.NamespacedObjectKindReference, error)

	// Prefetch makes checked, the source of the applier ref whose consumers were looked at, fetch now, and returns
	// without waiting for it. ErrNotPrefetched is a source that holds commit already; ErrPrefetchHeld is an applier
	// that applies from another source now, whose consumers nobody looked at.
	Prefetch(ctx context.Context, ref, checked types.NamespacedName, commit string) error
}

// Watcher is an optional capability of a [Client] that can tell when an applier changes. Find it with
// [AsWatcher]. Without it an operation is followed by polling.
type Watcher interface {
	// Watch shows the applier ref as it changes, until ctx ends; then it closes the channel.
	//
	// The first value is what stands once the watch is open, so a change between a read
	// and the watch is not lost. A value that was not received before the next is replaced by it: the newest
	// state counts, not each step. Nil says that the object is gone or that something changed that is to be read. A watch
	// that breaks is opened again by itself. The channel is also closed when the API server refuses the
	// watch; ctx is then not done, and polling is what is left.
	//
	// The values are for Started.Observed, and are not to be changed.
	Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured
}

// Unwrapper is a Client that a host wrapped around another. The As functions look through it, so a wrapper hides no
// capability of the client inside; it overrides one by implementing it.
type Unwrapper interface {
	Unwrap() Client
}

// AsHolder returns the [Holder] that client or a client inside it is, if any.
func AsHolder(client Client) (Holder, bool) { return as[Holder](client) }

// AsPrefetcher returns the [Prefetcher] that client or a client inside it is, if any.
func AsPrefetcher(client Client) (Prefetcher, bool) { return as[Prefetcher](client) }

// AsWatcher returns the [Watcher] that client or a client inside it is, if any.
func AsWatcher(client Client) (Watcher, bool) { return as[Watcher](client) }

func as[T any](client Client) (T, bool) {
	for client != nil {
		if capability, ok := client.(T); ok {
			return capability, true
		}
		wrapper, ok := client.(Unwrapper)
		if !ok {
			break
		}
		client = wrapper.Unwrap()
	}
	var none T
	return none, false
}
