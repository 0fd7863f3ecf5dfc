package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
)

// A plan is what a simulation is to be like.
type plan struct {
	// processes is how many live at once: one, or by mistake two.
	processes int
	broken    mutation
}

// simulate runs the simulation of a seed, and returns its history.
func simulate(t *testing.T, seed uint64, plan plan) *history {
	w := inWorld(t, seed, func(w *world) {
		w.broken = plan.broken
		r := newRand(seed)
		w.invent(r)
		w.found()
		w.unrest(r, plan.processes)
		w.settle()
		w.check()
	})
	return w.history
}

// invent makes up what there is: few appliers mostly, and dozens of triggers at times.
func (w *world) invent(r *rand.Rand) {
	for range 1 + r.IntN(2) {
		w.repository()
	}
	appliers := []int{1, 1, 1, 1, 1, 2, 2, 2, 3, 4}[r.IntN(10)]
	if w.seed%250 == 7 {
		appliers = 18 + r.IntN(8)
	}
	modes := []mode{held, held, live, synced, synced}
	for i := range appliers {
		one := w.repos[r.IntN(len(w.repos))]
		s := &subject{name: fmt.Sprintf("app-%d", i), mode: modes[r.IntN(len(modes))], repo: one, source: one.source}
		w.subjects = append(w.subjects, s)
		w.trigger(s.name, s)
		if r.IntN(4) == 0 {
			w.target(s.name+"-too", s.name, s)
		}
		if r.IntN(3) == 0 { // Another trigger names it too.
			w.trigger(s.name+"-b", s)
		}
	}
}

// unrest lets the host live, while others act and everything goes wrong at times.
func (w *world) unrest(r *rand.Rand, processes int) {
	for range processes {
		w.start()
	}
	pause(w.ctx(), 10*time.Second) // The appliers are held.
	w.chaos.Store(true)
	for range 7 + r.IntN(8) {
		w.another(r)
		wait := time.Duration(r.IntN(3000)) * time.Millisecond
		if r.IntN(3) == 0 {
			wait = time.Duration(r.IntN(20)) * time.Second
		}
		pause(w.ctx(), wait)
		if r.IntN(6) == 0 {
			w.change(r)
		}
	}
}

// change ends a process, and starts the next, before or after it has ended: the one that was killed may be told of late.
func (w *world) change(r *rand.Rand) {
	alive := w.alive()
	p := alive[r.IntN(len(alive))]
	if r.IntN(2) == 0 {
		p.kill()
	} else {
		p.stop()
	}
	pause(w.ctx(), time.Duration(r.IntN(8))*time.Second)
	w.start()
}

// settle ends the chaos, mends what others did, and waits until all that was asked for is answered.
func (w *world) settle() {
	w.chaos.Store(false)
	w.history.note("ops", "the chaos is over")
	w.late.Wait()
	w.flux.Stop() // What it tries again after a while, it tries now.
	w.flux.Start()
	w.argo.Start()
	for _, undo := range w.undo {
		undo()
	}
	for alive := w.alive(); len(alive) > 1; alive = w.alive() {
		alive[0].stop()
	}
	pause(w.ctx(), 130*time.Second) // What hangs has ended.
	for _, undo := range w.undo {
		undo() // What could not be done before, such as to create an object anew.
	}
	for _, s := range w.subjects {
		for range 60 {
			if w.create(s); !w.deleting(s) {
				break
			}
			pause(w.ctx(), time.Second)
		}
		if s.mode != synced {
			w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"spec":{"sourceRef":{"name":%q}}}`, s.source))
		}
	}
	for _, r := range w.repos {
		w.stamp(gitRepositories, r.source)
		w.commit(r)
	}
	w.pokeAll(applier.Commit)
	p := w.alive()[0]
	// The reconciler looks at all within some minutes, which may leave the worker something to do.
	for minutes, rest := 0, 0; minutes < 45 && rest < 6; minutes++ {
		pause(w.ctx(), time.Minute)
		if rest++; !p.worker.idle(w.waits) {
			rest = 0
		}
	}
	w.isQuiet(p, 3*time.Minute)
	p.stop()
	synctest.Wait()
}

// waits reports whether a trigger is asked nothing, because another holds its applier.
func (w *world) waits(trigger string) bool {
	store := w.store.Process()
	t, err := store.Trigger(context.Background(), applier.TriggerRef{Namespace: team, Name: trigger})
	if err != nil || t.Deleting {
		return true
	}
	holder, err := applier.HeldByAnother(context.Background(), store, t, nil)
	return err == nil && holder != nil
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// deleting reports whether an applier is still there, and is being deleted.
func (w *world) deleting(s *subject) bool {
	object, err := w.cluster.Resource(s.resource()).Namespace(team).Get(w.ctx(), s.name, metav1.GetOptions{})
	return err == nil && object.GetDeletionTimestamp() != nil
}
