package applier

import (
	"context"
	"errors"
	"fmt"
)

// stand reads the trigger and its targets, and keeps those for whose sake it is to be asked. Its error is ErrStale where
// the decision no longer holds.
func (a *attempt) stand(ctx context.Context) (Trigger, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, orDefault(a.d.AttemptTimeout, DefaultAttemptTimeout), errTimeout)
	defer cancel()
	trigger, err := a.d.store.Trigger(ctx, a.req.Trigger)
	switch {
	case errors.Is(err, ErrRecordGone):
		return trigger, fmt.Errorf("%w: trigger %s: %w", ErrStale, a.req.Trigger, err)
	case err != nil:
		return trigger, fmt.Errorf("trigger %s cannot be read: %w", a.req.Trigger, err)
	case trigger.Deleting:
		return trigger, fmt.Errorf("%w: trigger %s is being deleted", ErrStale, a.req.Trigger)
	case a.req.Applier != ApplierRef{} && trigger.Applier != a.req.Applier:
		return trigger, fmt.Errorf("%w: trigger %s names %s now, not %s", ErrStale, trigger.Ref, trigger.Applier, a.req.Applier)
	}
	a.targets = nil
	var left []error
	for _, ref := range a.req.Targets {
		target, err := a.d.store.Target(ctx, ref)
		switch {
		case errors.Is(err, ErrRecordGone):
			left = append(left, fmt.Errorf("target %s: %w", ref, err))
		case err != nil:
			return trigger, fmt.Errorf("target %s cannot be read: %w", ref, err)
		default:
			if err := a.stillWants(target, trigger); err != nil {
				left = append(left, err)
				continue
			}
			a.targets = append(a.targets, target)
		}
	}
	if len(a.targets) == 0 {
		return trigger, fmt.Errorf("%w: no target asks for it any more: %w", ErrStale, errors.Join(left...))
	}
	holder, err := HeldByAnother(ctx, a.d.store, trigger, a.d.SameRepository)
	switch {
	case err != nil:
		return trigger, fmt.Errorf("trigger %s: whether another holds its applier cannot be read: %w", trigger.Ref, err)
	case holder != nil:
		return trigger, fmt.Errorf("%w: %s", ErrStale, HeldByAnotherMessage(trigger, *holder))
	}
	return trigger, nil
}

// stillWants reports why nothing is to be asked for the sake of target, or nil.
func (a *attempt) stillWants(target Target, trigger Trigger) error {
	var why string
	switch {
	case target.Deleting:
		why = "is being deleted"
	case !Names(target, trigger):
		why = "does not name trigger " + trigger.Ref.String()
	case !target.Writes.Same(a.req.Want, a.d.SameRepository):
		why = "does not write to " + a.req.Want.String()
	case target.Admission.State != Admitted:
		why = describeAdmission(target.Admission)
	case a.req.Reason == Refusal && !target.RefusalConsent:
		why = "does not consent to a refusal"
	default:
		return nil
	}
	return fmt.Errorf("target %s %s", target.Ref, why)
}

// describeAdmission says why a target may not use a cluster, or not yet.
func describeAdmission(admission Admission) string {
	why := "is not admitted"
	if admission.State == AdmissionUndecided {
		why = "is not known to be admitted yet"
	}
	if admission.Message == "" {
		return why
	}
	return why + ": " + admission.Message
}

// standAndHeld checks again, right before the operation is recorded, what stand did, and that the trigger still
// says to ask its applier like this. An applier that has to be held is, as a fresh read of the trigger says.
func (a *attempt) standAndHeld(ctx context.Context, asked Trigger, held bool) error {
	// First, what the record would wait for: nothing comes between the check and the record.
	if err := a.d.status.concludeLast(ctx, a.req.Trigger); err != nil {
		return err
	}
	trigger, err := a.stand(ctx)
	switch {
	case err != nil:
		return err
	case trigger.Live != asked.Live:
		return fmt.Errorf("%w: trigger %s says Live %t now, not %t", ErrStale, trigger.Ref, trigger.Live, asked.Live)
	case held && !trigger.Status.Held:
		return notHeldYet(trigger)
	}
	a.operation.Targets = nil
	for _, target := range a.targets {
		a.operation.Targets = append(a.operation.Targets, target.Ref)
	}
	return nil
}

func notHeldYet(trigger Trigger) error {
	return fmt.Errorf("%w: trigger %s does not hold %s yet: ask again once its status says so", ErrNotHeld, trigger.Ref, trigger.Applier)
}
