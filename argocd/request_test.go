package argocd

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gitops-applier/gitops-applier/applier"
)

// world is an API server with one Application, and a client that asks it.
type world struct {
	*dynamicfake.FakeDynamicClient
	client *Client
}

func newWorld(t *testing.T, options Options, changes ...change) *world {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{applications: "ApplicationList"}
	w := &world{FakeDynamicClient: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, newApplication(changes...))}
	options.Initiator = "host"
	var err error
	w.client, err = New("prod", w.FakeDynamicClient, options)
	require.NoError(t, err)
	return w
}

// change is what somebody else does to the Application.
func (w *world) change(t *testing.T, changes ...change) {
	t.Helper()
	o, err := w.Tracker().Get(applications, ref.Namespace, ref.Name)
	assert.NoError(t, err)
	u := o.(*unstructured.Unstructured).DeepCopy()
	for _, change := range changes {
		change(u.Object)
	}
	assert.NoError(t, w.Tracker().Update(applications, u, ref.Namespace))
}

func (w *world) get(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	o, err := w.Tracker().Get(applications, ref.Namespace, ref.Name)
	require.NoError(t, err)
	return o.(*unstructured.Unstructured).DeepCopy()
}

// on answers a verb by what f says, until that is nil.
func (w *world) on(verb string, f func() error) {
	w.PrependReactor(verb, "applications", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := f()
		return err != nil, nil, err
	})
}

func (w *world) writes() int {
	n := 0
	for _, action := range w.Actions() {
		if action.GetVerb() != "get" && action.GetVerb() != "watch" {
			n++
		}
	}
	return n
}

func (w *world) request(ctx context.Context, changes ...func(*applier.Ask)) (applier.Started, error) {
	ask := applier.Ask{Want: applier.Binding{Repository: repository, Branch: "main"}, Commit: commitB, Token: token}
	for _, change := range changes {
		change(&ask)
	}
	return w.client.Request(ctx, ref, ask)
}

func conflict() error {
	return apierrors.NewConflict(applications.GroupResource(), ref.Name, errors.New("the object has been modified"))
}

func TestARequestSetsTheOperationInOneUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Options{})
	recorded := applier.Started{}

	started, err := w.request(t.Context(), func(a *applier.Ask) {
		a.Record = func(_ context.Context, s applier.Started) error {
			assert.Zero(t, w.writes(), "recorded after the write")
			recorded = s
			return nil
		}
	})

	require.NoError(t, err)
	assert.Equal(t, 1, w.writes())
	u := w.get(t)
	assert.Equal(t, "host", u.Object["operation"].(object)["initiatedBy"].(object)["username"])
	assert.NotContains(t, u.Object["status"], "operationState")
	recorded.RequestedAt = started.RequestedAt
	assert.Equal(t, recorded, started)
}

func TestAnUpdateThatConflictsIsDecidedAfreshAFewTimes(t *testing.T) {
	t.Parallel()
	t.Run("and made at last", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{})
		left := conflictTries - 1
		w.on("update", func() error {
			if left == 0 {
				return nil
			}
			left--
			return conflict()
		})
		_, err := w.request(t.Context())
		require.NoError(t, err)
		assert.Equal(t, token, parseAgain(t, w).operation.token)
	})
	t.Run("and given up", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{})
		w.on("update", conflict)
		started, err := w.request(t.Context())
		assert.True(t, apierrors.IsConflict(err), "%v", err)
		assert.ErrorContains(t, err, "Application argocd/app in cluster prod was not asked: it changed at each of 10 tries")
		assert.Zero(t, started)
		assert.Equal(t, conflictTries, w.writes())
	})
	t.Run("and is stale by then", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{})
		holds := true
		w.on("update", func() error { holds = false; return conflict() })
		_, err := w.request(t.Context(), func(a *applier.Ask) { a.Current = func() bool { return holds } })
		assert.ErrorIs(t, err, applier.ErrStale)
		assert.Equal(t, 1, w.writes())
	})
	t.Run("and is of another branch by then", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{})
		w.on("update", func() error { w.change(t, set("spec.source.targetRevision", "develop")); return conflict() })
		_, err := w.request(t.Context())
		assert.Equal(t, applier.ReasonSourceMismatch, applier.VerdictReason(err))
		assert.Equal(t, 1, w.writes())
	})
	t.Run("and is another object by then", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{})
		w.on("update", func() error { w.change(t, set("metadata.uid", "another")); return conflict() })
		_, err := w.request(t.Context())
		assert.ErrorIs(t, err, applier.ErrStale)
		assert.ErrorContains(t, err, "was replaced")
		assert.Equal(t, 1, w.writes())
	})
	t.Run("and had been made: the conflict is the echo of a write that was sent again", func(t *testing.T) {
		t.Parallel()
		for name, made := range map[string]change{
			"asked for": asked, "running": ours("Running", ""), "over": ours("Succeeded", "ok"),
		} {
			w := newWorld(t, Options{})
			w.on("update", func() error { w.change(t, made); return conflict() })
			started, err := w.request(t.Context())
			require.NoError(t, err, name)
			assert.NoError(t, started.Unconfirmed)
			assert.Equal(t, token, started.Token)
			assert.Equal(t, 1, w.writes())
		}
	})
	t.Run("and cannot be read any more: it may have been made", func(t *testing.T) {
		t.Parallel()
		for name, answer := range map[string]error{
			"no answer": errors.New("connection refused"),
			"500":       apierrors.NewInternalError(errors.New("etcd")),
			"forbidden": apierrors.NewForbidden(applications.GroupResource(), ref.Name, nil),
		} {
			w := newWorld(t, Options{})
			refused := false
			w.on("update", func() error { refused = true; return conflict() })
			w.on("get", func() error {
				if refused {
					return answer
				}
				return nil
			})
			started, err := w.request(t.Context())
			require.NoError(t, err, name)
			assert.ErrorIs(t, started.Unconfirmed, applier.ErrUnconfirmed, name)
			assert.True(t, apierrors.IsConflict(started.Unconfirmed), "%v", started.Unconfirmed)
			assert.Equal(t, 1, w.writes())
		}
	})
}

