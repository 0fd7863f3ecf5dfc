package argocd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

var ref = types.NamespacedName{Namespace: "argocd", Name: "app"}

// operationOf is .operation, with the token of an ask.
func operationOf(token string) object {
	return object{"info": []any{object{"name": DefaultInfoKey, "value": token}}, "sync": object{"revision": commitB}}
}

// asked is what an Application shows right after the update.
func asked(o object) {
	set("metadata.resourceVersion", "2")(o)
	set("operation", operationOf(token))(o)
	remove("status.operationState")(o)
}

// ours is an Application that has a record of our operation, and .operation while that is not final.
func ours(phase, message string, changes ...change) change {
	return func(o object) {
		asked(o)
		set("metadata.resourceVersion", "3")(o)
		set("status.operationState", record("host", token, commitB, phase, message))(o)
		if phase != "Running" && phase != "Terminating" {
			remove("operation")(o)
		}
		for _, change := range changes {
			change(o)
		}
	}
}

// theirs is an Application that shows somebody else's record where ours was or should be.
func theirs(changes ...change) change {
	return func(o object) {
		set("metadata.resourceVersion", "4")(o)
		for _, change := range changes {
			change(o)
		}
	}
}

// requested is the operation as Request returned it for newApplication(before...).
func requested(t *testing.T, before ...change) applier.Started {
	t.Helper()
	r := &request{client: newClient(t, Options{}), ask: applier.Ask{Commit: commitB, Token: token}}
	return r.started(parse(t, before...), false)
}

func recovered(s *applier.Started)   { s.Recovered = true }
func unconfirmed(s *applier.Started) { s.Unconfirmed = applier.ErrUnconfirmed }
func overdue(s *applier.Started)     { s.Overdue = true }
func unknown(s *applier.Started)     { s.Baseline = "" }

// fresh is an Application without any record.
func fresh(o object) { remove("status")(o) }

