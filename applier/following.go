package applier

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// announceStarted tells everybody of what the request started.
func (a *attempt) announceStarted(s Started) {
	a.noteStarted(s)
	a.d.failing(a.d.requestFailed, a.req.Trigger, false)
	a.log.Info("The applier was asked", "outcome", s.Outcome)
	asked := "is asked"
	if s.Unconfirmed != nil {
		asked = "may have been asked"
		a.log.Info("It is not known whether the request was made, and it is followed as if it were", "reason", s.Unconfirmed.Error())
	}
	a.event(a.targets, eventNormal, EventReasonApplyRequested,
		fmt.Sprintf("%s %s to apply %s", a.operation.Applier, asked, DescribeCommit(s.Commit)))
	a.targets = nil
	a.show()
}

// recover follows the operation of a record. It counts as followed since the request.
func (a *attempt) recover() {
	a.operation = a.req.Recovered.record()
	defer a.unfollow()
	a.describe(a.operation.Applier)
	a.log = a.log.WithValues("token", a.operation.Started.Token)
	a.d.metrics().AttemptStarted(a.labels)
	if err := a.req.validate(); err != nil {
		a.notFollowed(err)
		return
	}
	if err := a.reread(); err != nil {
		a.log.Info("An operation is not followed from its record", "reason", err.Error())
		a.finish(Report{End: EndAskedNothing, Err: err}, ResultStale)
		return
	}
	if a.operation.Completed() {
		a.announceEnd()
		return
	}
	a.operation.Started.Recovered = true
	a.operation.Started.Overdue = a.operation.Unresolved
	a.log.Info("An operation is followed from its record")
	a.report(Report{Operation: a.operation.record()})
	a.follow()
}

// reread reads the record again: who handed it over may have read it before it was completed, withdrawn, or replaced by another's. The
// latter two are ErrStale. Where the record cannot be read, or its trigger is gone, the operation is followed all the same: it may have
// left the applier resumed.
func (a *attempt) reread() error {
	ctx, cancel := context.WithTimeout(a.running, readTimeout)
	defer cancel()
	trigger, err := a.d.store.Trigger(ctx, a.req.Trigger)
	if err != nil {
		return nil
	}
	a.req.Trigger = trigger.Ref // From here on it is this incarnation.
	switch kept := trigger.Status.Operation; {
	case kept.IsSame(a.operation):
		a.operation = kept.record()
	case kept == nil:
		return fmt.Errorf("%w: trigger %s no longer records the operation %s", ErrStale, trigger.Ref, a.operation.Started.Token)
	default:
		return fmt.Errorf("%w: trigger %s records the operation %s by now, and %s before it has ended",
			ErrStale, trigger.Ref, kept.Started.Token, a.operation.Started.Token)
	}
	return nil
}

// follow follows the operation to its end. It gives up waiting for it after UnresolvedAfter, or when the worker
// abandons it, and then follows it on as overdue. Once the cluster has another client, it goes on by that.
func (a *attempt) follow() {
	a.followedSince = time.Now()
	a.d.metrics().InFlight(a.labels, 1)
	defer a.d.metrics().InFlight(a.labels, -1)
	if a.operation.Unresolved {
		a.d.metrics().Unresolved(a.labels, 1)
	}
	defer func() {
		if a.operation.Unresolved {
			a.d.metrics().Unresolved(a.labels, -1)
		}
	}()
	for {
		err := a.followByOneClient()
		switch {
		case err == nil:
			return
		case a.stopped():
			a.finish(Report{}, ResultStopped)
			return
		case IsPermanent(err):
			a.notFollowed(err)
			return
		case a.known != nil && a.known.current.Err() != nil:
			a.use(nil)
		case a.settling:
			a.operation.Started.Overdue = true
		case a.abandoned():
			a.settling = true
			a.operation.Started.Overdue = a.operation.Started.Overdue || a.mayYetBegin() == 0
			a.unfollowSuspended()
		default:
			a.unresolved()
		}
	}
}

// followByOneClient follows the operation by the client that it uses, or else by one that reaches its cluster, until it ends, or is to be
// followed otherwise. A cluster that cannot be reached is waited for: the applier may be resumed.
func (a *attempt) followByOneClient() error {
	ctx, cancel := a.patience()
	defer cancel()
	if a.known == nil {
		known, err := a.d.reach(ctx, a.operation.Applier)
		if err != nil {
			return err
		}
		a.use(known)
	}
	defer context.AfterFunc(a.known.current, cancel)()
	_, err := a.follower().Follow(ctx, a.known.client, a.operation.Applier.NamespacedName(), &a.operation.Started, a.progress)
	return err
}

