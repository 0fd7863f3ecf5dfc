package applier

import (
	"context"
	"fmt"
	"time"
)

// reaching is the search for a client of a cluster that cannot be reached yet. All who follow operations on one kind of applier there
// wait for it.
type reaching struct {
	// over is closed once there is a client, or err says why there will be none.
	over chan struct{}
	err  error
}

// reach returns the client for an operation that goes on, which need not be the one that its cluster has right now: renewClients
// tells. A cluster that cannot be reached is tried again, until ctx ends. The client is used until it is released.
func (d *Dispatcher) reach(ctx context.Context, applier ApplierRef) (*knownClient, error) {
	key := clientKeyOf(applier)
	for {
		if known := d.newestClient(key); known != nil {
			return known, nil
		}
		search := d.search(key)
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-search.over:
		}
		if search.err != nil {
			return nil, fmt.Errorf("%s: %w", applier, search.err)
		}
	}
}

// search returns the search for a client for key, and begins one where there is none. It is called by an attempt.
func (d *Dispatcher) search(key clientKey) *reaching {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.searches[key] == nil {
		search := &reaching{over: make(chan struct{})}
		d.searches[key] = search
		running := d.running
		d.attempts.Go(func() {
			err := d.tryToReach(running, key)
			d.mu.Lock()
			defer d.mu.Unlock()
			search.err = err
			delete(d.searches, key)
			close(search.over)
		})
	}
	return d.searches[key]
}

// tryToReach makes the client for key. It returns an error where there will be none, or once ctx ends.
func (d *Dispatcher) tryToReach(ctx context.Context, key clientKey) error {
	pace := d.pace()
	var interval time.Duration
	for {
		answer, cancel := context.WithTimeout(ctx, readTimeout)
		known, err := d.client(answer, key)
		cancel()
		switch {
		case err == nil:
			d.release(known) // Those who wait find it.
			return nil
		case IsPermanent(err), ctx.Err() != nil:
			return err
		}
		d.Log.Error(err, "The operations in a cluster cannot be followed yet", "cluster", key.cluster)
		interval = pace.next(interval)
		sleep(ctx, interval)
	}
}