func TestWhereAnOperationStands(t *testing.T) {
	t.Parallel()
	alices := func(phase string) change {
		return set("status.operationState", record("alice", "", commitC, phase, "somebody else's"))
	}
	for _, test := range []struct {
		name string
		// before is what stood when it was asked for, now what stands, and by what the process knows of its operation.
		before []change
		now    []change
		by     []func(*applier.Started)

		state   applier.State
		reason  string
		message string
		applied string
	}{
		// What every sync goes through.
		{name: "asked for", now: []change{asked}, state: applier.StateRequested, message: "is asked to sync commit bbbbbbbbbbbb"},
		{name: "taken up", now: []change{ours("Running", "")}, state: applier.StateRunning, message: "is Running"},
		{name: "running", now: []change{ours("Running", "waiting for completion of hook batch/Job/seed")}, state: applier.StateRunning, message: "hook batch/Job/seed"},
		{
			name:  "waiting for its own retry: Running, with a finishedAt",
			now:   []change{ours("Running", "one or more objects failed to apply. Retrying attempt #1 at 3:53PM.", set("status.operationState.finishedAt", "2026-01-02T15:00:01Z"))},
			state: applier.StateRunning, message: "Retrying attempt #1",
		},
		{name: "blocked by a sync window", now: []change{ours("Running", "Sync operation blocked by sync window")}, state: applier.StateRunning, message: "blocked by sync window"},
		{name: "terminating", now: []change{ours("Terminating", "operation is terminating")}, state: applier.StateRunning, message: "is Terminating"},
		{
			name:  "succeeded",
			now:   []change{ours("Succeeded", "successfully synced (all tasks run)")},
			state: applier.StateSucceeded, reason: "Succeeded", message: "all tasks run", applied: commitB,
		},
		{name: "failed", now: []change{ours("Failed", "one or more objects failed to apply")}, state: applier.StateFailed, reason: "Failed", message: "failed to apply"},
		{
			name: "failed at a kind that is not served",
			now: []change{ours("Failed", "one or more synchronization tasks are not valid", set("status.operationState.syncResult.resources", []any{
				object{"kind": "Nope", "namespace": "shop", "name": "nope", "status": "SyncFailed", "hookPhase": "Failed", "message": `Make sure the "Nope" CRD is installed on the destination cluster.`},
				object{"kind": "ConfigMap", "namespace": "shop", "name": "good", "status": "Synced", "hookPhase": "Running", "message": "configmap/good configured"},
			}))},
			state: applier.StateFailed, reason: "Failed",
			message: `tasks are not valid; failed: Nope shop/nope: Make sure the "Nope" CRD is installed on the destination cluster.`,
		},
		{
			name: "failed at a resource of which the message speaks already",
			now: []change{ours("Failed", `one or more objects failed to apply, reason: namespaces "nowhere" not found`, set("status.operationState.syncResult.resources", []any{
				object{"kind": "ConfigMap", "namespace": "nowhere", "name": "cm", "status": "SyncFailed", "message": `namespaces "nowhere" not found`},
			}))},
			state: applier.StateFailed, reason: "Failed", message: `not found; failed: ConfigMap nowhere/cm`,
		},
		{
			name: "failed at a hook, and more",
			now: []change{ours("Failed", "one or more synchronization tasks completed unsuccessfully", set("status.operationState.syncResult.resources", []any{
				object{"kind": "Job", "namespace": "shop", "name": "seed", "hookType": "PreSync", "hookPhase": "Failed", "message": "Job has reached the specified backoff limit"},
				object{"kind": "Job", "namespace": "shop", "name": "load", "hookType": "PreSync", "hookPhase": "Error"},
				object{"kind": "Job", "namespace": "shop", "name": "long", "hookType": "PreSync", "hookPhase": "Failed", "message": strings.Repeat("é", 1000)},
				object{"kind": "Job", "namespace": "shop", "name": "fourth", "hookType": "PreSync", "hookPhase": "Failed"},
				object{"kind": "Job", "namespace": "shop", "name": "fifth", "hookType": "PreSync", "hookPhase": "Failed"},
			}))},
			state: applier.StateFailed, reason: "Failed",
			message: "unsuccessfully; failed: Job shop/seed: Job has reached the specified backoff limit; Job shop/load; Job shop/long: " +
				strings.Repeat("é", 150) + "…; and 2 more",
		},
		{
			name:  "an error, although the record names the commit",
			now:   []change{ours("Error", "ComparisonError: Failed to load target state")},
			state: applier.StateFailed, reason: "Error", message: "ComparisonError",
		},
		{name: "terminated", now: []change{ours("Failed", "Operation terminated")}, state: applier.StateFailed, reason: "Failed", message: "terminated"},
		{
			name:  "refused by a controller that had not read the project yet",
			now:   []change{ours("Error", "InvalidSpecError: Application referencing project default which does not exist")},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "says nothing of the commit",
		},
		{
			name:  "a project that does not exist",
			now:   []change{ours("Error", "Failed to load application project: error getting app project")},
			state: applier.StateFailed, reason: "Error", message: "Failed to load application project",
		},

		// What a success is.
		{
			name:  "succeeded, and another revision was synced",
			now:   []change{ours("Succeeded", "ok", set("status.operationState.syncResult.revision", commitC))},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, message: "synced " + commitC + " instead of commit bbbbbbbbbbbb", applied: commitC,
		},
		{
			name:  "succeeded, and says not what was synced",
			now:   []change{ours("Succeeded", "ok", remove("status.operationState.syncResult"))},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "not what it synced",
		},
		{
			name: "succeeded, OutOfSync and Degraded",
			now: []change{
				ours("Succeeded", "ok"), set("status.sync", object{"status": "OutOfSync", "revision": commitC}), set("status.health", object{"status": "Degraded"}),
			},
			state: applier.StateSucceeded, reason: "Succeeded", applied: commitB,
		},
		{
			name: "succeeded, and left something unpruned",
			now: []change{ours("Succeeded", "ok", set("status.operationState.syncResult.resources", []any{
				object{"kind": "ConfigMap", "namespace": "shop", "name": "old", "status": "PruneSkipped"},
				object{"kind": "ConfigMap", "namespace": "shop", "name": "new", "status": "Synced"},
				object{"kind": "ClusterRole", "name": "old", "status": "PruneSkipped"},
			}))},
			state: applier.StateSucceeded, reason: "Succeeded", message: "not pruned: ConfigMap shop/old, ClusterRole /old", applied: commitB,
		},
		{
			name:  "succeeded, and the next one is asked for already",
			now:   []change{ours("Succeeded", "ok"), set("operation", operationOf("next"))},
			state: applier.StateSucceeded, reason: "Succeeded", applied: commitB,
		},
		{
			name:  "the commit was synced for somebody else, and ours is still asked for",
			now:   []change{asked, set("status.operationState", record("alice", "another", commitB, "Succeeded", "ok"))},
			state: applier.StateRequested,
		},
		{
			name:  "the commit was synced by an operation without a token",
			now:   []change{asked, set("status.operationState", record("alice", "", commitB, "Succeeded", "ok"))},
			state: applier.StateRequested,
		},
		{
			name:  "asked for again beside its completed record",
			now:   []change{ours("Succeeded", "ok"), set("operation", operationOf(token))},
			state: applier.StateRunning,
		},

		// Other hands.
		{
			name:  "its .operation was removed while it was running",
			now:   []change{ours("Running", "waiting"), remove("operation")},
			state: applier.StateRunning, message: "waiting",
		},
		{
			name:  "its .operation was removed while it was running, and it is overdue",
			now:   []change{ours("Running", "waiting"), remove("operation")},
			by:    []func(*applier.Started){overdue},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "somebody removed the operation",
		},
		{
			name:  "its .operation was removed while it was terminating, and it is overdue",
			now:   []change{ours("Terminating", "operation is terminating"), remove("operation")},
			by:    []func(*applier.Started){overdue},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "Terminating",
		},
		{
			name:  "running, and overdue",
			now:   []change{ours("Running", "waiting")},
			by:    []func(*applier.Started){overdue},
			state: applier.StateRunning,
		},
		{
			name:  "somebody else's .operation was set while it was running, which its end will remove",
			now:   []change{ours("Running", "waiting"), set("operation", operationOf("another"))},
			state: applier.StateRunning,
		},
		{
			name:  "asked for while somebody else's record came back to Running",
			now:   []change{asked, alices("Running")},
			state: applier.StateRequested,
		},
		{
			name:   "the previous operation went on and removed it",
			before: []change{set("status.operationState.phase", "Running")},
			now:    []change{theirs(set("status.operationState.phase", "Succeeded"))},
			state:  applier.StateFailed, reason: applier.ReasonSwallowed, message: "dropped this one",
		},
		{
			name:  "its .operation was removed before it was taken up",
			now:   []change{theirs(fresh)},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "removed or replaced",
		},
		{name: "another's record stands where its own did", now: []change{theirs(alices("Succeeded"))}, state: applier.StateFailed, reason: applier.ReasonSuperseded},
		{name: "another's operation runs by now", now: []change{theirs(alices("Running"), set("operation", operationOf("another")))}, state: applier.StateFailed, reason: applier.ReasonSuperseded},
		{
			name:  "a dry run took over its token",
			now:   []change{ours("Succeeded", "ok", set("status.operationState.operation.sync.dryRun", true))},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "a dry run",
		},
		{
			name:  "a selective sync took over its token",
			now:   []change{ours("Succeeded", "ok", set("status.operationState.operation.sync.resources", []any{object{"kind": "Job", "name": "seed"}}))},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "a sync of selected resources",
		},
		{
			name: "a sync of another commit took over its token",
			now: []change{ours("Failed", "no", set("status.operationState.operation.sync.revision", commitC),
				set("status.operationState.syncResult.revision", commitC))},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "a sync of cccccccccccc",
		},
		{
			name:  "being deleted while it runs",
			now:   []change{ours("Running", "waiting"), set("metadata.deletionTimestamp", "2026-01-02T15:00:00Z")},
			state: applier.StateRunning,
		},
		{
			name:  "another object of that name",
			now:   []change{ours("Succeeded", "ok"), set("metadata.uid", "another")},
			state: applier.StateFailed, reason: applier.ReasonReplaced,
		},

		// Writes that may or may not have been made.
		{name: "read as it was before the update", now: nil, state: applier.StateRequested, message: "does not show"},
		{name: "recovered, and nothing changed: it may still be on its way", by: []func(*applier.Started){recovered}, state: applier.StateRequested},
		{name: "unconfirmed, and nothing changed", by: []func(*applier.Started){unconfirmed}, state: applier.StateRequested},
		{
			name: "recovered, nothing changed, and it is overdue", by: []func(*applier.Started){recovered, overdue},
			state: applier.StateFailed, reason: applier.ReasonNotRun, message: "did not run",
		},
		{
			name: "unconfirmed, and the record that it would have removed stands at a later version",
			now:  []change{theirs()}, by: []func(*applier.Started){unconfirmed},
			state: applier.StateFailed, reason: applier.ReasonNotRun,
		},
		{
			name: "recovered, and the record that it would have removed stands beside another's .operation",
			now:  []change{theirs(set("operation", operationOf("another")))}, by: []func(*applier.Started){recovered, overdue},
			state: applier.StateFailed, reason: applier.ReasonNotRun,
		},
		{
			name:   "unconfirmed, and there is no record, as before",
			before: []change{fresh}, now: []change{theirs(fresh)}, by: []func(*applier.Started){unconfirmed},
			state: applier.StateFailed, reason: applier.ReasonNotRun,
		},
		{
			name:   "unconfirmed, and another's sync is asked for where there was no record",
			before: []change{fresh}, now: []change{theirs(fresh, set("operation", operationOf("another")))}, by: []func(*applier.Started){unconfirmed},
			state: applier.StateFailed, reason: applier.ReasonSuperseded,
		},
		{
			name: "recovered, and the record that stood before is gone",
			now:  []change{theirs(fresh)}, by: []func(*applier.Started){recovered, overdue},
			state: applier.StateFailed, reason: applier.ReasonSuperseded,
		},
		{
			name: "recovered, and another's record stands",
			now:  []change{theirs(alices("Succeeded"))}, by: []func(*applier.Started){recovered, overdue},
			state: applier.StateFailed, reason: applier.ReasonSuperseded,
		},
		{
			name: "recovered without a baseline, and nothing of it is there",
			now:  []change{theirs()}, by: []func(*applier.Started){recovered, unknown, overdue},
			state: applier.StateFailed, reason: applier.ReasonSuperseded,
		},
		{
			name: "recovered without a baseline, and succeeded",
			now:  []change{ours("Succeeded", "ok")}, by: []func(*applier.Started){recovered, unknown},
			state: applier.StateSucceeded, reason: "Succeeded", applied: commitB,
		},
		{
			name: "unconfirmed, and it was made", now: []change{asked}, by: []func(*applier.Started){unconfirmed},
			state: applier.StateRequested,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			started := requested(t, test.before...)
			for _, by := range test.by {
				by(&started)
			}
			stands := append(append([]change{}, test.before...), test.now...)
			c := newWorld(t, Options{}, stands...).client
			if started.Recovered && test.state == applier.StateFailed {
				// Until it is overdue, the process that recorded it may yet ask for it.
				soon := started
				soon.Overdue, soon.Observed = false, newApplication(stands...)
				p, err := c.Progress(t.Context(), ref, &soon)
				require.NoError(t, err)
				require.Equal(t, applier.StateRequested, p.State, "%+v", p)
			}
			started.Observed = newApplication(stands...)

			p, err := c.Progress(t.Context(), ref, &started)

			require.NoError(t, err)
			assert.Equal(t, test.state, p.State, "%+v", p)
			assert.Equal(t, test.reason, p.Reason, "%+v", p)
			assert.Contains(t, p.Message, test.message)
			assert.Equal(t, test.applied, p.AppliedCommit)
			assert.Equal(t, test.applied, p.AppliedRevision)
			assert.Nil(t, started.Observed)
			if p.State != applier.StateSucceeded {
				assert.Contains(t, p.Message, "Application argocd/app in cluster prod")
			}
		})
	}
}

