package dispatchertest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/dispatchertest/laws"
	"github.com/gitops-applier/gitops-applier/examples/lab/hoststore"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// host is one process of the host: all that the library has, and a worker for each trigger.
type host struct {
	*world
	t    *testing.T
	name string
	// connection is how all its requests leave.
	connection *lab.Transport
	store      applier.Store
	status     *applier.StatusWriter
	dispatcher *applier.Dispatcher

	// work is the context of the workers, serve of the dispatcher, and write of the status writer.
	endWork, endServe, endWrite context.CancelFunc
	workers                     sync.WaitGroup
	served                      chan error
	written                     chan struct{}
	// out counts the attempts that have not ended.
	out atomic.Int64
}

// startHost starts a process.
func (w *world) startHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{world: w, t: t, name: name, connection: lab.NewTransport(), served: make(chan error, 1), written: make(chan struct{})}
	config := rest.CopyConfig(w.identity)
	config.UserAgent = name
	config.Wrap(h.connection.Wrap)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	backends, err := applier.NewBackends(
		flux.Backend(flux.Options{FieldManager: laws.Manager}),
		argocd.Backend(argocd.Options{Initiator: laws.Manager}),
	)
	require.NoError(t, err)

	h.store = hoststore.New(client)
	h.status = applier.NewStatusWriter(h.store, logr.Discard())
	h.status.RetryInterval = time.Second
	h.dispatcher = applier.NewDispatcher(h.store, h.status, backends,
		func(context.Context, string) (dynamic.Interface, error) { return client, nil })
	h.dispatcher.AttemptTimeout = 2 * time.Minute // a machine that is busy with all this takes its time
	h.dispatcher.OperationWait = 30 * time.Second
	h.dispatcher.UnresolvedAfter = time.Minute
	h.dispatcher.UnresolvedPollMax = 10 * time.Second

	var work, serve, write context.Context
	work, h.endWork = context.WithCancel(context.Background())
	serve, h.endServe = context.WithCancel(context.Background())
	write, h.endWrite = context.WithCancel(context.Background())
	go func() {
		defer close(h.written)
		_ = h.status.Start(write) // It never fails.
	}()
	go func() { h.served <- h.dispatcher.Start(serve) }()
	<-h.dispatcher.Running()
	for _, s := range w.subjects {
		h.workers.Go(func() { h.work(work, s) })
	}
	t.Cleanup(h.kill) // where the test did not come as far
	return h
}

// kill ends the process at once: no request of it leaves any more, and what it was doing is abandoned. Whatever is still
// to end in it ends unheard.
func (h *host) kill() {
	h.connection.Cut()
	h.endWork()
	h.endServe()
	h.endWrite()
	h.workers.Wait()
}

// stop ends the process as it should be: workers first, then the dispatcher, then the status writer.
func (h *host) stop() {
	h.endWork()
	h.workers.Wait()
	h.endServe()
	assert.NoError(h.t, <-h.served, "%s does not stop in time", h.name)
	h.endWrite()
	<-h.written
	h.connection.Cut()
}
