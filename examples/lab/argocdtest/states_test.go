package argocdtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// retries is a policy of quick retries.
func retries(limit int64, refresh bool) func(*unstructured.Unstructured) {
	return lab.Set(object{
		"limit": limit, "refresh": refresh, "backoff": object{"duration": "1s", "factor": int64(1), "maxDuration": "1s"},
	}, "spec", "syncPolicy", "retry")
}

// misplaced is a manifest that cannot be applied.
const misplaced = `apiVersion: v1
kind: ConfigMap
metadata: {name: misplaced, namespace: nowhere}
`

func TestASyncIsReportedAsItGoesOn(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	commit := s.pushHooked(t, "two")
	started := s.request(t, s.ask(commit))
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, waitingForHook) })
	assert.Equal(t, applier.StateRunning, waiting.State)
	assert.Contains(t, waiting.Message, "Application "+s.ref.String()+" in cluster lab is Running: "+waitingForHook)
	s.waitForHook(t)
	s.endHook(t)

	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

func TestAFailedSyncIsReportedInTheControllersWords(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	absent := "0123456789012345678901234567890123456789"
	for _, test := range []struct {
		name    string
		mutate  func(*unstructured.Unstructured)
		files   lab.Files
		commit  string
		reason  string
		message string
		// applied is what the ConfigMap holds afterwards.
		applied string
	}{
		{
			name: "an object in a namespace that does not exist, beside a good one", files: lab.Files{"bad.yaml": misplaced, "cm.yaml": lab.ConfigMap("cm", "key", "two")},
			reason: "Failed", message: `namespaces "nowhere" not found`, applied: "two",
		},
		{
			name: "a kind that is not served", files: lab.Files{"bad.yaml": "apiVersion: example.com/v1\nkind: Nope\nmetadata: {name: nope}\n", "cm.yaml": lab.ConfigMap("cm", "key", "two")},
			reason: "Failed", message: "not valid", applied: "one",
		},
		{
			name: "a manifest that is no YAML", files: lab.Files{"bad.yaml": "apiVersion: v1\nkind: ConfigMap\n\tmetadata: {\n"},
			reason: "Error", message: "ComparisonError", applied: "one",
		},
		{name: "a commit that the repository does not have", commit: absent, reason: "Error", message: absent, applied: "one"},
		{name: "a path that the commit does not have", mutate: lab.Set("shop", "spec", "source", "path"), files: lab.Files{"a": ""}, reason: "Error", message: "shop", applied: "one"},
		{name: "a project that does not exist", mutate: lab.Set("absent", "spec", "project"), files: lab.Files{"a": ""}, reason: "Error", message: "Failed to load application project", applied: "one"},
		{name: "a cluster that nobody knows", mutate: lab.Set("https://10.0.0.1", "spec", "destination", "server"), files: lab.Files{"a": ""}, reason: "Error", message: "https://10.0.0.1", applied: "one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l, retries(0, false))
			if test.mutate != nil {
				u := s.get(t)
				test.mutate(u)
				s.patch(t, object{"spec": u.Object["spec"]})
			}
			commit := test.commit
			if commit == "" {
				commit = s.repo.Commit(t, test.files)
			}
			before := s.syncs(t)

			end, err := s.apply(t, s.ask(commit))

			require.ErrorIs(t, err, applier.ErrFailed)
			assert.Equal(t, applier.StateFailed, end.State)
			assert.Equal(t, test.reason, end.Reason, end.Message)
			assert.Contains(t, end.Message, test.message)
			assert.Contains(t, end.Message, "Application "+s.ref.String()+" in cluster lab")
			assert.Empty(t, end.AppliedCommit)
			assert.Empty(t, end.AppliedRevision)
			assert.Equal(t, test.applied, s.value(t))
			assert.Equal(t, before, s.syncs(t))
		})
	}
}

// An operation that waits for its own retry is Running, with a finishedAt.
func TestAnOperationThatRetriesIsFollowedToTheEndOfItsRetries(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t), retries(1, false))
	commit := s.repo.Commit(t, lab.Files{"bad.yaml": misplaced})
	started := s.request(t, s.ask(commit))
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "Retrying attempt #1") })
	assert.Equal(t, applier.StateRunning, waiting.State)

	end := s.follow(t, started)

	assert.Equal(t, applier.StateFailed, end.State)
	assert.Equal(t, "Failed", end.Reason)
	assert.Contains(t, end.Message, "retried 1 times")
}

