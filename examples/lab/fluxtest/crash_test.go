package fluxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// death is how a process dies at a request.
type death struct {
	name string
	// processed is a request that the API server carried out.
	processed bool
}

var deaths = []death{{"before it is sent", false}, {"after it was processed", true}}

// on is the action that kills the process of a and calls die.
func (d death) on(a *attempt, die func()) lab.Action {
	if d.processed {
		return a.faults.CutAfter(die)
	}
	return a.faults.CutBefore(die)
}

func TestAnotherProcessTakesOverWhereverOneDies(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range flows {
		for _, d := range deaths {
			for _, kept := range []bool{true, false} {
				if kept && f != heldFlow {
					continue // the follower asks for the same whatever the flow
				}
				t.Run(fmt.Sprintf("%s, %s, suspend token kept %t", f.name, d.name, kept), func(t *testing.T) {
					t.Parallel()
					s := f.subject(t, l)
					sweep(t, s, f, func(t *testing.T, a *attempt, n int) {
						landed := a.die(t, n, d)
						a.requireTakenOver(t, landed, kept)
					})
				})
			}
		}
	}
}

// die runs the attempt in a process that dies at its n-th request. It returns whether the write that starts the operation was
// made before.
func (a *attempt) die(t *testing.T, n int, d death) (landed bool) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a.faults.On(lab.Any, n, d.on(a, func() {
		u := a.get(t)
		landed = requested(u) == a.ask.Token || !a.flow.live && history(u) != history(a.before)
		cancel(errDied)
	}))
	r := a.runWith(ctx)
	if ctx.Err() == nil {
		a.requireSucceeded(t, r) // it needed fewer requests than the one that was counted
		return true
	}
	require.Error(t, firstOf(r.refused, r.err), "the process lived on: %+v", r.end)
	return landed
}

// requireTakenOver lets another process follow what is recorded, to the right end.
func (a *attempt) requireTakenOver(t *testing.T, landed, kept bool) {
	t.Helper()
	if a.recorded == nil {
		a.requireUntouched(t)
		return
	}
	recovered := a.recovered(t, kept)
	// A live stamp that was not made leaves no trace, and may still be on its way, until the host gives up waiting.
	recovered.Overdue = a.flow.live && !landed
	end := a.follow(t, a.subject.client, recovered)
	if landed {
		a.requireSucceededEnd(t, end)
		return
	}
	assert.Equal(t, applier.StateFailed, end.State, "%+v", end)
	assert.Equal(t, applier.ReasonNotRun, end.Reason)
	assert.Contains(t, end.Message, fmt.Sprintf("Kustomization %s in cluster lab did not run for this request", a.ref))
	a.requireNotStarted(t)
	a.requireLeft(t)
}

// recovered is the operation as the next process reads it: the fields that a record has to keep, and no other.
func (a *attempt) recovered(t *testing.T, suspendToken bool) applier.Started {
	t.Helper()
	kept := applier.Started{
		Outcome: a.recorded.Outcome, Token: a.recorded.Token, Commit: a.recorded.Commit, UID: a.recorded.UID,
		Baseline: a.recorded.Baseline, RequestedAt: a.recorded.RequestedAt, SuspendToken: a.recorded.SuspendToken,
	}
	if !suspendToken {
		kept.SuspendToken = ""
	}
	text, err := json.Marshal(kept)
	require.NoError(t, err)
	var started applier.Started
	require.NoError(t, json.Unmarshal(text, &started))
	started.Recovered = true
	return started
}

// The process that takes over dies too, at each of its requests, and a third one takes over from it.
func TestAThirdProcessTakesOverWhereverTheSecondDies(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, first := range deaths {
		for _, second := range deaths {
			t.Run(fmt.Sprintf("the first %s, the second %s", first.name, second.name), func(t *testing.T) {
				t.Parallel()
				s := held(t, l)
				points := 0
				sweep(t, s, heldFlow, func(t *testing.T, a *attempt, n int) {
					for m, again := 1, true; again; m++ {
						if m > 1 {
							a = s.attempt(t, heldFlow)
						}
						landed := a.die(t, n, first)
						if a.recorded == nil {
							return
						}
						again = a.dieFollowing(t, m, second)
						a.requireTakenOver(t, landed, true)
						points++
					}
				})
				t.Logf("%d late writes tried", points)
			})
		}
	}
}

// dieFollowing follows what is recorded in a process that dies at its m-th request. It returns false if the operation
// ended before.
func (a *attempt) dieFollowing(t *testing.T, m int, d death) bool {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	second := &attempt{faults: lab.NewTransport()}
	second.faults.On(lab.Any, m, d.on(second, func() { cancel(errDied) }))
	started := a.recovered(t, true)
	_, err := impatient.Follow(ctx, a.through(t, second.faults), a.ref, &started, func(p applier.Progress) {
		a.recorded.SuspendToken = p.SuspendToken
	})
	return err != nil
}

// A process that is taken for dead has sent a write that reaches the API server late: after another process has taken over
// and ended the operation.
func TestALateWriteOfADeadProcessNeverLeavesTheKustomizationResumed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	hands := map[string]func(t *testing.T, s *subject){
		"nobody":         func(*testing.T, *subject) {},
		"flux reconcile": func(t *testing.T, s *subject) { s.reconcile(t); s.awaitHandled(t) },
	}
	for name, hand := range hands {
		t.Run(name+" stamps the Kustomization before", func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			points := 0
			sweep(t, s, heldFlow, func(t *testing.T, a *attempt, n int) {
				for write := 1; ; write++ {
					if write > 1 {
						a = s.attempt(t, heldFlow)
					}
					if !a.writeLate(t, n, write, hand) {
						break
					}
					points++
				}
			})
			t.Logf("%d points tried", points)
		})
	}
}

// writeLate lets hand act before the n-th request, and delays a write to the Kustomization until another process has followed the
// operation to its end. It returns false if there is no such write.
func (a *attempt) writeLate(t *testing.T, n, write int, hand func(*testing.T, *subject)) bool {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	a.faults.On(lab.Any, n, lab.Before(func() { hand(t, a.subject) }))
	late := false
	a.faults.On(lab.To("apply", "kustomizations"), write, func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		late = true
		a.follow(t, a.subject.client, a.recovered(t, false))
		resp, err := next.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
		if assert.NoError(t, err) {
			resp.Body.Close()
		}
		a.faults.Cut()
		cancel(errDied)
		return nil, errDied
	})
	a.runWith(ctx)
	assert.True(t, suspended(a.get(t)), "the Kustomization is left resumed")
	a.awaitHandled(t)
	a.requireHeld(t)
	return late
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
