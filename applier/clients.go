package applier

import (
	"context"
	"fmt"
	"reflect"
	"slices"
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

// client returns the client for an applier. It keeps one for each cluster and kind, as long as the cluster's
// own client stays the same, so that the followers of a cluster can share a watch, and for a while in any case: where each call makes
// another client, each of those who follow would end the watch of all others.
func (d *Dispatcher) client(ctx context.Context, applier ApplierRef) (*knownClient, error) {
	cluster, err := d.cluster(ctx, applier.Cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: the cluster cannot be reached: %w", applier, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := clientKey{applier.Cluster, applier.Group, applier.Kind}
	if known := d.clients[key]; known != nil && (sameClient(known.cluster, cluster) || time.Since(known.made) < clientRenewal) {
		return known, nil
	}
	client, err := d.backends.Client(applier.GroupKind(), applier.Cluster, cluster)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", applier, err)
	}
	d.forgetClient(key, cluster)
	known := &knownClient{client: client, cluster: cluster, made: time.Now()}
	known.current, known.replace = context.WithCancel(context.Background())
	d.clients[key] = known
	return known, nil
}

// cluster asks the host for the client of a cluster. One that gives no answer holds nobody up for long.
func (d *Dispatcher) cluster(ctx context.Context, name string) (dynamic.Interface, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return d.clusters(ctx, name)
}

// renewClients looks for clusters that have another client by now, or none for good, until ctx ends. Nothing else tells those who follow
// an operation there: their watch has been refused, or hangs.
func (d *Dispatcher) renewClients(ctx context.Context) {
	for {
		sleep(ctx, clientRenewal)
		for _, name := range d.clusterNames() {
			cluster, err := d.cluster(ctx, name)
			if ctx.Err() != nil {
				return
			}
			if err == nil || IsPermanent(err) {
				d.renewClientsOf(name, cluster)
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
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
func (d *Dispatcher) renewClientsOf(name string, now dynamic.Interface) {
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
