package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/fake"
)

// What application-controller 3.2.11 does with an operation, one fact a test.

func TestAnOperationIsTakenUpWholeAndCompletesInOnePatchAfterItsHistory(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", value("two"))
		seen := w.timeline()
		w.operate(operation("tok", fields{"revision": two}, fields{"initiatedBy": fields{"username": "acme", "automated": true}, "retry": fields{"limit": int64(2)}}))
		assert.Equal(w, []string{
			"op=tok hist=1",
			"op=tok Running tok hist=1",
			"op=tok Running tok hist=2",
			"- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))",
		}, seen())
		assert.Equal(w, "two", w.data("cm"))
		assert.Equal(w, fields{
			"sync": fields{"revision": two}, "info": []any{fields{"name": "token", "value": "tok"}},
			"initiatedBy": fields{"username": "acme", "automated": true}, "retry": fields{"limit": int64(2)},
		}, w.field("status", "operationState", "operation"))
		started, err := time.Parse(time.RFC3339, w.field("status", "operationState", "startedAt").(string))
		require.NoError(w, err)
		assert.Zero(w, started.Nanosecond())
	})
}

func TestTheRecordOfThePreviousOperationShowsUntilItIsOverwritten(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", value("two"))
		seen := w.timeline()
		w.operateUncleared(operation("tok", fields{"revision": two}))
		assert.Equal(w, []string{
			"op=tok Succeeded first sr=one hist=1 (successfully synced (all tasks run))",
			"op=tok Running tok sr=one hist=1 (successfully synced (all tasks run))",
			"op=tok Running tok sr=one hist=2 (successfully synced (all tasks run))",
			"- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))",
		}, seen())
		assert.Equal(w, "two", w.data("cm"), "one pass is enough, and works from memory")
	})
}

func TestFieldsOfThePreviousOperationLeakFromTheSecondPassOn(t *testing.T) {
	for name, test := range map[string]struct {
		previous fields
		second   string
	}{
		"resources": {previous: fields{"resources": []any{fields{"kind": "ConfigMap", "name": "cm"}}}, second: "one"},
		"dryRun":    {previous: fields{"dryRun": true}, second: "one"},
		"none":      {previous: fields{}, second: "two"},
	} {
		for _, cleared := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", cleared"}[cleared], func(t *testing.T) {
				inArgo(t, func(w *argoWorld) {
					one := w.push("one", waves("one"))
					w.application()
					w.operate(operation("first", fields{"revision": one}))
					previous := fields{"revision": one}
					for name, value := range test.previous {
						previous[name] = value
					}
					w.operate(operation("previous", previous))
					two := w.push("two", waves("two"))
					set, second := w.operateUncleared, test.second
					if cleared {
						set, second = w.operate, "two"
					}
					set(operation("tok", fields{"revision": two}))
					assert.Contains(w, w.app(), "- Succeeded tok sr=two", "the lie, where there is one")
					assert.Equal(w, "two", w.data("cm"))
					assert.Equal(w, second, w.data("second"))
				})
			})
		}
	}
}

func TestPruneLeaksAndTheTokenIsInherited(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.push("one", waves("one"))
		w.application()
		w.operate(operation("first", fields{"prune": true}))
		w.repo.Commit(fake.Files{"cm.yaml": wave("cm", "two", "0"), "third.yaml": wave("third", "two", "1")})
		two := w.repo.Remove("second.yaml")
		w.operateUncleared(fields{"sync": fields{"revision": two}})
		assert.Contains(w, w.app(), "- Succeeded first", "an operation without info has the info of the one before")
		assert.Empty(w, w.data("second"), "it was pruned, though nobody asked for it")
	})
}

func TestAFirstPassThatAWindowBlocksSucceedsLaterWithNothingApplied(t *testing.T) {
	for _, cleared := range []bool{false, true} {
		t.Run(map[bool]string{false: "uncleared", true: "cleared"}[cleared], func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				two := w.push("two", value("two"))
				w.argo.Block()
				set, live, message := w.operateUncleared, "one", "successfully synced (no more tasks)"
				if cleared {
					set, live, message = w.operate, "two", "successfully synced (all tasks run)"
				}
				set(operation("tok", fields{"revision": two}))
				assert.Equal(w, "op=tok Running tok sr=two hist=1 (Sync operation blocked by sync window)", w.app())
				w.after(time.Hour)
				assert.Contains(w, w.app(), "blocked by sync window", "it has no end of its own")
				w.argo.Unblock()
				synctest.Wait()
				assert.Equal(w, "- Succeeded tok sr=two hist=2 ("+message+")", w.app())
				assert.Equal(w, live, w.data("cm"))
			})
		})
	}
}

