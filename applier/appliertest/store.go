package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
)

// StoreHarness is what a host's author gives to [RunStore].
type StoreHarness struct {
	// New makes the records of one host, with no trigger and no target in them that the suite is to see. It is called for
	// each clause; what it needs ended is ended by t.Cleanup. A harness that cannot make any calls t.Fatal. Required.
	New func(t testing.TB) *Records
	// Wrap is what the check of each clause runs in, as [Harness].Wrap.
	Wrap func(t *testing.T, check func(t *testing.T))
	// Lacks names what the store or the harness cannot do, as [Harness].Lacks.
	Lacks []Capability
	// Timeout bounds every wait. Zero is one minute.
	Timeout time.Duration
	// Parallel runs the clauses at the same time.
	Parallel bool
}

// Records are the triggers and targets of one host, and what its users can do to them. Each function returns once it is done,
// in a way that a read past any cache would show. Those after DeleteTarget are optional; each says which
// [Capability] it is.
type Records struct {
	// Namespaces are two namespaces that nobody else has triggers or targets in. Let one be the other with a "-" and more
	// behind it, such as team and team-a: a store that sorts by the string namespace/name then fails, as it should. Required.
	Namespaces [2]string
	// Kinds are the kinds of appliers that the host's triggers may name, one at least. Required.
	Kinds []schema.GroupKind
	// NewStore makes a store as a process of the host does when it starts. Required.
	NewStore func() (applier.Store, error)
	// PutTrigger creates the trigger, or changes the one of its name, as a user does: to name t.Applier, and to be Live and
	// Holding as t is, where the host's triggers can. It leaves the status alone. It returns the trigger as a store is to
	// read it, with its UID. Required.
	PutTrigger func(ctx context.Context, t applier.Trigger) (applier.Trigger, error)
	// DeleteTrigger deletes the trigger of that name, and returns once it is gone. Required.
	DeleteTrigger func(ctx context.Context, ref applier.TriggerRef) error
	// PutTarget creates the target, or changes the one of its name: to name t.Trigger and to write t.Writes. It returns the
	// target as a store is to read it, with its UID. Required.
	PutTarget func(ctx context.Context, t applier.Target) (applier.Target, error)
	// DeleteTarget deletes the target of that name, and returns once it is gone. Required.
	DeleteTarget func(ctx context.Context, ref applier.TargetRef) error

	// TerminateTrigger and TerminateTarget leave an object being deleted, as one with a finalizer is. Nil lacks Terminate.
	TerminateTrigger func(ctx context.Context, ref applier.TriggerRef) error
	TerminateTarget  func(ctx context.Context, ref applier.TargetRef) error
	// Version returns what differs after each write of a trigger, such as its resourceVersion. Nil lacks Version.
	Version func(ctx context.Context, ref applier.TriggerRef) (string, error)
	// Lose makes the next write of a store of NewStore be made, and its answer be lost. On the fake.View of a store that updates that is
	// fake.Fault{Verb: "update", Nth: 1, Lost: io.ErrUnexpectedEOF}. Nil lacks Lose.
	Lose func(store applier.Store)
	// Drop makes the next write of a store of NewStore get lost on its way, and the store get no answer:
	// fake.Fault{Verb: "update", Nth: 1, Err: io.ErrUnexpectedEOF}. Nil lacks Drop.
	Drop func(store applier.Store)
	// Echo makes the next write of a store of NewStore be made, and sent once more by the client itself, as client-go
	// does after an answer of 500 that says when to try again. On a fake.View that is a fake.Fault for the first update, whose
	// Before makes the write itself, from the request's Body, and whose Err is
	// apierrors.NewServerTimeout with 1 second. Nil lacks Echo.
	Echo func(store applier.Store)
	// Hang leaves every request of a store of NewStore without an answer from now on: fake.Fault{Delay: 1 << 62}. Nil lacks Hang.
	Hang func(store applier.Store)
}

// The capabilities of a [StoreHarness]: the fields of [Records] of the same name.
const (
	Terminate Capability = "Terminate"
	Version   Capability = "Version"
	Lose      Capability = "Lose"
	Drop      Capability = "Drop"
	Echo      Capability = "Echo"
	Hang      Capability = "Hang"
)

// storeCapabilities lists them in the order of reports.
var storeCapabilities = []Capability{Terminate, Version, Lose, Drop, Echo, Hang}

func (r *Records) can(capability Capability) bool {
	switch capability {
	case Terminate:
		return r.TerminateTrigger != nil && r.TerminateTarget != nil
	case Version:
		return r.Version != nil
	case Lose:
		return r.Lose != nil
	case Drop:
		return r.Drop != nil
	case Echo:
		return r.Echo != nil
	case Hang:
		return r.Hang != nil
	}
	return false
}

