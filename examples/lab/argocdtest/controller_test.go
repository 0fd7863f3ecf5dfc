package argocdtest

import (
	"context"
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

// stage is how far a sync has come when the controller is killed.
type stage struct {
	name string
	// push pushes what is asked for.
	push func(s *subject, t testing.TB, value string) string
	// before happens before the request, and reach returns once the sync has come so far.
	before func(t *testing.T, s *subject)
	reach  func(t *testing.T, s *subject, value string)
	// after happens once the controller runs again.
	after func(t *testing.T, s *subject)
}

func nothing(*testing.T, *subject) {}

// deployment is one that becomes available once somebody says so: no controller of the lab's does.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web}]
`

// heal makes the deployment available.
func (s *subject) heal(t testing.TB) {
	t.Helper()
	deployments := s.lab.Dynamic().Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace(s.ns)
	_, err := deployments.Patch(context.Background(), "web", types.MergePatchType,
		[]byte(`{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`), metav1.PatchOptions{}, "status")
	assert.NoError(t, err)
}

var stages = []stage{
	{
		name: "before it is asked", push: (*subject).push,
		before: func(t *testing.T, s *subject) { s.lab.ApplicationController.Kill(t) },
		reach:  func(*testing.T, *subject, string) {}, after: nothing,
	},
	{
		name: "before it takes the operation up", push: (*subject).push,
		before: func(t *testing.T, s *subject) { s.lab.ApplicationController.Freeze(t) },
		reach:  func(*testing.T, *subject, string) {}, after: nothing,
	},
	{
		name: "in the first pass, before it knows the manifests", push: (*subject).push,
		before: func(t *testing.T, s *subject) { s.lab.RepoServer.Freeze(t) },
		reach:  func(t *testing.T, s *subject, _ string) { s.wait(t, inPhase("Running")) },
		after:  func(t *testing.T, s *subject) { s.lab.RepoServer.Thaw(t) },
	},
	{
		name: "between two waves", push: (*subject).pushWaves, before: nothing,
		reach: func(t *testing.T, s *subject, value string) { s.waitForFirstWave(t, value) }, after: nothing,
	},
	{
		name: "while it waits for a hook", push: (*subject).pushKeptHook, before: nothing,
		reach: func(t *testing.T, s *subject, _ string) { s.waitForHook(t) },
		after: func(t *testing.T, s *subject) { s.keepEndingHooks(t) },
	},
	{
		name: "while it waits for the health of a wave",
		push: func(s *subject, t testing.TB, value string) string {
			return s.repo.Commit(t, lab.Files{"web.yaml": deployment, "cm.yaml": wave("cm", value, "1")})
		},
		before: nothing,
		reach: func(t *testing.T, s *subject, _ string) {
			s.wait(t, saying("waiting for healthy state of apps/Deployment/web"))
		},
		after: func(t *testing.T, s *subject) { s.heal(t) },
	},
	{
		name: "while it waits for a retry",
		push: func(s *subject, t testing.TB, value string) string {
			return s.repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value), "other.yaml": elsewhere(s.ns + "-other")})
		},
		before: nothing,
		reach:  func(t *testing.T, s *subject, _ string) { s.wait(t, saying("Retrying attempt #1")) },
		after: func(t *testing.T, s *subject) {
			s.lab.Create(t, lab.Namespaces, &unstructured.Unstructured{Object: object{
				"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": s.ns + "-other"},
			}})
		},
	},
	{
		name: "when it has just ended", push: (*subject).push, before: nothing,
		reach: func(t *testing.T, s *subject, _ string) { s.wait(t, inPhase("Succeeded")) }, after: nothing,
	},
}

func elsewhere(namespace string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other, namespace: " + namespace + "}\n"
}

func TestAControllerThatIsKilledAtAnyStageLeavesATrueReport(t *testing.T) {
	l := lab.Alone(t)
	for _, stage := range stages {
		t.Run(stage.name, func(t *testing.T) {
			s := newSubject(t, l)
			commit := stage.push(s, t, "two")
			stage.before(t, s)
			started := s.request(t, s.ask(commit))
			stage.reach(t, s, "two")
			l.ApplicationController.Kill(t)
			p, err := s.client.Progress(t.Context(), s.ref, &started)
			require.NoError(t, err)
			if !p.State.Ended() {
				assert.Contains(t, []applier.State{applier.StateRequested, applier.StateRunning}, p.State)
			}
			l.ApplicationController.Start(t)
			stage.after(t, s)

			end := s.follow(t, started)

			// Where the controller refuses at its start what it took up before, its own retry brings the commit.
			s.requireSynced(t, end, commit, "two")
			assert.Equal(t, 2, s.syncs(t))
		})
	}
}

// A started controller that has not read the projects yet refuses every operation (3.2.11). Without a retry that is the end.
func TestAControllerThatHasJustStartedIsNotTakenForAVerdictOnTheCommit(t *testing.T) {
	l := lab.Alone(t)
	interrupted := 0
	for range 8 {
		s := newSubject(t, l, retries(0, false))
		commit := s.push(t, "two")
		l.ApplicationController.Kill(t)
		started := s.request(t, s.ask(commit))
		l.ApplicationController.Start(t)

		end := s.follow(t, started)

		if end.State == applier.StateSucceeded {
			s.requireSynced(t, end, commit, "two")
			continue
		}
		interrupted++
		assert.Equal(t, applier.ReasonInterrupted, end.Reason, "%+v", end)
		assert.Contains(t, end.Message, "had not read its project yet, as happens right after its start, and refused to sync: that says nothing of the commit")
		assert.True(t, end.AskAgain())
		assert.Equal(t, "one", s.value(t))
		s.touch(t)
		s.wait(t, func(u *unstructured.Unstructured) bool { return at(u.Object, "status", "conditions") == nil })
		end, err := s.apply(t, s.ask(commit))
		require.NoError(t, err)
		s.requireSynced(t, end, commit, "two")
	}
	t.Logf("%d of 8 operations were refused", interrupted)
}

func TestARepoServerThatIsAwayIsWaitedForByTheRetry(t *testing.T) {
	l := lab.Alone(t)
	s := newSubject(t, l)
	commit := s.push(t, "two")
	l.RepoServer.Kill(t)
	started := s.request(t, s.ask(commit))
	waiting := s.followUntil(t, started, func(p applier.Progress) bool { return contains(p, "Retrying attempt #1") })
	assert.Equal(t, applier.StateRunning, waiting.State)
	l.RepoServer.Start(t)

	end := s.follow(t, started)

	s.requireSynced(t, end, commit, "two")
}

// The API server goes away while the host follows.
func TestAnAPIServerThatGoesAwayDoesNotEndAnOperation(t *testing.T) {
	l := lab.Alone(t)
	s := newSubject(t, l)
	commit := s.pushWaves(t, "two")
	started := s.request(t, s.ask(commit))
	s.waitForFirstWave(t, "two")
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	ended := make(chan result, 1)
	go func() {
		end, err := impatient.Follow(ctx, s.client, s.ref, &started, nil)
		ended <- result{end: end, err: err}
	}()
	l.APIServer.Kill(t)
	l.APIServer.Start(t)
	// It would come back by itself, but only after a pause that grows.
	l.ApplicationController.Kill(t)
	l.ApplicationController.Start(t)

	r := <-ended

	require.NoError(t, r.err)
	s.requireSynced(t, r.end, commit, "two")
}
