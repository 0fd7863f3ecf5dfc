package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

// A worker decides what is asked, for every trigger: it follows what the records say first, and keeps a reason pending until an
// operation answers it.
type worker struct {
	p *process

	mu     sync.Mutex
	duties map[string]*duty
	// recovered is whether it has seen all triggers once.
	recovered bool
}

// A duty is what the worker has to do for one trigger.
type duty struct {
	name string
	// pending is why the trigger is to be asked; "" for no reason.
	pending applier.ApplyReason
	// out is the attempt that is on its way; deciding is whether one is about to be made.
	out      *attempt
	deciding bool
	// tries is how often it was asked in vain since there is something new to ask for.
	tries int
}

func newWorker(p *process) *worker { return &worker{p: p, duties: make(map[string]*duty)} }

// recover follows every operation that the records say is open, and then asks for what may have been missed.
func (k *worker) recover() {
	var triggers []applier.Trigger
	for {
		var err error
		if triggers, err = k.p.store.Triggers(k.p.working, applier.TriggerMatch{}); err == nil {
			break
		}
		if !pause(k.p.working, 2*time.Second) {
			return
		}
	}
	for _, t := range triggers {
		k.follow(t)
		k.poke(t.Ref.Name, applier.CatchUp)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recovered = true
}

// follow follows the operation of a trigger, if it is open.
func (k *worker) follow(t applier.Trigger) {
	operation := t.Status.Operation
	if operation == nil || operation.Completed() || k.p.w.broken.forgetful {
		return
	}
	a := k.p.w.attempt(k.p, t.Ref)
	a.recovered = operation
	k.p.w.history.note(k.p.name, "attempt %d follows %s of %s", a.number, operation.Started.Token, t.Ref)
	k.out(t.Ref.Name, a)
	a.ask(nil, func(r applier.Report) { k.answered(t.Ref.Name, a, r) })
}

func (k *worker) duty(name string) *duty {
	d := k.duties[name]
	if d == nil {
		d = &duty{name: name}
		k.duties[name] = d
	}
	return d
}

func (k *worker) out(name string, a *attempt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.duty(name).out = a
}

// poke gives the worker a reason to ask a trigger.
func (k *worker) poke(name string, reason applier.ApplyReason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.duty(name)
	if d.pending == "" || reason.NeedsRun() {
		d.pending = reason
	}
	d.tries = 0
	if d.out != nil && d.out.recovered == nil {
		if target, ok := k.p.w.targetOf(name); ok && k.p.w.head(target) != d.out.commit {
			d.out.revoke()
		}
	}
	k.decideLater(d, 0)
}

// pokeAll gives the worker a reason to ask all triggers.
func (k *worker) pokeAll(reason applier.ApplyReason) {
	for _, name := range k.p.w.triggerNames() {
		k.poke(name, reason)
	}
}

// decideLater decides after a while, unless an attempt is on its way. The lock is held.
func (k *worker) decideLater(d *duty, after time.Duration) {
	if d.out != nil || d.deciding || d.pending == "" || k.p.working.Err() != nil {
		return
	}
	d.deciding = true
	k.p.running.Go(func() {
		pause(k.p.working, after+time.Millisecond)
		k.decide(d)
	})
}

// decide asks for what is pending.
func (k *worker) decide(d *duty) {
	trigger, targets, err := k.read(d.name)
	k.mu.Lock()
	defer k.mu.Unlock()
	d.deciding = false
	switch {
	case k.p.working.Err() != nil || errors.Is(err, applier.ErrRecordGone):
		return
	case err != nil || len(targets) == 0:
		k.decideLater(d, 5*time.Second)
		return
	}
	commit := k.p.w.head(targets[0])
	if o := trigger.Status.Operation; o != nil && !o.Completed() && !k.p.dispatcher.Following(trigger.Ref, o.Started.Token) {
		// Another process left it.
		if !k.p.w.broken.forgetful {
			a := k.p.w.attempt(k.p, trigger.Ref)
			a.recovered, d.out = o, a
			a.ask(nil, func(r applier.Report) { k.answered(d.name, a, r) })
		}
		return
	}
	a := k.p.w.attempt(k.p, trigger.Ref)
	a.applier, a.commit, a.reason = trigger.Applier, commit, d.pending
	a.want = applier.Binding{Repository: a.spell(targets[0].Writes.Repository), Branch: targets[0].Writes.Branch}
	d.out = a
	var refs []applier.TargetRef
	for _, t := range targets {
		refs = append(refs, t.Ref)
	}
	k.p.w.history.note(k.p.name, "attempt %d: %s asks for %.7s (%s), %s", a.number, trigger.Ref, commit, k.p.w.valueOf(commit), a.reason)
	a.ask(refs, func(r applier.Report) { k.answered(d.name, a, r) })
}

func (k *worker) read(name string) (applier.Trigger, []applier.Target, error) {
	ref := applier.TriggerRef{Namespace: team, Name: name}
	trigger, err := k.p.store.Trigger(k.p.working, ref)
	if err != nil {
		return trigger, nil, err
	}
	targets, err := k.p.store.Targets(k.p.working, ref)
	return trigger, targets, err
}

// answered takes the end of an attempt, and decides whether to ask again.
func (k *worker) answered(name string, a *attempt, r applier.Report) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.duty(name)
	if d.out != a {
		return
	}
	d.out = nil
	d.tries++
	switch r.End {
	case applier.EndAskedNothing:
		if r.Err == nil && a.current() {
			d.pending = ""
		}
		k.decideLater(d, d.patience())
	case applier.EndNotStarted:
		k.decideLater(d, d.patience())
	default:
		if a.recovered == nil && a.current() && (!again(r.Operation) || k.p.w.isBroken(r.Operation)) {
			d.pending = ""
		}
		k.decideLater(d, d.patience()-2*time.Second)
	}
}