// patience returns a context that ends when the operation is to be followed otherwise.
func (a *attempt) patience() (context.Context, context.CancelFunc) {
	ctx := a.ctx
	if a.settling {
		ctx = a.running
	}
	if a.operation.Started.Overdue {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, max(a.untilUnresolved(), a.mayYetBegin()), errUnresolved)
}

// untilUnresolved is how long the operation has left before it is unresolved. An abandoned one has none.
func (a *attempt) untilUnresolved() time.Duration {
	if a.settling {
		return 0
	}
	after, started := orDefault(a.d.UnresolvedAfter, DefaultUnresolvedAfter), a.operation.Started
	if !started.Recovered {
		return max(0, after-time.Since(a.followedSince))
	}
	if passed := a.d.now().Sub(started.RequestedAt.Time); passed > 0 && !started.RequestedAt.IsZero() {
		after -= passed
	}
	return max(after, recoveryTime)
}

func (a *attempt) mayYetBegin() time.Duration {
	return a.operation.Started.mayYetBegin(a.followedSince)
}

func (a *attempt) follower() Follower {
	f := a.d.pace()
	f.Failed = func(err error) { a.log.V(1).Info("A read or write failed and is tried again", "reason", err.Error()) }
	f.lag = func(lag time.Duration) { a.d.metrics().Lag(a.labels, lag) }
	return f
}

// progress takes note of where the operation stands.
func (a *attempt) progress(p Progress) {
	if p == a.operation.Progress {
		return
	}
	a.operation.Progress = p
	if p.State.Ended() {
		a.operation.CompletedAt = metav1.NewMicroTime(a.d.now())
		a.announceEnd()
		return
	}
	a.log.V(1).Info("The operation moved", "state", p.State, "message", p.Message)
	a.show()
	a.unfollowSuspended()
}

// unfollowSuspended ends that an abandoned attempt counts as following its operation, once the applier is suspended.
func (a *attempt) unfollowSuspended() {
	if a.settling && a.operation.Progress.SuspendToken != "" {
		a.unfollow()
	}
}

// show publishes and reports where the operation stands.
func (a *attempt) show() {
	a.d.status.PublishTriggerStatus(a.req.Trigger, Publication{Operation: a.operation})
	a.report(Report{Operation: a.operation.record()})
}

// announceEnd publishes and reports the end of the operation.
func (a *attempt) announceEnd() {
	p, result := a.operation.Progress, ResultSucceeded
	switch {
	case a.operation.AppliedOther():
		result = ResultAppliedOther
	case p.State == StateFailed:
		result = ResultFailed
	}
	a.log.Info("The operation ended", "state", p.State, "reason", p.Reason, "revision", p.AppliedRevision, "message", p.Message)
	a.d.status.PublishTriggerStatus(a.req.Trigger, Publication{Operation: a.operation})
	a.unfollow()
	if a.settling || a.abandoned() {
		a.finish(Report{}, ResultAbandoned)
	} else {
		a.finish(Report{End: EndCompleted, Operation: a.operation.record()}, result)
	}
	if p.State != StateFailed {
		a.d.failing(a.d.applyFailed, a.req.Trigger, false)
		return
	}
	a.warnOnce(a.d.applyFailed, func() bool {
		return a.eventOnRecorded(EventReasonApplyFailed, p.Reason+": "+p.Message)
	})
}

// unresolved takes note that the operation outlived UnresolvedAfter.
func (a *attempt) unresolved() {
	a.operation.Unresolved = true
	a.operation.Started.Overdue = true
	a.d.metrics().Unresolved(a.labels, 1)
	a.log.Info("The operation is unresolved, and is followed on")
	since := ""
	if requested := a.operation.Started.RequestedAt; !requested.IsZero() {
		since = " since " + requested.UTC().Format(time.RFC3339)
	}
	message := fmt.Sprintf("%s has not completed %s%s, and is followed on",
		a.operation.Applier, DescribeCommit(a.operation.Started.Commit), since)
	// The suspend does not wait for the store.
	a.d.attempts.Go(func() { a.eventOnRecorded(EventReasonApplyUnresolved, message) })
	a.show()
}

// notFollowed ends an attempt whose operation this process cannot follow. What it published is written no more: a host that
// knows better takes the record away.
func (a *attempt) notFollowed(err error) {
	a.log.Error(err, "The operation cannot be followed")
	a.d.status.forgetOperation(a.running, a.req.Trigger, a.operation.Started.Token)
	a.unfollow()
	a.finish(Report{End: EndNotFollowed, Operation: a.operation.record(), Err: err}, ResultNotFollowed)
}
