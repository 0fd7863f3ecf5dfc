package fake_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

// What package argocd makes of the simulated controller.

var argoApp = types.NamespacedName{Namespace: team, Name: "app"}

func (w *argoWorld) client() *argocd.Client {
	w.Helper()
	client, err := argocd.New("prod", w.cluster, argocd.Options{Initiator: "acme"})
	require.NoError(w, err)
	return client
}

// apply asks for a commit, and follows the operation to its end.
func (w *argoWorld) apply(commit string) (applier.Progress, error) {
	return w.applyBy(w.client(), w.ask(commit))
}

// applyBy makes a client ask, and follow to the end. No test waits for one that takes longer.
func (w *argoWorld) applyBy(client *argocd.Client, ask applier.Ask) (applier.Progress, error) {
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Hour)
	defer cancel()
	return applier.Apply(ctx, client, argoApp, ask, nil)
}

// request asks for a commit, and waits until the controller has done what there is to do by then.
func (w *argoWorld) request(commit string) applier.Started {
	w.Helper()
	started, err := w.client().Request(w.Context(), argoApp, w.ask(commit))
	require.NoError(w, err)
	w.after(0)
	return started
}

// follow follows an operation to its end.
func (w *argoWorld) follow(started applier.Started) applier.Progress {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 3*time.Hour)
	defer cancel()
	end, err := applier.Follower{}.Follow(ctx, w.client(), argoApp, &started, nil)
	require.NoError(w, err)
	return end
}

func (w *argoWorld) ask(commit string) applier.Ask {
	return applier.Ask{Want: applier.Binding{Repository: repositoryURL, Branch: "main"}, Commit: commit, Token: applier.NewToken()}
}

func TestACommitThatWasJustPushedIsSynced(t *testing.T) {
	for name, prepare := range map[string]func(*argoWorld){
		"for the first time": func(w *argoWorld) { w.application() },
		"after another":      func(w *argoWorld) { w.synced() },
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				prepare(w)
				view := w.cluster.As("host", nil)
				before := w.get()
				two := w.push("two", value("two"))

				end, err := w.applyBy(w.through(view), w.ask(two))

				require.NoError(w, err)
				assert.Equal(w, applier.Progress{
					State: applier.StateSucceeded, Reason: "Succeeded", Message: "successfully synced (all tasks run)",
					AppliedRevision: two, AppliedCommit: two,
				}, end)
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, 1, writesOf(view))
				assert.LessOrEqual(w, len(view.Requests()), 4, "%v", view.Requests())
				assert.Equal(w, before.Object["spec"], w.get().Object["spec"])
				assert.Equal(w, before.GetAnnotations(), w.get().GetAnnotations())
			})
		})
	}
}

// What the controller itself sets is the measure: the same Application is synced by automated sync, and by the client.
func TestTheClientsOperationIsTheOneThatAutomatedSyncSets(t *testing.T) {
	for name, policy := range map[string]fields{
		"with no policy": {},
		"with a whole policy": {
			"automated":   fields{"prune": true, "selfHeal": false},
			"syncOptions": []any{"CreateNamespace=true", "ServerSideApply=true", "PruneLast=true"},
			"retry":       fields{"limit": int64(3), "refresh": true, "backoff": fields{"duration": "1s", "factor": int64(2), "maxDuration": "10s"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				one := w.push("one", value("one"))
				carried := func() fields { return w.field("status", "operationState", "operation").(fields) }
				w.application(set(policy, "spec", "syncPolicy"), set(true, "spec", "syncPolicy", "automated", "enabled"))
				want := carried()
				w.delete()
				w.application(set(policy, "spec", "syncPolicy"), set(false, "spec", "syncPolicy", "automated", "enabled"))
				ask := w.ask(one)

				_, err := w.applyBy(w.client(), ask)

				require.NoError(w, err)
				want["initiatedBy"].(fields)["username"] = "acme"
				want["info"] = []any{fields{"name": argocd.DefaultInfoKey, "value": ask.Token}}
				delete(want["retry"].(fields), "refresh")
				assert.Equal(w, want, carried())
			})
		})
	}
}

