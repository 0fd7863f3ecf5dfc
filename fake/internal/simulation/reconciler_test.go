package simulation

import (
	"context"
	"errors"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

// reconcile does for the triggers what a host's reconciler does: it looks at the source, holds the appliers that are to be held, and
// lets go of triggers that are deleted. It looks at each trigger every so often, and soon again where something is left to do.
func (p *process) reconcile() {
	const soon, late = 4 * time.Second, 4 * time.Minute
	due := make(map[string]time.Time)
	for pause(p.working, time.Second) {
		if p.idle.Load() {
			continue
		}
		for _, name := range p.w.triggerNames() {
			if time.Now().Before(due[name]) || p.working.Err() != nil {
				continue
			}
			ctx, cancel := context.WithTimeout(p.working, 20*time.Second)
			again, err := p.reconcileTrigger(ctx, applier.TriggerRef{Namespace: team, Name: name})
			cancel()
			due[name] = time.Now().Add(late)
			if again || err != nil {
				due[name] = time.Now().Add(soon)
			}
		}
	}
}

var errNotNow = errors.New("not now")

// reconcileTrigger returns whether to come again soon.
func (p *process) reconcileTrigger(ctx context.Context, ref applier.TriggerRef) (again bool, err error) {
	t, err := p.store.Trigger(ctx, ref)
	if err != nil {
		return false, err
	}
	o := t.Status.Operation
	open := o != nil && !o.Completed()
	if t.Deleting {
		if !open {
			p.w.store.DeleteTrigger(ref) // Its finalizer is removed.
		}
		return open, nil
	}
	client, err := p.validators.Client(t.Applier.GroupKind(), clusterName, p.view)
	if err != nil {
		return false, err
	}
	verdict := client.Validate(ctx, t.Applier.NamespacedName())
	if verdict.Source == nil {
		return true, nil
	}
	show := func(held bool) error {
		return p.store.UpdateStatus(ctx, t.Ref, func(t *applier.Trigger) error {
			t.Status.Source = &applier.TriggerSource{Source: *verdict.Source}
			if operation := t.Status.Operation; !held && operation != nil && !operation.Completed() {
				return errNotNow
			}
			t.Status.Held = held
			return nil
		})
	}
	if t.Live || t.Applier.Kind != "Kustomization" {
		return false, show(false)
	}
	if holder, err := applier.HeldByAnother(ctx, p.store, t, nil); err != nil || holder != nil {
		return err != nil, err
	}
	if open && p.dispatcher.Following(t.Ref, o.Started.Token) {
		return true, show(true)
	}
	if err := p.w.store.ChangeTrigger(t.Ref, func(t *applier.Trigger) { t.Holding = true }); err != nil {
		return false, err
	}
	suspension, err := p.holder.Suspension(ctx, t.Applier.NamespacedName())
	switch {
	case err != nil:
		return true, errors.Join(err, show(false))
	case suspension.Held && suspension.Suspended && suspension.Handled:
		return open, show(true)
	case suspension.Held && suspension.Suspended && p.awaits(t.Ref.Name):
		return true, show(false)
	case open:
		return true, nil // The worker is to follow it.
	}
	if err := show(false); err != nil {
		return true, err
	}
	p.w.history.note(p.name, "holds %s", t.Applier.Name)
	p.held[t.Ref.Name] = time.Now()
	_, err = p.holder.Suspend(ctx, t.Applier.NamespacedName())
	return true, err
}

// awaits reports whether a suspend is still to be waited for. One that is not handled for long is made again: its token may have been
// removed.
func (p *process) awaits(trigger string) bool { return time.Since(p.held[trigger]) < 20*time.Second }
