package applier_test

import (
	"context"
	"fmt"
	"strings"
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

// requestIn requests the apply of another applier in a cluster, by a trigger of its own. Both have the name.
func (w *dispatchWorld) requestIn(cluster, name string) {
	app := shopApp
	app.Cluster, app.Name = cluster, name
	trigger := w.store.PutTrigger(applier.Trigger{
		Ref: applier.TriggerRef{Namespace: "team-a", Name: name}, Applier: app, Status: applier.TriggerStatus{Held: true},
	})
	target := w.putTarget(name)
	target.Trigger.Name = name
	w.store.PutTarget(target)
	req := w.decided()
	req.Trigger, req.Targets, req.Report = trigger.Ref, []applier.TargetRef{target.Ref}, nil
	w.request(req)
}

// requestMany requests the apply of n appliers in the cluster prod, none of which ends.
func (w *dispatchWorld) requestMany(n int) {
	for i := range n {
		w.client.Answers = append(w.client.Answers, fake.Hangs())
		w.requestIn("prod", fmt.Sprint("app-", i))
	}
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
		assert.ErrorContains(w, w.end().Err, shopApp.String())
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
		w.requestIn("prod", "other")
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
			w.requestIn(fmt.Sprint("dead-", i), fmt.Sprint("dead-", i))
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

// The one who asked may have been told the old client before the others were told the new one.
func TestAnOperationIsFollowedOnWhicheverClientItsRequestWentBy(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var expired, slow atomic.Bool
		var current atomic.Pointer[credentials]
		current.Store(&credentials{name: "first"})
		w.reach(func(context.Context, string) (dynamic.Interface, error) {
			told := current.Load()
			if slow.CompareAndSwap(true, false) {
				time.Sleep(time.Second)
			}
			return told, nil
		}, func(_ string, d dynamic.Interface) (applier.Client, error) {
			if d.(*credentials).name == "first" {
				return watchedExpiring{expiring{w.client, &expired}, w.client}, nil
			}
			return w.client, nil
		})
		w.client.Answers = []fake.Answer{fake.Hangs(), fake.Hangs(), fake.Hangs()}
		w.start()
		w.requestIn("prod", "before")
		time.Sleep(70 * time.Second)
		slow.Store(true)
		w.request(w.decided())
		current.Store(&credentials{name: "second"})
		w.requestIn("prod", "after")
		time.Sleep(10 * time.Second)
		expired.Store(true)
		w.finish()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running", "Completed Succeeded"}, w.reported())
	})
}

func TestNewCredentialsAreAskedForOnceForAllWhoFollowOperationsInACluster(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var calls, made atomic.Int64
		var current atomic.Pointer[credentials]
		current.Store(&credentials{name: "first"})
		w.reach(func(context.Context, string) (dynamic.Interface, error) {
			calls.Add(1)
			return current.Load(), nil
		}, func(string, dynamic.Interface) (applier.Client, error) {
			made.Add(1)
			return w.client, nil
		})
		w.start()
		w.requestMany(50)
		require.EqualValues(w, 50, calls.Load(), "an ask goes to the cluster that the host names now")
		require.EqualValues(w, 1, made.Load(), "all share one client")

		current.Store(&credentials{name: "second"})
		w.requestMany(50)
		require.EqualValues(w, 100, calls.Load())
		require.EqualValues(w, 2, made.Load(), "those that were asked since share another")
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		assert.EqualValues(w, 110, calls.Load(), "once a minute for all")
		assert.EqualValues(w, 2, made.Load())
	})
}

func TestNobodyAsksForAClusterInWhichNothingIsFollowed(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(w *dispatchWorld){
		"after an operation": func(w *dispatchWorld) { w.request(w.decided()) },
		"after a request that failed": func(w *dispatchWorld) {
			w.client.Answers = []fake.Answer{{Refuse: errAway}}
			w.request(w.decided())
		},
		"after a prefetch": func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) {
				t.Status.Source = &applier.TriggerSource{Source: applier.Source{GitRepository: shopRepository}, Prefetch: true}
			})
			w.dispatcher.PrefetchSource(applier.PrefetchRequest{Trigger: w.trigger, Commit: commitA})
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				var calls, made atomic.Int64
				only := &credentials{name: "only"}
				w.reach(func(context.Context, string) (dynamic.Interface, error) {
					calls.Add(1)
					return only, nil
				}, func(string, dynamic.Interface) (applier.Client, error) {
					made.Add(1)
					return w.client, nil
				})
				w.start()
				use(w)
				time.Sleep(30 * time.Second)
				w.requestIn("prod", "next")
				assert.EqualValues(w, 1, made.Load(), "a client is kept for a while")
				time.Sleep(time.Hour)
				assert.EqualValues(w, 2, calls.Load(), "once for each that was asked")
				w.requestIn("prod", "another")
				assert.EqualValues(w, 2, made.Load(), "and not for ever")
			})
		})
	}
}

func TestAClusterThatIsAwayIsTriedOnceForAllOperationsInIt(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var calls atomic.Int64
		var back atomic.Bool
		w.reach(func(context.Context, string) (dynamic.Interface, error) {
			calls.Add(1)
			if back.Load() {
				return nil, nil
			}
			return nil, errAway
		}, func(string, dynamic.Interface) (applier.Client, error) { return w.client, nil })
		metrics := newCountedMetrics()
		w.dispatcher.Metrics = metrics
		w.start()
		const operations = 50
		for i := range operations {
			record := operationAt(fmt.Sprint("t", i), applier.StateRunning)
			record.Applier.Name, record.Reason = fmt.Sprint("app-", i), applier.Commit
			trigger := w.store.PutTrigger(applier.Trigger{
				Ref: applier.TriggerRef{Namespace: "team-a", Name: record.Applier.Name}, Applier: record.Applier,
				Status: applier.TriggerStatus{Operation: record},
			})
			w.dispatcher.RequestApply(w.worker, applier.ApplyRequest{Trigger: trigger.Ref, Recovered: record, Report: w.report})
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.InDelta(w, 64, calls.Load(), 2, "sooner at first, and then once a minute")
		assert.Equal(w, operations, metrics.get("in flight", shopLabels))
		assert.Equal(w, operations, metrics.get("unresolved", shopLabels))
		assert.NotContains(w, strings.Join(w.reported(), " "), "Completed")

		back.Store(true)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		assert.Equal(w, operations, strings.Count(strings.Join(w.reported(), " "), "Completed"))
		assert.Zero(w, metrics.get("in flight", shopLabels))
		assert.Zero(w, metrics.get("unresolved", shopLabels))
	})
}

func TestAClusterThatGivesNoAnswerFailsAnAttemptInTime(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.reach(func(ctx context.Context, _ string) (dynamic.Interface, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, func(string, dynamic.Interface) (applier.Client, error) { return w.client, nil })
		w.start()
		w.requireTimeout(applier.DefaultAttemptTimeout)
		assert.Empty(w, w.client.Asks())
	})
}
