package applier

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
)

// clientRenewal is how often a dispatcher asks its [Clients] whether a cluster has another client by now.
const clientRenewal = time.Minute

// renewClients looks for clusters that have another client by now, or none for good. Nothing else tells those who follow
// an operation there: their watch has been refused, or hangs. Where each call of the host's makes another client, this is how
// often the followers of a cluster start anew.
func (d *Dispatcher) renewClients(ctx context.Context) {
	var asked sync.WaitGroup
	for _, name := range d.clustersInUse() {
		asked.Go(func() { d.renewClientsOf(ctx, name) }) // One that gives no answer holds up no other.
	}
	asked.Wait()
}

func (d *Dispatcher) clustersInUse() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for key, all := range d.clients {
		d.tidy(key)
		used := slices.ContainsFunc(all, func(k *knownClient) bool { return k.users > 0 })
		if used && !slices.Contains(names, key.cluster) {
			names = append(names, key.cluster)
		}
	}
	return names
}

// renewClientsOf replaces the clients of a cluster that were made from another one than it has now.
func (d *Dispatcher) renewClientsOf(ctx context.Context, name string) {
	answer, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	now, err := d.clusters(answer, name)
	gone := IsPermanent(err)
	if ctx.Err() != nil || err != nil && !gone {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.clients {
		if key.cluster == name {
			d.replaceClients(key, now, gone)
		}
	}
}

// replaceClients replaces the clients for key, since their cluster has the client now, or is gone. Where the host's clients cannot be
// compared, nobody knows whether it is another one, and who uses the old one goes on. The lock is held.
func (d *Dispatcher) replaceClients(key clientKey, now dynamic.Interface, gone bool) {
	var kept, replaced []*knownClient
	current := false
	for _, known := range d.clients[key] {
		switch {
		case !gone && sameClient(known.cluster, now):
			kept, current = append(kept, known), true
		case !gone && !(isComparable(known.cluster) && isComparable(now)):
			kept = append(kept, known)
		default:
			replaced = append(replaced, known)
		}
	}
	if len(replaced) == 0 {
		return
	}
	d.Log.V(1).Info("The cluster has another client, or none any more: who follows operations there is told", "cluster", key.cluster)
	d.clients[key] = kept
	if !gone && !current {
		if _, err := d.makeClient(key, now); err != nil { // Those who are told try themselves.
			d.Log.V(1).Info("The cluster's new client is of no use yet", "cluster", key.cluster, "reason", err.Error())
		}
	}
	d.tidy(key)
	for _, known := range replaced {
		known.replace()
	}
}
