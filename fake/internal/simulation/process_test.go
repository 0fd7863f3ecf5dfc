package simulation

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// The dispatchers' times.
const (
	attemptTimeout  = 30 * time.Second
	operationWait   = time.Minute
	unresolvedAfter = 90 * time.Second
	stopTimeout     = 10 * time.Second
	// slowest is the latency of a request or a call that no fault strikes, at most.
	slowest = time.Second
)

// A process is one run of the host: the library over its view of the cluster and of the records, with a worker that decides and a
// reconciler that holds.
type process struct {
	w          *world
	name       string
	view       *fake.View
	records    *fake.Store
	store      applier.Store
	status     *applier.StatusWriter
	dispatcher *applier.Dispatcher
	holder     *flux.Client
	validators applier.Backends
	dynamic    dynamic.Interface

	// working is the context of the worker and the reconciler, and attempting that of the attempts.
	working    context.Context
	stopWork   context.CancelFunc
	attempting context.Context
	abandonAll context.CancelFunc
	running    sync.WaitGroup
	stops      []func()

	worker *worker
	// dead is a process that was killed: nothing that it does counts any more. idle is one whose reconciler rests.
	dead, idle atomic.Bool

	mu        sync.Mutex
	stoppedAt time.Time
	tokens    map[string]int
	// held is when the reconciler last suspended for a trigger.
	held map[string]time.Time
}

// start starts the host's next process, once it is prepared.
func (w *world) start(prepare ...func(*process)) *process {
	p := &process{w: w, name: fmt.Sprintf("P%d", len(w.processes)+1), tokens: make(map[string]int), held: make(map[string]time.Time)}
	w.processes = append(w.processes, p)
	p.view, p.records = w.cluster.As("host", nil), w.store.Process()
	p.meter()
	p.disturb()
	for _, f := range prepare {
		f(p)
	}
	p.store = p.records
	if w.broken.store != nil {
		p.store = w.broken.store(p)
	}
	p.dynamic = p.view
	if w.broken.dynamic != nil {
		p.dynamic = w.broken.dynamic(p)
	}
	p.working, p.stopWork = context.WithCancel(context.Background())
	p.attempting, p.abandonAll = context.WithCancel(context.Background())
	backends := p.backends("flux", func(c applier.Client) applier.Client {
		if w.broken.client != nil {
			c = w.broken.client(p, c)
		}
		return named{around{c}, w}
	})
	p.validators = p.backends("rec", func(c applier.Client) applier.Client { return c })
	p.holder, _ = flux.New(clusterName, p.view, flux.Options{FieldManager: hostName, Tokens: p.tokensOf("rec")})
	p.status = applier.NewStatusWriter(p.store, logr.Discard())
	p.dispatcher = applier.NewDispatcher(p.store, p.status, backends, func(context.Context, string) (dynamic.Interface, error) { return p.dynamic, nil })
	p.dispatcher.Tokens = p.tokensOf("ask")
	p.dispatcher.AttemptTimeout, p.dispatcher.OperationWait = attemptTimeout, operationWait
	p.dispatcher.UnresolvedAfter, p.dispatcher.StopTimeout = unresolvedAfter, stopTimeout
	p.launch()
	w.history.note(p.name, "starts")
	p.worker = newWorker(p)
	p.running.Go(p.worker.recover)
	p.running.Go(p.reconcile)
	return p
}

func (p *process) backends(tokens string, wrap func(applier.Client) applier.Client) applier.Backends {
	// What an identity may do is not the simulation's subject, and each check would be a request.
	access := func(context.Context, authorizationv1.ResourceAttributes) (bool, error) { return true, nil }
	kustomize := flux.Backend(flux.Options{FieldManager: hostName, Tokens: p.tokensOf(tokens), Access: access})
	argo := argocd.Backend(argocd.Options{Initiator: hostName, OperationWait: operationWait, Access: access})
	for _, b := range []*applier.Backend{&kustomize, &argo} {
		inner := b.New
		b.New = func(cluster string, d dynamic.Interface) (applier.Client, error) {
			c, err := inner(cluster, d)
			return wrap(c), err
		}
	}
	backends, err := applier.NewBackends(kustomize, argo)
	if err != nil {
		panic(err)
	}
	return backends
}

// launch starts the library's parts. In a stop they end one after the other, or at once.
func (p *process) launch() {
	dispatching, stopDispatching := context.WithCancel(context.Background())
	writing, stopWriting := context.WithCancel(context.Background())
	written := make(chan struct{})
	p.running.Go(func() {
		defer close(written)
		_ = p.status.Start(writing)
	})
	dispatched := make(chan struct{})
	p.running.Go(func() {
		defer close(dispatched)
		if err := p.dispatcher.Start(dispatching); err != nil {
			p.w.history.breaks(oneEnd, "%s: %v", p.name, err)
		}
	})
	p.stops = []func(){
		stopDispatching,
		func() {
			if !p.dead.Load() && p.w.roll(p.name, "stops in order") < 500 {
				<-dispatched
			}
			stopWriting()
		},
		func() { <-written; <-dispatched },
	}
}

