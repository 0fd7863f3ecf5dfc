package applier_test

import (
	"context"
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
	backend := w.client.Backend(shopApp.GroupKind())
	backend.New = func(_ string, d dynamic.Interface) (applier.Client, error) {
		switch {
		case d.(*credentials).name != "first":
			return polled(w.client), nil
		case watched:
			return watchedExpiring{expiring{w.client, &expired}, w.client}, nil
		default:
			return expiring{polled(w.client), &expired}, nil
		}
	}
	backends, err := applier.NewBackends(backend)
	require.NoError(w, err)
	status := applier.NewStatusWriter(w.store, logr.Discard())
	ctx, stop := context.WithCancel(w.Context())
	go func() { _ = status.Start(ctx) }()
	w.ends = append(w.ends, stop)
	w.dispatcher = applier.NewDispatcher(w.store, status, backends, func(context.Context, string) (dynamic.Interface, error) {
		if expired.Load() {
			return then()
		}
		return first, nil
	})
	return func() { expired.Store(true) }
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
