package argocd

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
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

// Request asks the Application ref to sync ask.Commit, in one Update that carries the resourceVersion last read. It
// sets operation as Argo CD's own automated sync would, with the revision pinned to the commit, and removes
// status.operationState, as Argo CD's API server does: controllers before 3.3.15, 3.4.9 and 3.5.3 merge a new
// operation into the record of the previous one.
//
// An operation in progress, whoever started it, is waited for as long as ask.Wait says, Options.OperationWait by
// default, and is never replaced; the error after that (applier.ErrBusy) names its initiator. A record left in progress
// whose operation somebody removed is no longer processed. Once it has not changed for the whole wait it is
// replaced, and the operation's messages say so. Once ask.Record was called, half a minute is left for the wait and the
// update.
//
// An empty commit has nothing to sync and asks nothing (OutcomeCurrent): Argo CD reports a missing branch itself. Any
// other commit is always synced, whatever the reason, because what is applied is not known from an Application that
// others sync too.
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
		r.orphan = app
	}
	if ask.Record != nil {
		soon, cancel := context.WithTimeoutCause(ctx, startWithin, errLate)
		defer cancel()
		ctx = soon
	}
	if err := r.record(ctx, app, orphan); err != nil {
		return applier.Started{}, err
	}
	return r.start(ctx, ref)
}

// startWithin is how long after it began to record an operation a request may send the update that starts it. Whoever follows the
// record counts on it: an update that was not seen that long, and a minute for the API server to make it, is never made.
const startWithin = 30 * time.Second

var errLate = fmt.Errorf("more than %s have passed since its record was begun: ask again", startWithin)

// request is one request on its way.
type request struct {
	client *Client
	ask    applier.Ask
	named  string
	// first is the incarnation that was asked first.
	first types.UID
	// orphan is the Application with the record that was waited for in vain, if one was.
	orphan application
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
	return r.inTime(ctx)
}

// inTime reports that ctx has ended before anything was written.
func (r *request) inTime(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s was not asked: %w", r.named, err)
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
		if err := r.inTime(ctx); err != nil {
			return applier.Started{}, err
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
		case resent && (read.uid != r.first || read.resourceVersion == app.resourceVersion || read.state.identity() != app.state.identity()):
			// What was sent first may be on its way yet, or have been made, carried out, and followed by another's operation or by
			// the end of the Application.
			started.Unconfirmed = fmt.Errorf("%w: %s: %w, when it was sent again", applier.ErrUnconfirmed, r.named, refused)
			return started, nil
		case !mayChange(refused):
			return applier.Started{}, r.notAsked(refused)
		case try == conflictTries:
			return applier.Started{}, r.notAsked(fmt.Errorf("it changed at each of %d tries: %w", try, refused))
		}
	}
}

// update makes an update. It reports whether client-go sent it more than once, as it does by itself after an answer
// of 429, or 5xx, with a Retry-After: the last answer then speaks only of the last time.
func (c *Client) update(ctx context.Context, ref types.NamespacedName, u *unstructured.Unstructured) (resent bool, err error) {
	var sent atomic.Int32
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Add(1) }})
	_, err = c.resource(ref).Update(ctx, u, metav1.UpdateOptions{FieldManager: c.options.Initiator})
	return sent.Load() > 1, applier.WriteError(err)
}

// mayChange reports whether a refused write is worth another try.
func mayChange(err error) bool { return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) }

// notAsked is the error of an update that was refused. One that this identity may not make, or that an admission webhook
// forbids, is the verdict that Validate gives.
func (r *request) notAsked(err error) error {
	if apierrors.IsForbidden(err) {
		verdict := refuse(applier.ReasonForbidden, "this identity may not update %s: grant it the verb update on %s: %v",
			r.named, applications.GroupResource(), err)
		verdict.Err = err
		return verdict.AsError()
	}
	return fmt.Errorf("%s was not asked: %w", r.named, err)
}

// couldNotTell reports whether err says nothing about the Application.
func couldNotTell(err error) bool {
	reason := applier.VerdictReason(err)
	return err != nil && (reason == "" || reason == applier.ReasonCheckFailed || reason == applier.ReasonForbidden)
}

// carries reports whether the operation with token was set on app.
func (app application) carries(token string) bool {
	return app.operation != nil && app.operation.token == token || app.state != nil && app.state.operation.token == token
}