// A watch begins with what an API server has in its cache, which may be older than the update.
func TestWhatStoodBeforeTheUpdateIsNoEndOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by    []func(*applier.Started)
		shown []change
	}{
		"what it was made from, and it is overdue":              {by: []func(*applier.Started){overdue}},
		"what it was made from, unconfirmed and overdue":        {by: []func(*applier.Started){unconfirmed, overdue}},
		"another incarnation":                                   {shown: []change{set("metadata.uid", "before")}},
		"what came after the record, recovered and overdue":     {by: []func(*applier.Started){recovered, overdue}, shown: []change{set("metadata.resourceVersion", "2")}},
		"somebody's record after the record, recovered overdue": {by: []func(*applier.Started){recovered, overdue}, shown: []change{theirs(fresh)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			started := requested(t)
			for _, by := range test.by {
				by(&started)
			}
			started.Observed = newApplication(test.shown...)
			p, err := newWorld(t, Options{}, ours("Running", "waiting")).client.Progress(t.Context(), ref, &started)
			require.NoError(t, err)
			assert.Equal(t, applier.StateRunning, p.State, "%+v", p)
			assert.Nil(t, started.Observed)
		})
	}
}

func TestEveryReportSaysWhomARequestReplaced(t *testing.T) {
	t.Parallel()
	r := &request{client: newClient(t, Options{}), ask: applier.Ask{Commit: commitB, Token: token}}
	started := r.started(parse(t, set("status.operationState.phase", "Running")), true)
	for _, now := range []change{asked, ours("Running", ""), ours("Succeeded", "ok"), ours("Failed", "no"), theirs(remove("status"))} {
		started.Observed = newApplication(now)
		p, err := r.client.Progress(t.Context(), ref, &started)
		require.NoError(t, err)
		assert.Contains(t, p.Message, "replaced an operation of alice that was left in progress")
	}
}

