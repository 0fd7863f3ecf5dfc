package fake

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Client is an [applier.Client] and [applier.Watcher] whose answers a test scripts and whose asks it reads back. It
// needs no cluster: a host's unit test states what the applier answers, and asserts what the host makes of it.
//
// The zero value answers every request the way a held Flux Kustomization does that applies what it is asked. Its fields
// are set before the first call. It is safe for concurrent use, works inside and outside a testing/synctest bubble, and
// starts no goroutine but that of a watch, which ends with the watch's context.
//
// It honours the contract towards its caller: a bad ask is refused by [applier.Ask.Validate]; Current, Held and Record
// are called when and as often as the contract says; an operation that was recorded can be followed after a restart
// of the host, by the same Client. It does not imitate an applier: operations of one applier do not wait for
// each other, nothing is held between them, and what it reports to have applied exists nowhere. It is no
// [applier.Holder] and no [applier.Prefetcher]. Use a Cluster where that matters.
type Client struct {
	// Answers are the answers to the requests, in their order. The last one stands for all that follow, and
	// without any the zero Answer does.
	Answers []Answer
	// Appliers are the appliers that exist. Without any, whichever is asked exists.
	Appliers []types.NamespacedName
	// Verdict is the answer of Validate. One that is not OK also refuses every request. Without a Reason it is OK,
	// with Source as the source.
	Verdict applier.Verdict
	// Source is what the appliers apply from. A request for another repository or branch is then refused as
	// [applier.ReasonSourceMismatch]. Without a URL the appliers apply from wherever they are asked to.
	Source applier.Source

	mu         sync.Mutex
	asked      []Asked
	operations map[string]*operation
	applied    map[types.NamespacedName]string
	changed    chan struct{}
}

var (
	_ applier.Client  = (*Client)(nil)
	_ applier.Watcher = (*Client)(nil)
)

// Answer is how a [Client] answers one request, and how the operation goes that the request started. The zero
// value starts an operation that succeeds at the commit asked for.
type Answer struct {
	// Refuse, if set, is why the request starts nothing. The error that the caller gets wraps it. Mark it with
	// [applier.Permanent], or return [applier.Verdict.AsError], as a backend would.
	Refuse error
	// Outcome is what the request did; empty is OutcomeResumed, or OutcomeStamped for a Live ask. OutcomeCurrent
	// starts no operation.
	Outcome applier.Outcome
	// Unconfirmed, if set, is why the caller is not told whether the operation was started. It goes on as
	// Steps says, and Started.Unconfirmed wraps it and ErrUnconfirmed.
	Unconfirmed error
	// Steps are what Progress reports of the operation, one after the other; the last one stays. Without any they are
	// Requested, Running and Succeeded, with Settling before the end of a resumed operation. A script
	// that does not end leaves the operation running until [Client.Report] ends it.
	//
	// A Succeeded step without a revision is at the commit asked for, an end without a Reason gets
	// Succeeded or Failed, and a step without a Message one such as a backend gives.
	Steps []applier.Progress
	// Every is how long each step but the last stands. Zero lets it stand until it was reported once.
	Every time.Duration
}

// Fails is the answer of an applier that takes the request up and fails.
func Fails(reason, message string) Answer {
	return Answer{Steps: []applier.Progress{
		{State: applier.StateRequested},
		{State: applier.StateRunning},
		{State: applier.StateFailed, Reason: reason, Message: message},
	}}
}

// Hangs is the answer of an applier that takes the request up and comes to no end; [Client.Report] ends it.
func Hangs() Answer {
	return Answer{Steps: []applier.Progress{{State: applier.StateRequested}, {State: applier.StateRunning}}}
}

// Asked is one request that a [Client] got.
type Asked struct {
	// Ref is the applier that was asked.
	Ref types.NamespacedName
	// Ask is what was asked.
	Ask applier.Ask
	// Started is what was answered; its Outcome is empty when Err is set, or while the request is still going on.
	Started applier.Started
	// Err is why nothing was started.
	Err error
}

// Backend returns a backend that serves kind by this client, in every cluster.
func (c *Client) Backend(kind schema.GroupKind) applier.Backend {
	return applier.Backend{Kind: kind, New: func(string, dynamic.Interface) (applier.Client, error) { return c, nil }}
}

