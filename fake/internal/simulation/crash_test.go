package simulation

import (
	"flag"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var everyPair = flag.Bool("every-pair", false, "strike at every pair of a death and a lost answer, and not at some of them")

// A course is what becomes of an operation when nobody dies.
type course string

const (
	succeeds   course = "succeeds"
	fails      course = "fails"
	unresolved course = "becomes unresolved"
	abandoned  course = "is abandoned"
)

// A point is where something strikes: the n-th request or call of the store that a process makes.
type point struct {
	calls bool
	n     int
}

func (p point) String() string {
	if p.calls {
		return fmt.Sprintf("call %d of the store", p.n)
	}
	return fmt.Sprintf("request %d", p.n)
}

// A death is where a process is killed: before what it sends is processed, or after that, before the answer.
type death struct {
	point
	after bool
}

func (d death) String() string {
	if d.after {
		return "after " + d.point.String()
	}
	return "before " + d.point.String()
}

// Wherever a process dies, the next one follows what is recorded to its end, and asks for what has none.
func TestAProcessMayDieAnywhere(t *testing.T) {
	t.Parallel()
	for _, m := range []mode{held, live, synced} {
		for _, c := range []course{succeeds, fails, unresolved, abandoned} {
			t.Run(fmt.Sprintf("%s, %s", m, c), func(t *testing.T) {
				t.Parallel()
				newSweep(m, c).run(t)
			})
		}
	}
}

// A sweep kills the first process of an attempt at each of its points, one after the other, in one world.
type sweep struct {
	*world
	mode    mode
	course  course
	subject *subject
	// first and next are how many requests and calls the processes make that nobody kills, or that take over.
	first, next [2]int
}

func newSweep(m mode, c course) *sweep { return &sweep{mode: m, course: c} }

func (s *sweep) run(t *testing.T) {
	deaths, pairs := 0, 0
	w := inWorld(t, 1, func(w *world) {
		s.world = w
		s.subject = &subject{name: "app", mode: s.mode, repo: w.repository()}
		s.subject.source = s.subject.repo.source
		w.subjects = append(w.subjects, s.subject)
		w.trigger("app", s.subject)
		w.found()
		p := w.start()
		pause(w.ctx(), 20*time.Second) // It holds the applier.
		p.stop()

		s.attempt(nil, nil, nil) // To count.
		s.attempt(&death{point: point{n: 1 << 20}}, nil, nil)
		all := s.deaths()
		for i, d := range all {
			if raceEnabled && i%4 != 0 || len(w.history.violations()) > 0 {
				continue
			}
			s.attempt(&d, nil, nil)
			deaths++
		}
		lost := s.lost()
		total := len(all) * len(lost)
		step := 1
		if !*everyPair {
			step = max(1, total/8)
			if raceEnabled {
				step = max(1, total/3)
			}
		}
		for k := step / 2; k < total && len(w.history.violations()) == 0; k += step {
			d, l := all[k/len(lost)], lost[k%len(lost)]
			s.attempt(&d, l.first, l.next)
			pairs++
		}
	})
	t.Logf("died at %d points of %d requests and %d calls of the store; with one lost answer besides, at %d pairs", deaths, s.first[0], s.first[1], pairs)
	if broken := w.history.violations(); len(broken) > 0 {
		t.Errorf("the laws are broken:\n  %s\n\nThe history:\n%s", strings.Join(broken, "\n  "), w.history)
	}
}

// deaths are all points of the first process, before and after.
func (s *sweep) deaths() (all []death) {
	for _, calls := range []bool{false, true} {
		for n := 1; n <= s.first[index(calls)]; n++ {
			all = append(all, death{point{calls, n}, false}, death{point{calls, n}, true})
		}
	}
	return all
}

// loss is an answer that is lost, to the first process or to the next.
type loss struct{ first, next *point }

func (s *sweep) lost() (all []loss) {
	for _, calls := range []bool{false, true} {
		for n := 1; n <= s.first[index(calls)]; n++ {
			all = append(all, loss{first: &point{calls, n}})
		}
		for n := 1; n <= s.next[index(calls)]; n++ {
			all = append(all, loss{next: &point{calls, n}})
		}
	}
	return all
}

func index(calls bool) int {
	if calls {
		return 1
	}
	return 0
}

// attempt lets a process make the attempt and die, and the next one take over, each with an answer that is lost, if that is to be.
func (s *sweep) attempt(d *death, lostFirst, lostNext *point) {
	w := s.world
	w.forget()
	w.history.note("test", "dies %v, lost %v, then lost %v", d, lostFirst, lostNext)
	s.decide()
	first := w.start(resting, func(p *process) {
		if d != nil {
			p.dies(*d)
		}
		p.loses(lostFirst)
	})
	if s.course == abandoned {
		pause(w.ctx(), 5*time.Second)
		first.worker.abandon("app")
	}
	s.await(first)
	last := first
	if d == nil {
		s.first = [2]int{len(first.view.Requests()), len(first.records.Calls())}
	} else {
		first.kill()
		pause(w.ctx(), time.Second)
		last = w.start(resting, func(p *process) { p.loses(lostNext) })
		s.await(last)
		s.next = [2]int{max(s.next[0], len(last.view.Requests())), max(s.next[1], len(last.records.Calls()))}
	}
	w.isQuiet(last, 2*time.Minute)
	last.stop()
	synctest.Wait()
	w.check()
	s.checkEnds()
}

// decide makes the commit, and what becomes of it. The trigger is another one each time, which holds the applier.
func (s *sweep) decide() {
	w := s.world
	for _, undo := range w.undo {
		undo()
	}
	w.undo = nil
	old, err := w.store.Process().Trigger(w.ctx(), applier.TriggerRef{Namespace: team, Name: "app"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.DeleteTrigger(old.Ref)
	old.Ref.UID, old.Status.Operation = "", nil
	w.store.PutTrigger(old)
	switch s.course {
	case fails:
		w.commit(s.subject.repo, s.subject)
	case unresolved:
		w.injectStep(fake.StepFault{Step: fake.ApplyStep, Nth: 1, Delay: 4 * time.Minute}, fake.StepFault{Step: fake.ApplyStep, Nth: 1, Delay: 4 * time.Minute})
	case abandoned:
		w.injectStep(fake.StepFault{Step: fake.ApplyStep, Nth: 1, Delay: 20 * time.Second}, fake.StepFault{Step: fake.ApplyStep, Nth: 1, Delay: 20 * time.Second})
	}
	if s.course != fails {
		w.commit(s.subject.repo)
	}
}

// await waits until the process has died, or has nothing more to do.
func (s *sweep) await(p *process) {
	for range 15 * 60 {
		pause(s.ctx(), time.Second)
		if p.dead.Load() || p.worker.idle(s.waits) && !s.open() {
			return
		}
	}
	s.history.breaks(noneLost, "%s does not come to an end", p.name)
}

func (s *sweep) open() bool {
	t, err := s.store.Process().Trigger(s.ctx(), applier.TriggerRef{Namespace: team, Name: "app"})
	return err == nil && t.Status.Operation != nil && !t.Status.Operation.Completed()
}

// checkEnds checks that all that was said of one end agrees, where nobody else acts.
func (s *sweep) checkEnds() {
	said := make(map[string]applier.Progress)
	say := func(o *applier.Operation) {
		short := applier.Progress{State: o.Progress.State, Reason: o.Progress.Reason, AppliedRevision: o.Progress.AppliedRevision}
		if before, ok := said[o.Started.Token]; ok && !reflect.DeepEqual(before, short) {
			s.history.breaks(oneEnd, "%s ended %+v, and %+v", o.Started.Token, before, short)
		}
		said[o.Started.Token] = short
	}
	for _, rec := range s.records {
		if rec.completed != nil {
			say(rec.completed)
		}
	}
	for _, a := range s.attempts {
		if end, _ := a.end(); end != nil && end.End == applier.EndCompleted {
			say(end.Operation)
		}
	}
}

// forget forgets what happened, and keeps what stands.
func (w *world) forget() {
	if len(w.history.violations()) > 0 {
		return
	}
	w.history = newHistory()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts, w.records, w.starts, w.asked = nil, make(map[string]*record), make(map[string][]start), make(map[string]*attempt)
	w.versions.mu.Lock()
	defer w.versions.mu.Unlock()
	for key, all := range w.versions.of {
		w.versions.of[key] = []version{all[len(all)-1]}
	}
}

// resting is a process without a reconciler: what it does is the library's and the worker's.
func resting(p *process) { p.idle.Store(true) }

// dies makes the process die at a point.
func (p *process) dies(d death) {
	strike := func() { p.strikeDead() }
	request, call := fake.Fault{Nth: d.n}, fake.StoreFault{Nth: d.n}
	if d.after {
		request.After, call.After = func(fake.Request) { strike() }, func(fake.StoreCall) { strike() }
	} else {
		request.Before, call.Before = func(fake.Request) { strike() }, func(fake.StoreCall) { strike() }
	}
	if d.calls {
		p.records.Inject(call)
	} else {
		p.view.Inject(request)
	}
}

// loses makes the answer at a point get lost.
func (p *process) loses(at *point) {
	switch {
	case at == nil:
	case at.calls:
		p.records.Inject(fake.StoreFault{Nth: at.n, Lost: io.ErrUnexpectedEOF})
	default:
		p.view.Inject(fake.Fault{Nth: at.n, Lost: io.ErrUnexpectedEOF})
	}
}