func TestWhatIsNoOperationOfThisPackageIsAnError(t *testing.T) {
	t.Parallel()
	for name, started := range map[string]applier.Started{
		"no token":                 {Outcome: applier.OutcomeSyncRequested, Commit: commitB},
		"an outcome of Flux's":     {Outcome: applier.OutcomeResumed, Token: token, Commit: commitB},
		"no outcome":               {Token: token, Commit: commitB},
		"a baseline that is none":  {Outcome: applier.OutcomeSyncRequested, Token: token, Commit: commitB, Baseline: "{}"},
		"an object of wrong types": {Outcome: applier.OutcomeSyncRequested, Token: token, Observed: &unstructured.Unstructured{Object: object{"operation": "text"}}},
	} {
		p, err := newClient(t, Options{}).Progress(t.Context(), ref, &started)
		require.ErrorContains(t, err, "Application argocd/app in cluster prod", name)
		assert.Zero(t, p, name)
	}
}

func TestWhatWasNotAskedForHasEnded(t *testing.T) {
	t.Parallel()
	p, err := newClient(t, Options{}).Progress(t.Context(), ref, &applier.Started{Outcome: applier.OutcomeCurrent, Commit: commitB})
	require.NoError(t, err)
	assert.Equal(t, applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonCurrent, AppliedCommit: commitB}, p)
}
