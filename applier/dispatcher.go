package applier

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// The times of a [Dispatcher] whose fields are zero.
const (
	// DefaultAttemptTimeout bounds one attempt up to its request.
	DefaultAttemptTimeout = 30 * time.Second
	// DefaultOperationWait bounds how long an attempt waits for an operation in progress on the applier.
	DefaultOperationWait = 5 * time.Minute
	// DefaultUnresolvedAfter is how long an operation may take before it is unresolved. One that waits for health
	// can take minutes.
	DefaultUnresolvedAfter = 5 * time.Minute
	// DefaultUnresolvedPollMax caps the interval at which an unresolved operation is polled.
	DefaultUnresolvedPollMax = time.Minute
	// DefaultStopTimeout bounds how long a stop waits for the attempts to leave what they do.
	DefaultStopTimeout = 10 * time.Second
)

// Dispatcher carries out the apply requests that a host's workers decide, for any number of appliers in any number of
// clusters.
//
// It keeps no queue and decides nothing. Each request is one attempt for one trigger, carried out on a goroutine of
// its own and reported back to the worker that decided it: the request, and then the operation that it started as it
// moves, until it completes or the worker abandons it. The worker keeps the reason pending until an operation answers
// it, and decides every retry. So nothing goes out that no worker decided, and a delay turns no decision into an apply
// that nobody checked.
//
// What it checks is what can change between the decision and the write. Before it asks, and again right before the operation
// is recorded, it reads the trigger and every target: it asks only for the sake of targets that are the incarnation the
// decision was made for, still name the trigger, still write to the branch, are still admitted and, for a Refusal, still
// consent; and only while no other trigger holds the applier. With none left it asks nothing at all, rather than something
// weaker. Then the applier's backend checks what the applier applies from, before it writes.
//
// It bounds nothing: a thousand requests at once are a thousand attempts, which share the rate limits of the host's clients. See
// docs/rbac.md for what to set them to.
//
// Make one with NewDispatcher; the zero value cannot be used. A Dispatcher satisfies the Runnable and LeaderElectionRunnable of
// controller-runtime by shape. Its exported fields are set before Start. It is safe for concurrent use.
//
// Run one at a time: on the leader. Two at once break none of the guarantees about appliers, and a trigger still holds one
// open operation; but each follows what it recorded without knowing of the other, so one may cut the other's
// operation short.
type Dispatcher struct {
	// AttemptTimeout bounds one attempt up to its request: a cluster that does not answer fails it, and so does a source that takes longer
	// to fetch, or a queue in a client's own rate limit. One that finds an operation in progress may take OperationWait longer. Zero is
	// DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// OperationWait bounds how long an attempt waits for an operation in progress on the applier to end. Zero is
	// DefaultOperationWait; negative does not wait.
	OperationWait time.Duration
	// UnresolvedAfter is how long an operation may take before it is reported as unresolved. A Flux Kustomization is then
	// suspended at once, which does not stop an apply already running. It is followed on. Zero is
	// DefaultUnresolvedAfter. A recovered operation has half a minute at least, since it may have ended while
	// nobody followed it, and one that resumed nothing and may not have begun has a minute and a half, in which it may yet begin.
	UnresolvedAfter time.Duration
	// PollInterval is how often an operation is read where the applier cannot be watched. Zero is DefaultPollInterval.
	PollInterval time.Duration
	// UnresolvedPollMax caps that interval, which doubles, for an operation that is unresolved or whose reads fail. Zero is
	// DefaultUnresolvedPollMax.
	UnresolvedPollMax time.Duration
	// StopTimeout bounds how long Start waits, once its context ended, for attempts to leave what they do. Zero is
	// DefaultStopTimeout.
	StopTimeout time.Duration
	// Events records Events on targets; nil records none.
	Events Events
	// Metrics is told what happens; nil is told nothing.
	Metrics Metrics
	// Log gets what happens. Its keys are trigger, applier, cluster, token and commit. The zero value logs nothing.
	Log logr.Logger
	// Tokens makes the token of each request. Nil is NewToken.
	Tokens Tokens
	// Now is the clock of the times that records show, and by which the age of a recovered operation is reckoned. Nil is time.Now.
	Now func() time.Time
	// SameRepository compares what targets write with what an attempt is for. Nil is gitref.SameRepository.
	SameRepository func(a, b string) bool

	store    Store
	status   *StatusWriter
	backends Backends
	clusters Clients
	// attempts are those on a goroutine.
	attempts sync.WaitGroup

	// runs is closed by Start.
	runs chan struct{}

	mu sync.Mutex
	// running is the context of Start; nil before.
	running context.Context
	// waiting are recovered attempts that came before Start.
	waiting []*attempt
	// following counts the attempts that carry out or follow an operation.
	following map[operationKey]int
	// requestFailed and applyFailed are the triggers that are in a run of failures an Event was recorded for, and when each failed last.
	requestFailed, applyFailed map[TriggerRef]time.Time
	// clients are those that attempts use, and the newest of each key after that for a while. The newest is the last.
	clients  map[clientKey][]*knownClient
	searches map[clientKey]*reaching
}

