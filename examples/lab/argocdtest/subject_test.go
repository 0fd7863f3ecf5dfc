package argocdtest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// initiator is the host's name in these tests.
const initiator = "lib"

// object is a JSON object.
type object = map[string]any

// subject is one Application with its repository, and a client that asks it.
type subject struct {
	lab    *lab.Lab
	ns     string
	repo   *lab.Repository
	ref    types.NamespacedName
	client *argocd.Client
	// first is the commit that alice had synced when the test begins.
	first string
}

// newSubject returns an Application of which alice has synced the first commit.
func newSubject(t *testing.T, l *lab.Lab, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := newUnsynced(t, l, mutate...)
	s.syncFirst(t)
	return s
}

// syncFirst has alice sync the first commit.
func (s *subject) syncFirst(t *testing.T) {
	t.Helper()
	s.operate(t, syncOf(object{"revision": s.first}))
	s.wait(t, lab.Synced(s.first))
}

// newUnsynced returns an Application that nobody has synced.
func newUnsynced(t *testing.T, l *lab.Lab, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := &subject{lab: l, ns: l.Namespace(t), repo: l.Repository(t), client: client(t, l.RESTConfig(), argocd.Options{})}
	s.ref = types.NamespacedName{Namespace: s.ns, Name: "app"}
	s.first = s.push(t, "one")
	l.Application(t, s.ns, "app", s.repo, mutate...)
	return s
}

// client returns a client of the host's that reaches the API server as config says.
func client(t testing.TB, config *rest.Config, options argocd.Options) *argocd.Client {
	t.Helper()
	connection, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	options.Initiator = initiator
	c, err := argocd.New("lab", connection, options)
	require.NoError(t, err)
	return c
}

// through returns a client whose requests pass through tr.
func (s *subject) through(t testing.TB, tr *lab.Transport) *argocd.Client {
	t.Helper()
	config := s.lab.RESTConfig()
	config.Wrap(tr.Wrap)
	return client(t, config, argocd.Options{})
}

// push commits a ConfigMap cm with a value and returns the commit.
func (s *subject) push(t testing.TB, value string) string {
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
	return impatient.Apply(ctx, s.client, s.ref, ask, nil)
}

// request makes a request that is to succeed.
func (s *subject) request(t *testing.T, ask applier.Ask) applier.Started {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	started, err := s.client.Request(ctx, s.ref, ask)
	require.NoError(t, err)
	return started
}

// impatient is a follower that does not wait long before it tries again.
var impatient = applier.Follower{PollInterval: 50 * time.Millisecond}

// follow follows an operation to its end.
func (s *subject) follow(t *testing.T, started applier.Started) applier.Progress {
	t.Helper()
	return s.followUntil(t, started, func(applier.Progress) bool { return false })
}

// followUntil follows an operation until a report satisfies enough, or to its end, and returns that report.
func (s *subject) followUntil(t *testing.T, started applier.Started, enough func(applier.Progress) bool) applier.Progress {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	var last applier.Progress
	_, err := impatient.Follow(ctx, s.client, s.ref, &started, func(p applier.Progress) {
		last = p
		if enough(p) {
			cancel()
		}
	})
	if !enough(last) && err != nil {
		t.Fatalf("%v; last seen %+v\n%v", err, last, s.get(t).Object["status"])
	}
	return last
}

func (s *subject) get(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	return s.lab.Get(t, lab.Applications, s.ns, s.ref.Name)
}

func (s *subject) wait(t testing.TB, condition lab.Condition) *unstructured.Unstructured {
	t.Helper()
	return s.lab.WaitFor(t, lab.Applications, s.ns, s.ref.Name, condition)
}

// value is what a ConfigMap holds in the cluster.
func (s *subject) valueOf(t testing.TB, name string) string {
	t.Helper()
	value, _, err := unstructured.NestedString(s.lab.Get(t, lab.ConfigMaps, s.ns, name).Object, "data", "key")
	require.NoError(t, err)
	return value
}

