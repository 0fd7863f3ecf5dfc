package dispatchertest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gitops-applier/gitops-applier/applier"
)

// pauseAfterFailure is how long a worker waits before it decides again.
const pauseAfterFailure = 500 * time.Millisecond

// work is the worker of one subject: it follows what an earlier process recorded, then pushes changes when it is their
// turn, and asks until each is applied.
func (h *host) work(ctx context.Context, s *subject) {
	h.recover(ctx, s)
	reason := applier.CatchUp // What was pushed before this process came may be applied.
	for ctx.Err() == nil {
		if !s.isAnswered() {
			reason = h.answer(ctx, s, reason)
			continue
		}
		reason = applier.Commit
		select {
		case <-ctx.Done():
		case <-s.turn:
			if err := s.push(context.WithoutCancel(ctx)); err != nil {
				assert.NoError(h.t, err)
				return
			}
		}
	}
}

// recover follows the operation that the trigger records, if it is open.
func (h *host) recover(ctx context.Context, s *subject) {
	for ctx.Err() == nil {
		trigger, err := h.store.Trigger(ctx, s.trigger)
		if err != nil {
			sleep(ctx, pauseAfterFailure)
			continue
		}
		operation := trigger.Status.Operation
		if operation == nil || operation.Completed() {
			return
		}
		end, ok := h.attempt(ctx, s, applier.ApplyRequest{Trigger: s.trigger, Recovered: operation})
		if ok {
			h.ended("recovered: " + kindOf(end))
			h.judge(ctx, s, end, "")
		}
		return
	}
}

// answer asks once for the newest commit, judges the end, and returns the reason to ask for next.
func (h *host) answer(ctx context.Context, s *subject, reason applier.ApplyReason) applier.ApplyReason {
	commit := s.branch.tip()
	end, ok := h.attempt(ctx, s, applier.ApplyRequest{
		Trigger: s.trigger, Applier: s.applier, Targets: []applier.TargetRef{s.target}, Want: s.want(), Commit: commit, Reason: reason,
		Current: func() bool {
			holds := s.branch.tip() == commit
			h.decided(h.name, s, commit, holds)
			return holds
		},
	})
	if !ok {
		return reason
	}
	h.ended(kindOf(end))
	if h.judge(ctx, s, end, commit) {
		return applier.Commit
	}
	switch {
	case applier.VerdictReason(end.Err) == applier.ReasonForbidden:
		// An API server that has just started forbids everything until it has read its roles.
		sleep(ctx, pauseAfterFailure)
	case end.End == applier.EndNotFollowed || applier.IsPermanent(end.Err):
		assert.Fail(h.t, "what should be asked was refused for good", "%s: %s", s.applier, describe(end))
		sleep(ctx, 10*pauseAfterFailure)
	case !errors.Is(end.Err, applier.ErrStale):
		sleep(ctx, pauseAfterFailure)
	}
	if end.End == applier.EndCompleted {
		return applier.Repair
	}
	return reason
}

// attempt makes one attempt and returns its end. There is none if ctx ended before.
func (h *host) attempt(ctx context.Context, s *subject, request applier.ApplyRequest) (applier.Report, bool) {
	ends := make(chan applier.Report, 1)
	ended := false
	request.Report = func(r applier.Report) {
		if ended {
			assert.Fail(h.t, "a report came after the end of an attempt", "%s: %s", s.applier, describe(r))
		}
		if r.End != "" {
			ended = true
			ends <- r
		}
	}
	h.out.Add(1)
	defer h.out.Add(-1)
	h.dispatcher.RequestApply(ctx, request)
	select {
	case <-ctx.Done():
		return applier.Report{}, false
	case end := <-ends:
		return end, true
	}
}

// judge compares an end with what the cluster has, and returns whether what was pushed last is answered by it.
func (h *host) judge(ctx context.Context, s *subject, end applier.Report, asked string) bool {
	var commit string
	switch {
	case end.End == applier.EndAskedNothing && end.Err == nil:
		commit = asked
	case end.End == applier.EndCompleted && end.Operation.Progress.State == applier.StateSucceeded:
		commit = end.Operation.Progress.AppliedCommit
	default:
		return false
	}
	has, ok := h.has(ctx, s)
	if !ok {
		return false
	}
	says := s.branch.change(commit, s.name)
	if s.live { // Flux may have applied something newer on its own since.
		assert.GreaterOrEqual(h.t, has, says, "%s has not applied what it says: %s", s.applier, describe(end))
	} else {
		assert.Equal(h.t, says, has, "%s has not applied what it says: %s", s.applier, describe(end))
	}
	return h.answeredBy(s, says)
}

// has reads the change that the cluster has, as soon as the API server answers.
func (h *host) has(ctx context.Context, s *subject) (change int, ok bool) {
	for ctx.Err() == nil {
		change, err := h.change(ctx, s)
		if err == nil {
			return change, true
		}
		if apierrors.IsNotFound(err) {
			assert.NoError(h.t, err)
			return 0, true
		}
		sleep(ctx, pauseAfterFailure)
	}
	return 0, false
}

// kindOf is an end in a few words, without names.
func kindOf(r applier.Report) string {
	text := string(r.End)
	if r.End == applier.EndCompleted {
		text += " " + string(r.Operation.Progress.State) + " " + r.Operation.Progress.Reason
	}
	for _, why := range []struct {
		err  error
		word string
	}{
		{applier.ErrStale, "stale"}, {applier.ErrBusy, "busy"}, {applier.ErrNotFetched, "not fetched"}, {applier.ErrOperationOpen, "open"},
		{applier.ErrUnconfirmed, "unconfirmed"}, {syscall.ECONNREFUSED, "refused"}, {context.DeadlineExceeded, "late"},
	} {
		if errors.Is(r.Err, why.err) {
			return text + " " + why.word
		}
	}
	switch {
	case apierrors.IsForbidden(r.Err):
		return text + " " + applier.ReasonForbidden
	case r.Err != nil:
		return text + " " + applier.VerdictReason(r.Err)
	}
	return text
}

// describe is an end with all that is known of it.
func describe(r applier.Report) string {
	text := kindOf(r)
	if r.Operation != nil {
		text += fmt.Sprintf(" (token %s, asked for %s, applied %s: %s)", r.Operation.Started.Token, r.Operation.Started.Commit,
			r.Operation.Progress.AppliedRevision, r.Operation.Progress.Message)
	}
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	return text
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