func TestAnErrorIsRetriedAndMaySucceed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newSubject(t, l, retries(30, false))
	// A commit that is on its way to the server that Argo CD asks: it is in the repository, and cannot be fetched yet.
	elsewhere := l.Repository(t)
	commit := elsewhere.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")})
	started := s.request(t, s.ask(commit))
	s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "Retrying attempt #1") })
	s.repo.Fetch(t, elsewhere)

	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

// With refresh, a retry syncs whatever the branch leads to by then, under the same token.
func TestARetryNeverSyncsANewerCommit(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t), retries(2, true))
	commit := s.repo.Commit(t, lab.Files{"bad.yaml": misplaced, "cm.yaml": lab.ConfigMap("cm", "key", "two")})
	started := s.request(t, s.ask(commit))
	s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "Retrying attempt #1") })
	s.repo.Remove(t, "bad.yaml")
	s.push(t, "three")

	end := s.follow(t, started)

	assert.Equal(t, applier.StateFailed, end.State, "%+v", end)
	assert.Equal(t, "Failed", end.Reason)
	assert.Equal(t, "two", s.value(t))
}

func TestASuccessAtAnotherRevisionIsReportedAsSuch(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t), retries(5, false))
	commit := s.repo.Commit(t, lab.Files{"bad.yaml": misplaced, "cm.yaml": lab.ConfigMap("cm", "key", "two")})
	started := s.request(t, s.ask(commit))
	s.wait(t, saying("Retrying attempt #1"))
	// Somebody makes the operation that is in progress refresh.
	s.repo.Remove(t, "bad.yaml")
	other := s.push(t, "three")
	s.patch(t, object{"status": object{"operationState": object{"operation": object{"retry": object{"refresh": true}}}}})

	end := s.follow(t, started)

	assert.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
	assert.Equal(t, applier.ReasonAppliedOther, end.Reason)
	assert.Equal(t, other, end.AppliedRevision)
	assert.Equal(t, other, end.AppliedCommit)
	assert.Contains(t, end.Message, "synced "+other+" instead of commit "+commit[:12])
	assert.Equal(t, "three", s.value(t))
}

func TestAnOperationThatSomebodyTerminatesIsFailed(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	started := s.request(t, s.ask(s.pushHooked(t, "two")))
	s.waitForHook(t)
	// What Argo CD's API server does.
	s.patch(t, object{"status": object{"operationState": object{"phase": "Terminating"}}})

	end := s.follow(t, started)

	assert.Equal(t, applier.StateFailed, end.State)
	assert.Equal(t, "Failed", end.Reason)
	assert.Contains(t, end.Message, "Operation terminated")
	assert.Equal(t, "one", s.value(t))
}

// blocked returns an Application whose project has a sync window that forbids every sync.
func blocked(t *testing.T, l *lab.Lab, manualSync bool) (s *subject, project string) {
	t.Helper()
	s, project = inProject(t, l)
	s.forbid(t, project, manualSync)
	return s, project
}

// inProject returns an Application in a project of its own, of which alice has synced the first commit.
func inProject(t *testing.T, l *lab.Lab) (s *subject, project string) {
	t.Helper()
	project = l.AppProject(t)
	s = newUnsynced(t, l, lab.Set(project, "spec", "project"))
	// The controller may see the Application before the project, and refuses its syncs until it was refreshed (3.2.11).
	s.wait(t, func(u *unstructured.Unstructured) bool { return at(u.Object, "status", "reconciledAt") != nil })
	s.refreshUntil(t, permitted)
	s.syncFirst(t)
	return s, project
}

// permitted holds for an Application that its project permits, as far as the controller knows.
func permitted(u *unstructured.Unstructured) bool { return at(u.Object, "status", "conditions") == nil }

// forbid opens a sync window that forbids every sync, manual ones aside if the window says so. The controller reads the project from a
// cache (3.2.11): it knows of the window once it refuses the repository that the project no longer permits either.
func (s *subject) forbid(t *testing.T, project string, manualSync bool) {
	t.Helper()
	patchProject(t, s.lab, project, fmt.Sprintf(
		`{"spec":{"sourceRepos":[],"syncWindows":[{"kind":"deny","schedule":"* * * * *","duration":"1h","applications":["*"],"manualSync":%t}]}}`, manualSync))
	s.refreshUntil(t, func(u *unstructured.Unstructured) bool { return !permitted(u) })
	patchProject(t, s.lab, project, `{"spec":{"sourceRepos":["*"]}}`)
	s.refreshUntil(t, permitted)
}

