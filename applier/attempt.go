package applier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// attempt is one ApplyRequest on its way: first the request, then the following of what it started.
type attempt struct {
	d   *Dispatcher
	req ApplyRequest
	// worker is the context of the worker, whose end abandons the attempt.
	worker context.Context
	// running is the context of the dispatcher, and ctx one that ends with either.
	running, ctx context.Context
	log          logr.Logger
	labels       MetricLabels

	// known is the client that the attempt uses, if any.
	known *knownClient
	// operation is what was started or recovered; before that, what is about to be.
	operation *Operation
	// targets are those for whose sake the request is made, as read last; nil once it is made.
	targets []Target
	// followedSince is when the attempt began to follow the operation.
	followedSince time.Time
	// settling is an attempt that was abandoned and follows its operation on.
	settling bool
	// uncounted is whether Following no longer counts the attempt.
	uncounted bool
}

func newAttempt(worker context.Context, d *Dispatcher, req ApplyRequest) *attempt {
	return &attempt{d: d, req: req, worker: worker}
}

// run carries the attempt out until it ends or the dispatcher stops.
func (a *attempt) run(running context.Context) {
	ctx, cancel := context.WithCancelCause(running)
	defer cancel(nil)
	defer context.AfterFunc(a.worker, func() { cancel(errAbandoned) })()
	a.running, a.ctx = running, ctx
	defer func() { a.use(nil) }()
	if a.req.Recovered != nil {
		a.recover()
		return
	}
	deadline := time.Now().Add(orDefault(a.d.AttemptTimeout, DefaultAttemptTimeout))
	trigger, err := a.decided(deadline)
	if trigger.Ref != (TriggerRef{}) {
		a.req.Trigger = trigger.Ref // From here on it is this incarnation.
	}
	if a.req.Applier == (ApplierRef{}) {
		a.req.Applier = trigger.Applier // And this applier.
	}
	a.describe(a.req.Applier)
	a.d.metrics().AttemptStarted(a.labels)
	if err != nil {
		a.notStarted(err)
		return
	}
	a.begin(trigger)
	defer a.unfollow()
	started, err := a.request(trigger, deadline)
	switch {
	case err != nil:
		a.notStarted(err)
	case started.Outcome == OutcomeCurrent:
		a.log.V(1).Info("The applier needs no request")
		a.d.failing(a.d.requestFailed, a.req.Trigger, false)
		a.finish(Report{End: EndAskedNothing}, ResultCurrent)
	default:
		a.announceStarted(started)
		a.follow()
	}
}

// decided returns the trigger of a decision that can be carried out, as far as the host's records say.
func (a *attempt) decided(deadline time.Time) (Trigger, error) {
	if err := a.req.validate(); err != nil {
		return Trigger{}, err
	}
	ctx, cancel := context.WithDeadlineCause(a.ctx, deadline, errTimeout)
	defer cancel()
	return a.stand(ctx)
}

// begin makes the operation that the attempt is about to start, and from here on counts as following it.
func (a *attempt) begin(trigger Trigger) {
	a.operation = &Operation{
		Applier: trigger.Applier, Reason: a.req.Reason,
		Want:     Binding{Repository: gitref.Redact(a.req.Want.Repository), Branch: a.req.Want.Branch},
		Progress: Progress{State: StateRequested},
	}
	a.setToken()
}

// setToken gives the operation a token, and makes the attempt count as following it.
func (a *attempt) setToken() {
	a.operation.Started = Started{Token: a.d.newToken(), Commit: a.req.Commit}
	a.describe(a.operation.Applier)
	a.log = a.log.WithValues("token", a.operation.Started.Token)
	a.d.countFollower(a.key(), 1)
}

func (a *attempt) key() operationKey {
	return keyOf(a.req.Trigger, a.operation.Started.Token)
}

// unfollow ends that the attempt counts as following its operation.
func (a *attempt) unfollow() {
	if !a.uncounted {
		a.uncounted = true
		a.d.countFollower(a.key(), -1)
	}
}

// describe makes the log and the metrics name the applier.
func (a *attempt) describe(applier ApplierRef) {
	commit, reason := a.req.Commit, a.req.Reason
	if a.req.Recovered != nil {
		commit, reason = a.req.Recovered.Started.Commit, a.req.Recovered.Reason
	}
	a.log = a.d.Log.WithValues("trigger", a.req.Trigger.String(), "applier", applier.NamespacedName().String(),
		"cluster", applier.Cluster, "commit", commit)
	a.labels = MetricLabels{Cluster: applier.Cluster, Kind: applier.Kind, Reason: reason}
}

