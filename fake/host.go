package fake

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Host is the library as a host embeds it, over a [Store]: what the main function of a program puts together, for a unit
// test. Set the fields of Dispatcher and Status before Start.
//
// As in a real host, a trigger is asked if its Status is Held or it is Live, and for the sake of a target that is Admitted.
type Host struct {
	Store      *Store
	Status     *applier.StatusWriter
	Dispatcher *applier.Dispatcher
}

// NewHost returns a Host over store. With nil for clients every name is that of a cluster, and none can be reached, which
// suits the backend of a [Client]; with a [Cluster], return its View. It panics if the backends are none that
// [applier.NewBackends] takes.
func NewHost(store *Store, clients applier.Clients, backends ...applier.Backend) *Host {
	served, err := applier.NewBackends(backends...)
	if err != nil {
		panic(err)
	}
	if clients == nil {
		clients = func(context.Context, string) (dynamic.Interface, error) { return nil, nil }
	}
	status := applier.NewStatusWriter(store, logr.Discard())
	return &Host{Store: store, Status: status, Dispatcher: applier.NewDispatcher(store, status, served, clients)}
}

// Start starts both parts and returns once attempts are carried out. They run until ctx ends; wait then returns once
// they have stopped, with the dispatcher's error.
func (h *Host) Start(ctx context.Context) (wait func() error) {
	// The status writer stops last, so that it writes what the attempts leave.
	writing, stopWriting := context.WithCancel(context.WithoutCancel(ctx))
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = h.Status.Start(writing) // It never fails.
	}()
	var err error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		err = h.Dispatcher.Start(ctx)
		stopWriting()
		<-written
	}()
	select {
	case <-h.Dispatcher.Running():
	case <-stopped:
	}
	return func() error {
		<-stopped
		return err
	}
}