func TestAnUpdateWithoutAnAnswerIsUnconfirmedAndNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"connection lost": errors.New("EOF"),
		"500":             apierrors.NewInternalError(errors.New("etcd")),
		"504":             apierrors.NewTimeoutError("etcd", 0),
		"408":             &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusRequestTimeout}},
	} {
		w := newWorld(t, Options{})
		w.on("update", func() error { return answer })
		started, err := w.request(t.Context())
		require.NoError(t, err, name)
		assert.ErrorIs(t, started.Unconfirmed, applier.ErrUnconfirmed, name)
		assert.ErrorContains(t, started.Unconfirmed, "Application argocd/app in cluster prod")
		assert.Equal(t, 1, w.writes())
	}
}

func TestARefusedUpdateIsAnErrorThatKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{
		apierrors.NewForbidden(applications.GroupResource(), ref.Name, nil),
		apierrors.NewInvalid(schema.GroupKind{}, ref.Name, nil),
		apierrors.NewNotFound(applications.GroupResource(), ref.Name),
	} {
		w := newWorld(t, Options{})
		w.on("update", func() error { return answer })
		started, err := w.request(t.Context())
		require.ErrorIs(t, err, answer)
		assert.Equal(t, apierrors.IsForbidden(answer), applier.VerdictReason(err) == applier.ReasonForbidden)
		assert.ErrorContains(t, err, "Application argocd/app in cluster prod")
		assert.Zero(t, started)
		assert.Equal(t, 1, w.writes())
	}
}

func TestAnEmptyCommitAsksNothingAndWaitsForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{}, set("operation", operationOf("another")))
		begin := time.Now()
		started, err := w.request(t.Context(), func(a *applier.Ask) {
			a.Commit = ""
			a.Record = func(context.Context, applier.Started) error { return errors.New("recorded") }
		})
		require.NoError(t, err)
		assert.Equal(t, applier.Started{Outcome: applier.OutcomeCurrent}, started)
		assert.Equal(t, begin, time.Now())
		assert.Zero(t, w.writes())

		_, err = w.request(t.Context(), func(a *applier.Ask) { a.Commit, a.Want.Branch = "", "develop" })
		assert.Equal(t, applier.ReasonSourceMismatch, applier.VerdictReason(err))
	})
}

// running is an operation of alice's in progress.
var running = []change{
	set("operation", object{"initiatedBy": object{"username": "alice"}, "sync": object{"revision": commitC}}),
	set("status.operationState", record("alice", "", commitC, "Running", "waiting for completion of hook batch/Job/seed")),
}

// left is one of which somebody removed the .operation.
var left = running[1]

func ended(o object) {
	remove("operation")(o)
	set("status.operationState.phase", "Succeeded")(o)
}

