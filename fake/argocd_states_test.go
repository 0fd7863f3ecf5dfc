package fake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// What package argocd says of each state that an operation can be in.

// progress is where an operation stands.
func (w *argoWorld) progress(started applier.Started) applier.Progress {
	w.Helper()
	p, err := w.client().Progress(w.Context(), argoApp, &started)
	require.NoError(w, err)
	return p
}

func TestASyncIsReportedAsItGoesOn(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Stop()
		started := w.request(w.push("two", hooked("two")))
		p := w.progress(started)
		assert.Equal(w, applier.StateRequested, p.State)
		assert.Contains(w, p.Message, "is asked to sync commit "+started.Commit[:12])

		w.argo.Start()
		w.after(0)
		p = w.progress(started)
		assert.Equal(w, applier.StateRunning, p.State)
		assert.Equal(w, "Application team-a/app in cluster prod is Running: waiting for completion of hook batch/Job/hook", p.Message)

		w.endHook()
		p = w.progress(started)
		assert.Equal(w, applier.StateSucceeded, p.State)
		assert.Equal(w, "Succeeded", p.Reason)
		assert.Equal(w, started.Commit, p.AppliedRevision)
		assert.Equal(w, started.Commit, p.AppliedCommit)
		assert.Equal(w, "two", w.data("cm"))
	})
}

// An operation that waits for its own retry is Running, with a finishedAt.
func TestAnOperationThatRetriesIsFollowedToTheEndOfItsRetries(t *testing.T) {
	for name, test := range map[string]struct {
		// times is how often the apply fails.
		times  int
		state  applier.State
		reason string
	}{
		"and fails":    {times: 2, state: applier.StateFailed, reason: "Failed"},
		"and succeeds": {times: 1, state: applier.StateSucceeded, reason: "Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced(set(int64(1), "spec", "syncPolicy", "retry", "limit"))
				for n := range test.times {
					w.argo.Inject(fake.StepFault{Step: fake.ApplyStep, Nth: n + 1, Message: "no"})
				}
				started := w.request(w.push("two", value("two")))
				assert.NotNil(w, w.field("status", "operationState", "finishedAt"))
				p := w.progress(started)
				assert.Equal(w, applier.StateRunning, p.State)
				assert.Contains(w, p.Message, "Retrying attempt #1")
				started.Overdue = true
				assert.Equal(w, applier.StateRunning, w.progress(started).State, "it can still run")

				end := w.follow(started)

				assert.Equal(w, test.state, end.State)
				assert.Equal(w, test.reason, end.Reason)
				assert.Equal(w, test.state == applier.StateSucceeded, w.data("cm") == "two")
			})
		})
	}
}

// With refresh, a retry syncs whatever the branch leads to by then, under the same token.
func TestARetryOfOursNeverSyncsANewerCommit(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set(fields{"limit": int64(1), "refresh": true}, "spec", "syncPolicy", "retry"))
		w.argo.FailNext(fake.ApplyStep, "no")
		started := w.request(w.push("two", value("two")))
		w.push("three", value("three"))
		end := w.follow(started)
		assert.Equal(w, started.Commit, end.AppliedCommit, "%+v", end)
		assert.Equal(w, "two", w.data("cm"))
	})
}

func TestASuccessAtAnotherRevisionIsReportedAsSuch(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.FailNext(fake.ApplyStep, "no")
		started := w.request(w.push("two", value("two")))
		three := w.push("three", value("three"))
		// Somebody makes the operation that is in progress refresh.
		w.update(func(app fields) {
			app["status"].(fields)["operationState"].(fields)["operation"].(fields)["retry"].(fields)["refresh"] = true
		})
		end := w.follow(started)
		assert.Equal(w, applier.StateSucceeded, end.State, "%+v", end)
		assert.Equal(w, applier.ReasonAppliedOther, end.Reason)
		assert.Equal(w, three, end.AppliedCommit)
		assert.Equal(w, three, end.AppliedRevision)
		assert.Contains(w, end.Message, "synced "+three+" instead of commit "+started.Commit[:12])
		assert.Equal(w, "three", w.data("cm"))
	})
}

