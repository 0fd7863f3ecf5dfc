package applier

import "k8s.io/apimachinery/pkg/runtime"

// The reasons of the Events that a [Dispatcher] records on targets. They are stable.
const (
	// EventReasonApplyRequested is a request that reached the applier, or may have: the message says which.
	EventReasonApplyRequested = "ApplyRequested"
	// EventReasonApplyRequestFailed is the first attempt of a run of them that failed before it started anything. It is
	// not repeated until a request has reached the applier again.
	EventReasonApplyRequestFailed = "ApplyRequestFailed"
	// EventReasonApplyFailed is the first operation of a run of them that ended Failed. It is not repeated until one
	// has succeeded.
	EventReasonApplyFailed = "ApplyFailed"
	// EventReasonApplyUnresolved is an operation that did not complete within UnresolvedAfter. It is still followed.
	EventReasonApplyUnresolved = "ApplyUnresolved"
)

// Events records Events on objects of the host's. The EventRecorder of k8s.io/client-go/tools/record is one. It is
// called from several goroutines and must not block.
type Events interface {
	// Event records one. The type is Normal or Warning, as in the Kubernetes API.
	Event(object runtime.Object, eventtype, reason, message string)
}

// The types of an Event; k8s.io/api/core/v1 has the same.
const (
	eventNormal  = "Normal"
	eventWarning = "Warning"
)
