package fluxtest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// manager is the host's name in these tests.
const manager = "lib"

// subject is one Kustomization with its repository, and a client that asks it.
type subject struct {
	lab    *lab.Lab
	ns     string
	repo   *lab.Repository
	ref    types.NamespacedName
	client *flux.Client
	// first is the commit that is applied when the test begins.
	first string
}

// live returns a Kustomization that is not suspended and has applied the first commit.
func live(t *testing.T, l *lab.Lab, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := &subject{lab: l, ns: l.Namespace(t), repo: l.Repository(t), client: client(t, l.RESTConfig())}
	s.ref = types.NamespacedName{Namespace: s.ns, Name: "app"}
	s.first = s.push(t, "one")
	l.GitRepository(t, s.ns, "app", s.repo)
	l.Kustomization(t, s.ns, "app", "app", mutate...)
	l.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Applied(s.first))
	return s
}

// held returns a Kustomization that has applied the first commit and is held.
func held(t *testing.T, l *lab.Lab, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := live(t, l, mutate...)
	s.hold(t)
	return s
}

func (s *subject) hold(t *testing.T) {
	t.Helper()
	token, err := s.client.Suspend(t.Context(), s.ref)
	require.NoError(t, err)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Handled(token))
}

// client returns a client of the host's that reaches the API server as config says.
func client(t *testing.T, config *rest.Config) *flux.Client {
	t.Helper()
	connection, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	c, err := flux.New("lab", connection, flux.Options{FieldManager: manager})
	require.NoError(t, err)
	return c
}

// through returns a client whose requests pass through tr.
func (s *subject) through(t *testing.T, tr *lab.Transport) *flux.Client {
	t.Helper()
	config := s.lab.RESTConfig()
	config.Wrap(tr.Wrap)
	return client(t, config)
}

// push commits a ConfigMap cm with a value and returns the commit.
func (s *subject) push(t *testing.T, value string) string {
	t.Helper()
	return s.repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value)})
}

// ask asks for a commit.
func (s *subject) ask(commit string) applier.Ask {
	return applier.Ask{
		Want:   applier.Binding{Repository: s.repo.URL(), Branch: lab.DefaultBranch},
		Commit: commit,
		Token:  applier.NewToken(),
	}
}

// apply asks for a commit, follows the operation, and returns its end.
func (s *subject) apply(t *testing.T, ask applier.Ask) (applier.Progress, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	return applier.Apply(ctx, s.client, s.ref, ask, nil)
}

// follow follows an operation to its end.
func (s *subject) follow(t *testing.T, client applier.Client, started applier.Started) applier.Progress {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	end, err := applier.Follower{}.Follow(ctx, client, s.ref, &started, nil)
	require.NoError(t, err)
	return end
}

func (s *subject) get(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	return s.lab.Get(t, lab.Kustomizations, s.ns, s.ref.Name)
}

// value is what the ConfigMap cm holds in the cluster.
func (s *subject) value(t *testing.T) string {
	t.Helper()
	value, _, err := unstructured.NestedString(s.lab.Get(t, lab.ConfigMaps, s.ns, "cm").Object, "data", "key")
	require.NoError(t, err)
	return value
}

// requireHeld fails the test unless the Kustomization stands suspended under the host's name, with that suspend handled.
func (s *subject) requireHeld(t *testing.T) {
	t.Helper()
	suspension, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	require.True(t, suspension.Suspended && suspension.Held && suspension.Handled, "not held: %+v", suspension)
}

// managersOf returns, for each field manager that owns a field, how it came to: Apply or Update. The field is named by its keys in
// managedFields: f:spec, f:suspend.
func managersOf(t *testing.T, u *unstructured.Unstructured, path ...string) map[string]string {
	t.Helper()
	managers := map[string]string{}
	for _, entry := range u.GetManagedFields() {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		if _, found, _ := unstructured.NestedFieldNoCopy(fields, path...); found {
			managers[entry.Manager] = string(entry.Operation)
		}
	}
	return managers
}

// as patches the Kustomization by a merge patch under another field manager, as the flux CLI does.
func (s *subject) as(t testing.TB, fieldManager, patch string) {
	t.Helper()
	_, err := s.lab.Dynamic().Resource(lab.Kustomizations).Namespace(s.ns).
		Patch(context.Background(), s.ref.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	assert.NoError(t, err)
}
