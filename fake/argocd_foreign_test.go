package fake_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

// What package argocd makes of an operation that somebody else started.

// alices is an operation that alice started.
func alices(sync fields) fields {
	return operation("theirs", sync, fields{"initiatedBy": fields{"username": "alice"}})
}

// hooked is a commit whose sync waits for a hook.
func hooked(value string) fake.Files {
	return fake.Files{"cm.yaml": configMap("cm", value), "hook.yaml": hook}
}

// beforeUpdate lets somebody act right before the first update of a view.
func beforeUpdate(view *fake.View, act func()) {
	view.Inject(fake.Fault{Verb: "update", Resource: applications.Resource, Nth: 1, Before: func(fake.Request) { act() }})
}

func TestTheClientWaitsForSomebodyElsesOperation(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(alices(fields{"revision": w.push("two", hooked("two"))}))
		w.repo.Remove("hook.yaml")
		three := w.push("three", value("three"))
		view := w.cluster.As("host", nil)
		go func() {
			time.Sleep(time.Minute)
			assert.Zero(w, writesOf(view))
			w.endHook()
		}()
		_, err := w.applyBy(w.through(view), w.ask(three))
		require.NoError(w, err)
		assert.Equal(w, "three", w.data("cm"))
		history := w.field("status", "history").([]any)
		assert.Len(w, history, 3, "theirs was carried out")
	})
}

func TestTheClientNamesAnOperationThatNeverEndsAndLeavesItAsItIs(t *testing.T) {
	for name, test := range map[string]struct{ wait, waited time.Duration }{
		"after its wait":            {waited: argocd.DefaultOperationWait},
		"after the wait of the ask": {wait: time.Hour, waited: time.Hour},
		"at once":                   {wait: -1},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.operate(alices(fields{"revision": w.push("two", hooked("two"))}))
				view := w.cluster.As("host", nil)
				ask := w.ask(w.push("three", value("three")))
				ask.Wait = test.wait
				ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }
				before, start := w.app(), time.Now()

				started, err := w.through(view).Request(w.Context(), argoApp, ask)

				assert.Zero(w, started)
				require.ErrorIs(w, err, applier.ErrBusy)
				assert.ErrorContains(w, err, "Application team-a/app in cluster prod was not asked")
				assert.ErrorContains(w, err, "started by alice: let it end, or terminate it")
				assert.ErrorContains(w, err, "waiting for completion of hook batch/Job/hook")
				assert.False(w, applier.IsPermanent(err))
				assert.Equal(w, test.waited, time.Since(start))
				assert.Zero(w, writesOf(view))
				assert.Equal(w, before, w.app())
			})
		})
	}
}

// A controller that does not run has no record of it.
func TestTheClientLeavesAnOperationAsItIsThatNobodyHasTakenUp(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Stop()
		w.operate(alices(fields{"revision": w.push("two", value("two"))}))
		view := w.cluster.As("host", nil)
		ask := w.ask(w.push("three", value("three")))
		ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }

		_, err := w.through(view).Request(w.Context(), argoApp, ask)

		require.ErrorIs(w, err, applier.ErrBusy)
		assert.ErrorContains(w, err, "one is asked for, started by alice: let it end, or terminate it")
		assert.Zero(w, writesOf(view))
		assert.Equal(w, "op=theirs hist=1", w.app())

		time.AfterFunc(time.Minute, w.argo.Start)
		_, err = w.apply(ask.Commit)
		require.NoError(w, err)
		assert.Equal(w, "three", w.data("cm"))
		assert.Len(w, w.field("status", "history"), 3, "theirs was carried out")
	})
}

