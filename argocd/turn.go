package argocd

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// awaitTurn waits until the Application, as askable returned it, may be asked, or never may: it waits for every
// operation in progress, for as long as the request may wait in all. It is an orphan if what was in progress has lost
// its operation, and nothing of its record changed for that long.
func (r *request) awaitTurn(
	ctx context.Context, ref types.NamespacedName, app application, unaskable error,
) (_ application, orphan bool, err error) {
	if unaskable != nil || !app.busy() {
		return app, false, unaskable
	}
	if app.orphaned() && app.sameRecord(r.orphan) {
		return app, true, nil
	}
	wait := r.wait()
	if wait == 0 {
		return app, false, r.busyError(app, 0)
	}
	whole := r.deadline.IsZero()
	if whole {
		r.deadline = time.Now().Add(wait)
	}
	waiting, cancel := context.WithDeadline(ctx, r.deadline)
	defer cancel()
	for app.busy() {
		first, unchanged := app, whole && app.orphaned()
		err = applier.AwaitObject(waiting, r.client.resource(ref), ref.Name, r.client.options.PollInterval, func(u *unstructured.Unstructured) (bool, error) {
			app, err := parseApplication(u, r.client.options.InfoKey)
			unchanged = unchanged && app.orphaned() && app.sameRecord(first)
			return !app.busy() || !r.ask.IsCurrent(), err
		})
		expired := waiting.Err() != nil
		switch {
		case ctx.Err() != nil:
			return app, false, fmt.Errorf("%w: %w", r.busyError(app, 0), context.Cause(ctx))
		case err != nil && !expired && !errors.Is(err, applier.ErrObjectGone):
			return app, false, fmt.Errorf("cannot wait for %s: %w", r.named, err)
		case !r.ask.IsCurrent():
			return app, false, r.stale()
		}
		whole = false
		if app, err = r.askable(ctx, ref); err != nil {
			return app, false, err
		}
		switch {
		case expired && unchanged && app.orphaned() && app.sameRecord(first):
			return app, true, nil
		case expired && app.busy():
			return app, false, r.busyError(app, wait)
		}
	}
	return app, false, nil
}

// wait is how long the request may wait.
func (r *request) wait() time.Duration {
	wait := r.ask.Wait
	if wait == 0 {
		wait = r.client.options.OperationWait
	}
	return max(0, wait)
}

// askable reads the Application and refuses what ask may not be made of.
func (r *request) askable(ctx context.Context, ref types.NamespacedName) (application, error) {
	app, verdict := r.client.look(ctx, ref)
	if verdict.OK {
		verdict = r.client.bound(app, r.ask.Want)
	}
	return app, verdict.AsError()
}

// busy reports whether an operation is asked for or in progress.
func (app application) busy() bool {
	return app.operation != nil || app.state != nil && !app.state.completed()
}

// orphaned reports whether a record is left in progress without its operation. The controller processes it no further.
func (app application) orphaned() bool { return app.operation == nil && app.busy() }

// sameRecord reports whether the record of an operation is that of other, to the letter.
func (app application) sameRecord(other application) bool {
	return app.state != nil && other.state != nil && reflect.DeepEqual(app.state.raw, other.state.raw)
}

func (r *request) busyError(app application, waited time.Duration) error {
	what, initiator, mend := "one is asked for", "", "let it end, or terminate it"
	switch {
	case app.operation != nil:
		initiator = app.operation.initiator
	case app.state != nil:
		initiator = app.state.operation.initiator
		mend = "somebody removed its .operation, so it goes no further: a request that finds it unchanged for all of its wait replaces it"
	}
	if app.state != nil && !app.state.completed() {
		what = fmt.Sprintf("it is %s since %s (%s)", app.state.phase, app.state.startedAt, app.state.message)
	}
	if initiator == "" {
		initiator = "somebody who left no name"
	}
	if waited > 0 {
		what = fmt.Sprintf("after %s, %s", waited, what)
	}
	return fmt.Errorf("%s was not asked: %w: %s, started by %s: %s", r.named, applier.ErrBusy, what, initiator, mend)
}
