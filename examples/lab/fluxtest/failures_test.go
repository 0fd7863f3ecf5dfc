package fluxtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// failure is one way in which an apply fails, held or live.
type failure struct {
	name string
	// before happens before the commit is asked for, and files are what the commit changes.
	before func(*testing.T, *subject)
	files  lab.Files
	// meanwhile happens right before the write that starts the apply: after everything was checked.
	meanwhile func(*testing.T, *subject)

	// reason and message are what is reported; it ends Failed.
	reason  string
	message string
}

const (
	invalidService = `apiVersion: v1
kind: Service
metadata:
  name: svc
spec:
  ports:
  - port: 99999999
`
	// No controller of the lab's ever makes it available.
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: unready
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
`
)

// edit changes the Kustomization as somebody with kubectl would.
func edit(patch string) func(*testing.T, *subject) {
	return func(t *testing.T, s *subject) { s.as(t, "kubectl-edit", patch) }
}

// removeSource deletes the GitRepository.
func removeSource(t *testing.T, s *subject) {
	t.Helper()
	require.NoError(t, s.lab.Dynamic().Resource(lab.GitRepositories).Namespace(s.ns).Delete(t.Context(), "app", metav1.DeleteOptions{}))
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Gone)
}

var failures = []failure{
	{
		name:   "a manifest that is no YAML",
		files:  lab.Files{"broken.yaml": "kind: [\n"},
		reason: "BuildFailed", message: "broken.yaml",
	},
	{
		name:   "an object that the API server refuses",
		files:  lab.Files{"svc.yaml": invalidService},
		reason: "ReconciliationFailed", message: "Service",
	},
	{
		name:   "a health check that times out",
		before: edit(`{"spec":{"wait":true,"timeout":"30s"}}`),
		files:  lab.Files{"web.yaml": deployment},
		reason: "HealthCheckFailed", message: "timeout waiting for",
	},
	{
		name:   "a dependency that is not ready",
		before: edit(`{"spec":{"dependsOn":[{"name":"database"}]}}`),
		files:  lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")},
		reason: "DependencyNotReady", message: "database",
	},
	{
		name:   "a ServiceAccount that does not exist",
		before: edit(`{"spec":{"serviceAccountName":"nobody"}}`),
		files:  lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")},
		reason: "ReconciliationFailed", message: "nobody",
	},
	{
		name:   "a path that the commit does not have",
		before: edit(`{"spec":{"path":"./apps/shop"}}`),
		files:  lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")},
		reason: applier.ReasonPathNotFound, message: "apps/shop",
	},
	{
		name:   "a path that another commit does not have, which was fetched in the last moment",
		before: edit(`{"spec":{"path":"./apps/shop"}}`),
		files:  lab.Files{"apps/shop/cm.yaml": lab.ConfigMap("cm", "key", "two")},
		meanwhile: func(t *testing.T, s *subject) {
			s.moveTo(t, s.first)
		},
		reason: applier.ReasonAttemptedOther, message: "by now, not commit",
	},
	{
		name:      "a source that is deleted in the last moment",
		files:     lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")},
		meanwhile: removeSource,
		reason:    "ArtifactFailed", message: `not found`,
	},
	{
		name:  "a source that lost its artifact in the last moment",
		files: lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")},
		meanwhile: func(t *testing.T, s *subject) {
			removeSource(t, s)
			s.lab.GitRepository(t, s.ns, "app", s.repo, lab.Set(true, "spec", "suspend"))
		},
		reason: "ArtifactFailed", message: "retrying in 30s",
	},
}

// fail asks for an apply that fails as f says and returns its end.
func (s *subject) fail(t *testing.T, f failure, tr *lab.Transport, liveAsk bool) (applier.Progress, error) {
	t.Helper()
	if f.before != nil {
		f.before(t, s)
	}
	if f.meanwhile != nil {
		tr.On(toKustomizations, 1, lab.Before(func() { f.meanwhile(t, s) }))
	}
	ask := s.ask(s.repo.Commit(t, f.files))
	ask.Live = liveAsk
	return s.apply(t, ask)
}

func (s *subject) requireFailure(t *testing.T, f failure, end applier.Progress, err error) {
	t.Helper()
	require.ErrorIs(t, err, applier.ErrFailed)
	s.requireFailed(t, f, end)
	var failed *applier.OperationError
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, end, failed.Progress)
}

func (s *subject) requireFailed(t *testing.T, f failure, end applier.Progress) {
	t.Helper()
	assert.Equal(t, applier.StateFailed, end.State)
	assert.Equal(t, f.reason, end.Reason, end.Message)
	assert.Contains(t, end.Message, f.message)
	assert.Contains(t, end.Message, "Kustomization "+s.ref.String()+" in cluster lab")
	assert.Empty(t, end.AppliedRevision)
}

func TestAFailedApplyIsReportedInTheControllersWordsAndIsHeldAgain(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range failures {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			states := s.states(t)

			end, err := s.fail(t, f, tr, false)

			s.requireFailure(t, f, end, err)
			s.requireHeld(t)
			seen := states()
			assert.Equal(t, []bool{true, false, true}, suspends(seen))
			assertHeldInEach(t, seen)
			requireLawfulWrites(t, s, tr, false)
		})
	}
}

// A run that fails as the one before leaves the same status, message aside. It is told apart all the same.
func TestTheSameFailureTwiceInARowIsReportedTwice(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, f := range failures {
		if f.meanwhile != nil || f.reason == "HealthCheckFailed" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			_, err := s.fail(t, f, nil, false)
			require.ErrorIs(t, err, applier.ErrFailed)
			failed := s.get(t)

			again := s.ask(s.repo.Head(t, lab.DefaultBranch))
			again.Reason = applier.Repair
			end, err := s.apply(t, again)

			s.requireFailure(t, f, end, err)
			assert.Equal(t, ready(t, failed)["reason"], ready(t, s.get(t))["reason"])
			s.requireHeld(t)
		})
	}
}

func TestAFailureIsMendedByTheNextAsk(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	_, err := s.apply(t, s.ask(s.repo.Commit(t, lab.Files{"broken.yaml": "kind: [\n"})))
	require.ErrorIs(t, err, applier.ErrFailed)

	end, err := s.apply(t, s.ask(s.repo.Remove(t, "broken.yaml")))

	require.NoError(t, err)
	assert.Equal(t, applier.StateSucceeded, end.State)
	s.requireHeld(t)
}

// ready is the Ready condition of u.
func ready(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	conditions, _, err := unstructured.NestedSlice(u.Object, "status", "conditions")
	require.NoError(t, err)
	for _, entry := range conditions {
		if condition, ok := entry.(map[string]any); ok && condition["type"] == "Ready" {
			return condition
		}
	}
	return nil
}
