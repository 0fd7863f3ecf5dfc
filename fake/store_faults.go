package fake

import (
	"fmt"
	"slices"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

// StoreCall is one call of a method of a [Store].
type StoreCall struct {
	// Number counts the calls from 1, in the order in which they began.
	Number int
	// Method is its name, such as UpdateStatus.
	Method string
	// Trigger is what Trigger, Targets and UpdateStatus were called with, Target what Target was, and Match what Triggers was.
	Trigger applier.TriggerRef
	Target  applier.TargetRef
	Match   applier.TriggerMatch
	// Done is whether it has returned, with Err as its error.
	Done bool
	Err  error
	// Written is the status that UpdateStatus wrote; nil if it wrote none.
	Written *applier.TriggerStatus
}

// String is a line for a test's log, such as "#3 UpdateStatus team-a/shop: the host's record is gone".
func (c StoreCall) String() string {
	line := fmt.Sprintf("#%d %s", c.Number, c.Method)
	switch {
	case c.Trigger != applier.TriggerRef{}:
		line += " " + c.Trigger.String()
	case c.Target != applier.TargetRef{}:
		line += " " + c.Target.String()
	}
	if c.Err != nil {
		line += ": " + c.Err.Error()
	}
	return line
}

// Calls returns the calls so far, in the order in which they began. The calls of other processes are not among them.
func (s *Store) Calls() []StoreCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// A StoreFault is something that happens to the calls of a [Store] that match it. The zero value matches every call and
// does nothing to it. Its functions are called from the goroutine of the call, so from several at once.
type StoreFault struct {
	// Method, Namespace and Name match a call of this method, for a trigger or target of this name; an empty one matches any.
	Method, Namespace, Name string
	// Match, if set, has to agree as well. It must not use the Store.
	Match func(StoreCall) bool
	// Nth is the one call that is struck, counting from 1 those that match since the fault was injected. Zero strikes each
	// of them.
	Nth int

	// Delay passes before anything else happens, or until the call's context ends.
	Delay time.Duration
	// Before is called before anything is read. It may use the Store.
	Before func(StoreCall)
	// Err is returned instead of reading or writing anything; mutate is not called.
	Err error
	// Between is called when UpdateStatus has read the trigger and called mutate, and is about to write for the first time. It may
	// use the Store: a trigger that it changes makes a conflict, so that UpdateStatus reads and calls mutate again.
	Between func(StoreCall)
	// Dropped is why a write of UpdateStatus never arrived: nothing is written, and the answer wraps it and ErrUnconfirmed.
	Dropped error
	// Echo makes UpdateStatus write and take a conflict for the answer, as a client does that sent its write a second time by itself: it
	// reads and calls mutate again, with what mutate left before.
	Echo bool
	// Lost is why the answer got lost. What is to be written is written; UpdateStatus returns an error that wraps Lost and
	// ErrUnconfirmed, any other method Lost itself.
	Lost error
	// After is called once everything was read or written, before the caller has the answer. It may use the Store.
	After func(StoreCall)
}

type storeFault struct {
	StoreFault
	matched int
}

// Inject makes a fault strike this process's calls from now on, until the returned function is called. Of several faults that
// strike one call all run their hooks and delays; the first that answers it does.
func (s *Store) Inject(f StoreFault) (remove func()) {
	injected := &storeFault{StoreFault: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, injected)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(other *storeFault) bool { return other == injected })
	}
}

// strikes says whether a call is to be struck, and counts it. The store's lock is held.
func (f *storeFault) strikes(c StoreCall) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	// A call names one of them at most.
	namespace, name := c.Trigger.Namespace+c.Target.Namespace+c.Match.Namespace, c.Trigger.Name+c.Target.Name
	if !is(f.Method, c.Method) || !is(f.Namespace, namespace) || !is(f.Name, name) || f.Match != nil && !f.Match(c) {
		return false
	}
	f.matched++
	return f.Nth == 0 || f.Nth == f.matched
}
