package fake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// One process has recorded an operation and not started it yet, and another follows the record.

func TestAKustomizationThatAnotherProcessSuspendedForTheRecordIsNotResumed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		f := flow{name: "held"}
		f.prepared(w)
		a := w.attempt(f, 1)
		var end applier.Progress
		record := a.ask.Record
		a.ask.Record = func(ctx context.Context, s applier.Started) error {
			require.NoError(w, record(ctx, s))
			other, _ := w.newClient()
			s.Recovered = true
			var err error
			end, err = applier.Follower{}.Follow(ctx, other, app, &s, nil)
			return err
		}
		started, err := a.client.Request(w.Context(), app, a.ask)
		assert.Equal(w, applier.ReasonNotRun, end.Reason)
		require.ErrorIs(w, err, applier.ErrStale)
		assert.Zero(w, started)
		a.notStarted()
	})
}

func TestALiveStampThatMayYetBeMadeHasNoEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		f := flow{name: "live", live: true, broken: true}
		f.prepared(w)
		a := w.attempt(f, 1)
		w.after(time.Minute)
		record := a.ask.Record
		ended := make(chan applier.Progress, 1)
		a.ask.Record = func(ctx context.Context, s applier.Started) error {
			require.NoError(w, record(ctx, s))
			w.stamp(kustomizations, "somebody's")
			synctest.Wait()
			other, _ := w.newClient()
			s.Recovered = true
			go func() {
				end, err := applier.Follower{}.Follow(w.Context(), other, app, &s, nil)
				assert.NoError(w, err)
				ended <- end
			}()
			w.after(29 * time.Second)
			assert.Empty(w, ended, "what somebody else's stamp did is no end of it")
			return nil
		}
		_, err := a.client.Request(w.Context(), app, a.ask)
		require.NoError(w, err)
		a.ended(<-ended, false)
	})
}

func TestAnUpdateThatMayYetBeMadeHasNoEnd(t *testing.T) {
	label := func(app fields) { app["metadata"].(fields)["labels"] = fields{"a": "b"} }
	for name, change := range map[string]func(w *argoWorld, two string){
		"the Application changed": func(w *argoWorld, _ string) { w.update(label); w.update(label) },
		"somebody synced it":      func(w *argoWorld, two string) { w.operate(alices(fields{"revision": two})) },
		"its record was removed": func(w *argoWorld, _ string) {
			w.update(func(app fields) { unstructured.RemoveNestedField(app, "status", "operationState") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				two := w.push("two", value("two"))
				ask := w.ask(w.push("three", value("three")))
				ended := make(chan applier.Progress, 1)
				ask.Record = func(_ context.Context, s applier.Started) error {
					s.Recovered = true
					go func() {
						end, err := applier.Follower{}.Follow(w.Context(), w.client(), argoApp, &s, nil)
						assert.NoError(w, err)
						ended <- end
					}()
					synctest.Wait()
					change(w, two)
					w.after(29 * time.Second)
					assert.Empty(w, ended)
					return nil
				}
				_, err := w.client().Request(w.Context(), argoApp, ask)
				require.NoError(w, err)
				assert.Equal(w, ask.Commit, (<-ended).AppliedCommit)
				assert.Equal(w, "three", w.data("cm"))
			})
		})
	}
}

