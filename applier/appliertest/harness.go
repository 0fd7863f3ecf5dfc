package appliertest

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Harness is what a backend's author gives to [Run].
type Harness struct {
	// New makes one applier that nothing else uses, bound to a repository and branch, with nothing going on. It is called
	// at least once for each clause, and many times where a clause breaks each request of an operation in turn; what it
	// needs ended is ended by t.Cleanup. A harness that cannot make one calls t.Fatal. Required.
	New func(t testing.TB) *Applier
	// Wrap is what the check of each clause runs in. synctest.Test fits, for a cluster in memory. Nil runs it as it
	// is, for a real cluster.
	Wrap func(t *testing.T, check func(t *testing.T))
	// Lacks names what the backend or the harness cannot do. A capability that is missing and not named, or named and not
	// missing, fails the suite, so that none gets lost unnoticed.
	Lacks []Capability
	// Timeout bounds how long one operation may take to its end, and every other wait. Zero is one minute. It is time
	// of the bubble where Wrap makes one.
	Timeout time.Duration
	// Quiet is how long an operation that nothing happens to is watched for requests. Zero is ten seconds.
	Quiet time.Duration
	// Parallel runs the clauses at the same time.
	Parallel bool
}

// Applier is one applier in one cluster, and what a test can do to it. The functions after API are optional; each says
// which [Capability] it is.
type Applier struct {
	// Cluster is the cluster's name for messages, which NewClient gives to the client. Required.
	Cluster string
	// Ref is the applier. Required.
	Ref types.NamespacedName
	// Want is the repository and branch that it applies from. Required.
	Want applier.Binding
	// Live makes every ask a Live one. The suite then does not hold the applier.
	Live bool
	// NewClient makes a client as a process of the host does when it starts, which reaches the cluster through api
	// alone. It makes no request. Required.
	NewClient func(api dynamic.Interface) (applier.Client, error)
	// Push makes a new commit in the repository, on the branch, and returns its full hash. The applier can apply it. It
	// does not wait for anything in the cluster. Required.
	Push func(ctx context.Context) (commit string, err error)
	// Applied returns the commit that the cluster really holds, read from what was applied and not
	// from the applier's status; empty where none was. Required.
	Applied func(ctx context.Context) (commit string, err error)

	// API is the cluster, with every right. The suite counts, breaks and delays the client's requests on their
	// way to it, and looks at the applier, deletes and replaces it. Nil lacks API.
	API dynamic.Interface
	// Resource is the applier's kind in API; required with it.
	Resource schema.GroupVersionResource

	// PushBroken makes a commit that the applier cannot apply, and returns a part of the message that the applier
	// will report. Nil lacks PushBroken.
	PushBroken func(ctx context.Context) (commit, message string, err error)
	// PushStuck makes a commit whose apply starts and does not end before release is called. Nil lacks PushStuck.
	PushStuck func(ctx context.Context) (commit string, release func(ctx context.Context) error, err error)
	// Retarget makes somebody else point the applier to another repository or branch. Nil lacks Retarget.
	Retarget func(ctx context.Context) error
	// ForeignOperation makes somebody else start an operation on the applier that does not end before release is
	// called. Nil lacks ForeignOperation.
	ForeignOperation func(ctx context.Context) (release func(ctx context.Context) error, err error)
	// Hands are what somebody else may do to the applier at any moment of an operation, such as what a command-line
	// tool of the engine does. Whatever is done, each operation ends, and tells the truth. None lacks Hands.
	Hands []Hand
}

// Hand is something that somebody else does to an applier.
type Hand struct {
	// Name says what, such as "flux suspend".
	Name string
	// Act does it. It is also called on an applier that it makes no difference to.
	Act func(ctx context.Context) error
	// Undo makes the applier fit to be asked again. Nil is for what leaves it so.
	Undo func(ctx context.Context) error
}

// Capability is something that not every backend, or not every harness, can do. A clause that needs one that is lacking is
// reported as not checked.
type Capability string

// The capabilities of a client.
const (
	// Holder is a client that implements [applier.Holder], and asks that are not Live.
	Holder Capability = "Holder"
	// Prefetcher is a client that implements [applier.Prefetcher].
	Prefetcher Capability = "Prefetcher"
	// Watcher is a client that implements [applier.Watcher].
	Watcher Capability = "Watcher"
)

// The capabilities of a harness: the fields of [Applier] of the same name.
const (
	API              Capability = "API"
	PushBroken       Capability = "PushBroken"
	PushStuck        Capability = "PushStuck"
	Retarget         Capability = "Retarget"
	ForeignOperation Capability = "ForeignOperation"
	Hands            Capability = "Hands"
)

// capabilities lists all, in the order of reports.
var capabilities = []Capability{Holder, Prefetcher, Watcher, API, PushBroken, PushStuck, Retarget, ForeignOperation, Hands}

// can reports whether the applier and a client for it have a capability.
func (a *Applier) can(client applier.Client, capability Capability) bool {
	var has bool
	switch capability {
	case Holder:
		_, has = applier.AsHolder(client)
		has = has && !a.Live
	case Prefetcher:
		_, has = applier.AsPrefetcher(client)
	case Watcher:
		_, has = applier.AsWatcher(client)
	case API:
		has = a.API != nil
	case PushBroken:
		has = a.PushBroken != nil
	case PushStuck:
		has = a.PushStuck != nil
	case Retarget:
		has = a.Retarget != nil
	case ForeignOperation:
		has = a.ForeignOperation != nil
	case Hands:
		has = len(a.Hands) > 0
	}
	return has
}
