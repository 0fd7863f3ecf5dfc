package simulation

import (
	"context"
	"sync"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// An attempt is one request of a worker, and what it was told of it.
type attempt struct {
	number    int
	at        time.Time
	w         *world
	process   *process
	trigger   applier.TriggerRef
	applier   applier.ApplierRef
	want      applier.Binding
	commit    string
	reason    applier.ApplyReason
	recovered *applier.Operation
	cancel    context.CancelFunc
	// tokens are those that it asked with. The world's lock guards them.
	tokens []string

	mu        sync.Mutex
	revoked   time.Time
	abandoned time.Time
	ended     *applier.Report
	endedAt   time.Time
}

func (w *world) attempt(p *process, trigger applier.TriggerRef) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &attempt{number: len(w.attempts) + 1, at: time.Now(), w: w, process: p, trigger: trigger}
	w.attempts = append(w.attempts, a)
	return a
}

// ask hands the attempt to the dispatcher. Then is called with its end.
func (a *attempt) ask(targets []applier.TargetRef, then func(applier.Report)) {
	ctx, cancel := context.WithCancel(a.process.attempting)
	a.cancel = cancel
	a.process.dispatcher.RequestApply(ctx, applier.ApplyRequest{
		Trigger: a.trigger, Applier: a.applier, Targets: targets, Want: a.want, Commit: a.commit, Reason: a.reason, Recovered: a.recovered,
		Current: a.current,
		Report: func(r applier.Report) {
			if a.reported(r) {
				cancel()
				then(r)
			}
		},
	})
}

func (a *attempt) current() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revoked.IsZero()
}

// revoke is a worker that decides otherwise.
func (a *attempt) revoke() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.revoked.IsZero() {
		a.revoked = time.Now()
		a.w.history.note(a.process.name, "attempt %d is no longer to apply %.7s", a.number, a.commit)
	}
}

// abandon is a worker that no longer wants to know.
func (a *attempt) abandon() {
	a.mu.Lock()
	if a.abandoned.IsZero() && a.ended == nil {
		a.abandoned = time.Now()
		a.w.history.note(a.process.name, "attempt %d is abandoned", a.number)
	}
	a.mu.Unlock()
	a.cancel()
}

// maySend checks that the attempt may send a write that starts its operation, now.
func (a *attempt) maySend(r fake.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, stopped := time.Now(), a.process.stopping()
	switch {
	case !a.revoked.IsZero() && a.revoked.Before(now):
		a.w.history.breaks(onlyWhatWasAsked, "attempt %d sends %v, %v after the decision fell", a.number, r, now.Sub(a.revoked))
	case !a.abandoned.IsZero() && a.abandoned.Before(now):
		a.w.history.breaks(onlyWhatWasAsked, "attempt %d sends %v, %v after it was abandoned", a.number, r, now.Sub(a.abandoned))
	case !stopped.IsZero() && stopped.Before(now):
		a.w.history.breaks(oneEnd, "attempt %d sends %v, %v after the stop", a.number, r, now.Sub(stopped))
	case a.ended != nil:
		a.w.history.breaks(oneEnd, "attempt %d sends %v after its end", a.number, r)
	}
}

// reported takes a report, and returns whether it is the end.
func (a *attempt) reported(r applier.Report) bool {
	if a.process.dead.Load() {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now, stopped := time.Now(), a.process.stopping()
	state, token := applier.Progress{}, ""
	if r.Operation != nil {
		state, token = r.Operation.Progress, r.Operation.Started.Token
	}
	a.w.history.note(a.process.name, "attempt %d reports %s %s %s %s %s: %v %s", a.number, r.End, token, state.State, state.Reason, state.AppliedRevision, r.Err, state.Message)
	switch {
	case a.ended != nil:
		a.w.history.breaks(oneEnd, "attempt %d reports after its end", a.number)
	case !a.abandoned.IsZero() && a.abandoned.Before(now):
		a.w.history.breaks(oneEnd, "attempt %d reports, %v after it was abandoned", a.number, now.Sub(a.abandoned))
	case !stopped.IsZero() && stopped.Before(now):
		a.w.history.breaks(oneEnd, "attempt %d reports, %v after the stop", a.number, now.Sub(stopped))
	}
	if r.End == "" {
		return false
	}
	if r.End == applier.EndCompleted && (r.Operation == nil || !r.Operation.Completed()) {
		a.w.history.breaks(oneEnd, "attempt %d reports an end that is none", a.number)
	}
	a.ended, a.endedAt = &r, now
	return true
}

// end returns what the attempt reported last of all, and when.
func (a *attempt) end() (*applier.Report, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended, a.endedAt
}
