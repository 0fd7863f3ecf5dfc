package applier

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReasonHeldByAnotherTrigger is the condition reason of a trigger whose applier another one holds; see [HeldByAnother].
const ReasonHeldByAnotherTrigger = "HeldByAnotherTrigger"

// Holding reports whether trigger holds its applier suspended, or hands it back or over: whether it carries the host's
// finalizer.
func Holding(trigger Trigger) bool { return trigger.Holding }

// ListTriggers lists the triggers of one kind of applier, by namespace and name: those of a namespace, or of all for an
// empty one. A zero kind is every kind. The list may be older than what [Store].Trigger returns.
func ListTriggers(ctx context.Context, store Store, kind schema.GroupKind, namespace string) ([]Trigger, error) {
	triggers, err := store.Triggers(ctx, TriggerMatch{Kind: kind, Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list the triggers for %s: %w", kind, err)
	}
	return triggers, nil
}

// TriggersOfApplier lists the triggers other than trigger that name its applier, by namespace and name, those
// being deleted included. There is none of a trigger that names no applier.
func TriggersOfApplier(ctx context.Context, store Store, trigger Trigger) ([]Trigger, error) {
	if trigger.Applier == (ApplierRef{}) {
		return nil, nil // A zero match would match every trigger.
	}
	triggers, err := store.Triggers(ctx, TriggerMatch{Applier: trigger.Applier})
	if err != nil {
		return nil, fmt.Errorf("list the triggers of %s: %w", trigger.Applier, err)
	}
	return slices.DeleteFunc(triggers, func(other Trigger) bool { return other.Ref.isNamed(trigger.Ref) }), nil
}

// HeldByAnother returns the trigger that holds the applier of trigger when that is another one, and nil when trigger
// holds it itself. Of the triggers that name one applier, the first of these holds it:
//
//  1. one that has an operation open on it,
//  2. one that is [Holding],
//  3. the one created first; of two created in one moment, that whose namespace and name come first.
//
// The others wait, and the next takes over once the first no longer comes first. A trigger waits in this line, and can so
// keep others from the applier, as long as it has an operation open on it or is Holding; or else as long as it is not being
// deleted, and some target names it that is not refused: see [References].Refused, by the source in its
// status. A trigger that nobody may use keeps nobody out.
//
// SameRepository compares repositories; nil is gitref.SameRepository. It reads the Store's lists. An error is a
// read that failed and says nothing: keep what you show, and start nothing.
func HeldByAnother(ctx context.Context, store Store, trigger Trigger, sameRepository func(a, b string) bool) (*Trigger, error) {
	others, err := TriggersOfApplier(ctx, store, trigger)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(others, comparePlaces)
	for _, other := range others {
		if comparePlaces(other, trigger) > 0 {
			break
		}
		waits, err := isInLine(ctx, store, other, sameRepository)
		if err != nil {
			return nil, err
		}
		if waits {
			return &other, nil
		}
	}
	return nil, nil
}

// HeldByAnotherMessage says, for a condition of trigger, why holder holds its applier, and what ends that.
func HeldByAnotherMessage(trigger, holder Trigger) string {
	var why string
	switch {
	case isApplying(holder):
		why = "has an apply in flight"
	case Holding(holder):
		why = "holds it already"
	default:
		why = "was created first, at " + holder.Created.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s is held by trigger %s, which names it too and %s; this trigger takes over once the other no longer comes first, such as when it names another applier or is deleted",
		trigger.Applier, holder.Ref, why)
}

// comparePlaces compares the places of two triggers in the line for one applier.
func comparePlaces(a, b Trigger) int {
	return cmp.Or(
		compareFirst(isApplying(a), isApplying(b)),
		compareFirst(Holding(a), Holding(b)),
		a.Created.Compare(b.Created),
		cmp.Compare(a.Ref.Namespace, b.Ref.Namespace),
		cmp.Compare(a.Ref.Name, b.Ref.Name),
	)
}

// compareFirst puts true before false.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// isApplying reports whether trigger has an operation open on the applier that it names.
func isApplying(trigger Trigger) bool {
	operation := trigger.Status.Operation
	return operation != nil && !operation.Completed() && operation.Applier == trigger.Applier
}

// isInLine reports whether trigger waits for its applier or has it.
func isInLine(ctx context.Context, store Store, trigger Trigger, sameRepository func(a, b string) bool) (bool, error) {
	switch {
	case isApplying(trigger), Holding(trigger):
		return true, nil
	case trigger.Deleting:
		return false, nil
	}
	targets, err := NamingTargets(ctx, store, trigger)
	if err != nil {
		return false, err
	}
	var source *Source
	if trigger.Status.Source != nil {
		source = &trigger.Status.Source.Source
	}
	references := JudgeReferences(trigger, targets, source, sameRepository)
	return references.Named() && !references.Refused(), nil
}