// recoveryTime is how long a recovered operation has at least to end before it is unresolved.
const recoveryTime = 30 * time.Second

// operationKey identifies an operation of a trigger. The token tells incarnations apart.
type operationKey struct {
	namespace, name, token string
}

func keyOf(trigger TriggerRef, token string) operationKey {
	return operationKey{trigger.Namespace, trigger.Name, token}
}

// The errors of attempts that a dispatcher cannot carry out.
var (
	errNotRunning = errors.New("the dispatcher does not run: ask again once Start was called, and not after its context ended")
	errAbandoned  = errors.New("the attempt was abandoned")
	errTimeout    = errors.New("the attempt took longer than AttemptTimeout to make its request")
	errUnresolved = errors.New("the operation took longer than UnresolvedAfter")
)

// NewDispatcher returns a Dispatcher that reads triggers and targets from store, records operations through status,
// which is to be a StatusWriter over the same store, and reaches appliers through backends and clients. It makes no
// request and starts nothing.
func NewDispatcher(store Store, status *StatusWriter, backends Backends, clients Clients) *Dispatcher {
	return &Dispatcher{
		store: store, status: status, backends: backends, clusters: clients,
		runs:          make(chan struct{}),
		following:     make(map[operationKey]int),
		requestFailed: make(map[TriggerRef]time.Time),
		applyFailed:   make(map[TriggerRef]time.Time),
		clients:       make(map[clientKey][]*knownClient),
		searches:      make(map[clientKey]*reaching),
	}
}

// NeedLeaderElection is true: the workers that decide requests run on the leader alone.
func (d *Dispatcher) NeedLeaderElection() bool { return true }

// Start carries out attempts until ctx ends. Then it sends no more starting writes, leaves what is in flight to the next
// process, which finds it in the records, and returns nil once every attempt has left, or an error
// after StopTimeout if one has not. It is called once.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.mu.Lock()
	if d.running != nil {
		d.mu.Unlock()
		return errors.New("a Dispatcher is started once: make another")
	}
	d.running = ctx
	for _, a := range d.waiting {
		d.launch(a)
	}
	d.attempts.Go(func() { d.tend(ctx) })
	d.waiting = nil
	close(d.runs)
	d.mu.Unlock()

	<-ctx.Done()
	d.mu.Lock() // No attempt is launched once it is released.
	left := make(chan struct{})
	go func() {
		d.attempts.Wait()
		close(left)
	}()
	d.mu.Unlock()
	timeout := time.NewTimer(orDefault(d.StopTimeout, DefaultStopTimeout))
	defer timeout.Stop()
	select {
	case <-left:
		return nil
	case <-timeout.C:
		return errors.New("the dispatcher stopped before every attempt had left: a backend or a store does not heed its context")
	}
}

// tend does what is due once a minute, until ctx ends.
func (d *Dispatcher) tend(ctx context.Context) {
	for sleep(ctx, clientRenewal); ctx.Err() == nil; sleep(ctx, clientRenewal) {
		d.renewClients(ctx)
		d.forgetRuns()
	}
}

// Running returns a channel that is closed once Start carries out attempts. It stays closed after the stop.
func (d *Dispatcher) Running() <-chan struct{} { return d.runs }

// launch carries out an attempt on a goroutine of its own. The lock is held, and the dispatcher runs.
func (d *Dispatcher) launch(a *attempt) {
	running := d.running
	d.attempts.Go(func() { a.run(running) })
}

// Following reports whether an attempt carries out or follows the operation with token on trigger: from before it is recorded,
// or was handed over as Recovered, until it has completed or, abandoned, its applier is suspended again; and whether its end,
// or that it was not started, is still to be written on the trigger. A reconciler of triggers asks
// before it leaves a Kustomization resumed for the sake of a recorded operation: one that this process does not follow is
// followed by nobody.
func (d *Dispatcher) Following(trigger TriggerRef, token string) bool {
	d.mu.Lock()
	followed := d.following[keyOf(trigger, token)] > 0
	d.mu.Unlock()
	return followed || d.status.isPending(trigger, token)
}

// countFollower counts an attempt as one that follows the operation key, or no longer.
func (d *Dispatcher) countFollower(key operationKey, change int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.countFollowerLocked(key, change)
}

// countFollowerLocked is countFollower for who has the lock.
func (d *Dispatcher) countFollowerLocked(key operationKey, change int) {
	d.following[key] += change
	if d.following[key] == 0 {
		delete(d.following, key)
	}
}

func (d *Dispatcher) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}

// pace is how often an operation is polled, and what has failed is tried again.
func (d *Dispatcher) pace() Follower {
	return Follower{PollInterval: d.PollInterval, PollMax: orDefault(d.UnresolvedPollMax, DefaultUnresolvedPollMax)}
}

func (d *Dispatcher) newToken() string {
	if d.Tokens != nil {
		return d.Tokens()
	}
	return NewToken()
}

func (d *Dispatcher) metrics() Metrics {
	if d.Metrics != nil {
		return d.Metrics
	}
	return noMetrics{}
}

func orDefault(d, standard time.Duration) time.Duration {
	if d == 0 {
		return standard
	}
	return d
}