func (s *subject) value(t testing.TB) string { return s.valueOf(t, "cm") }

// alice is somebody else who starts operations.
const alice = "alice"

// syncOf is an operation of alice's.
func syncOf(sync object) object {
	return object{"initiatedBy": object{"username": alice}, "sync": sync}
}

// operate sets .operation, in place of any other, and removes the record, as Argo CD's API server does for alice.
func (s *subject) operate(t testing.TB, operation object) {
	t.Helper()
	applications := s.lab.Dynamic().Resource(lab.Applications).Namespace(s.ns)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := applications.Get(context.Background(), s.ref.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		u.Object["operation"] = operation
		unstructured.RemoveNestedField(u.Object, "status", "operationState")
		_, err = applications.Update(context.Background(), u, metav1.UpdateOptions{FieldManager: alice})
		return err
	})
	assert.NoError(t, err)
}

// patch changes the Application by a merge patch, as alice does with kubectl.
func (s *subject) patch(t testing.TB, patch object) {
	t.Helper()
	text, err := json.Marshal(patch)
	require.NoError(t, err)
	_, err = s.lab.Dynamic().Resource(lab.Applications).Namespace(s.ns).
		Patch(context.Background(), s.ref.Name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: alice})
	assert.NoError(t, err)
}

// touch makes the controller look at the Application, and write to it.
func (s *subject) touch(t testing.TB) {
	t.Helper()
	s.patch(t, object{"metadata": object{"annotations": object{"argocd.argoproj.io/refresh": "normal"}}})
}

// waitUntilQuiet waits until nobody writes to the Application any more, as the controller does for a while after a sync.
func (s *subject) waitUntilQuiet(t testing.TB) {
	t.Helper()
	for last := ""; last != s.get(t).GetResourceVersion(); time.Sleep(time.Second) {
		last = s.get(t).GetResourceVersion()
	}
}

// recordOf is status.operationState, or nil.
func recordOf(u *unstructured.Unstructured) object {
	if u == nil {
		return nil
	}
	record, _, _ := unstructured.NestedMap(u.Object, "status", "operationState")
	return record
}

func at(o object, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(o, path...)
	return value
}

// tokenOf is the token in the info of an operation.
func tokenOf(operation any) string {
	o, _ := operation.(object)
	info, _, _ := unstructured.NestedSlice(o, "info")
	for _, entry := range info {
		if entry, ok := entry.(object); ok && entry["name"] == argocd.DefaultInfoKey {
			return fmt.Sprint(entry["value"])
		}
	}
	return ""
}

// inPhase is satisfied by an Application whose record is in a phase.
func inPhase(phase string) lab.Condition {
	return func(u *unstructured.Unstructured) bool { return recordOf(u)["phase"] == phase }
}

// saying is satisfied by an Application whose record has a message.
func saying(text string) lab.Condition {
	return func(u *unstructured.Unstructured) bool {
		message, _ := recordOf(u)["message"].(string)
		return strings.Contains(message, text)
	}
}

// syncs is how often the Application was synced: history has one entry for each whole sync that succeeded.
func (s *subject) syncs(t testing.TB) int {
	t.Helper()
	history, _, err := unstructured.NestedSlice(s.get(t).Object, "status", "history")
	require.NoError(t, err)
	if len(history) == 0 {
		return 0
	}
	id, _ := history[len(history)-1].(object)["id"].(int64)
	return int(id) + 1
}

// requireSynced fails the test unless the commit is what was synced, for this request, and ended so.
func (s *subject) requireSynced(t *testing.T, end applier.Progress, commit, value string) {
	t.Helper()
	require.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
	assert.Equal(t, "Succeeded", end.Reason)
	assert.Equal(t, commit, end.AppliedRevision)
	assert.Equal(t, commit, end.AppliedCommit)
	assert.Equal(t, value, s.value(t))
}