func TestAFailedSyncIsReportedInTheControllersWords(t *testing.T) {
	for name, test := range map[string]struct {
		files   fake.Files
		commit  string
		mutate  func(*unstructured.Unstructured)
		reason  string
		message string
		applied string
	}{
		"an object in a namespace that does not exist, beside a good one": {
			files: fake.Files{
				"bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: misplaced, namespace: nowhere}\n", "cm.yaml": configMap("cm", "two"),
			},
			reason: "Failed", message: `namespaces "nowhere" not found; failed: ConfigMap nowhere/misplaced`, applied: "two",
		},
		"a kind that is not served": {
			files:  fake.Files{"bad.yaml": "apiVersion: example.com/v1\nkind: Nope\nmetadata: {name: nope}\n", "cm.yaml": configMap("cm", "two")},
			reason: "Failed", applied: "one",
			message: `one or more synchronization tasks are not valid; failed: Nope team-a/nope: The Kubernetes API could not find example.com/Nope for requested resource ` +
				`team-a/nope. Make sure the "Nope" CRD is installed on the destination cluster.`,
		},
		"a manifest that is no YAML": {
			files:  fake.Files{"bad.yaml": "apiVersion: v1\nkind: ConfigMap\n\tmetadata: {\n"},
			reason: "Error", message: `ComparisonError: Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: code = FailedPrecondition ` +
				`desc = Failed to unmarshal "bad.yaml": failed to unmarshal manifest: error converting YAML to JSON: yaml: line 3: `,
			applied: "one",
		},
		"a commit that the repository does not have": {
			commit: "0123456789012345678901234567890123456789", reason: "Error", message: "0123456789012345678901234567890123456789", applied: "one",
		},
		"a path that the commit does not have": {
			files: fake.Files{"a": ""}, mutate: set("shop", "spec", "source", "path"), reason: "Error", message: "shop", applied: "one",
		},
		"a cluster that nobody knows": {
			files: fake.Files{"a": ""}, mutate: set("https://10.0.0.1", "spec", "destination", "server"),
			reason: "Error", message: "https://10.0.0.1", applied: "one",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced(set(int64(0), "spec", "syncPolicy", "retry", "limit"))
				if test.mutate != nil {
					w.update(func(app fields) { test.mutate(&unstructured.Unstructured{Object: app}) })
				}
				commit := test.commit
				if commit == "" {
					commit = w.push("two", test.files)
				}

				end, err := w.apply(commit)

				require.ErrorIs(w, err, applier.ErrFailed)
				assert.Equal(w, applier.StateFailed, end.State)
				assert.Equal(w, test.reason, end.Reason, end.Message)
				assert.Contains(w, end.Message, test.message)
				assert.Contains(w, end.Message, "Application team-a/app in cluster prod")
				assert.False(w, end.AskAgain())
				assert.Empty(w, end.AppliedCommit)
				assert.Equal(w, test.applied, w.data("cm"))
			})
		})
	}
}

// What other hands can make of an operation that the controller leaves alone because a sync window forbids it.
func TestAnOperationThatOtherHandsChangedIsFollowedToTheRightEnd(t *testing.T) {
	record := func(app fields) fields { return app["status"].(fields)["operationState"].(fields) }
	removeOperation := func(_ *argoWorld, app fields, _ string) { delete(app, "operation") }
	succeed := func(app fields, commit string) {
		state := record(app)
		state["phase"], state["message"], state["finishedAt"] = "Succeeded", "successfully synced (all tasks run)", "2026-01-02T15:00:00Z"
		state["syncResult"] = fields{"revision": commit}
	}
	turnBack := func(_ *argoWorld, app fields, commit string) {
		delete(app, "operation")
		succeed(app, commit)
		record(app)["phase"] = "Running"
		delete(record(app), "finishedAt")
	}
	for _, test := range []struct {
		name  string
		hands func(w *argoWorld, app fields, commit string)

		overdue bool
		state   applier.State
		reason  string
		message string
		applied bool
	}{
		{name: "nobody did anything", hands: func(*argoWorld, fields, string) {}, state: applier.StateRunning, message: "blocked by sync window"},
		{name: "nobody did anything, and it is overdue", hands: func(*argoWorld, fields, string) {}, overdue: true, state: applier.StateRunning},
		{name: "it was terminated", hands: func(_ *argoWorld, app fields, _ string) { record(app)["phase"] = "Terminating" }, state: applier.StateRunning, message: "is Terminating"},
		{name: "its .operation was removed", hands: removeOperation, state: applier.StateRunning, message: "blocked by sync window"},
		{
			name: "its .operation was removed, and it is overdue", hands: removeOperation, overdue: true,
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "somebody removed the operation",
		},
		{
			name: "its .operation was removed, and it was terminated",
			hands: func(_ *argoWorld, app fields, _ string) {
				delete(app, "operation")
				record(app)["phase"] = "Terminating"
			},
			overdue: true,
			state:   applier.StateFailed, reason: applier.ReasonInterrupted, message: "Terminating",
		},
		{
			name: "its record and its .operation were removed",
			hands: func(_ *argoWorld, app fields, _ string) {
				delete(app, "operation")
				delete(app["status"].(fields), "operationState")
			},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "removed or replaced",
		},
		{
			name: "a later sync replaced it",
			hands: func(w *argoWorld, app fields, _ string) {
				app["operation"] = alices(fields{"revision": w.repo.Head("main")})
				delete(app["status"].(fields), "operationState")
			},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "removed or replaced",
		},
		{
			name: "it succeeded, and its record has no result",
			hands: func(_ *argoWorld, app fields, commit string) {
				delete(app, "operation")
				succeed(app, commit)
				delete(record(app), "syncResult")
			},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "not what it synced",
		},
		{
			name: "it succeeded at another revision",
			hands: func(w *argoWorld, app fields, _ string) {
				delete(app, "operation")
				succeed(app, w.repo.Head("main"))
			},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, message: "instead of", applied: true,
		},
		{name: "it succeeded, and a late write turned its record back to Running", hands: turnBack, state: applier.StateRunning},
		{
			name: "it succeeded, and a late write turned its record back to Running for good", hands: turnBack, overdue: true,
			state: applier.StateFailed, reason: applier.ReasonInterrupted,
		},
		{
			name: "somebody set another .operation, which its end will remove",
			hands: func(w *argoWorld, app fields, _ string) {
				app["operation"] = alices(fields{"revision": w.repo.Head("main")})
			},
			state: applier.StateRunning,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				w.argo.Block()
				started := w.request(w.push("two", value("two")))
				w.push("three", value("three"))
				w.update(func(app fields) { test.hands(w, app, started.Commit) })
				started.Overdue = test.overdue

				p := w.progress(started)

				assert.Equal(w, test.state, p.State, "%+v\n%v", p, w.app())
				assert.Equal(w, test.reason, p.Reason)
				assert.Contains(w, p.Message, test.message)
				assert.Equal(w, test.applied, p.AppliedCommit != "")
				assert.Equal(w, "one", w.data("cm"))
			})
		})
	}
}

