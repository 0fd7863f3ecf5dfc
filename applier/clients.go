package applier

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
)

// clientRenewal is how often a dispatcher asks its [Clients] whether a cluster has another client by now.
const clientRenewal = time.Minute

// clientKey is what one client is for.
type clientKey struct {
	cluster, group, kind string
}

// knownClient is a backend's client for the appliers of one kind in one cluster.
type knownClient struct {
	client Client
	// cluster is what it was made from, and made when.
	cluster dynamic.Interface
	made    time.Time
	// current ends, by replace, once the cluster has another client, such as one with new credentials, or none for good.
	current context.Context
	replace context.CancelFunc
}

// client returns the client for an applier, by which the host reaches its cluster now. It keeps one for each cluster and kind, as long as
// the cluster's own client stays the same, so that the followers of a cluster can share a watch. That is replaced once a minute at most:
// where each call makes another client, each attempt would end the watch of all others.
func (d *Dispatcher) client(ctx context.Context, applier ApplierRef) (*knownClient, error) {
	cluster, err := d.clusters(ctx, applier.Cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: the cluster cannot be reached: %w", applier, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := clientKey{applier.Cluster, applier.Group, applier.Kind}
	kept := d.clients[key]
	if kept != nil && sameClient(kept.cluster, cluster) {
		return kept, nil
	}
	client, err := d.backends.Client(applier.GroupKind(), applier.Cluster, cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", applier, err)
	}
	if kept != nil && time.Since(kept.made) < clientRenewal {
		// It is this attempt's alone, which goes on together with those who use the kept one.
		return &knownClient{client: client, cluster: cluster, current: kept.current}, nil
	}
	d.forgetClient(key, cluster)
	known := &knownClient{client: client, cluster: cluster, made: time.Now()}
	known.current, known.replace = context.WithCancel(context.Background())
	d.clients[key] = known
	return known, nil
}

// keptClient returns the client that is kept for an applier, if any.
func (d *Dispatcher) keptClient(applier ApplierRef) *knownClient {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clients[clientKey{applier.Cluster, applier.Group, applier.Kind}]
}

// renewClients looks for clusters that have another client by now, or none for good. Nothing else tells those who follow
// an operation there: their watch has been refused, or hangs.
func (d *Dispatcher) renewClients(ctx context.Context) {
	var asked sync.WaitGroup
	for _, name := range d.clusterNames() {
		asked.Go(func() { d.renewClientsOf(ctx, name) }) // One that gives no answer holds up no other.
	}
	asked.Wait()
}

func (d *Dispatcher) clusterNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for key := range d.clients {
		if !slices.Contains(names, key.cluster) {
			names = append(names, key.cluster)
		}
	}
	return names
}

// renewClientsOf forgets the clients of a cluster that were made from another one than it has now.
func (d *Dispatcher) renewClientsOf(ctx context.Context, name string) {
	answer, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	now, err := d.clusters(answer, name)
	if ctx.Err() != nil || err != nil && !IsPermanent(err) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, known := range d.clients {
		if key.cluster == name && !sameClient(known.cluster, now) {
			d.forgetClient(key, now)
		}
	}
}

// forgetClient forgets the client that is known for key, since the cluster has the client now. Where the host's clients cannot be
// compared, nobody knows whether it is another one, and who uses the old one goes on. The lock is held.
func (d *Dispatcher) forgetClient(key clientKey, now dynamic.Interface) {
	known := d.clients[key]
	if known == nil {
		return
	}
	delete(d.clients, key)
	if isComparable(known.cluster) && isComparable(now) {
		d.Log.V(1).Info("The cluster has another client, or none any more: who follows operations there is told", "cluster", key.cluster)
		known.replace()
	}
}

func sameClient(a, b dynamic.Interface) bool { return isComparable(a) && a == b }

func isComparable(client dynamic.Interface) bool {
	return client == nil || reflect.ValueOf(client).Comparable()
}
