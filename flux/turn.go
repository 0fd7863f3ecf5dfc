package flux

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

// awaitTurn reads the Kustomization and its source until the ask may be made of them, or never may: it waits for an
// operation in progress.
func (r *request) awaitTurn(ctx context.Context) (view, error) {
	for {
		v, err := r.askable(ctx)
		if !errors.Is(err, applier.ErrBusy) || r.ask.Wait < 0 {
			return v, err
		}
		waited := r.await(ctx)
		switch {
		case ctx.Err() != nil:
			return v, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case waited != nil:
			return v, fmt.Errorf("%w: waited for it to end: %s", err, waited.Error())
		}
	}
}

// await waits until no operation is in progress, as far as a watch shows, or until the time for all waiting is over.
func (r *request) await(ctx context.Context) error {
	if r.until.IsZero() {
		wait := r.ask.Wait
		if wait == 0 {
			wait = DefaultWait
		}
		r.until = time.Now().Add(wait)
	}
	ctx, cancel := context.WithDeadline(ctx, r.until)
	defer cancel()
	return r.client.await(ctx, kustomizationKind, r.ref, func(u *unstructured.Unstructured) (bool, error) {
		ks, err := parseKustomization(u)
		return !errors.Is(r.client.ready(ks, r.ask), applier.ErrBusy), err
	})
}

func (r *request) askable(ctx context.Context) (view, error) {
	ks, verdict := r.client.lookAt(ctx, r.ref)
	if err := verdict.AsError(); err != nil {
		return view{}, err
	}
	v, verdict := r.client.lookAtSource(ctx, ks)
	if err := verdict.AsError(); err != nil {
		return v, err
	}
	if err := r.client.bound(v, r.ask.Want).AsError(); err != nil {
		return v, err
	}
	return v, r.client.ready(ks, r.ask)
}

// ready refuses a Kustomization that does not stand as ask needs it: with ErrBusy where that will change by itself.
func (c *Client) ready(ks kustomization, ask applier.Ask) error {
	if ask.Live {
		return c.live(ks)
	}
	if err := c.suspendIsFree(ks).AsError(); err != nil {
		return err
	}
	return c.held(ks)
}

// held refuses a Kustomization that is not held.
func (c *Client) held(ks kustomization) error {
	named := c.named("Kustomization", ks.name)
	switch {
	case ks.suspended && ks.requested == "" && c.options.heldByUs(ks.owners):
		return applier.Permanent(fmt.Errorf("%w: the token of the suspend of %s was removed: call Suspend again", applier.ErrNotHeld, named))
	case !c.options.heldByUs(ks.owners):
		return applier.Permanent(fmt.Errorf("%w: %s is not suspended under the name %s: hold it by Suspend first, or ask with Live",
			applier.ErrNotHeld, named, c.options.FieldManager))
	case !ks.suspended:
		return fmt.Errorf("%w: %s has %s resumed; if that process is gone, follow its operation or call Suspend",
			applier.ErrBusy, c.options.FieldManager, named)
	case !ks.handledLatest():
		return fmt.Errorf("%w: the suspend of %s is not handled yet: is kustomize-controller running?", applier.ErrBusy, named)
	}
	return nil
}

// live refuses a Kustomization that is suspended, or on which an operation is in progress: one of ours that has it
// resumed, or one that somebody stamped and that is not handled, which our stamp could make nobody ever hear of.
func (c *Client) live(ks kustomization) error {
	named := c.named("Kustomization", ks.name)
	switch {
	case c.options.heldByUs(ks.owners):
		return applier.Permanent(fmt.Errorf("%w: %s is held by this host: ask without Live, or release it", applier.ErrSuspended, named))
	case ks.suspended:
		return applier.Permanent(fmt.Errorf("%w: %s, by %s: resume it, or hold it by Suspend and ask without Live",
			applier.ErrSuspended, named, keeper(ks)))
	case ks.requested != "" && !ks.handledLatest():
		return fmt.Errorf("%w: a reconcile of %s that somebody asked for is not handled yet: is kustomize-controller running?",
			applier.ErrBusy, named)
	}
	return nil
}
