package applier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var shopWrites = applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"}

// dispatchWorld is a host with one target, whose trigger names one applier, and a dispatcher.
type dispatchWorld struct {
	*testing.T
	store *fake.Store
	// client is the backend's, and wrapped what the dispatcher gets of it; nil is client itself.
	client     *fake.Client
	wrapped    applier.Client
	dispatcher *applier.Dispatcher
	trigger    applier.TriggerRef
	target     applier.TargetRef
	worker     context.Context
	abandon    context.CancelFunc
	cancel     context.CancelFunc
	stop       func()
	// ends are what is to be done when the test is over.
	ends []func()

	mu      sync.Mutex
	reports []applier.Report
	events  []string
}

// inDispatchWorld runs test in a bubble. The status writer is started, and the dispatcher is not.
func inDispatchWorld(t *testing.T, test func(w *dispatchWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &dispatchWorld{T: t, store: new(fake.Store), client: new(fake.Client)}
		trigger := w.store.PutTrigger(applier.Trigger{
			Ref: applier.TriggerRef{Namespace: "team-a", Name: "shop"}, Applier: shopApp,
			Status: applier.TriggerStatus{Held: true},
		})
		w.trigger = trigger.Ref
		w.target = w.putTarget("shop").Ref
		w.run()
		test(w)
		for _, end := range w.ends {
			end()
		}
	})
}

// run makes the process's parts, and starts its status writer.
func (w *dispatchWorld) run() {
	w.worker, w.abandon = context.WithCancel(w.Context())
	status := applier.NewStatusWriter(w.store, logr.Discard())
	backend := w.client.Backend(shopApp.GroupKind())
	backend.New = func(string, dynamic.Interface) (applier.Client, error) {
		if w.wrapped != nil {
			return w.wrapped, nil
		}
		return w.client, nil
	}
	backends, err := applier.NewBackends(backend)
	require.NoError(w, err)
	w.dispatcher = applier.NewDispatcher(w.store, status, backends, func(_ context.Context, cluster string) (dynamic.Interface, error) {
		if cluster != "prod" {
			return nil, fmt.Errorf("no cluster is named %q", cluster)
		}
		return nil, nil
	})
	w.dispatcher.Events = w
	w.stop = func() {}
	ctx, cancel := context.WithCancel(w.Context())
	written := make(chan error, 1)
	go func() { written <- status.Start(ctx) }()
	w.ends = append(w.ends, func() {
		w.stop()
		cancel()
		require.NoError(w, <-written)
		w.abandon()
	})
}

// nextProcess is the host after a restart, over the same store and appliers.
func (w *dispatchWorld) nextProcess() *dispatchWorld {
	next := &dispatchWorld{T: w.T, store: w.store.Process(), client: w.client, trigger: w.trigger, target: w.target}
	next.run()
	w.ends = append(w.ends, next.ends...)
	return next
}

func (w *dispatchWorld) putTarget(name string) applier.Target {
	return w.store.PutTarget(applier.Target{
		Ref:       applier.TargetRef{Namespace: "team-a", Name: name},
		Trigger:   applier.TriggerRef{Namespace: "team-a", Name: "shop"},
		Writes:    shopWrites,
		Admission: applier.Admission{State: applier.Admitted},
		Object:    &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name}},
	})
}

// start starts the dispatcher.
func (w *dispatchWorld) start() {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.dispatcher.Start(ctx) }()
	synctest.Wait()
	w.cancel = cancel
	w.stop = func() {
		cancel()
		require.NoError(w, <-ended)
		w.stop = func() {}
	}
}

// decided is what the worker asks for: commitA, for the one target.
func (w *dispatchWorld) decided() applier.ApplyRequest {
	return applier.ApplyRequest{
		Trigger: w.trigger, Targets: []applier.TargetRef{w.target}, Want: shopWrites, Commit: commitA, Reason: applier.Commit,
		Report: w.report,
	}
}

func (w *dispatchWorld) request(req applier.ApplyRequest) {
	w.dispatcher.RequestApply(w.worker, req)
	synctest.Wait()
}

func (w *dispatchWorld) report(report applier.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports = append(w.reports, report)
}

// Event records one, as "Warning ApplyFailed shop: message".
func (w *dispatchWorld) Event(object runtime.Object, eventtype, reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%s %s %s: %s", eventtype, reason, object.(metav1.Object).GetName(), message))
}

// eventReasons returns the reasons of the Events so far.
func (w *dispatchWorld) eventReasons() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var reasons []string
	for _, event := range w.events {
		reasons = append(reasons, strings.Fields(event)[1])
	}
	return reasons
}

// reported returns the reports so far in short: the end, or the state of the operation. One that only words what the one
// before it said without a message is left out, such as the first that is read of an operation.
func (w *dispatchWorld) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var lines []string
	var before applier.Progress
	for _, report := range w.reports {
		line := string(report.End)
		if report.Operation != nil {
			now := report.Operation.Progress
			worded := before == applier.Progress{State: now.State} && now == applier.Progress{State: now.State, Message: now.Message}
			if before = now; worded && now.Message != "" {
				continue
			}
			line = strings.TrimSpace(line + " " + string(report.Operation.Progress.State))
			if report.Operation.Unresolved {
				line += " unresolved"
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// end returns the one end that was reported.
func (w *dispatchWorld) end() applier.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := slices.DeleteFunc(slices.Clone(w.reports), func(r applier.Report) bool { return r.End == "" })
	require.Len(w, ends, 1)
	require.Equal(w, ends[0], w.reports[len(w.reports)-1], "the end is the last report")
	return ends[0]
}

// kept returns the operation that the trigger records.
func (w *dispatchWorld) kept() *applier.Operation {
	trigger, err := w.store.Process().Trigger(w.Context(), w.trigger)
	require.NoError(w, err)
	return trigger.Status.Operation
}

func (w *dispatchWorld) changeTrigger(change func(*applier.Trigger)) {
	require.NoError(w, w.store.ChangeTrigger(w.trigger, change))
}

func (w *dispatchWorld) changeTarget(change func(*applier.Target)) {
	require.NoError(w, w.store.ChangeTarget(w.target, change))
}

// polled hides that a client can be watched.
func polled(client applier.Client) applier.Client { return struct{ applier.Client }{client} }

// askedClient is a Client whose Request is a function.
type askedClient struct {
	applier.Client
	request func(ctx context.Context, ask applier.Ask) (applier.Started, error)
}

var errAway = errors.New("the API server is away")

const day = 24 * time.Hour