func TestTheClientSyncsACommitAfterAnyLeftover(t *testing.T) {
	for name, previous := range map[string]fields{
		"a selective sync":          {"sync": fields{"resources": []any{fields{"kind": "ConfigMap", "name": "cm"}}}},
		"a dry run":                 {"sync": fields{"dryRun": true}},
		"a sync that pruned":        {"sync": fields{"prune": true}},
		"a sync with other options": {"sync": fields{"syncOptions": []any{"ServerSideApply=true", "Replace=true"}}},
		"a sync that ran no hooks":  {"sync": fields{"syncStrategy": fields{"apply": fields{"force": true}}}},
		"a sync with a retry":       {"sync": fields{}, "retry": fields{"limit": int64(7)}},
		"a sync with infos":         {"sync": fields{}, "info": []any{fields{"name": "reason", "value": "because"}, fields{"name": "ticket", "value": "7"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.push("one", waves("one"))
				w.application()
				w.operate(alices(fields{}))
				w.operate(previous)
				require.Equal(w, "Succeeded", w.field("status", "operationState", "phase"))
				files := waves("two")
				files["hook.yaml"] = hook
				ask := w.ask(w.push("two", files))
				started, err := w.client().Request(w.Context(), argoApp, ask)
				require.NoError(w, err)
				w.after(0)
				require.Contains(w, w.app(), "waiting for completion of hook", "the hook is passed over")
				w.endHook()

				end := w.follow(started)

				assert.Equal(w, ask.Commit, end.AppliedCommit, "%+v", end)
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, "two", w.data("second"))
				assert.Equal(w, fields{
					"initiatedBy": fields{"username": "acme", "automated": true},
					"info":        []any{fields{"name": argocd.DefaultInfoKey, "value": ask.Token}},
					"sync":        fields{"revision": ask.Commit, "source": w.field("spec", "source")},
					"retry":       fields{"limit": int64(5)},
				}, w.field("status", "operationState", "operation"), "the record speaks of another operation, too")
			})
		})
	}
}

func TestPruningIsWhatTheDisabledAutomatedSyncOrTheHostSays(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  fields
		options argocd.Options
		pruned  bool
	}{
		{name: "nobody says so"},
		{name: "the disabled automated sync says so", policy: fields{"enabled": false, "prune": true}, pruned: true},
		{name: "the disabled automated sync says no", policy: fields{"enabled": false, "prune": false}},
		{name: "the host says so", options: argocd.Options{Prune: true}, pruned: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced(func(u *unstructured.Unstructured) {
					if test.policy != nil {
						set(test.policy, "spec", "syncPolicy", "automated")(u)
					}
				})
				w.repo.Commit(fake.Files{"other.yaml": configMap("other", "x")})
				test.options.Initiator = "acme"
				client, err := argocd.New("prod", w.cluster, test.options)
				require.NoError(w, err)

				end, err := w.applyBy(client, w.ask(w.repo.Remove("cm.yaml")))

				require.NoError(w, err)
				assert.Equal(w, test.pruned, w.data("cm") == "")
				want := "successfully synced (all tasks run)"
				if !test.pruned {
					want += "; not pruned: ConfigMap team-a/cm"
				}
				assert.Equal(w, want, end.Message)
			})
		})
	}
}

func TestTheClientTellsAControllerThatHasJustStartedFromABadCommit(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set(int64(0), "spec", "syncPolicy", "retry", "limit"))
		w.argo.FailNext(fake.ProjectStep, "Application referencing project default which does not exist")
		end, err := w.apply(w.push("two", value("two")))
		require.ErrorIs(w, err, applier.ErrFailed)
		assert.Equal(w, applier.ReasonInterrupted, end.Reason)
		assert.Contains(w, end.Message, "that says nothing of the commit")
		assert.True(w, end.AskAgain())
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAFailureThatPassesIsAbsorbedByTheOperationsRetry(t *testing.T) {
	for _, step := range []fake.Step{fake.ProjectStep, fake.LoadStep, fake.ApplyStep} {
		t.Run(string(step), func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.FailNext(step, "no")
				_, err := w.apply(w.push("two", value("two")))
				require.NoError(w, err)
				assert.Equal(w, "two", w.data("cm"))
			})
		})
	}
}

