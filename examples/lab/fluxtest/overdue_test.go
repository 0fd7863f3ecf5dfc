package fluxtest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// A Kustomization that waits for health runs until its Deployment is ready, which nothing in the lab makes it, or for 30 s.
func TestAnOverdueOperationIsSuspendedAtOnceAndEndsByItsOwnRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile  func(t *testing.T, s *subject)
		end        applier.State
		reason     string
		suspendedN int // how many suspends the operation takes
	}{
		"its run succeeds": {
			meanwhile: func(t *testing.T, s *subject) { s.becomeReady(t) }, end: applier.StateSucceeded, reason: "ReconciliationSucceeded", suspendedN: 1,
		},
		"its run fails": {
			meanwhile: func(*testing.T, *subject) {}, end: applier.StateFailed, reason: "HealthCheckFailed", suspendedN: 1,
		},
		"somebody resumes it meanwhile": {
			meanwhile: func(t *testing.T, s *subject) {
				s.as(t, "flux", `{"spec":{"suspend":null}}`)
				s.becomeReady(t)
			}, end: applier.StateSucceeded, reason: "ReconciliationSucceeded", suspendedN: 2,
		},
		"somebody stamps it meanwhile": {
			meanwhile: func(t *testing.T, s *subject) {
				s.as(t, "flux", `{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"foreign"}}}`)
				s.becomeReady(t)
			}, end: applier.StateSucceeded, reason: "ReconciliationSucceeded", suspendedN: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t), waits)
			started := s.startUnready(t)

			started.Overdue = true
			progress, err := s.client.Progress(t.Context(), s.ref, &started)

			require.NoError(t, err)
			assert.Equal(t, applier.StateSettling, progress.State, "a suspend does not end a run that is going on")
			assert.NotEmpty(t, started.SuspendToken)
			assert.Equal(t, started.SuspendToken, progress.SuspendToken)
			now := s.get(t)
			assert.Equal(t, true, now.Object["spec"].(map[string]any)["suspend"], "suspended at once")
			assert.True(t, checking(now), "the run goes on")
			first := started.SuspendToken

			test.meanwhile(t, s)
			tokens := []string{first}
			end := s.followed(t, &started, func(p applier.Progress) {
				if !slices.Contains(tokens, p.SuspendToken) {
					tokens = append(tokens, p.SuspendToken)
				}
			})

			assert.Equal(t, test.end, end.State)
			assert.Equal(t, test.reason, end.Reason)
			assert.Len(t, tokens, test.suspendedN)
			if test.end == applier.StateSucceeded {
				assert.Equal(t, "main@sha1:"+started.Commit, end.AppliedRevision)
			}
			s.requireHeld(t)
		})
	}
}

func TestANewerArtifactAppliedForTheRequestIsWhatIsReported(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t), waits)
	started := s.startUnready(t)

	newer := s.repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "newer")})
	require.NoError(t, s.client.Prefetch(t.Context(), s.ref, s.ref, newer))
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(newer))
	s.becomeReady(t)
	// Our suspend comes late: the controller takes up the newer artifact before it.
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Applied(newer))
	end := s.followed(t, &started, nil)

	assert.Equal(t, applier.StateSucceeded, end.State)
	assert.Equal(t, applier.ReasonAppliedOther, end.Reason)
	assert.Equal(t, "main@sha1:"+newer, end.AppliedRevision)
	assert.Equal(t, newer, end.AppliedCommit)
	assert.Contains(t, end.Message, s.ref.String()+" in cluster lab applied main@sha1:"+newer)
	assert.Contains(t, end.Message, "instead of "+applier.DescribeCommit(started.Commit))
	s.requireHeld(t)
}

// The controller writes nothing when it is stopped in the middle of a run (v1.9.6): not the token, not Ready.
func TestAControllerThatStopsInTheMiddleOfARunEndsTheOperationAllTheSame(t *testing.T) {
	for name, stop := range map[string]func(*lab.Process, testing.TB){
		"killed":  (*lab.Process).Kill,
		"stopped": (*lab.Process).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			l := lab.Alone(t)
			suspended, recovered, left := held(t, l, waits), held(t, l, waits), held(t, l, waits)
			suspendedOperation, leftOperation := suspended.startUnready(t), left.startUnready(t)
			recoveredOperation := recovered.startUnready(t)

			stop(l.KustomizeController, t)
			suspendedOperation.Overdue = true
			progress, err := suspended.client.Progress(t.Context(), suspended.ref, &suspendedOperation)
			require.NoError(t, err)
			assert.Equal(t, applier.StateSettling, progress.State)
			// Another process suspended this one and died before it kept the token.
			dead := recoveredOperation
			dead.Overdue = true
			_, err = recovered.client.Progress(t.Context(), recovered.ref, &dead)
			require.NoError(t, err)
			recoveredOperation.Recovered = true
			l.KustomizeController.Start(t)

			for _, interrupted := range []struct {
				*subject
				started *applier.Started
			}{{suspended, &suspendedOperation}, {recovered, &recoveredOperation}} {
				end := interrupted.followed(t, interrupted.started, nil)
				assert.Equal(t, applier.StateFailed, end.State)
				assert.Equal(t, applier.ReasonInterrupted, end.Reason)
				assert.Contains(t, end.Message, "what it applied is not known")
				assert.Empty(t, end.AppliedRevision)
				interrupted.requireHeld(t)
				ready, _ := conditionOf(interrupted.get(t), "Ready")
				assert.Equal(t, "Unknown", ready, "the controller leaves it as it was")
			}
			// Nobody suspended this one: the controller runs again, for the same token.
			left.becomeReady(t)
			end := left.followed(t, &leftOperation, nil)
			assert.Equal(t, applier.StateSucceeded, end.State, end.Message)
			assert.Equal(t, leftOperation.Commit, end.AppliedCommit)
			left.requireHeld(t)

			// Ready stays Unknown until the next ask, which does not take it for an apply.
			again := suspended.ask(suspendedOperation.Commit)
			again.Reason = applier.CatchUp
			suspended.becomeReady(t)
			end, err = suspended.apply(t, again)
			require.NoError(t, err)
			assert.Equal(t, applier.StateSucceeded, end.State)
			assert.Equal(t, "ReconciliationSucceeded", end.Reason, "it ran, rather than being taken for current")
			suspended.requireHeld(t)
		})
	}
}

