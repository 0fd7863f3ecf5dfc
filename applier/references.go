package applier

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// The reasons of References that are not eligible, beside those of their refusals. They are stable: a host shows them as
// condition reasons.
const (
	// ReasonNotReferenced is a trigger that no target names: it is asked nothing, so it does nothing. That is no fault.
	ReasonNotReferenced = "NotReferenced"
	// ReasonNotBound is a trigger whose targets are none of them eligible: because one cannot be judged yet, or because
	// each is refused, and not all for one reason.
	ReasonNotBound = "NotBound"
)

// Names reports whether target names trigger. A target names a trigger of its own namespace.
func Names(target Target, trigger Trigger) bool {
	return target.Trigger.isNamed(trigger.Ref) && target.Ref.Namespace == trigger.Ref.Namespace && target.Trigger.Name != ""
}

// NamingTargets lists the targets that name trigger, in its namespace, and are not being deleted, by name. An error is
// a read that failed and says nothing: keep what you show.
func NamingTargets(ctx context.Context, store Store, trigger Trigger) ([]Target, error) {
	targets, err := store.Targets(ctx, trigger.Ref)
	if err != nil {
		return nil, fmt.Errorf("list the targets of trigger %s: %w", trigger.Ref, err)
	}
	targets = slices.DeleteFunc(targets, func(t Target) bool { return t.Deleting || !Names(t, trigger) })
	slices.SortFunc(targets, func(a, b Target) int { return cmp.Compare(a.Ref.Name, b.Ref.Name) })
	return targets, nil
}

// Reference is one target that names a trigger, judged.
type Reference struct {
	// Target is that target.
	Target TargetRef
	// State is the judgement.
	State ReferenceState
	// Reason is why it is refused, for a condition: ReasonSourceMismatch, or that of its Admission. Empty unless refused.
	Reason string
	// Message says, for people, why it is not eligible. Empty if it is.
	Message string
}

// ReferenceState is how a target stands with the trigger that it names. The zero value is not judged.
type ReferenceState string

// The states of a reference.
const (
	// ReferenceUndecided is a target that cannot be judged yet: its admission is undecided, the repository and branch that
	// it writes are not known, or the source of the applier was not read.
	ReferenceUndecided ReferenceState = ""
	// ReferenceEligible is a target that is admitted, and writes what the applier applies.
	ReferenceEligible ReferenceState = "Eligible"
	// ReferenceRefused is a target that is not admitted, or writes another repository or branch.
	ReferenceRefused ReferenceState = "Refused"
)

// References are the targets that name one trigger, judged. A trigger may hold its applier and be asked for the sake of those
// that are eligible.
type References []Reference

// JudgeReferences judges each of targets, which name trigger, by its admission and by whether it writes what the applier
// applies. With a nil source, which is one that was not read, none is eligible: those that are not admitted are
// refused, and the others undecided. Targets are judged as [NamingTargets] lists them.
//
// SameRepository compares repositories; nil is gitref.SameRepository. Nothing is read.
func JudgeReferences(trigger Trigger, targets []Target, source *Source, sameRepository func(a, b string) bool) References {
	references := make(References, len(targets))
	for i, target := range targets {
		references[i] = judge(trigger.Applier, target, source, sameRepository)
	}
	return references
}

// judge judges one target. What refuses it does so whatever else is not known yet.
func judge(applier ApplierRef, target Target, source *Source, sameRepository func(a, b string) bool) Reference {
	reference := Reference{Target: target.Ref}
	written := target.Writes.Repository != "" && target.Writes.Branch != ""
	mismatch := ""
	if written && source != nil {
		mismatch = sourceMismatch(applier, *source, target.Writes, sameRepository)
	}
	switch admission := target.Admission; {
	case admission.State == NotAdmitted:
		reference.State, reference.Reason = ReferenceRefused, cmp.Or(admission.Reason, string(NotAdmitted))
		reference.Message = cmp.Or(admission.Message, "it may not use cluster "+applier.Cluster)
	case mismatch != "":
		reference.State, reference.Reason = ReferenceRefused, ReasonSourceMismatch
		reference.Message = mismatch
	case admission.State != Admitted:
		reference.Message = cmp.Or(admission.Message, "it is not known yet whether it may use cluster "+applier.Cluster)
	case !written:
		reference.Message = "it is not known yet which repository and branch are written for it"
	case source == nil:
		reference.Message = unknownSource(applier)
	default:
		reference.State = ReferenceEligible
	}
	return reference
}

// Named reports whether any target names the trigger.
func (refs References) Named() bool { return len(refs) > 0 }

// Eligible reports whether at least one target is eligible.
func (refs References) Eligible() bool {
	return slices.ContainsFunc(refs, func(r Reference) bool { return r.State == ReferenceEligible })
}

// Refused reports whether every target is refused for good: there is at least one, and none is eligible or may yet be.
func (refs References) Refused() bool {
	return refs.Named() && !slices.ContainsFunc(refs, func(r Reference) bool { return r.State != ReferenceRefused })
}

// Reason is why no target is eligible: the reason of the refusals if every one is refused for the same, ReasonNotReferenced if
// there is none, and ReasonNotBound otherwise. It is empty if one is eligible.
func (refs References) Reason() string {
	switch {
	case !refs.Named():
		return ReasonNotReferenced
	case refs.Eligible():
		return ""
	case refs.Refused() && !slices.ContainsFunc(refs, func(r Reference) bool { return r.Reason != refs[0].Reason }):
		return refs[0].Reason
	default:
		return ReasonNotBound
	}
}

// Message lists each target that is not eligible, and why. It is empty if there is none, and says so if no target
// names the trigger.
func (refs References) Message() string {
	if !refs.Named() {
		return "no target names the trigger"
	}
	var lines []string
	for _, r := range refs {
		if r.State != ReferenceEligible {
			lines = append(lines, fmt.Sprintf("target %s: %s", r.Target, r.Message))
		}
	}
	return strings.Join(lines, "; ")
}

// BindingMismatch returns why what the applier of trigger was last seen to apply from is not want, or "" when it is. A
// source that was not read yet is a mismatch too, since nothing may be asked for it. It reads what the trigger's status
// says: [Client].Request checks the same of the applier itself, before it writes.
//
// SameRepository compares repositories; nil is gitref.SameRepository.
func BindingMismatch(trigger Trigger, want Binding, sameRepository func(a, b string) bool) string {
	if trigger.Status.Source == nil {
		return unknownSource(trigger.Applier)
	}
	return sourceMismatch(trigger.Applier, trigger.Status.Source.Source, want, sameRepository)
}

func unknownSource(applier ApplierRef) string {
	return fmt.Sprintf("it is not known yet what %s applies from", applier)
}

// sourceMismatch returns why source is not want, or "" when it is.
func sourceMismatch(applier ApplierRef, source Source, want Binding, sameRepository func(a, b string) bool) string {
	applies := Binding{Repository: source.URL, Branch: source.Revision}
	if applies.Same(want, sameRepository) {
		return ""
	}
	if want.Repository == "" || want.Branch == "" {
		return fmt.Sprintf("%s applies %s, and it is not known yet what is wanted", applier, applies)
	}
	if _, err := gitref.Branch(source.Revision); err != nil {
		return fmt.Sprintf("%s applies from %s, and follows no branch: %v", applier, gitref.Redact(source.URL), err)
	}
	return fmt.Sprintf("%s applies %s, not %s: make them the same", applier, applies, want)
}

// isNamed reports whether both are of one name, whatever their UIDs.
func (r TriggerRef) isNamed(other TriggerRef) bool {
	return r.Namespace == other.Namespace && r.Name == other.Name
}
