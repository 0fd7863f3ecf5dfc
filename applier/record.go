package applier

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operation is the durable record of an operation, on the trigger that it was asked for. It names the applier itself:
// recovery follows the record, also where the trigger names another applier by then.
//
// It is a plain value, with the types of the Kubernetes API: a host may keep it in a status of its own, and compare it there by
// equality.Semantic. Its JSON is what a [Store] keeps, with times in UTC to the microsecond.
type Operation struct {
	// Applier is the applier that was asked.
	Applier ApplierRef `json:"applier"`
	// Want is the repository and branch that it had to apply from.
	Want Binding `json:"want"`
	// Reason is why it was asked.
	Reason ApplyReason `json:"reason,omitempty"`
	// Targets are those for whose sake it was asked.
	Targets []TargetRef `json:"targets,omitempty"`
	// Started is what was started, for Progress to follow. Its Token identifies the operation.
	Started Started `json:"started"`
	// Progress is where it stands, as last recorded. Its state is StateRequested from the moment of the record on.
	Progress Progress `json:"progress"`
	// Unresolved is whether it outlived the dispatcher's UnresolvedAfter. It is still followed.
	Unresolved bool `json:"unresolved,omitempty"`
	// CompletedAt is when its end was seen, by the clock of the process that saw it; zero while it is open.
	CompletedAt metav1.MicroTime `json:"completedAt,omitzero"`
}

// DeepCopyInto copies o into out. With it and DeepCopy an Operation can be a field of a host's own API type.
func (o *Operation) DeepCopyInto(out *Operation) {
	*out = *o
	out.Targets = slices.Clone(o.Targets)
	if o.Started.Observed != nil {
		out.Started.Observed = o.Started.Observed.DeepCopy()
	}
}

// DeepCopy returns a copy of o that shares nothing with it; nil for nil.
func (o *Operation) DeepCopy() *Operation {
	if o == nil {
		return nil
	}
	out := new(Operation)
	o.DeepCopyInto(out)
	return out
}

// Completed reports whether the operation has ended. One that has not is open: it is to be followed. A nil one has not.
func (o *Operation) Completed() bool { return o != nil && o.Progress.State.Ended() }

// IsSame reports whether other is a record of this operation, at whichever point.
func (o *Operation) IsSame(other *Operation) bool {
	return o != nil && other != nil && o.Started.Token == other.Started.Token && o.Applier == other.Applier
}

// AppliedOther reports whether the operation succeeded at another revision than the commit asked for.
func (o *Operation) AppliedOther() bool {
	return o.Progress.State == StateSucceeded && o.Progress.AppliedCommit != o.Started.Commit
}