// patience is how long to wait before the trigger is asked again: longer each time.
func (d *duty) patience() time.Duration {
	return min(3*time.Second<<min(max(d.tries, 1)-1, 6), 2*time.Minute)
}

// again reports whether an operation says nothing about the commit that was asked for.
func again(o *applier.Operation) bool {
	return o == nil || o.AppliedOther() || o.Progress.AskAgain() || o.Progress.State == applier.StateFailed && o.Progress.Reason != "BuildFailed"
}

// isBroken reports whether an operation failed for a commit that is broken for its applier.
func (w *world) isBroken(o *applier.Operation) bool {
	for _, r := range w.repos {
		r.mu.Lock()
		broken := r.broken[o.Started.Commit] == o.Applier.Name
		r.mu.Unlock()
		if broken {
			return o.Progress.State == applier.StateFailed && !o.Progress.AskAgain()
		}
	}
	return false
}

// abandon gives up the attempt for a trigger, if one is on its way.
func (k *worker) abandon(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.duty(name)
	if d.out == nil {
		return
	}
	d.out.abandon()
	d.out = nil
	k.decideLater(d, time.Second)
}

// idle reports whether nothing is on its way and nothing pending, but for the triggers whose applier another one holds.
func (k *worker) idle(waits func(trigger string) bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, d := range k.duties {
		if (d.out != nil || d.pending != "" || d.deciding) && !waits(name) {
			return false
		}
	}
	return k.recovered
}

// targetOf is a target of a trigger.
func (w *world) targetOf(trigger string) (applier.Target, bool) {
	targets, err := w.store.Process().Targets(context.Background(), applier.TriggerRef{Namespace: team, Name: trigger})
	if err != nil || len(targets) == 0 {
		return applier.Target{}, false
	}
	return targets[0], true
}

// head is the newest commit of what a target writes.
func (w *world) head(t applier.Target) string {
	return w.flux.Remote().Repository(t.Writes.Repository).Head(t.Writes.Branch)
}

func (w *world) triggerNames() (names []string) {
	triggers, _ := w.store.Process().Triggers(context.Background(), applier.TriggerMatch{})
	for _, t := range triggers {
		names = append(names, t.Ref.Name)
	}
	return names
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
