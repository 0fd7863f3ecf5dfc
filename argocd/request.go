package argocd

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"reflect"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// conflictTries is how often the update is decided afresh after a conflict. The controller writes status into the same
// object: a quarter of all read-and-update pairs met it while Applications were refreshed (3.2.11).
const conflictTries = 10

// Request asks the Application ref to sync ask.Commit, in one Update that carries the resourceVersion last read. It sets
// operation as Argo CD's own automated sync would, with the revision pinned to the commit, and removes status.operationState, as
// Argo CD's API server does: controllers before 3.3.15, 3.4.9 and 3.5.3 merge a new operation into the record of the
// previous one.
//
// An operation in progress, whoever started it, is waited for as long as ask.Wait says, Options.OperationWait by default, and
// is never replaced; the error after that names its initiator. A record left in progress whose operation somebody removed is
// no longer processed. Once it has not changed for the whole wait it is replaced, and the operation's messages say so.
//
// An empty commit has nothing to sync and asks nothing (OutcomeCurrent): Argo CD reports a missing branch itself. Any other
// commit is always synced, whatever the reason, because what is applied is not known from an Application that others sync too.
func (c *Client) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	if err := ask.Validate(); err != nil {
		return applier.Started{}, fmt.Errorf("%s: %w", c.named(ref), err)
	}
	r := &request{client: c, ask: ask, named: c.named(ref)}
	if ask.Commit == "" {
		if _, err := r.askable(ctx, ref); err != nil {
			return applier.Started{}, err
		}
		return applier.Started{Outcome: applier.OutcomeCurrent}, nil
	}
	app, err := r.askable(ctx, ref)
	app, orphan, err := r.awaitTurn(ctx, ref, app, err)
	if err != nil {
		return applier.Started{}, err
	}
	r.first = app.uid
	if orphan {
		r.orphan = app.state.identity()
	}
	if err := r.record(ctx, app, orphan); err != nil {
		return applier.Started{}, err
	}
	return r.start(ctx, ref)
}

// request is one request on its way.
type request struct {
	client *Client
	ask    applier.Ask
	named  string
	// first is the incarnation that was asked first.
	first types.UID
	// orphan is the identity of the record that was waited for in vain, if one was.
	orphan string
	// deadline is when the request has waited for as long as it may; zero before it waits.
	deadline time.Time
}

// record makes the operation durable before anything may start it.
func (r *request) record(ctx context.Context, app application, orphan bool) error {
	if !r.ask.IsCurrent() {
		return r.stale()
	}
	if r.ask.Record == nil {
		return nil
	}
	if err := r.ask.Record(ctx, r.started(app, orphan)); err != nil {
		return fmt.Errorf("%s is not asked, because the operation could not be recorded: %w", r.named, err)
	}
	return nil
}

func (r *request) stale() error {
	return fmt.Errorf("%w: %s is no longer to sync %s", applier.ErrStale, r.named, applier.DescribeCommit(r.ask.Commit))
}

// start makes the update that starts the sync. After a refusal it reads the Application again and decides again.
func (r *request) start(ctx context.Context, ref types.NamespacedName) (applier.Started, error) {
	read, unaskable := r.askable(ctx, ref)
	for try := 1; ; try++ {
		app, orphan, err := r.awaitTurn(ctx, ref, read, unaskable)
		switch {
		case err != nil:
			return applier.Started{}, err
		case app.uid != r.first:
			return applier.Started{}, fmt.Errorf("%w: %s was replaced meanwhile", applier.ErrStale, r.named)
		case !r.ask.IsCurrent():
			return applier.Started{}, r.stale()
		}
		started := r.started(app, orphan)
		resent, refused := r.client.update(ctx, ref, r.update(app))
		switch {
		case refused == nil:
			return started, nil
		case errors.Is(refused, applier.ErrUnconfirmed):
			started.Unconfirmed = fmt.Errorf("%s: %w", r.named, refused)
			return started, nil
		case !resent && !mayChange(refused):
			return applier.Started{}, r.notAsked(refused)
		}
		read, unaskable = r.askable(ctx, ref)
		switch {
		case read.uid == r.first && read.carries(r.ask.Token):
			return started, nil
		case read.read == nil && couldNotTell(unaskable):
			started.Unconfirmed = fmt.Errorf("%w: %w, and then: %w", applier.ErrUnconfirmed, refused, unaskable)
			return started, nil
		case resent && read.uid == r.first && read.state.identity() != app.state.identity():
			// What was sent first may have been made, carried out, and followed by another's operation.
			started.Unconfirmed = fmt.Errorf("%w: %s: %w, when it was sent again", applier.ErrUnconfirmed, r.named, refused)
			return started, nil
		case !mayChange(refused):
			return applier.Started{}, r.notAsked(refused)
		case try == conflictTries:
			return applier.Started{}, r.notAsked(fmt.Errorf("it changed at each of %d tries: %w", try, refused))
		}
	}
}

// update makes an update. It reports whether client-go sent it more than once, as it does by itself after an answer of 429, or 5xx,
// with a Retry-After: the last answer then speaks only of the last time.
func (c *Client) update(ctx context.Context, ref types.NamespacedName, u *unstructured.Unstructured) (resent bool, err error) {
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
	_, err = c.resource(ref).Update(ctx, u, metav1.UpdateOptions{FieldManager: c.options.Initiator})
	return sent.Load() > 1, applier.WriteError(err)
}

// mayChange reports whether a refused write is worth another try.
func mayChange(err error) bool { return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) }

func (r *request) notAsked(err error) error { return fmt.Errorf("%s was not asked: %w", r.named, err) }

// couldNotTell reports whether err says nothing about the Application.
func couldNotTell(err error) bool {
	reason := applier.VerdictReason(err)
	return err != nil && (reason == "" || reason == applier.ReasonCheckFailed || reason == applier.ReasonForbidden)
}

// carries reports whether the operation with token was set on app.
func (app application) carries(token string) bool {
	return app.operation != nil && app.operation.token == token || app.state != nil && app.state.operation.token == token
}

// awaitTurn waits until the Application, as askable returned it, may be asked, or never may: it waits for every operation in
// progress, for as long as the request may wait in all. It is an orphan if what was in progress has lost its operation, and
// nothing of its record changed for that long.
func (r *request) awaitTurn(ctx context.Context, ref types.NamespacedName, app application, unaskable error) (_ application, orphan bool, err error) {
	if unaskable != nil || !app.busy() {
		return app, false, unaskable
	}
	if app.orphaned() && app.state.identity() == r.orphan {
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
	what, initiator, mend := "an operation is asked for", "", "let it end, or terminate it"
	switch {
	case app.operation != nil:
		initiator = app.operation.initiator
	case app.state != nil:
		initiator = app.state.operation.initiator
		mend = "somebody removed its .operation, so it goes no further: a request that finds it unchanged for all of its wait replaces it"
	}
	if app.state != nil && !app.state.completed() {
		what = fmt.Sprintf("an operation is %s since %s (%s)", app.state.phase, app.state.startedAt, app.state.message)
	}
	if initiator == "" {
		initiator = "somebody who left no name"
	}
	if waited > 0 {
		what = fmt.Sprintf("after %s, %s", waited, what)
	}
	return fmt.Errorf("%s was not asked: %s, started by %s: %s", r.named, what, initiator, mend)
}