// refreshUntil makes the controller look at the Application again and again until what comes of it meets condition.
func (s *subject) refreshUntil(t *testing.T, condition lab.Condition) {
	t.Helper()
	for range 200 {
		s.touch(t)
		refreshed := s.wait(t, func(u *unstructured.Unstructured) bool { return len(u.GetAnnotations()) == 0 })
		if condition(refreshed) {
			return
		}
	}
	require.Fail(t, "refreshing the Application leads to nothing")
}

func patchProject(t *testing.T, l *lab.Lab, project, patch string) {
	t.Helper()
	_, err := l.Dynamic().Resource(lab.AppProjects).Namespace(lab.ArgoCDNamespace).
		Patch(t.Context(), project, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func TestASyncThatAWindowForbidsIsRunningUntilTheWindowEnds(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s, project := blocked(t, l, false)
	commit := s.push(t, "two")
	started := s.request(t, s.ask(commit))
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "blocked by sync window") })
	assert.Equal(t, applier.StateRunning, waiting.State)
	assert.Contains(t, waiting.Message, "Sync operation blocked by sync window")
	overdue := started
	overdue.Overdue = true
	p, err := s.client.Progress(t.Context(), s.ref, &overdue)
	require.NoError(t, err)
	assert.Equal(t, applier.StateRunning, p.State, "it can still run")
	assert.Equal(t, "one", s.value(t))

	patchProject(t, l, project, `{"spec":{"syncWindows":null}}`)
	s.keepTouching(t)
	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

func TestAWindowForManualSyncsLetsAManualOneThrough(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s, _ := blocked(t, l, true)
	s.client = client(t, l.RESTConfig(), argocd.Options{Manual: true})
	s.keepTouching(t)
	commit := s.push(t, "two")

	end, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	s.requireSynced(t, end, commit, "two")
}

func TestAWindowForManualSyncsForbidsOneThatCountsAsAutomated(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s, project := blocked(t, l, true)
	commit := s.push(t, "two")
	started := s.request(t, s.ask(commit))
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "blocked by sync window") })
	assert.Equal(t, applier.StateRunning, waiting.State)
	s.touch(t)
	s.wait(t, func(u *unstructured.Unstructured) bool { return len(u.GetAnnotations()) == 0 })
	assert.Equal(t, "one", s.value(t))

	patchProject(t, l, project, `{"spec":{"syncWindows":null}}`)
	s.keepTouching(t)
	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

// keepTouching makes the controller look at the Application now and then until the test ends.
func (s *subject) keepTouching(t *testing.T) { s.keep(t, func() { s.touch(t) }) }

// keep does something once a second until the test ends.
func (s *subject) keep(t *testing.T, do func()) {
	ctx := t.Context()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for {
			do()
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
		}
	}()
}

