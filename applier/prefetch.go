package applier

import (
	"context"
	"fmt"
)

// PrefetchRequest is a commit that a worker expects to ask for soon.
type PrefetchRequest struct {
	// Trigger is the trigger whose applier will be asked.
	Trigger TriggerRef
	// Commit is the commit that its source is to fetch.
	Commit string
}

// PrefetchSource makes the source of a trigger's applier fetch now, ahead of the request, and returns at once. It asks
// nothing when the trigger's Status.Source.Prefetch is not set, when the operation of a trigger on the same source is open (a
// resumed Kustomization applies whatever the source fetches), when the source holds the commit already, or
// where the backend is no [Prefetcher]. It applies nothing, and so it reports nothing.
func (d *Dispatcher) PrefetchSource(req PrefetchRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	running := d.running
	if running == nil || running.Err() != nil {
		return
	}
	d.attempts.Go(func() {
		ctx, cancel := context.WithTimeout(running, orDefault(d.AttemptTimeout, DefaultAttemptTimeout))
		defer cancel()
		if err := d.prefetch(ctx, req); err != nil && running.Err() == nil {
			d.Log.V(1).Info("The source of an applier was not made to fetch", "trigger", req.Trigger.String(),
				"commit", req.Commit, "reason", err.Error())
		}
	})
}

func (d *Dispatcher) prefetch(ctx context.Context, req PrefetchRequest) error {
	trigger, err := d.store.Trigger(ctx, req.Trigger)
	if err != nil {
		return err
	}
	source := trigger.Status.Source
	if trigger.Deleting || source == nil || !source.Prefetch {
		return nil
	}
	sharing, err := d.store.Triggers(ctx, TriggerMatch{Cluster: trigger.Applier.Cluster, Source: source.GitRepository})
	if err != nil {
		return err
	}
	for _, other := range append(sharing, trigger) {
		if operation := other.Status.Operation; operation != nil && !operation.Completed() {
			return fmt.Errorf("the operation of trigger %s on its source is open", other.Ref)
		}
	}
	known, err := d.client(ctx, clientKeyOf(trigger.Applier))
	if err != nil {
		return fmt.Errorf("%s: %w", trigger.Applier, err)
	}
	defer d.release(known)
	prefetcher, ok := AsPrefetcher(known.client)
	if !ok {
		return nil
	}
	return prefetcher.Prefetch(ctx, trigger.Applier.NamespacedName(), source.GitRepository, req.Commit)
}