func TestWhatWasNotStartedSoonAfterItsRecordIsRecordedAnew(t *testing.T) {
	t.Parallel()
	late := func(began time.Time) func(context.Context, applier.Started) error {
		return func(context.Context, applier.Started) error {
			time.Sleep(time.Until(began.Add(31 * time.Second)))
			return nil
		}
	}
	for _, live := range []bool{false, true} {
		t.Run(map[bool]string{false: "held", true: "live"}[live]+", and recording takes long", func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				f := flow{live: live}
				f.prepared(w)
				a := w.attempt(f, 1)
				a.ask.Record = late(time.Now())
				started, err := a.client.Request(w.Context(), app, a.ask)
				require.ErrorContains(w, err, "Kustomization team-a/app in cluster prod was not asked: more than 30s have passed since its record was begun")
				assert.Zero(w, started)
				a.notStarted()
			})
		})
	}
	t.Run("an Application, and recording takes long", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced()
			view := w.cluster.As("host", nil)
			ask := w.ask(w.push("two", value("two")))
			ask.Record = late(time.Now())
			started, err := w.through(view).Request(w.Context(), argoApp, ask)
			require.ErrorContains(w, err, "Application team-a/app in cluster prod was not asked: more than 30s have passed since its record was begun")
			assert.Zero(w, started)
			assert.Zero(w, writesOf(view))
		})
	})
	t.Run("an Application, and somebody's sync goes on", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced()
			two := w.push("two", hooked("two"))
			view := w.cluster.As("host", nil)
			ask := w.ask(w.push("three", value("three")))
			ask.Record = func(context.Context, applier.Started) error { w.operate(alices(fields{"revision": two})); return nil }
			began := time.Now()
			started, err := w.through(view).Request(w.Context(), argoApp, ask)
			require.ErrorIs(w, err, applier.ErrBusy)
			assert.ErrorContains(w, err, "more than 30s have passed since its record was begun")
			assert.Zero(w, started)
			assert.Zero(w, writesOf(view))
			assert.Equal(w, 30*time.Second, time.Since(began))
		})
	})
	t.Run("a live Kustomization, and somebody's reconcile goes on", func(t *testing.T) {
		t.Parallel()
		inWorld(t, func(w *world) {
			f := flow{live: true}
			f.prepared(w)
			a := w.attempt(f, 1)
			a.ask.Record = func(context.Context, applier.Started) error {
				w.flux.Kustomize.Stop()
				w.stamp(kustomizations, "somebody's")
				return nil
			}
			began := time.Now()
			started, err := a.client.Request(w.Context(), app, a.ask)
			require.ErrorIs(w, err, applier.ErrBusy)
			assert.Zero(w, started)
			assert.Equal(w, 30*time.Second, time.Since(began))
			a.notStarted()
		})
	})
	t.Run("an update that gets no answer is given up by then, and followed", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced()
			view := w.cluster.As("host", nil)
			view.Inject(fake.Fault{Verb: "update", Resource: applications.Resource, Delay: time.Hour})
			began := time.Now()
			ask := w.ask(w.push("two", value("two")))
			ask.Record = func(context.Context, applier.Started) error { return nil }
			started, err := w.through(view).Request(w.Context(), argoApp, ask)
			require.NoError(w, err)
			assert.ErrorIs(w, started.Unconfirmed, applier.ErrUnconfirmed)
			assert.Equal(w, 30*time.Second, time.Since(began))
		})
	})
}

// The process that recorded the stamp died with it on its way: what somebody stamped between the two is no end of it.
func TestALiveStampThatIsStillOnItsWayHasNoEnd(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		f := flow{name: "live", live: true, broken: true}
		f.prepared(w)
		a := w.attempt(f, 1)
		w.after(time.Minute)
		record := a.ask.Record
		a.ask.Record = func(ctx context.Context, s applier.Started) error {
			require.NoError(w, record(ctx, s))
			w.stamp(kustomizations, "somebody's")
			synctest.Wait()
			return nil
		}
		a.view.Inject(fake.Fault{Verb: "patch", Resource: "kustomizations", Nth: 1, Delay: 29 * time.Second, After: func(fake.Request) { a.view.Cut() }})
		died := make(chan struct{})
		go func() {
			defer close(died)
			_, _ = a.client.Request(w.Context(), app, a.ask)
		}()
		w.after(time.Second)
		s := a.recovered(false)
		next, _ := w.newClient()
		end, err := applier.Follower{}.Follow(w.Context(), next, app, &s, nil)
		require.NoError(w, err)
		assert.Equal(w, a.ask.Token, w.get(kustomizations, "app").GetAnnotations()[requestedAt], "it ended before it began")
		<-died
		a.ended(end, false)
	})
}

// A watch may show what came after the record and before the stamp.
func TestWhatStoodBeforeALiveStampIsNoEndOfIt(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*world){
		"nobody had stamped it":  func(w *world) { w.patch(kustomizations, "app", `{"metadata":{"labels":{"a":"b"}}}`) },
		"somebody's was handled": func(w *world) { w.stamp(kustomizations, "somebody's"); synctest.Wait() },
		"the annotation was gone": func(w *world) {
			w.patch(kustomizations, "app", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":null}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				f := flow{name: "live", live: true}
				f.prepared(w)
				a := w.attempt(f, 1)
				w.stamp(kustomizations, "long ago")
				w.after(time.Minute)
				var shown *unstructured.Unstructured
				record := a.ask.Record
				a.ask.Record = func(ctx context.Context, s applier.Started) error {
					require.NoError(w, record(ctx, s))
					before(w)
					shown = w.get(kustomizations, "app")
					w.flux.Inject(fake.StepFault{Step: fake.ApplyStep, Delay: 10 * time.Second})
					return nil
				}
				_, err := a.client.Request(w.Context(), app, a.ask)
				require.NoError(w, err)
				s := a.recovered(false)
				s.Overdue, s.Observed = true, shown
				p, err := w.observer.Progress(w.Context(), app, &s)
				require.NoError(w, err)
				assert.False(w, p.State.Ended(), "%+v", p)
				end, err := applier.Follower{}.Follow(w.Context(), w.observer, app, &s, nil)
				require.NoError(w, err)
				a.ended(end, false)
			})
		})
	}
}