// RunStore checks every sentence of [applier.Store] on the store that harness describes, as [Run] checks a backend: each clause is
// a subtest, and one that cannot be checked for want of a [Capability] is reported by name.
//
// Run it under the race detector: some clauses use a store from many goroutines.
func RunStore(t *testing.T, harness StoreHarness) {
	t.Helper()
	if harness.New == nil {
		t.Fatal("the harness makes no records: set StoreHarness.New")
	}
	harness = harness.withDefaults()
	unchecked := report{of: len(storeClauses)}
	t.Run("clauses", func(t *testing.T) {
		for _, c := range storeClauses {
			t.Run(c.group+"/"+c.name, func(t *testing.T) {
				if harness.Parallel {
					t.Parallel()
				}
				c.run(t, harness, &unchecked)
			})
		}
	})
	unchecked.log(t)
}

func (h StoreHarness) withDefaults() StoreHarness {
	if h.Wrap == nil {
		h.Wrap = func(t *testing.T, check func(t *testing.T)) { check(t) }
	}
	if h.Timeout <= 0 {
		h.Timeout = time.Minute
	}
	return h
}

// storeClause is one sentence of the contract of a store and its check.
type storeClause struct {
	group, name string
	// text is what the contract wants.
	text string
	// needs are the capabilities without which it cannot be checked.
	needs []Capability
	// check returns how the clause is broken.
	check func(ctx context.Context, e *storeEnv) error
}

// maxWaits is more waits than one clause can need.
const maxWaits = 100

// storeClauses are all clauses, in the order in which they are checked.
var storeClauses = slices.Concat(storeHarnessClauses, readClauses, listClauses, updateClauses, raceClauses, unansweredClauses)

func (c storeClause) run(t *testing.T, harness StoreHarness, unchecked *report) {
	harness.Wrap(t, func(t *testing.T) {
		missing, err := c.try(t, harness)
		switch {
		case err != nil:
			t.Errorf("this clause is broken: %s\n%s", c.text, indent(err))
		case len(missing) > 0:
			t.Logf("not checked, for want of %s: %s", join(missing), c.text)
			unchecked.add(c.group, c.name, missing)
		}
	})
}

// try checks the clause. It returns the capabilities for want of which it cannot, or how it is broken.
func (c storeClause) try(t testing.TB, harness StoreHarness) ([]Capability, error) {
	records := harness.New(t)
	if records == nil {
		return nil, errors.New("StoreHarness.New returned nil")
	}
	var missing []Capability
	for _, need := range c.needs {
		if !records.can(need) {
			missing = append(missing, need)
		}
	}
	if len(missing) > 0 {
		return missing, nil
	}
	if err := records.complete(); err != nil {
		return nil, err
	}
	store, err := records.NewStore()
	if err != nil {
		return nil, fmt.Errorf("the harness makes no store: %w", err)
	}
	// It ends a store that waits for ever, as long as that heeds its context.
	ctx, cancel := context.WithTimeout(t.Context(), maxWaits*harness.Timeout)
	defer cancel()
	return nil, c.check(ctx, &storeEnv{Records: records, harness: harness, store: store})
}

// complete says what is missing of what is required.
func (r *Records) complete() error {
	switch {
	case r.Namespaces[0] == "" || r.Namespaces[1] == "" || r.Namespaces[0] == r.Namespaces[1]:
		return errors.New("set two Records.Namespaces")
	case len(r.Kinds) == 0:
		return errors.New("set Records.Kinds")
	case r.NewStore == nil:
		return errors.New("set Records.NewStore")
	case r.PutTrigger == nil || r.DeleteTrigger == nil || r.PutTarget == nil || r.DeleteTarget == nil:
		return errors.New("set Records.PutTrigger, DeleteTrigger, PutTarget and DeleteTarget")
	}
	return nil
}

var storeHarnessClauses = []storeClause{
	{
		group: "Harness", name: "is complete",
		text:  "the harness sets what is required, and what is missing is named in Lacks",
		check: storeHarnessIsComplete,
	},
}

func storeHarnessIsComplete(ctx context.Context, e *storeEnv) error {
	var wrong []error
	for _, capability := range storeCapabilities {
		switch has, named := e.can(capability), slices.Contains(e.harness.Lacks, capability); {
		case !has && !named:
			wrong = append(wrong, fmt.Errorf("%s is missing: provide it, or name it in StoreHarness.Lacks", capability))
		case has && named:
			wrong = append(wrong, fmt.Errorf("%s is there: do not name it in StoreHarness.Lacks", capability))
		}
	}
	trigger, err := e.trigger(ctx, "shop")
	if err == nil && (trigger.Ref.UID == "" || trigger.Created.IsZero() || trigger.Applier != e.shop()) {
		err = fmt.Errorf("PutTrigger was to make a trigger of %s, and returned %+v", e.shop(), trigger)
	}
	if err == nil {
		var target applier.Target
		target, err = e.target(ctx, "shop", trigger)
		if err == nil && (target.Ref.UID == "" || target.Trigger.Name != trigger.Ref.Name || target.Trigger.Namespace != trigger.Ref.Namespace) {
			err = fmt.Errorf("PutTarget was to make a target of trigger %s, and returned %+v", trigger.Ref, target)
		}
	}
	return errors.Join(append(wrong, err)...)
}