// What other hands can make of an operation that the controller leaves alone because a sync window forbids it.
func TestAnOperationThatOtherHandsChangedIsFollowedToTheRightEnd(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	succeeded := func(commit string) object {
		return object{"phase": "Succeeded", "message": "successfully synced (all tasks run)", "finishedAt": "2026-01-02T15:00:00Z", "syncResult": object{"revision": commit}}
	}
	for _, test := range []struct {
		name  string
		hands func(t *testing.T, s *subject, commit string)

		overdue bool
		state   applier.State
		reason  string
		message string
		applied bool
	}{
		{
			name: "it was terminated, which waits for the end of the window",
			hands: func(t *testing.T, s *subject, _ string) {
				s.patch(t, object{"status": object{"operationState": object{"phase": "Terminating"}}})
			},
			overdue: true,
			state:   applier.StateRunning, message: "is Terminating",
		},
		{
			name:  "its .operation was removed",
			hands: func(t *testing.T, s *subject, _ string) { s.patch(t, object{"operation": nil}) },
			state: applier.StateRunning, message: "blocked by sync window",
		},
		{
			name:    "its .operation was removed, and it is overdue",
			hands:   func(t *testing.T, s *subject, _ string) { s.patch(t, object{"operation": nil}) },
			overdue: true,
			state:   applier.StateFailed, reason: applier.ReasonInterrupted, message: "somebody removed the operation",
		},
		{
			name: "its .operation was removed, and it was terminated",
			hands: func(t *testing.T, s *subject, _ string) {
				s.patch(t, object{"operation": nil, "status": object{"operationState": object{"phase": "Terminating"}}})
			},
			overdue: true,
			state:   applier.StateFailed, reason: applier.ReasonInterrupted, message: "Terminating",
		},
		{
			name: "its record and its .operation were removed",
			hands: func(t *testing.T, s *subject, _ string) {
				s.patch(t, object{"operation": nil, "status": object{"operationState": nil}})
			},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "removed or replaced",
		},
		{
			name:  "a later sync replaced it",
			hands: func(t *testing.T, s *subject, _ string) { s.operate(t, syncOf(object{"revision": s.first})) },
			state: applier.StateFailed, reason: applier.ReasonSuperseded, message: "removed or replaced",
		},
		{
			name: "it succeeded, and its record has no result",
			hands: func(t *testing.T, s *subject, commit string) {
				done := succeeded(commit)
				done["syncResult"] = nil
				s.patch(t, object{"operation": nil, "status": object{"operationState": done}})
			},
			state: applier.StateFailed, reason: applier.ReasonInterrupted, message: "not what it synced",
		},
		{
			name: "it succeeded at another revision",
			hands: func(t *testing.T, s *subject, _ string) {
				s.patch(t, object{"operation": nil, "status": object{"operationState": succeeded(s.first)}})
			},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, message: "instead of", applied: true,
		},
		{
			name: "it succeeded, and a late write turned its record back to Running",
			hands: func(t *testing.T, s *subject, commit string) {
				s.patch(t, object{"operation": nil, "status": object{"operationState": succeeded(commit)}})
				s.patch(t, object{"status": object{"operationState": object{"phase": "Running", "finishedAt": nil}}})
			},
			state: applier.StateRunning,
		},
		{
			name: "it succeeded, and a late write turned its record back to Running for good",
			hands: func(t *testing.T, s *subject, commit string) {
				s.patch(t, object{"operation": nil, "status": object{"operationState": succeeded(commit)}})
				s.patch(t, object{"status": object{"operationState": object{"phase": "Running", "finishedAt": nil}}})
			},
			overdue: true,
			state:   applier.StateFailed, reason: applier.ReasonInterrupted,
		},
		{
			name: "its .operation is still set beside its completed record",
			hands: func(t *testing.T, s *subject, commit string) {
				s.patch(t, object{"status": object{"operationState": succeeded(commit)}})
			},
			state: applier.StateRunning,
		},
		{
			name: "somebody set another .operation, which its end will remove",
			hands: func(t *testing.T, s *subject, _ string) {
				s.patch(t, object{"operation": object{"info": nil, "initiatedBy": object{"username": alice, "automated": nil}}})
			},
			state: applier.StateRunning,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, _ := blocked(t, l, false)
			commit := s.push(t, "two")
			started := s.request(t, s.ask(commit))
			s.wait(t, saying("blocked by sync window"))
			test.hands(t, s, commit)
			started.Overdue = test.overdue

			p, err := s.client.Progress(t.Context(), s.ref, &started)

			require.NoError(t, err)
			assert.Equal(t, test.state, p.State, "%+v\n%v", p, recordOf(s.get(t)))
			assert.Equal(t, test.reason, p.Reason)
			assert.Contains(t, p.Message, test.message)
			assert.Equal(t, test.applied, p.AppliedCommit != "")
			assert.Equal(t, "one", s.value(t))
		})
	}
}

// The commit stands as synced already, by somebody else: only the record of this request counts.
func TestTheCommitThatSomebodyElseSyncedIsNotOurSuccess(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s, project := inProject(t, l)
	commit := s.push(t, "two")
	s.operate(t, syncOf(object{"revision": commit}))
	s.wait(t, lab.Synced(commit))
	s.forbid(t, project, false)

	ask := s.ask(commit)
	started := s.request(t, ask)
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "blocked by sync window") })
	assert.Equal(t, applier.StateRunning, waiting.State)
	patchProject(t, l, project, `{"spec":{"syncWindows":null}}`)
	s.keepTouching(t)
	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
	assert.Equal(t, ask.Token, tokenOf(recordOf(s.get(t))["operation"]))
}

// Nobody carries out an operation while the controller does not run.
func TestAnOperationThatNobodyTakesUpStaysRequested(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	s := newSubject(t, l)
	commit := s.push(t, "two")
	l.ApplicationController.Freeze(t)
	started := s.request(t, s.ask(commit))
	p, err := s.client.Progress(t.Context(), s.ref, &started)
	require.NoError(t, err)
	assert.Equal(t, applier.StateRequested, p.State)
	assert.Contains(t, p.Message, "is asked to sync commit "+commit[:12])
	l.ApplicationController.Thaw(t)

	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

func contains(p applier.Progress, text string) bool { return strings.Contains(p.Message, text) }
