package gitopsprovider

import "context"

// ResourceStatus is how one object is doing, and why.
type ResourceStatus struct {
	Workload Workload `json:"workload"`
	Engine   Engine   `json:"engine,omitempty"`
	// Answer is what the read established. An object that is absent is often the root of what else fails.
	Answer Answer `json:"answer"`
	// Message says for people why there is no more to tell, and what mends it. Empty if the object was found and its
	// fields could be read.
	Message string `json:"message,omitempty"`
	// Ready is what the object says of itself. An object that was not found has the zero value.
	Ready Condition `json:"ready"`
	// Suspended is an object that its controller passes over, Deleting one that is being deleted.
	Suspended bool `json:"suspended,omitempty"`
	Deleting  bool `json:"deleting,omitempty"`
	// References are what it gets its content from and waits for.
	References []Reference `json:"references,omitempty"`
	// Events are the newest, at most MaxEvents, the oldest of them first.
	Events []Event `json:"events,omitempty"`
	// EventsAnswer is what the read of the Events established, EventsMessage why there are none, if that is not that
	// none happened.
	EventsAnswer  Answer `json:"eventsAnswer"`
	EventsMessage string `json:"eventsMessage,omitempty"`
	// Err is the error of the read, if it failed.
	Err error `json:"-"`
}

// MaxEvents bounds the Events of a ResourceStatus.
const MaxEvents = 25

// ResourceStatus returns how an object is doing: Ready, its reason and message, its key references, and its recent
// Events. It reads the object once and its Events once. The Events of an object that is absent are read as well: they
// may tell where it went.
func (v *Views) ResourceStatus(ctx context.Context, w Workload) (ResourceStatus, error) {
	w, reader, _, err := v.resolve(w)
	if err != nil {
		return ResourceStatus{}, err
	}
	object, err := reader.Get(ctx, w)
	if ctx.Err() != nil {
		return ResourceStatus{}, context.Cause(ctx)
	}
	status := ResourceStatus{
		Workload: w, Engine: object.Engine, Answer: AnswerOf(err), Message: v.describe(w, err), Err: err,
		Ready: object.Ready, Suspended: object.Suspended, Deleting: object.Deleting, References: object.References,
	}
	if err != nil {
		object = Object{Workload: w}
	} else if object.Err != nil {
		status.Message = v.malformed(object)
	}
	if status.Answer == AnswerNotServed {
		return status, nil
	}
	events, err := reader.Events(ctx, object)
	if ctx.Err() != nil {
		return ResourceStatus{}, context.Cause(ctx)
	}
	status.EventsAnswer = AnswerOf(err)
	status.EventsMessage = describeRead("read", "get and list", "the Events of "+v.named(w), err)
	status.Events = events[max(0, len(events)-MaxEvents):]
	return status, nil
}

// malformed says what is wrong with the fields of an object.
func (v *Views) malformed(o Object) string { return v.named(o.Workload) + ": " + o.Err.Error() }