func TestAnOperationInProgressIsWaitedForAndNeverReplaced(t *testing.T) {
	t.Parallel()
	t.Run("until it ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, running...)
			go func() {
				time.Sleep(3 * time.Minute)
				assert.Zero(t, w.writes())
				w.change(t, ended)
			}()
			_, err := w.request(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, w.writes())
		})
	})
	t.Run("until the next one ends too, which was set before we came", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, running...)
			var again atomic.Bool // somebody starts another one right before the next read
			w.on("get", func() error {
				if again.CompareAndSwap(true, false) {
					w.change(t, running...)
				}
				return nil
			})
			go func() {
				time.Sleep(time.Minute)
				again.Store(true)
				w.change(t, ended)
				time.Sleep(time.Minute)
				assert.Zero(t, w.writes())
				w.change(t, ended)
			}()
			begin := time.Now()
			_, err := w.request(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2*time.Minute, time.Since(begin))
		})
	})
	t.Run("for no longer than the wait, whatever comes after it", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{OperationWait: time.Minute})
			w.on("update", func() error { w.change(t, running...); time.Sleep(time.Second); return conflict() })
			begin := time.Now()
			go func() {
				time.Sleep(40 * time.Second)
				w.change(t, ended)
			}()
			_, err := w.request(t.Context())
			assert.ErrorContains(t, err, "started by alice")
			assert.Less(t, time.Since(begin), 70*time.Second)
		})
	})
	for name, test := range map[string]struct {
		options Options
		wait    time.Duration
		waited  time.Duration
	}{
		"for five minutes by default":    {waited: DefaultOperationWait},
		"as long as the client says":     {options: Options{OperationWait: time.Hour}, waited: time.Hour},
		"as long as the ask says":        {options: Options{OperationWait: time.Hour}, wait: time.Minute, waited: time.Minute},
		"not at all, as the ask says":    {wait: -1},
		"not at all, as the client says": {options: Options{OperationWait: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, test.options, running...)
				before, begin := w.get(t), time.Now()

				started, err := w.request(t.Context(), func(a *applier.Ask) { a.Wait = test.wait })

				assert.Equal(t, test.waited, time.Since(begin))
				assert.Zero(t, started)
				assert.ErrorContains(t, err, "Application argocd/app in cluster prod was not asked")
				assert.ErrorContains(t, err, "started by alice")
				assert.ErrorContains(t, err, "hook batch/Job/seed")
				assert.False(t, applier.IsPermanent(err))
				assert.Zero(t, w.writes())
				assert.Equal(t, before, w.get(t))
			})
		})
	}
	t.Run("by a request that is stale when it ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, running...)
			var stale atomic.Bool
			go func() {
				time.Sleep(time.Minute)
				stale.Store(true)
				w.change(t, ended)
			}()
			_, err := w.request(t.Context(), func(a *applier.Ask) { a.Current = func() bool { return !stale.Load() } })
			assert.ErrorIs(t, err, applier.ErrStale)
			assert.Zero(t, w.writes())
		})
	})
	t.Run("until the context ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, running...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := w.request(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "started by alice")
			assert.Zero(t, w.writes())
		})
	})
	t.Run("until the Application is gone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, running...)
			go func() {
				time.Sleep(time.Minute)
				assert.NoError(t, w.Tracker().Delete(applications, ref.Namespace, ref.Name))
			}()
			_, err := w.request(t.Context())
			assert.Equal(t, applier.ReasonApplierNotFound, applier.VerdictReason(err))
			assert.Zero(t, w.writes())
		})
	})
}

func TestARecordLeftInProgressIsReplacedOnceItStayedUnchangedForTheWait(t *testing.T) {
	t.Parallel()
	t.Run("with the clear", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, left)
			begin := time.Now()

			started, err := w.request(t.Context())

			require.NoError(t, err)
			assert.Equal(t, DefaultOperationWait, time.Since(begin), "it is waited for once")
			assert.NotContains(t, w.get(t).Object["status"], "operationState")
			before, _, err := parseBaseline(started.Baseline)
			require.NoError(t, err)
			assert.Equal(t, "alice", before.Replaced)
		})
	})
	for name, change := range map[string]change{
		"a message": set("status.operationState.message", "one or more tasks are running"),
		"a result":  set("status.operationState.syncResult.resources", []any{object{"kind": "Job", "name": "seed"}}),
	} {
		t.Run("not if a pass in flight still wrote "+name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, Options{}, left)
				go func() {
					time.Sleep(time.Minute)
					w.change(t, change)
				}()
				_, err := w.request(t.Context())
				assert.ErrorContains(t, err, "somebody removed its .operation")
				assert.Zero(t, w.writes())
			})
		})
	}
	t.Run("not if a pass in flight writes in the last moment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, left)
			w.on("update", func() error {
				w.change(t, set("status.operationState.message", "one or more tasks are running"))
				return conflict()
			})
			_, err := w.request(t.Context())
			assert.ErrorContains(t, err, "somebody removed its .operation")
			assert.Equal(t, 1, w.writes())
		})
	})
	t.Run("whatever else is written meanwhile", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Options{}, left)
			go func() {
				time.Sleep(time.Minute)
				w.change(t, set("status.reconciledAt", "2026-01-02T15:01:00Z"))
			}()
			_, err := w.request(t.Context())
			require.NoError(t, err)
		})
	})
	t.Run("not at all by a request that may not wait", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, Options{}, left)
		_, err := w.request(t.Context(), func(a *applier.Ask) { a.Wait = -1 })
		assert.ErrorContains(t, err, "started by alice: somebody removed its .operation")
		assert.Zero(t, w.writes())
	})
}

func parseAgain(t *testing.T, w *world) application {
	t.Helper()
	app, err := parseApplication(w.get(t), DefaultInfoKey)
	require.NoError(t, err)
	return app
}
