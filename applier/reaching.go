package applier

import (
	"context"
	"time"
)

// reaching is the search for a client of a cluster that cannot be reached yet. All who follow operations there wait for one.
type reaching struct {
	// over is closed once there is a client, or err says why there will be none.
	over chan struct{}
	err  error
}

// reach returns the client for an operation that goes on, which need not be the one that its cluster has right now: renewClients
// tells. A cluster that cannot be reached is tried again, until ctx ends. The client is used until it is released.
func (d *Dispatcher) reach(ctx context.Context, applier ApplierRef) (*knownClient, error) {
	for {
		if known := d.newestClient(clientKeyOf(applier)); known != nil {
			return known, nil
		}
		search := d.search(applier)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-search.over:
		}
		if search.err != nil {
			return nil, search.err
		}
	}
}

// search returns the search for a client for applier, and begins one where there is none. It is called by an attempt.
func (d *Dispatcher) search(applier ApplierRef) *reaching {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := clientKeyOf(applier)
	if d.searches[key] == nil {
		search := &reaching{over: make(chan struct{})}
		d.searches[key] = search
		running := d.running
		d.attempts.Go(func() {
			err := d.tryToReach(running, applier)
			d.mu.Lock()
			defer d.mu.Unlock()
			search.err = err
			delete(d.searches, key)
			close(search.over)
		})
	}
	return d.searches[key]
}

// tryToReach makes the client for applier. It returns an error where there will be none, or once ctx ends.
func (d *Dispatcher) tryToReach(ctx context.Context, applier ApplierRef) error {
	pace := d.pace()
	var interval time.Duration
	for {
		answer, cancel := context.WithTimeout(ctx, readTimeout)
		known, err := d.client(answer, applier)
		cancel()
		switch {
		case err == nil:
			d.release(known) // Those who wait find it.
			return nil
		case IsPermanent(err), ctx.Err() != nil:
			return err
		}
		d.Log.Error(err, "The operations in a cluster cannot be followed yet", "cluster", applier.Cluster)
		interval = pace.next(interval)
		sleep(ctx, interval)
	}
}