func TestTheClientWaitsForAnOperationSetBetweenItsReadAndItsWrite(t *testing.T) {
	for name, set := range map[string]func(w *argoWorld, operation fields){
		"with the clear":    (*argoWorld).operate,
		"without the clear": (*argoWorld).operateUncleared,
		"with a filter": func(w *argoWorld, operation fields) {
			operation["sync"].(fields)["resources"] = []any{fields{"kind": "ConfigMap", "name": "cm"}}
			w.operate(operation)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				two, three := w.push("two", value("two")), w.push("three", value("three"))
				view := w.cluster.As("host", nil)
				beforeUpdate(view, func() { set(w, alices(fields{"revision": two})) })
				var synced []any
				stop := w.watch(func(state fields) {
					if state["phase"] == "Succeeded" {
						synced = append(synced, w.name(state["syncResult"].(fields)["revision"]))
					}
				})

				end, err := w.applyBy(w.through(view), w.ask(three))

				require.NoError(w, err)
				stop()
				assert.Equal(w, three, end.AppliedCommit)
				assert.Equal(w, "three", w.data("cm"))
				assert.Equal(w, 2, writesOf(view), "the first was not refused")
				assert.Contains(w, synced, "two", "alice's operation was replaced")
				assert.Nil(w, w.field("status", "operationState", "operation", "sync", "resources"))
			})
		})
	}
}

func TestTheClientLeavesAnOperationAsItIsThatWasSetBetweenItsReadAndItsWriteAndNeverEnds(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", hooked("two"))
		view := w.cluster.As("host", nil)
		beforeUpdate(view, func() { w.operate(alices(fields{"revision": two})) })

		started, err := w.through(view).Request(w.Context(), argoApp, w.ask(w.push("three", value("three"))))

		assert.Zero(w, started)
		require.ErrorIs(w, err, applier.ErrBusy)
		assert.ErrorContains(w, err, "started by alice")
		assert.Equal(w, 1, writesOf(view), "it was refused")
		assert.Contains(w, w.app(), "op=theirs Running theirs sr=two")
	})
}

func TestTheClientReplacesAnOrphanAfterItsWait(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(alices(fields{"revision": w.push("two", hooked("two"))}))
		w.update(func(app fields) { delete(app, "operation") })
		w.repo.Remove("hook.yaml")
		start := time.Now()
		end, err := w.apply(w.push("three", value("three")))
		require.NoError(w, err)
		assert.GreaterOrEqual(w, time.Since(start), argocd.DefaultOperationWait)
		assert.Contains(w, end.Message, "it replaced an operation of alice that was left in progress")
		assert.Equal(w, "three", w.data("cm"))
	})
}

func TestTheClientDoesNotReplaceARecordToWhichAPassInFlightStillWrites(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Inject(fake.StepFault{Step: fake.WaveStep, Nth: 1, Delay: time.Minute})
		w.operate(alices(fields{"revision": w.push("two", waves("two"))}))
		w.update(func(app fields) { delete(app, "operation") })
		view := w.cluster.As("host", nil)
		ask := w.ask(w.push("three", waves("three")))

		_, err := w.through(view).Request(w.Context(), argoApp, ask)

		require.ErrorIs(w, err, applier.ErrBusy)
		assert.ErrorContains(w, err, "started by alice: somebody removed its .operation")
		assert.Zero(w, writesOf(view))
		_, err = w.apply(ask.Commit)
		require.NoError(w, err)
		assert.Equal(w, "three", w.data("second"))
	})
}

func TestTheClientTellsThatAPassInFlightSwallowedItsOperation(t *testing.T) {
	for name, test := range map[string]struct {
		removed []string
		reason  string
		message string
	}{
		// The record that stood before the request stands again: nothing ran for it.
		"whose record stood, and was waited for in vain": {removed: []string{"operation"}, reason: applier.ReasonSwallowed, message: "dropped this one"},
		// Another's record stands where there was none.
		"whose record was removed": {removed: []string{"operation", "status"}, reason: applier.ReasonSuperseded, message: "removed or replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.Inject(fake.StepFault{Step: fake.LoadStep, Nth: 1, Delay: 10 * time.Minute})
				w.operate(alices(fields{"revision": w.push("two", value("two"))}))
				w.update(func(app fields) {
					for _, field := range test.removed {
						delete(app, field)
					}
				})
				view := w.cluster.As("host", nil)
				end, err := w.applyBy(w.through(view), w.ask(w.push("three", value("three"))))
				require.ErrorIs(w, err, applier.ErrFailed)
				assert.Equal(w, test.reason, end.Reason)
				assert.Contains(w, end.Message, test.message)
				assert.True(w, end.AskAgain())
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, 1, writesOf(view), "it was sent again")

				_, err = w.apply(w.repo.Head("main"))
				require.NoError(w, err)
				assert.Equal(w, "three", w.data("cm"))
			})
		})
	}
}
