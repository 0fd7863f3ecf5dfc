package applier

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what one request did.
type Outcome string

// The outcomes of a request. A backend of another kind may use a word of its own for what it started; Apply settles,
// when it is cancelled, only what is OutcomeResumed.
const (
	// OutcomeCurrent asked for nothing: the applier needs no request. There is nothing to follow.
	OutcomeCurrent Outcome = "Current"
	// OutcomeResumed resumed a held Flux Kustomization for one apply. It is to be followed until it
	// ends, because it is not suspended again before.
	OutcomeResumed Outcome = "Resumed"
	// OutcomeStamped asked a live Flux Kustomization to reconcile.
	OutcomeStamped Outcome = "Stamped"
	// OutcomeSyncRequested set an Argo CD Application's operation to a sync of the commit.
	OutcomeSyncRequested Outcome = "SyncRequested"
)

// Started is the operation that a request started or may have started, for [Client.Progress] to follow.
//
// It is a plain value: any backend fills it, any store keeps it. Its JSON is a record: it leaves out what concerns
// the process that follows, and who reads it gets a Started with Recovered set, because whoever reads a record did
// not start the operation.
type Started struct {
	// Outcome is what was asked, if anything.
	Outcome Outcome `json:"outcome"`
	// Token identifies the request in the applier's object and status. Empty when nothing was asked.
	Token string `json:"token,omitempty"`
	// Commit is the commit that was asked for.
	Commit string `json:"commit,omitempty"`
	// UID is the incarnation of the applier that was asked. An object of the same name with another one
	// is not this operation's. Empty is not compared.
	UID types.UID `json:"uid,omitempty"`
	// Baseline says what stood before the request, in the backend's own words, at most 1 KiB. Progress compares with it
	// what stands now. That of a record can be older than that of the Started that Request returns, if something
	// changed between the two; either serves.
	Baseline string `json:"baseline,omitempty"`
	// RequestedAt is when the request was made, by the clock of the process that made it. No client compares it with
	// anything: it is for people, and for a [Dispatcher], which reckons UnresolvedAfter from it. Zero is not known.
	RequestedAt metav1.MicroTime `json:"requestedAt,omitzero"`

	// SuspendToken is the token of the suspend after a Flux apply, once Progress wrote it.
	SuspendToken string `json:"suspendToken,omitempty"`

	// Recovered is an operation that this process read from a record: the write that would start it may never have
	// been made.
	Recovered bool `json:"-"`
	// Overdue is set by a host that gives up waiting: a resumed Flux Kustomization is then suspended at once, and an
	// Argo CD operation that somebody removed, or of which nothing is to be seen, ends. Any other still ends by itself and is
	// to be followed until it does. An operation that is Recovered or Unconfirmed, and resumed nothing, is Overdue after a
	// minute and a half at the earliest: until then, the process that recorded it may send the write that starts it, and an API
	// server make it.
	Overdue bool `json:"-"`
	// Unconfirmed is why it is not known whether the write that starts the operation was made; it wraps ErrUnconfirmed.
	// Nil for a write that was answered. Such an operation is followed like any other.
	Unconfirmed error `json:"-"`
	// Observed is the applier as a [Watcher] showed it since the last call of Progress, which reads it instead of
	// asking the API server, and clears it. Nil makes Progress read. It can be older than the client's own last
	// write. So an end is taken from it where it carries the operation's own token, the last one that was written
	// (SuspendToken once there is one, and Token before): that can only have been written since. Any other end (NotRun, Superseded,
	// Replaced) is taken from it only where a backend knows it to be newer than that write, by its resourceVersion say; else the
	// applier is read first.
	Observed *unstructured.Unstructured `json:"-"`
}

// UnmarshalJSON reads a record, and sets Recovered.
func (s *Started) UnmarshalJSON(record []byte) error {
	type plain Started
	if err := json.Unmarshal(record, (*plain)(s)); err != nil {
		return fmt.Errorf("the record of an operation: %w", err)
	}
	s.Recovered = true
	return nil
}

// lateStart is how long after its record the write that starts an operation may be made: a backend sends it within half a minute of
// Record, and an API server is at work on it for a minute at most.
const lateStart = 30*time.Second + lateWrite

// mayNotHaveBegun reports whether nothing may come of the operation. What may be resumed is suspended whenever it is given up, and by
// that write a late start can no longer be made.
func (s *Started) mayNotHaveBegun() bool {
	return s.Outcome != OutcomeResumed && (s.Recovered || s.Unconfirmed != nil)
}

// mayYetBegin is for how long an operation that is followed since then may yet begin, although nothing is seen of it; zero for one
// that has begun, or never will.
func (s *Started) mayYetBegin(since time.Time) time.Duration {
	if !s.mayNotHaveBegun() {
		return 0
	}
	return max(0, lateStart-time.Since(since))
}