func TestAnOperationSetWhileOneIsWaitingIsSwallowed(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})
		w.operate(operation("tok1", fields{"revision": two}))
		assert.Equal(w, "op=tok1 Running tok1 sr=two hist=1 (waiting for completion of hook batch/Job/hook)", w.app())
		w.operateUncleared(operation("tok2", fields{"revision": w.push("three", value("three"))}))
		assert.Contains(w, w.app(), "op=tok2 Running tok1 sr=two")
		w.endHook()
		assert.Equal(w, "- Succeeded tok1 sr=two hist=2 (successfully synced (all tasks run))", w.app())
		assert.Equal(w, "two", w.data("cm"))
	})
}

func TestAnOperationSetWithAClearWhileAnotherIsIdleStartsAfresh(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})
		w.operate(operation("tok1", fields{"revision": two}))
		w.operate(operation("tok2", fields{"revision": w.push("three", value("three"))}))
		assert.Equal(w, "op=tok2 Running tok2 sr=three hist=1 (waiting for completion of hook batch/Job/hook)", w.app())
		w.endHook()
		assert.Contains(w, w.app(), "- Succeeded tok2 sr=three hist=2")
		assert.Equal(w, "three", w.data("cm"))
	})
}

func TestAnOperationSetWithAClearDuringAPassIsSwallowedByIt(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Inject(fake.StepFault{Step: fake.WaveStep, Nth: 1, Delay: 2 * time.Second})
		two := w.push("two", waves("two"))
		w.operate(operation("tok1", fields{"revision": two}))
		w.after(800 * time.Millisecond)
		seen := w.timeline()
		w.operate(operation("tok2", fields{"revision": w.push("three", waves("three"))}))
		w.after(2 * time.Second)
		assert.Equal(w, []string{
			"op=tok2 hist=1",
			"op=tok2 Running tok1 sr=two hist=1 (one or more tasks are running)",
			"op=tok2 Running tok1 sr=two hist=2 (one or more tasks are running)",
			"- Succeeded tok1 sr=two hist=2 (successfully synced (all tasks run))",
		}, seen())
	})
}

func TestAnOperationThatWasRemovedGoesNoFurtherUntilAnotherIsSet(t *testing.T) {
	for _, cleared := range []bool{false, true} {
		t.Run(map[bool]string{false: "uncleared", true: "cleared"}[cleared], func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})
				w.operate(operation("tok1", fields{"revision": two}))
				w.update(func(app fields) { delete(app, "operation") })
				w.endHook()
				w.after(time.Hour)
				assert.Contains(w, w.app(), "- Running tok1 sr=two hist=1")
				assert.Equal(w, "one", w.data("cm"))

				three := operation("tok3", fields{"revision": w.push("three", fake.Files{"cm.yaml": configMap("cm", "three")})})
				if cleared {
					w.operate(three)
					w.endHook()
					assert.Contains(w, w.app(), "- Succeeded tok3 sr=three hist=2")
					assert.Equal(w, "three", w.data("cm"))
				} else {
					w.operateUncleared(three)
					assert.Contains(w, w.app(), "- Succeeded tok1 sr=two hist=2", "the old operation is carried out, and nulls the new one")
					assert.Equal(w, "two", w.data("cm"))
				}
			})
		})
	}
}

// terminate is what Argo CD's API server does.
func (w *argoWorld) terminate() {
	w.Helper()
	w.update(func(app fields) {
		app["status"].(fields)["operationState"].(fields)["phase"] = "Terminating"
	})
}

func TestATerminatedOperationIsFailedAndNotRetried(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", fake.Files{"hook.yaml": hook})
		w.operate(operation("tok", fields{"revision": two}, fields{"retry": fields{"limit": int64(3)}}))
		w.terminate()
		assert.Equal(w, "- Failed tok sr=two hist=1 (Operation terminated)", w.app())
		list, err := w.cluster.Resource(jobs).Namespace(team).List(w.Context(), metav1.ListOptions{})
		require.NoError(w, err)
		assert.Empty(w, list.Items, "the hook was deleted")
	})
}

func TestAnOperationTerminatedWhileItWaitsForARetrySaysHowOftenItWasRetried(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ApplyStep, "no")
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}, fields{"retry": fields{"limit": int64(3)}}))
		w.terminate()
		assert.Equal(w, "- Failed tok sr=two hist=1 (Operation terminated (retried 1 times).)", w.app())
	})
}

func TestAnOperationTerminatedDuringAPassIsTerminatedByTheNext(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Inject(fake.StepFault{Step: fake.WaveStep, Nth: 1, Delay: 2 * time.Second})
		w.operate(operation("tok", fields{"revision": w.push("two", waves("two"))}))
		seen := w.timeline()
		w.terminate()
		w.after(3 * time.Second)
		assert.Equal(w, []string{
			"op=tok Terminating tok hist=1",
			"op=tok Terminating tok sr=two hist=1 (operation is terminating)",
			"- Failed tok sr=two hist=1 (Operation terminated)",
		}, seen())
	})
}

func TestTerminatingWaitsForTheEndOfASyncWindow(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Block()
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}))
		w.terminate()
		w.after(time.Hour)
		assert.Contains(w, w.app(), "op=tok Terminating tok")
		w.argo.Unblock()
		synctest.Wait()
		assert.Contains(w, w.app(), "- Failed tok sr=two hist=1 (Operation terminated)")
	})
}