// The controller takes .operation up again, and carries it out a second time.
func TestAnOperationThatIsSetAgainBesideItsCompletedRecordHasNotEnded(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.argo.Block()
		started := w.request(w.push("two", value("two")))
		w.argo.Stop()
		w.update(func(app fields) {
			state := app["status"].(fields)["operationState"].(fields)
			state["phase"], state["syncResult"] = "Succeeded", fields{"revision": started.Commit}
		})
		assert.Equal(w, applier.StateRunning, w.progress(started).State)
		assert.Equal(w, "one", w.data("cm"))

		w.argo.Unblock()
		w.argo.Start()
		end := w.follow(started)
		assert.Equal(w, started.Commit, end.AppliedCommit)
		assert.Equal(w, "two", w.data("cm"))
	})
}

// The commit stands as synced already, by somebody else: only the record of this request counts.
func TestTheCommitThatSomebodyElseSyncedIsNotOurSuccess(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.operate(alices(fields{"revision": w.push("two", value("two"))}))
		w.argo.Block()
		started := w.request(w.repo.Head("main"))
		assert.Equal(w, applier.StateRunning, w.progress(started).State)
		go func() {
			time.Sleep(time.Minute)
			w.argo.Unblock()
		}()
		assert.Equal(w, applier.StateSucceeded, w.follow(started).State)
		assert.Len(w, w.field("status", "history"), 3)
	})
}

func TestAnOperationThatSomebodyTerminatedIsFailed(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		started := w.request(w.push("two", hooked("two")))
		w.terminate()
		end := w.follow(started)
		assert.Equal(w, applier.StateFailed, end.State)
		assert.Equal(w, "Failed", end.Reason)
		assert.Contains(w, end.Message, "Operation terminated")
		assert.Equal(w, "one", w.data("cm"))
	})
}

// The source of an operation is its own: what the spec says later does not change what is synced.
func TestARetargetingWhileASyncRunsDoesNotChangeWhatIsSynced(t *testing.T) {
	for name, change := range map[string]func(*unstructured.Unstructured){
		"another branch":     set("develop", "spec", "source", "targetRevision"),
		"another path":       set("elsewhere", "spec", "source", "path"),
		"another repository": set("https://git.example.com/acme/elsewhere", "spec", "source", "repoURL"),
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				started := w.request(w.push("two", hooked("two")))
				w.repo.CommitTo("develop", value("develop"))
				w.update(func(app fields) { change(&unstructured.Unstructured{Object: app}) })
				w.endHook()
				end := w.follow(started)
				assert.Equal(w, applier.StateSucceeded, end.State, "%+v", end)
				assert.Equal(w, started.Commit, end.AppliedCommit)
				assert.Equal(w, "two", w.data("cm"))
			})
		})
	}
}

func TestAnApplicationThatIsDeletedWhileItsSyncRunsEndsIt(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced()
			started := w.request(w.push("two", hooked("two")))
			w.delete()
			end := w.follow(started)
			assert.Equal(w, applier.ReasonGone, end.Reason)
			assert.Contains(w, end.Message, "Application team-a/app in cluster prod no longer exists")
		})
	})
	t.Run("replaced", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced()
			started := w.request(w.push("two", hooked("two")))
			w.delete()
			w.application()
			end := w.follow(started)
			assert.Equal(w, applier.ReasonReplaced, end.Reason)
		})
	})
	t.Run("being deleted: the operation goes on", func(t *testing.T) {
		inArgo(t, func(w *argoWorld) {
			w.synced(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) })
			started := w.request(w.push("two", hooked("two")))
			w.delete()
			p, err := w.client().Progress(w.Context(), argoApp, &started)
			require.NoError(w, err)
			assert.Equal(w, applier.StateRunning, p.State)
			w.endHook()
			assert.Equal(w, started.Commit, w.follow(started).AppliedCommit)
			assert.Equal(w, "two", w.data("cm"))
		})
	})
}