// Asks returns the requests so far, in the order in which they were made, refused ones included.
func (c *Client) Asks() []Asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.asked)
}

// Report makes step the present one of every operation of the applier ref that has not ended, in place of what is left
// of their scripts. It is how a test lets an operation go on when the test wants it to.
func (c *Client) Report(ref types.NamespacedName, step applier.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.operations {
		if o.ref == ref && !o.steps[o.present(time.Now())].State.Ended() {
			o.steps, o.next, o.every = []applier.Progress{o.complete(step)}, 0, 0
		}
	}
	c.wake()
}

// Validate returns the Verdict.
func (c *Client) Validate(_ context.Context, ref types.NamespacedName) applier.Verdict {
	if len(c.Appliers) > 0 && !slices.Contains(c.Appliers, ref) {
		return applier.Verdict{Reason: applier.ReasonApplierNotFound, Message: name(ref) + " does not exist: name it in Client.Appliers"}
	}
	verdict := c.Verdict
	if verdict.Reason == "" {
		verdict.OK, verdict.Reason = true, applier.ReasonSucceeded
	}
	if verdict.Message == "" {
		verdict.Message = fmt.Sprintf("%s: %s", name(ref), verdict.Reason)
	}
	if verdict.Source == nil && c.Source.URL != "" {
		source := c.Source
		source.URL = gitref.Redact(source.URL)
		verdict.Source = &source
	}
	return verdict
}

// Request answers as the next of the Answers says.
func (c *Client) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	answer, number := c.take(ref, ask)
	started, err := c.request(ctx, ref, ask, answer)
	if err != nil {
		started, err = applier.Started{}, fmt.Errorf("%s: %w", name(ref), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[number].Started, c.asked[number].Err = started, err
	return started, err
}

// take notes the request and returns its answer and its number.
func (c *Client) take(ref types.NamespacedName, ask applier.Ask) (Answer, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number := len(c.asked)
	c.asked = append(c.asked, Asked{Ref: ref, Ask: ask})
	switch {
	case len(c.Answers) == 0:
		return Answer{}, number
	case number >= len(c.Answers):
		return c.Answers[len(c.Answers)-1], number
	default:
		return c.Answers[number], number
	}
}

func (c *Client) request(ctx context.Context, ref types.NamespacedName, ask applier.Ask, answer Answer) (applier.Started, error) {
	if err := ask.Validate(); err != nil {
		return applier.Started{}, err
	}
	if err := c.refuse(ctx, ref, ask, answer); err != nil {
		return applier.Started{}, err
	}
	s := applier.Started{Outcome: answer.Outcome, Commit: ask.Commit, UID: types.UID("uid-of-" + ref.String()), RequestedAt: metav1.NowMicro()}
	switch {
	case ask.Commit == "", c.needsNothing(ref, ask):
		s.Outcome = applier.OutcomeCurrent
	case s.Outcome == "" && ask.Live:
		s.Outcome = applier.OutcomeStamped
	case s.Outcome == "":
		s.Outcome = applier.OutcomeResumed
	}
	if s.Outcome == applier.OutcomeCurrent {
		return s, nil
	}
	s.Token = ask.Token
	if err := decide(ctx, ask, s); err != nil {
		return applier.Started{}, err
	}
	c.start(ref, ask, s, answer)
	if answer.Unconfirmed != nil {
		s.Unconfirmed = fmt.Errorf("%s: %w: %w", name(ref), applier.ErrUnconfirmed, answer.Unconfirmed)
	}
	return s, nil
}

// refuse returns why the request is not even considered.
func (c *Client) refuse(ctx context.Context, ref types.NamespacedName, ask applier.Ask, answer Answer) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := c.Validate(ctx, ref).AsError(); err != nil {
		return err
	}
	if c.Source.URL != "" && (!gitref.SameRepository(c.Source.URL, ask.Want.Repository) || !gitref.SameBranch(c.Source.Revision, ask.Want.Branch)) {
		return applier.Verdict{
			Reason: applier.ReasonSourceMismatch,
			Message: fmt.Sprintf("it applies branch %s of %s, and was asked for branch %s of %s",
				c.Source.Revision, gitref.Redact(c.Source.URL), ask.Want.Branch, gitref.Redact(ask.Want.Repository)),
		}.AsError()
	}
	return answer.Refuse
}