func TestAFailedSyncIsRetriedWithBackoff(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Inject(fake.StepFault{Step: fake.ApplyStep, Message: "no"})
		start := time.Now()
		seen := w.timeline()
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))},
			fields{"retry": fields{"limit": int64(2), "backoff": fields{"duration": "3s", "factor": int64(2), "maxDuration": "10s"}}}))
		assert.Equal(w, w.field("status", "operationState", "startedAt"), start.UTC().Format(time.RFC3339))
		assert.NotEmpty(w, w.field("status", "operationState", "finishedAt"), "Running, waiting for a retry")
		w.after(6 * time.Second)
		w.after(10 * time.Second)
		at := func(d time.Duration) string { return start.Add(d).Format(time.Kitchen) }
		const failed = "one or more objects failed to apply, reason: no"
		assert.Equal(w, []string{
			"op=tok hist=1",
			"op=tok Running tok hist=1",
			"op=tok Running tok sr=two hist=1 (" + failed + ". Retrying attempt #1 at " + at(3*time.Second) + ".)",
			"op=tok Running tok sr=two hist=1 (Retrying operation. Attempt #1)",
			"op=tok Running tok sr=two hist=1 (" + failed + ". Retrying attempt #2 at " + at(12*time.Second) + ".)",
			"op=tok Running tok sr=two hist=1 (Retrying operation. Attempt #2)",
			"- Failed tok sr=two hist=1 (" + failed + " (retried 2 times).)",
		}, seen())
	})
}

func TestARetryThatSucceedsKeepsItsCount(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ApplyStep, "no")
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}, fields{"retry": fields{"limit": int64(2)}}))
		w.after(time.Minute)
		assert.Equal(w, "- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))", w.app())
		assert.Equal(w, int64(1), w.field("status", "operationState", "retryCount"))
	})
}

func TestARetryWithRefreshSyncsWhateverTheBranchLeadsToByThen(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ApplyStep, "no")
		two := w.push("two", value("two"))
		w.operate(operation("tok", fields{"revision": two}, fields{"retry": fields{"limit": int64(1), "refresh": true}}))
		w.push("three", value("three"))
		w.after(time.Minute)
		assert.Contains(w, w.app(), "- Succeeded tok sr=three hist=2")
		assert.Equal(w, two, w.field("status", "operationState", "operation", "sync", "revision"), "what was asked for stays there")
	})
}

func TestABackoffThatCannotBeReadIsAnError(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ApplyStep, "no")
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))},
			fields{"retry": fields{"limit": int64(1), "backoff": fields{"duration": "nonsense"}}}))
		assert.Equal(w, "- Error tok sr=two hist=1 (one or more objects failed to apply, reason: no (failed to retry: unable to parse nonsense as a duration))", w.app())
	})
}

func TestAControllerThatIsKilledResumesAfterItsStart(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		remove := w.argo.Inject(fake.StepFault{Step: fake.LoadStep, Do: w.argo.Stop})
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}))
		assert.False(w, w.argo.Running())
		assert.Equal(w, "op=tok Running tok hist=1", w.app())
		remove()
		w.argo.Start()
		synctest.Wait()
		assert.Equal(w, "- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))", w.app())
		assert.Equal(w, "two", w.data("cm"))
	})
}

func TestAControllerThatIsKilledInItsFirstPassResumesAtThePreviousRevision(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		two := w.push("two", value("two"))
		remove := w.argo.Inject(fake.StepFault{Step: fake.LoadStep, Do: w.argo.Stop})
		w.operateUncleared(operation("tok", fields{"revision": two}))
		remove()
		w.argo.Start()
		synctest.Wait()
		assert.Contains(w, w.app(), "- Succeeded tok sr=one", "as only an operation does that was set without a clear")
		assert.Equal(w, two, w.field("status", "operationState", "operation", "sync", "revision"))
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAControllerThatHasJustStartedMayRefuseEveryOperation(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ProjectStep, "Application referencing project default which does not exist")
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}))
		assert.Equal(w, "- Error tok hist=1 (InvalidSpecError: Application referencing project default which does not exist)", w.app())
	})
}

func TestAnOperationSetWhileTheControllerIsDownIsTakenUpAtItsStart(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Stop()
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}))
		w.after(time.Hour)
		assert.Equal(w, "op=tok hist=1", w.app())
		w.argo.Start()
		synctest.Wait()
		assert.Contains(w, w.app(), "- Succeeded tok sr=two")
		assert.Equal(w, time.Now().UTC().Format(time.RFC3339), w.field("status", "operationState", "startedAt"), "and not when it was asked")
	})
}

func TestAnOperationWithoutASyncIsAnError(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(fields{})
		assert.Equal(w, "- Error ? hist=1 (Invalid operation request: no operation specified)", w.app())
	})
}
