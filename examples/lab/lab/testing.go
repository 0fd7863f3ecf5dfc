package lab

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Main is what a package's TestMain calls. It runs the tests, stops the
// control planes they started and exits. It also lets 16 tests run at a time
// unless -parallel says otherwise, because they spend their time waiting for
// controllers.
//
// The control plane that the tests share has [Flux], or the parts named here.
//
// Without Main the control planes live until the test binary ends.
func Main(m *testing.M, parts ...Parts) {
	for _, p := range parts {
		mainLab.parts = p
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
		}
	}
	code := m.Run()
	for _, s := range []*sharedLab{&mainLab, &bareLab} {
		if err := s.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// Start returns the control plane that the tests of this binary share, with
// everything running, and starts it if this is the first call. The test keeps
// its share until it has ended, subtests and cleanups included; see [Alone] for
// what that means. A parallel test calls t.Parallel first.
//
// Subtests may use their parent's Lab or call Start themselves.
func Start(t testing.TB) *Lab {
	t.Helper()
	share.enter(t)
	return mainLab.get(t)
}

// Alone is Start for a test that stops a process, or measures: it waits until
// no other test holds the control plane, and until the test has ended no other
// gets it. Afterwards every process runs again.
//
// A test calls either Start or Alone, once; under a test that called Start,
// Alone could wait for ever, and fails instead. Two more things would keep Alone
// waiting: a test that calls Start before t.Parallel, since it then holds its
// share while it is paused, and as many waiting tests as -parallel allows. After
// three minutes it says on stderr whom it waits for.
func Alone(t testing.TB) *Lab {
	t.Helper()
	share.enterAlone(t)
	l := mainLab.get(t)
	starts := l.serverStarts()
	t.Cleanup(func() { l.restore(t, starts) })
	return l
}

// StartBare returns a second control plane that the tests of this binary share:
// an API server that serves no kind of Flux's, and no controllers.
func StartBare(t testing.TB) *Lab {
	t.Helper()
	return bareLab.get(t)
}

// restore brings every process back that the test left stopped or frozen.
// Controllers that were without their API server for a while are started anew:
// they would come back by themselves, but only after a pause that grows up to
// half a minute.
func (l *Lab) restore(t testing.TB, servers [2]int) {
	t.Helper()
	processes := l.processes()
	slices.Reverse(processes)
	for _, p := range processes {
		if p.running() {
			p.Thaw(t)
		}
		p.Start(t)
		if p == l.APIServer && servers != l.serverStarts() {
			for _, controller := range l.controllers() {
				controller.Kill(t)
			}
		}
	}
}

// serverStarts counts how often the API server and etcd were started.
func (l *Lab) serverStarts() [2]int { return [2]int{l.APIServer.starts, l.Etcd.starts} }

// sharedLab is a control plane that starts when the first test needs it.
type sharedLab struct {
	parts Parts

	mu  sync.Mutex
	lab *Lab
	err error
}

var (
	mainLab = sharedLab{parts: Flux}
	bareLab = sharedLab{parts: Bare}
)

func (s *sharedLab) get(t testing.TB) *Lab {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	// One that failed to start is not tried again by every test.
	if s.lab == nil && s.err == nil {
		s.lab, s.err = Up(context.Background(), Options{Parts: s.parts})
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.lab
}

func (s *sharedLab) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lab == nil {
		return nil
	}
	return s.lab.Stop()
}

// A gate admits many tests together or one alone. Unlike a sync.RWMutex it
// keeps admitting tests while one waits to be alone: that one then comes last,
// and a subtest never waits for somebody who waits for its parent.
type gate struct {
	mu      sync.Mutex
	changed *sync.Cond
	holders map[string]int // by test name
	entered int            // how often a test was admitted among others
	alone   string         // the test that is alone
}

var share = newGate()

func newGate() *gate {
	g := &gate{holders: make(map[string]int)}
	g.changed = sync.NewCond(&g.mu)
	return g
}

func (g *gate) enter(t testing.TB) {
	name := t.Name()
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.alone != "" && !within(name, g.alone) {
		g.changed.Wait()
	}
	g.holders[name]++
	g.entered++
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.holders[name]--; g.holders[name] == 0 {
			delete(g.holders, name)
		}
		g.changed.Broadcast()
	})
}

func (g *gate) enterAlone(t testing.TB) {
	t.Helper()
	name := t.Name()
	g.mu.Lock()
	defer g.mu.Unlock()
	for holder := range g.holders {
		if within(name, holder) {
			t.Fatalf("%s calls lab.Alone while %s holds the control plane by lab.Start, and would wait for ever; "+
				"call one of the two, once", name, holder)
		}
	}
	if g.alone != "" && within(name, g.alone) {
		t.Fatalf("%s calls lab.Alone again under %s; use the Lab that the first call returned", name, g.alone)
	}
	impatient := time.AfterFunc(3*time.Minute, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		fmt.Fprintf(os.Stderr, "lab: %s waits to be alone; holding the control plane: %v %s\n", name, g.names(), g.alone)
	})
	defer impatient.Stop()
	g.waitQuiet()
	g.alone = name
	t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.alone = ""
		g.changed.Broadcast()
	})
}

// waitQuiet waits until nobody holds the control plane and nobody has come for
// it during a moment, so that those who want to be alone come last.
func (g *gate) waitQuiet() {
	for {
		for g.alone != "" || len(g.holders) > 0 {
			g.changed.Wait()
		}
		entered := g.entered
		g.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		g.mu.Lock()
		if g.alone == "" && len(g.holders) == 0 && g.entered == entered {
			return
		}
	}
}