// needsNothing reports whether the applier has applied the commit and is not to run again for it.
func (c *Client) needsNothing(ref types.NamespacedName, ask applier.Ask) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !ask.Reason.NeedsRun() && c.applied[ref] == ask.Commit
}

var errNotCurrent = fmt.Errorf("%w: Ask.Current says so", applier.ErrStale)

// decide asks the caller for its decision and has it recorded, in the contract's order.
func decide(ctx context.Context, ask applier.Ask, s applier.Started) error {
	if !ask.IsCurrent() {
		return errNotCurrent
	}
	if ask.Held != nil && s.Outcome == applier.OutcomeResumed {
		if err := ask.Held(ctx); err != nil {
			return fmt.Errorf("the host does not hold it: %w", err)
		}
	}
	if ask.Record == nil {
		return nil
	}
	if err := ask.Record(ctx, s); err != nil {
		return fmt.Errorf("record the operation: %w", err)
	}
	if !ask.IsCurrent() {
		return errNotCurrent
	}
	return nil
}

func (c *Client) start(ref types.NamespacedName, ask applier.Ask, s applier.Started, answer Answer) {
	o := &operation{ref: ref, branch: ask.Want.Branch, commit: s.Commit, resumed: s.Outcome == applier.OutcomeResumed, every: answer.Every, since: time.Now()}
	for _, step := range answer.Steps {
		o.steps = append(o.steps, o.complete(step))
	}
	if len(o.steps) == 0 {
		o.steps = o.succeeding()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.operations == nil {
		c.operations = make(map[string]*operation)
	}
	c.operations[s.Token] = o
	c.wake()
}

// Progress reports the present step of the operation, which it finds by its token. One that was never started has
// Failed, with reason NotRun.
func (c *Client) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if err := context.Cause(ctx); err != nil {
		return applier.Progress{}, fmt.Errorf("%s: %w", name(ref), err)
	}
	s.Observed = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.operations[s.Token]
	if o == nil || o.ref != ref {
		return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonNotRun, Message: name(ref) + " was never asked with this token"}, nil
	}
	step := o.steps[o.present(time.Now())]
	if o.resumed && s.SuspendToken == "" && (s.Overdue || step.State == applier.StateSettling || step.State.Ended()) {
		s.SuspendToken = applier.NewToken()
	}
	if step.SuspendToken == "" {
		step.SuspendToken = s.SuspendToken
	}
	if step.State == applier.StateSucceeded {
		if c.applied == nil {
			c.applied = make(map[types.NamespacedName]string)
		}
		c.applied[ref] = step.AppliedCommit
	}
	if o.every == 0 && o.next < len(o.steps)-1 {
		o.next++
		c.wake()
	}
	return step, nil
}

// Watch sends nil, something that is to be read, once it is open and whenever an operation went on.
//
// A host that is to be tested without watching gets a Client that hides it: struct{ applier.Client }{client}.
func (c *Client) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	out := make(chan *unstructured.Unstructured, 1)
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			changed, due, stop := c.next(ref)
			select {
			case out <- nil:
			default: // One that was not received yet says the same.
			}
			select {
			case <-ctx.Done():
			case <-changed:
			case <-due:
			}
			stop()
		}
	}()
	return out
}

// next returns what tells that the operations of ref may have gone on: a channel that is closed, and one for a step
// that is due.
func (c *Client) next(ref types.NamespacedName) (changed <-chan struct{}, due <-chan time.Time, stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	var first time.Duration
	now := time.Now()
	for _, o := range c.operations {
		if wait := o.untilNext(now); o.ref == ref && wait > 0 && (first == 0 || wait < first) {
			first = wait
		}
	}
	if first == 0 {
		return c.changed, nil, func() bool { return true }
	}
	timer := time.NewTimer(first)
	return c.changed, timer.C, timer.Stop
}

// wake tells every watch that something changed. The lock is held.
func (c *Client) wake() {
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// name names an applier in a message.
func name(ref types.NamespacedName) string { return fmt.Sprintf("applier %s in cluster fake", ref) }
