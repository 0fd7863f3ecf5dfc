package applier

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// clientIdle is for how long a client that nobody uses is kept, at the least, for who comes next.
const clientIdle = time.Minute

// clientKey is what one client is for.
type clientKey struct {
	cluster string
	kind    schema.GroupKind
}

func clientKeyOf(applier ApplierRef) clientKey {
	return clientKey{applier.Cluster, applier.GroupKind()}
}

// knownClient is a backend's client for the appliers of one kind in one cluster.
type knownClient struct {
	key    clientKey
	client Client
	// cluster is what it was made from.
	cluster dynamic.Interface
	// current ends, by replace, once the cluster has another client, such as one with new credentials, or none for good.
	current context.Context
	replace context.CancelFunc

	// users counts the attempts that use it, under the dispatcher's lock, and idle is since when there are none.
	users int
	idle  time.Time
}

// client returns the client for key, by which the host reaches its cluster now. Those whose cluster has the same client share
// one, so that their followers can share a watch. It is used until it is released.
func (d *Dispatcher) client(ctx context.Context, key clientKey) (*knownClient, error) {
	cluster, err := d.clusters(ctx, key.cluster)
	if err != nil {
		return nil, fmt.Errorf("the cluster cannot be reached: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, known := range d.clients[key] {
		if sameClient(known.cluster, cluster) {
			return known.use(), nil
		}
	}
	known, err := d.makeClient(key, cluster)
	if err != nil {
		return nil, err
	}
	return known.use(), nil
}

// makeClient makes the newest client for key, from that of its cluster. The lock is held.
func (d *Dispatcher) makeClient(key clientKey, cluster dynamic.Interface) (*knownClient, error) {
	client, err := d.backends.Client(key.kind, key.cluster, cluster)
	if err != nil {
		return nil, err
	}
	known := &knownClient{key: key, client: client, cluster: cluster, idle: time.Now()}
	known.current, known.replace = context.WithCancel(context.Background())
	d.clients[key] = append(d.clients[key], known)
	d.tidy(key)
	return known, nil
}

// newestClient returns the client that was made last for key, or nil. It is used until it is released.
func (d *Dispatcher) newestClient(key clientKey) *knownClient {
	d.mu.Lock()
	defer d.mu.Unlock()
	if all := d.clients[key]; len(all) > 0 {
		return all[len(all)-1].use()
	}
	return nil
}

func (k *knownClient) use() *knownClient {
	k.users++
	return k
}

// release ends one use of a client.
func (d *Dispatcher) release(known *knownClient) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known.users--
	known.idle = time.Now()
	d.tidy(known.key)
}

// tidy forgets the clients for key that nobody uses, the newest once that is so for long. The lock is held.
func (d *Dispatcher) tidy(key clientKey) {
	all := d.clients[key]
	kept := slices.DeleteFunc(slices.Clone(all), func(k *knownClient) bool {
		return k.users == 0 && (k != all[len(all)-1] || time.Since(k.idle) > clientIdle)
	})
	d.clients[key] = kept
	if len(kept) == 0 {
		delete(d.clients, key)
	}
}

func sameClient(a, b dynamic.Interface) bool { return isComparable(a) && a == b }

func isComparable(client dynamic.Interface) bool {
	return client == nil || reflect.ValueOf(client).Comparable()
}
