package applier

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// TriggerRef names one incarnation of a [Trigger]. It is comparable.
type TriggerRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID tells it from another trigger of the same name, before or after it. Empty is any.
	UID types.UID `json:"uid,omitempty"`
}

// String returns namespace/name.
func (r TriggerRef) String() string { return r.Namespace + "/" + r.Name }

// TargetRef names one incarnation of a [Target]. It is comparable.
type TargetRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID tells it from another target of the same name, before or after it. Empty is any.
	UID types.UID `json:"uid,omitempty"`
}

// String returns namespace/name.
func (r TargetRef) String() string { return r.Namespace + "/" + r.Name }

// ApplierRef names an applier. It is comparable, and names whichever object has the name: Started.UID is the
// incarnation that was asked.
type ApplierRef struct {
	// Cluster is the host's name for the cluster that the applier is in; see [Clients].
	Cluster string `json:"cluster"`
	// Group and Kind are the applier's kind, such as kustomize.toolkit.fluxcd.io and Kustomization.
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// GroupKind returns the applier's kind, by which [Backends] finds its backend.
func (r ApplierRef) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: r.Group, Kind: r.Kind}
}

// NamespacedName returns the name of the object in its cluster.
func (r ApplierRef) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// String names the applier in a message, as every error of a backend does.
func (r ApplierRef) String() string {
	return r.Kind + " " + r.Namespace + "/" + r.Name + " in cluster " + r.Cluster
}

// Trigger is the host's record that names one applier, and the durable home of that applier's operation. The host
// fills it from an object of its own; see [Store].
type Trigger struct {
	// Ref names it, with the UID.
	Ref TriggerRef
	// Created is when it was created. Of two triggers of one applier, the older comes first; see [HeldByAnother].
	Created time.Time
	// Deleting is whether it is being deleted. It is then asked nothing.
	Deleting bool
	// Applier is the applier that it names now. An operation names its own; see [Operation].
	Applier ApplierRef
	// Live is whether its applier is asked as [Ask].Live says, and never held.
	Live bool
	// Holding is whether it holds its applier suspended, or hands it back or over: as long as it carries the finalizer
	// by which the host sees to that. See [Holding].
	Holding bool
	// Status is what is written by way of the Store.
	Status TriggerStatus
}

// TriggerStatus is the part of a trigger that [Store].UpdateStatus writes. A StatusWriter and so a Dispatcher write
// Operation and RepairPending; the host's reconciler of the trigger writes the rest. Its JSON is a record that a host can
// keep as it is.
type TriggerStatus struct {
	// Operation is the operation last recorded, open or completed; nil before the first.
	Operation *Operation `json:"operation,omitempty"`
	// RepairPending is whether the host has yet to ask for a [Repair]. It is the host's own, and kept here so that it
	// outlives the process.
	RepairPending bool `json:"repairPending,omitempty"`
	// Source is what the applier applied from when it was last validated; nil if that is not known.
	Source *TriggerSource `json:"source,omitempty"`
	// Held is whether the applier is held suspended, with that suspend handled, or resumed by the trigger's own
	// operation. While it is not, an applier that needs to be held is asked nothing: a resume would race whoever is
	// just suspending it.
	Held bool `json:"held,omitempty"`
}

// DeepCopyInto copies s into out. With it and DeepCopy a TriggerStatus can be a field of a host's own API type.
func (s *TriggerStatus) DeepCopyInto(out *TriggerStatus) {
	*out = *s
	out.Operation = s.Operation.DeepCopy()
	if s.Source != nil {
		out.Source = new(*s.Source)
	}
}

// DeepCopy returns a copy of s that shares nothing with it; nil for nil.
func (s *TriggerStatus) DeepCopy() *TriggerStatus {
	if s == nil {
		return nil
	}
	out := new(TriggerStatus)
	s.DeepCopyInto(out)
	return out
}

// TriggerSource is what the applier of a trigger applies from.
type TriggerSource struct {
	Source `json:",inline"`
	// Prefetch is whether the source may be made to fetch before anything is asked: its consumers were looked at, and
	// none of them applies on its own whatever it fetches. See [Dispatcher.PrefetchSource].
	Prefetch bool `json:"prefetch,omitempty"`
}

// Target is the host's object (a repository, a branch and a folder that the host writes) that names a trigger: those
// for whose sake the trigger's applier is asked. The host fills it from an object of its own; see [Store].
type Target struct {
	// Ref names it, with the UID.
	Ref TargetRef
	// Deleting is whether it is being deleted. Nothing is asked for its sake then.
	Deleting bool
	// Trigger is the trigger that it names, without a UID. Zero names none.
	Trigger TriggerRef
	// Writes is the repository and branch that the host writes for it. Zero says that they are not known yet.
	Writes Binding
	// Admission is the host's judgement whether the target may use the cluster of its trigger's applier.
	Admission Admission
	// RefusalConsent is whether it agrees that a change in the cluster is refused, which a [Refusal] is asked for.
	RefusalConsent bool
	// Object is what Events about the target are recorded on, such as the host's own object; nil records none.
	Object runtime.Object
}

// Admission is the host's judgement whether a target may use a cluster.
type Admission struct {
	State AdmissionState
	// Reason is a word for a condition, such as NamespaceNotAuthorized, for a target that is refused.
	Reason string
	// Message is for people.
	Message string
}

// AdmissionState is how an [Admission] was judged. The zero value is not judged: nothing is asked for such a target.
type AdmissionState string

// The states of an admission.
const (
	// AdmissionUndecided is a target that cannot be judged yet: something that it names is missing or was not read.
	AdmissionUndecided AdmissionState = ""
	// Admitted is a target that may use the cluster.
	Admitted AdmissionState = "Admitted"
	// NotAdmitted is a target that may not.
	NotAdmitted AdmissionState = "NotAdmitted"
)
