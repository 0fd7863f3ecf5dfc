package applier

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Outcome is what one request did.
type Outcome string

// The outcomes of a request. A backend of another kind may use a word of its own for what it started; Apply settles, when it is
// cancelled, only what is OutcomeResumed.
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
// It is a plain value: any backend fills it, any store keeps it. A record has to keep Outcome, Token, Commit,
// UID, Baseline, RequestedAt and, once it is set, SuspendToken. Recovered, Overdue, Unconfirmed and Observed
// are of the process that follows.
type Started struct {
	// Outcome is what was asked, if anything.
	Outcome Outcome
	// Token identifies the request in the applier's object and status. Empty when nothing was asked.
	Token string
	// Commit is the commit that was asked for.
	Commit string
	// UID is the incarnation of the applier that was asked. An object of the same name with another one
	// is not this operation's. Empty is not compared.
	UID types.UID
	// Baseline says what stood before the request, in the backend's own words, at most 1 KiB. Progress compares with it
	// what stands now. That of a record can be older than that of the Started that Request returns, if something
	// changed between the two; either serves.
	Baseline string
	// RequestedAt is when the request was made, by the clock of the process that made it. No client
	// compares it with anything: it is for people.
	RequestedAt time.Time

	// SuspendToken is the token of the suspend after a Flux apply, once Progress wrote it.
	SuspendToken string

	// Recovered is set by a host that read the operation from a record: the write that would
	// start it may never have been made.
	Recovered bool
	// Overdue is set by a host that gives up waiting: a resumed Flux Kustomization is then suspended at
	// once. The operation still ends by itself and is to be followed until it does.
	Overdue bool
	// Unconfirmed is why it is not known whether the write that starts the operation was made; it wraps ErrUnconfirmed.
	// Nil for a write that was answered. Such an operation is followed like any other.
	Unconfirmed error
	// Observed is the applier as a [Watcher] showed it since the last call of Progress, which reads it
	// instead of asking the API server, and clears it. Nil makes Progress read. It can be older than the client's own last
	// write: what it shows is then no end of the operation.
	Observed *unstructured.Unstructured
}