// What stood before is not taken for what this request did, whether it was a success or a failure.
func TestAnOperationSuspendedBeforeTheControllerSawItDidNotRun(t *testing.T) {
	l := lab.Alone(t)
	well, broken := held(t, l), held(t, l)
	end, err := broken.apply(t, broken.ask(broken.repo.Commit(t, lab.Files{"cm.yaml": "kind: ConfigMap"})))
	require.ErrorIs(t, err, applier.ErrFailed)
	require.Equal(t, "BuildFailed", end.Reason)

	subjects := []*subject{well, broken}
	commits, operations := make([]string, len(subjects)), make([]applier.Started, len(subjects))
	for i, s := range subjects {
		commits[i] = s.push(t, "two")
		require.NoError(t, s.client.Prefetch(t.Context(), s.ref, s.ref, commits[i]))
		l.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(commits[i]))
	}
	l.KustomizeController.Stop(t)
	for i, s := range subjects {
		operations[i], err = s.client.Request(t.Context(), s.ref, s.ask(commits[i]))
		require.NoError(t, err)
		operations[i].Overdue = true
		progress, err := s.client.Progress(t.Context(), s.ref, &operations[i])
		require.NoError(t, err)
		assert.Equal(t, applier.StateSettling, progress.State)
	}
	l.KustomizeController.Start(t)

	for i, s := range subjects {
		end := s.followed(t, &operations[i], nil)
		assert.Equal(t, applier.StateFailed, end.State)
		assert.Equal(t, applier.ReasonNotRun, end.Reason, end.Message)
		assert.Equal(t, "one", s.value(t))
		s.requireHeld(t)
		end, err = s.apply(t, s.ask(commits[i]))
		require.NoError(t, err)
		assert.Equal(t, commits[i], end.AppliedCommit)
	}
}

// waits makes a Kustomization wait for the health of what it applies, as long as Flux at least does.
func waits(u *unstructured.Unstructured) {
	lab.Set(true, "spec", "wait")(u)
	lab.Set("30s", "spec", "timeout")(u)
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// pushUnready commits a Deployment that does not become ready by itself.
func (s *subject) pushUnready(t *testing.T) string {
	t.Helper()
	return s.repo.Commit(t, lab.Files{"deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: unready
spec:
  selector: {matchLabels: {app: unready}}
  template:
    metadata: {labels: {app: unready}}
    spec: {containers: [{name: app, image: example.com/app}]}
`})
}

// startUnready asks for such a commit, and returns once the run waits for it.
func (s *subject) startUnready(t *testing.T) applier.Started {
	t.Helper()
	commit := s.pushUnready(t)
	started, err := s.client.Request(t.Context(), s.ref, s.ask(commit))
	require.NoError(t, err)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, checking)
	return started
}

// becomeReady says of the Deployment that it is ready.
func (s *subject) becomeReady(t *testing.T) {
	t.Helper()
	_, err := s.lab.Dynamic().Resource(deployments).Namespace(s.ns).Patch(t.Context(), "unready", types.MergePatchType, []byte(`{"status": {
		"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
		"conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]
	}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// followed follows an operation to its end and keeps in started what Progress writes there.
func (s *subject) followed(t *testing.T, started *applier.Started, report func(applier.Progress)) applier.Progress {
	t.Helper()
	end, err := applier.Follower{}.Follow(t.Context(), s.client, s.ref, started, report)
	require.NoError(t, err)
	return end
}

// checking is satisfied while a run waits for the health of what it applied.
func checking(u *unstructured.Unstructured) bool {
	status, found := conditionOf(u, "Healthy")
	return found && status == "Unknown"
}

// conditionOf returns the status of a condition.
func conditionOf(u *unstructured.Unstructured, kind string) (status string, found bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range conditions {
		if c := entry.(map[string]any); c["type"] == kind {
			return c["status"].(string), true
		}
	}
	return "", false
}