// request makes the request. An operation in progress on the applier is waited for in a second request, so that a cluster that
// does not answer fails the first by the deadline.
func (a *attempt) request(trigger Trigger, deadline time.Time) (Started, error) {
	wait := orDefault(a.d.OperationWait, DefaultOperationWait)
	ctx, cancel := context.WithDeadlineCause(a.ctx, deadline, errTimeout)
	defer cancel()
	known, err := a.d.client(ctx, clientKeyOf(trigger.Applier))
	if err != nil {
		return Started{}, fmt.Errorf("%s: %w", trigger.Applier, err)
	}
	a.use(known)
	if _, holds := AsHolder(known.client); holds && !trigger.Live && !trigger.Status.Held {
		return Started{}, notHeldYet(trigger)
	}
	started, err := a.ask(ctx, known.client, trigger, -1)
	if errors.Is(err, ErrBusy) && wait > 0 {
		a.d.countFollower(a.key(), -1)
		a.setToken() // Each request has one of its own: what the first recorded is withdrawn by it.
		ctx, cancel := context.WithDeadlineCause(a.ctx, deadline.Add(wait), errTimeout)
		defer cancel()
		started, err = a.ask(ctx, known.client, trigger, wait)
	}
	return started, err
}

// use makes the attempt use known, in the place of the client that it used, if any.
func (a *attempt) use(known *knownClient) {
	if a.known != nil {
		a.d.release(a.known)
	}
	a.known = known
}

// ask makes one request, and withdraws what it recorded when that was not started.
func (a *attempt) ask(ctx context.Context, client Client, trigger Trigger, wait time.Duration) (Started, error) {
	recorded, stood := false, false
	started, err := client.Request(ctx, trigger.Applier.NamespacedName(), Ask{
		Want: a.req.Want, Commit: a.req.Commit, Reason: a.req.Reason, Token: a.operation.Started.Token,
		Live: trigger.Live, Wait: wait,
		Current: a.isCurrent,
		Held: func(ctx context.Context) error {
			stood = true
			return a.standAndHeld(ctx, trigger, true)
		},
		Record: func(ctx context.Context, s Started) error {
			if !stood {
				if err := a.standAndHeld(ctx, trigger, false); err != nil {
					return err
				}
			}
			a.noteStarted(s)
			recorded = true
			err := a.d.status.RecordApplyOperation(ctx, a.req.Trigger, a.operation)
			if errors.Is(err, ErrRecordGone) {
				return fmt.Errorf("%w: %w", ErrStale, err) // As where it is gone a moment before.
			}
			return err
		},
	})
	if recorded && (err != nil || started.Outcome == OutcomeCurrent) {
		a.d.status.WithdrawApplyOperation(a.req.Trigger, a.operation.Started.Token)
	}
	return started, err
}

// noteStarted takes note of what the request is about to start, or started.
func (a *attempt) noteStarted(s Started) {
	if s.RequestedAt.IsZero() {
		s.RequestedAt = metav1.NewMicroTime(a.d.now())
	}
	s.Token = a.operation.Started.Token // Under it the attempt is counted and recorded.
	a.operation.Started = s
}

// isCurrent reports whether the decision still holds and the attempt goes on.
func (a *attempt) isCurrent() bool {
	return !a.abandoned() && !a.stopped() && (a.req.Current == nil || a.req.Current())
}

// notStarted ends an attempt that started nothing.
func (a *attempt) notStarted(err error) {
	switch {
	case a.stopped():
		a.finish(Report{}, ResultStopped)
	case a.abandoned():
		a.finish(Report{}, ResultAbandoned)
	case errors.Is(err, ErrStale):
		a.log.Info("Nothing was asked, because the decision no longer holds", "reason", err.Error())
		a.finish(Report{End: EndAskedNothing, Err: err}, ResultStale)
	default:
		a.log.Error(err, "The request failed")
		a.warnOnce(a.d.requestFailed, func() bool {
			return a.event(a.targets, eventWarning, EventReasonApplyRequestFailed, err.Error())
		})
		a.finish(Report{End: EndNotStarted, Err: err}, ResultNotStarted)
	}
}

func (a *attempt) abandoned() bool { return a.worker.Err() != nil }

func (a *attempt) stopped() bool { return a.running.Err() != nil }
