package applier

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// The errors of a [Store] that the library acts on.
var (
	// ErrRecordGone is a trigger or target that does not exist, or whose name another incarnation has now.
	ErrRecordGone = errors.New("the host's record is gone")
	// ErrOperationOpen is a trigger that holds another operation that has not completed: it is to be followed to
	// its end before anything new is recorded.
	ErrOperationOpen = errors.New("another operation is open")
)

// Store is how the library reads a host's triggers and targets, and writes what it knows on a trigger's status. A host
// with objects of its own in a cluster implements it over its client; fake.Store keeps them in memory. The tests of
// appliertest.RunStore check every sentence here.
//
// It is safe for concurrent use. Every value returned is the caller's own. Each method returns soon after ctx ends.
//
// An error that is ErrRecordGone says that the object does not exist; an error that is ErrUnconfirmed, that a write may
// or may not have been made; any other, that nothing is known and nothing was written.
type Store interface {
	// Trigger reads one trigger past any cache: what it returns is at least as new as every write that was answered
	// before the call. A trigger of another UID than ref's is ErrRecordGone.
	Trigger(ctx context.Context, ref TriggerRef) (Trigger, error)
	// Target reads one target, as Trigger does a trigger.
	Target(ctx context.Context, ref TargetRef) (Target, error)
	// Triggers lists the triggers that match, by namespace and name, those being deleted included. It may be answered from a cache or an index, and be older
	// than what Trigger returns.
	Triggers(ctx context.Context, match TriggerMatch) ([]Trigger, error)
	// Targets lists the targets that name a trigger, by namespace and name, those being deleted included. The UID in ref is
	// not compared. It may be older than what Target returns.
	Targets(ctx context.Context, ref TriggerRef) ([]Target, error)
	// UpdateStatus reads the trigger as Trigger does, calls mutate with it, and writes the Status that mutate left, if it
	// differs, on the condition that the trigger has not changed in any part since it was read. Of several writers at once,
	// one succeeds; the others read and call mutate again, as often as it takes. Nothing but Status is written, whatever else
	// mutate changes. What Status does not have is taken away.
	//
	// A client that sends a write again by itself may get a conflict with its own: mutate is then called again, with what
	// it left before, which it has to recognise. Where the trigger cannot be read any more by then, that is ErrUnconfirmed, too.
	//
	// It returns the error of mutate as it is, and then writes nothing.
	UpdateStatus(ctx context.Context, ref TriggerRef, mutate func(*Trigger) error) error
}

// TriggerMatch is what triggers are listed by. A zero field matches every trigger, so the zero value matches all.
type TriggerMatch struct {
	// Namespace is the trigger's own.
	Namespace string
	// Kind is the kind of the applier that it names.
	Kind schema.GroupKind
	// Applier is the applier that it names.
	Applier ApplierRef
	// Cluster and Source are the applier's cluster and the source object in it, as Status.Source.GitRepository has it. They
	// are used together.
	Cluster string
	Source  types.NamespacedName
}

// Matches reports whether a trigger matches. A Store over an index narrows down, and asks it about what it found.
func (m TriggerMatch) Matches(t Trigger) bool {
	switch {
	case m.Namespace != "" && t.Ref.Namespace != m.Namespace,
		m.Kind != schema.GroupKind{} && t.Applier.GroupKind() != m.Kind,
		m.Applier != ApplierRef{} && t.Applier != m.Applier,
		m.Cluster != "" && t.Applier.Cluster != m.Cluster,
		m.Source != types.NamespacedName{} && (t.Status.Source == nil || t.Status.Source.GitRepository != m.Source):
		return false
	}
	return true
}