func TestTheControllerMayBeKilledInAnyStep(t *testing.T) {
	for _, step := range []fake.Step{fake.ProjectStep, fake.LoadStep, fake.ApplyStep, fake.WaveStep} {
		t.Run(string(step), func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.Inject(fake.StepFault{Step: step, Nth: 1, Do: func() {
					w.argo.Stop()
					time.AfterFunc(time.Minute, w.argo.Start)
				}})
				end, err := w.apply(w.push("two", waves("two")))
				require.NoError(w, err)
				assert.Equal(w, "two", w.called[end.AppliedCommit])
				assert.Equal(w, "two", w.data("cm"))
				assert.Equal(w, "two", w.data("second"))
			})
		})
	}
}

func TestTheControllerMayBeKilledWhileASyncWaits(t *testing.T) {
	for name, test := range map[string]struct {
		files  fake.Files
		before func(*argoWorld)
		stage  string
		after  func(*argoWorld)
	}{
		"before it is asked": {files: value("two"), before: func(w *argoWorld) { w.argo.Stop() }, stage: "op=? hist=1"},
		"for a hook": {
			files: hooked("two"), stage: "op=? Running ? sr=two hist=1 (waiting for completion of hook batch/Job/hook)",
			after: (*argoWorld).endHook,
		},
		"for a retry": {
			files: value("two"), before: func(w *argoWorld) { w.argo.FailNext(fake.ApplyStep, "no") },
			stage: "op=? Running ? sr=two hist=1 (one or more objects failed to apply, reason: no. Retrying attempt #1",
		},
		"for the end of a sync window": {
			files: value("two"), before: func(w *argoWorld) { w.argo.Block() }, stage: "op=? Running ? sr=two hist=1 (Sync operation blocked by sync window)",
			after: func(w *argoWorld) { w.argo.Unblock() },
		},
		"for nothing any more": {files: value("two"), stage: "- Succeeded ? sr=two hist=2"},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				if test.before != nil {
					test.before(w)
				}
				started := w.request(w.push("two", test.files))
				require.Contains(w, strings.ReplaceAll(w.app(), started.Token, "?"), test.stage)
				w.argo.Stop()
				w.after(time.Minute)
				w.argo.Start()
				w.after(0)
				if test.after != nil {
					test.after(w)
				}

				end := w.follow(started)

				assert.Equal(w, started.Commit, end.AppliedCommit, "%+v", end)
				assert.Equal(w, "two", w.data("cm"))
				assert.Len(w, w.field("status", "history"), 2, "it was synced once")
			})
		})
	}
}

// A process that is taken for dead has sent its update, which reaches the API server late: after another process followed the
// record to an end.
func TestALateUpdateOfADeadProcessStartsNothingThatWasReportedAsNotRun(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		view := w.cluster.As("host", nil)
		ask := w.ask(w.push("two", value("two")))
		var recorded applier.Started
		ask.Record = func(_ context.Context, started applier.Started) error { recorded = started; return nil }
		var end applier.Progress
		view.Inject(fake.Fault{
			Verb: "update", Resource: applications.Resource, Nth: 1,
			Before: func(fake.Request) {
				recorded.Recovered = true
				p, err := w.client().Progress(w.Context(), argoApp, &recorded)
				assert.NoError(w, err)
				assert.Equal(w, applier.StateRequested, p.State, "the update may still be on its way")
				end = w.follow(recorded) // to the controller's next resync
			},
			After: func(fake.Request) { view.Cut() },
		})

		_, _ = w.through(view).Request(w.Context(), argoApp, ask)

		assert.Equal(w, applier.ReasonNotRun, end.Reason, "%+v", end)
		assert.True(w, end.AskAgain())
		w.after(time.Hour)
		assert.NotContains(w, w.app(), ask.Token)
		assert.Equal(w, "one", w.data("cm"))
	})
}