// stop stops the process as a program stops that is told to.
func (p *process) stop() {
	p.w.history.note(p.name, "is told to stop")
	p.mu.Lock()
	p.stoppedAt = time.Now()
	p.mu.Unlock()
	p.end()
	p.w.history.note(p.name, "has stopped")
}

// kill ends the process wherever it is.
func (p *process) kill() {
	p.strikeDead()
	p.end()
}

// strikeDead lets nothing of the process through any more. What it left is cleared away by kill.
func (p *process) strikeDead() {
	if !p.dead.Swap(true) {
		p.records.Cut()
		p.view.Cut()
		p.w.history.note(p.name, "is killed")
	}
}

func (p *process) end() {
	p.stopWork()
	if p.dead.Load() || p.w.roll(p.name, "abandons all") < 300 {
		p.abandonAll()
	}
	for _, stop := range p.stops {
		stop()
	}
	p.abandonAll()
	p.running.Wait()
}

func (p *process) stopping() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stoppedAt
}

// tokensOf makes the tokens of one part of the process.
func (p *process) tokensOf(part string) applier.Tokens {
	return func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tokens[part]++
		return fmt.Sprintf("%s-%s-%d", p.name, part, p.tokens[part])
	}
}

// meter notes what the process sends and writes, and makes it take its time.
func (p *process) meter() {
	p.view.Inject(fake.Fault{
		Before: func(r fake.Request) {
			p.sent(r)
			time.Sleep(p.latency(r.Verb, r.Resource, r.Name))
		},
		After: func(r fake.Request) {
			if r.Verb != "get" && r.Verb != "watch" {
				p.w.history.note(p.name, "  is processed: %v", r)
			}
		},
	})
	p.records.Inject(fake.StoreFault{
		Before: func(c fake.StoreCall) { time.Sleep(p.latency(c.Method, c.Trigger.Name, c.Target.Name)) },
		After:  p.written,
	})
}

func (p *process) latency(what ...any) time.Duration {
	h := p.w.hash(append(what, p.name, time.Now().UnixNano())...)
	d := time.Duration(h%40_000_000) + time.Millisecond
	if p.w.chaos.Load() && h>>32%50 == 0 {
		d = time.Duration(h % uint64(slowest))
	}
	return d
}

// sent looks at a request that the process sends.
func (p *process) sent(r fake.Request) {
	token := startingToken(r)
	p.w.history.note(p.name, "%v %s", r, token)
	if token == "" {
		return
	}
	w, body := p.w, string(r.Body)
	w.mu.Lock()
	recorded := w.records[token]
	resent := false
	for _, earlier := range w.starts[token] {
		// client-go sends a request again by itself, and asks nobody.
		resent = resent || earlier.body == body
	}
	w.starts[token] = append(w.starts[token], start{time.Now(), p, body})
	w.mu.Unlock()
	switch {
	case recorded == nil:
		w.history.breaks(recordedFirst, "%s sends %v with %s, of which there is no record", p.name, r, token)
	case !resent && recorded.attempt != nil:
		recorded.attempt.maySend(r)
	}
}

// written looks at what became of a call of the store.
func (p *process) written(c fake.StoreCall) {
	if c.Written == nil {
		return
	}
	w, o := p.w, c.Written.Operation
	if o == nil {
		w.history.note(p.name, "  writes the status of %s: no operation", c.Trigger)
		return
	}
	w.history.note(p.name, "  writes the status of %s: %s %s %s %s", c.Trigger, o.Started.Token, o.Progress.State, o.Progress.Reason, o.Progress.AppliedRevision)
	w.mu.Lock()
	defer w.mu.Unlock()
	recorded := w.records[o.Started.Token]
	if recorded == nil {
		recorded = &record{at: time.Now(), process: p, trigger: c.Trigger, first: *o, attempt: w.asked[o.Started.Token]}
		w.records[o.Started.Token] = recorded
		if recorded.attempt == nil {
			p.w.history.breaks(recordedFirst, "%s is recorded, and no attempt has that token", o.Started.Token)
		}
	}
	if o.Completed() && recorded.completed == nil {
		recorded.completedAt, recorded.completed = time.Now(), o
	}
}

// named is a client that notes which attempt has which token, by the way that the attempt spells the repository.
type named struct {
	around
	w *world
}

func (n named) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	n.w.mu.Lock()
	if u, err := url.Parse(ask.Want.Repository); err == nil && u.User != nil {
		if number, err := strconv.Atoi(u.User.Username()); err == nil && 0 < number && number <= len(n.w.attempts) {
			a := n.w.attempts[number-1]
			n.w.asked[ask.Token] = a
			a.tokens = append(a.tokens, ask.Token)
		}
	}
	n.w.mu.Unlock()
	return n.Client.Request(ctx, ref, ask)
}

// spell writes the address of a repository so that the attempt is known by it.
func (a *attempt) spell(repository string) string {
	u, err := url.Parse(repository)
	if err != nil {
		return repository
	}
	u.User = url.User(strconv.Itoa(a.number))
	return u.String()
}
