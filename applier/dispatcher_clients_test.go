package applier_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// credentials are a client of a cluster that can be told from others.
type credentials struct {
	dynamic.Interface
	name string
}

// expiring is a Client whose credentials are good until they are withdrawn. Its watch then shows nothing more.
type expiring struct {
	applier.Client
	expired *atomic.Bool
}

func (c expiring) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if c.expired.Load() {
		return applier.Progress{}, errAway
	}
	return c.Client.Progress(ctx, ref, s)
}

// watchedExpiring is one that can be watched.
type watchedExpiring struct {
	expiring
	applier.Watcher
}

func (c watchedExpiring) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	out := make(chan *unstructured.Unstructured)
	go func() {
		defer close(out)
		for object := range c.Watcher.Watch(ctx, ref) {
			if c.expired.Load() {
				<-ctx.Done()
				return
			}
			select {
			case out <- object:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// rotate makes the host have another client for its cluster, or an error, once the credentials of the first have expired.
func (w *dispatchWorld) rotate(watched bool, then func() (dynamic.Interface, error)) (expire func()) {
	var expired atomic.Bool
	first := &credentials{name: "first"}
	w.reach(func(context.Context, string) (dynamic.Interface, error) {
		if expired.Load() {
			return then()
		}
		return first, nil
	}, func(_ string, d dynamic.Interface) (applier.Client, error) {
		switch {
		case d.(*credentials).name != "first":
			return polled(w.client), nil
		case watched:
			return watchedExpiring{expiring{w.client, &expired}, w.client}, nil
		default:
			return expiring{polled(w.client), &expired}, nil
		}
	})
	return func() { expired.Store(true) }
}

// reach makes the dispatcher reach its clusters by clients, and appliers in them by what backend makes.
func (w *dispatchWorld) reach(clients applier.Clients, backend func(string, dynamic.Interface) (applier.Client, error)) {
	backends, err := applier.NewBackends(applier.Backend{Kind: shopApp.GroupKind(), New: backend})
	require.NoError(w, err)
	status := applier.NewStatusWriter(w.store, logr.Discard())
	ctx, stop := context.WithCancel(w.Context())
	go func() { _ = status.Start(ctx) }()
	w.ends = append(w.ends, stop)
	w.dispatcher = applier.NewDispatcher(w.store, status, backends, clients)
}

// requestIn requests the apply of another applier in a cluster, by a trigger of its own.
func (w *dispatchWorld) requestIn(cluster string) {
	app := shopApp
	app.Cluster, app.Name = cluster, "other"
	trigger := w.store.PutTrigger(applier.Trigger{
		Ref: applier.TriggerRef{Namespace: "team-a", Name: cluster}, Applier: app, Status: applier.TriggerStatus{Held: true},
	})
	target := w.putTarget(cluster)
	target.Trigger.Name = cluster
	w.store.PutTarget(target)
	req := w.decided()
	req.Trigger, req.Targets, req.Report = trigger.Ref, []applier.TargetRef{target.Ref}, nil
	w.request(req)
}

func TestAnOperationIsFollowedOnByTheClientThatReachesItsCluster(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"watched": true, "polled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				second := &credentials{name: "second"}
				expire := w.rotate(watched, func() (dynamic.Interface, error) { return second, nil })
				w.client.Answers = []fake.Answer{fake.Hangs()}
				w.start()
				w.request(w.decided())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(w, []string{"Requested", "Running"}, w.reported())
				expire()
				w.finish()
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				assert.Equal(w, []string{"Requested", "Running", "Completed Succeeded"}, w.reported())
			})
		})
	}
}

func TestAnOperationInAClusterThatIsGoneForGoodIsNotFollowed(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		expire := w.rotate(true, func() (dynamic.Interface, error) { return nil, applier.Permanent(errAway) })
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		w.request(w.decided())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(w, []string{"Requested", "Running"}, w.reported())
		expire()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(w, applier.EndNotFollowed, w.end().End)
		require.ErrorIs(w, w.end().Err, errAway)
	})
}

func TestAClusterThatCannotBeReachedForAWhileKeepsItsFollowers(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.rotate(true, nil)
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		w.request(w.decided())
		time.Sleep(3 * time.Minute)
		w.finish()
		assert.Equal(w, []string{"Requested", "Running", "Completed Succeeded"}, w.reported())
	})
}

func TestAHostThatMakesAClientAtEachCallStillHasItsOperationsFollowed(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var calls, made atomic.Int64
		w.reach(func(context.Context, string) (dynamic.Interface, error) {
			return &credentials{name: fmt.Sprint(calls.Add(1))}, nil
		}, func(string, dynamic.Interface) (applier.Client, error) {
			made.Add(1)
			return w.client, nil
		})
		w.client.Answers = []fake.Answer{fake.Hangs(), fake.Hangs()}
		w.start()
		w.request(w.decided())
		w.requestIn("prod")
		time.Sleep(4 * time.Minute)
		w.finish()
		assert.Contains(w, w.reported(), "Completed Succeeded")
		assert.LessOrEqual(w, made.Load(), int64(6), "one for each operation and each minute")
		assert.LessOrEqual(w, calls.Load(), int64(20))
	})
}

func TestAClusterThatGivesNoAnswerKeepsNobodyFromNewCredentials(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var rotated atomic.Bool
		var made sync.Map
		first, second := &credentials{name: "first"}, &credentials{name: "second"}
		w.reach(func(ctx context.Context, cluster string) (dynamic.Interface, error) {
			switch {
			case !rotated.Load():
				return first, nil
			case cluster != "prod":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return second, nil
		}, func(cluster string, d dynamic.Interface) (applier.Client, error) {
			made.Store(cluster+" "+d.(*credentials).name, true)
			return w.client, nil
		})
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		w.request(w.decided())
		for i := range 30 {
			w.requestIn(fmt.Sprint("dead-", i))
		}
		rotated.Store(true)
		time.Sleep(2 * time.Minute)
		_, renewed := made.Load("prod second")
		assert.True(w, renewed)
	})
}

func TestWhatIsAskedGoesToTheClusterThatTheHostNamesNow(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var moved atomic.Bool
		here, there := &credentials{name: "here"}, &credentials{name: "there"}
		elsewhere := new(fake.Client)
		w.reach(func(context.Context, string) (dynamic.Interface, error) {
			if moved.Load() {
				return there, nil
			}
			return here, nil
		}, func(_ string, d dynamic.Interface) (applier.Client, error) {
			if d.(*credentials).name == "here" {
				return w.client, nil
			}
			return elsewhere, nil
		})
		w.start()
		w.request(w.decided())
		moved.Store(true)
		w.request(w.decided())
		assert.Len(w, w.client.Asks(), 1)
		assert.Len(w, elsewhere.Asks(), 1)
	})
}
