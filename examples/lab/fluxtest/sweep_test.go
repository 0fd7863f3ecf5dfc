package fluxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// flow is one way of asking.
type flow struct {
	name string
	live bool
	// fetch is an artifact that does not hold the commit when it is asked for.
	fetch bool
}

var (
	heldFlow      = flow{name: "held"}
	heldFetchFlow = flow{name: "held with a fetch", fetch: true}
	liveFlow      = flow{name: "live", live: true}
	liveFetchFlow = flow{name: "live with a fetch", live: true, fetch: true}

	flows = []flow{heldFlow, heldFetchFlow, liveFlow, liveFetchFlow}
)

// subject returns a Kustomization that the flow can ask, again and again.
func (f flow) subject(t *testing.T, l *lab.Lab) *subject {
	t.Helper()
	if f.live {
		return live(t, l)
	}
	return held(t, l)
}

// values numbers the values that are pushed, so that no two commits apply the same.
var values atomic.Int64

// attempt is one ask of a flow, as a host makes it: its requests pass through faults, and its record is kept.
type attempt struct {
	*subject
	flow   flow
	faults *lab.Transport
	client *flux.Client
	ask    applier.Ask
	// commit is what is asked for, value what the ConfigMap holds once it is applied.
	commit, value string
	// before is the Kustomization when the attempt began.
	before *unstructured.Unstructured
	// recorded is what the host's record holds, and records how often it was asked to record.
	recorded *applier.Started
	records  int
	// acting is whatever somebody else is doing at a point.
	acting sync.WaitGroup
}

// result is how an attempt ended: with an error of Request, or with what Follow returned.
type result struct {
	refused error
	started applier.Started
	end     applier.Progress
	err     error
}

// attempt pushes a commit, and prepares to ask for it.
func (s *subject) attempt(t *testing.T, f flow) *attempt {
	t.Helper()
	a := &attempt{subject: s, flow: f, faults: lab.NewTransport(), value: fmt.Sprint("value-", values.Add(1))}
	a.client = s.through(t, a.faults)
	s.calm(t, f)
	a.commit = s.push(t, a.value)
	if !f.fetch {
		s.fetch(t, a.commit)
	}
	if f.live && !f.fetch {
		s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(a.commit))
	}
	a.before = s.get(t)
	a.ask = s.ask(a.commit)
	a.ask.Live = f.live
	a.ask.Record = func(_ context.Context, started applier.Started) error {
		a.records++
		a.recorded = &started
		return nil
	}
	return a
}

// calm brings a Kustomization on which somebody laid hands back to where the flow can ask it, with nothing running.
func (s *subject) calm(t *testing.T, f flow) {
	t.Helper()
	suspension, err := s.client.Suspension(t.Context(), s.ref)
	require.NoError(t, err)
	if !f.live {
		if !(suspension.Held && suspension.Handled) {
			s.hold(t)
		}
		return
	}
	s.as(t, "flux", `{"spec":{"suspend":null}}`)
	token := stampedNow()
	s.annotate(t, lab.Kustomizations, s.ref.Name, token)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Handled(token))
}

// fetch makes the GitRepository hold a commit, as an administrator does.
func (s *subject) fetch(t *testing.T, commit string) {
	t.Helper()
	s.annotate(t, lab.GitRepositories, "app", stampedNow())
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(commit))
}

// run requests and follows to the end. The host's record keeps the token of the suspend once it is reported.
func (a *attempt) run(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	defer a.acting.Wait()
	return a.runWith(ctx)
}

func (a *attempt) runWith(ctx context.Context) (r result) {
	r.started, r.refused = a.client.Request(ctx, a.ref, a.ask)
	if r.refused != nil {
		return r
	}
	started := r.started
	report := func(p applier.Progress) { a.recorded.SuspendToken = p.SuspendToken }
	if a.flow.live && started.Unconfirmed != nil {
		// A stamp that was not made leaves no trace, and may still be on its way until the host gives up waiting.
		waiting, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if r.end, r.err = impatient.Follow(waiting, a.client, a.ref, &started, report); r.err == nil {
			return r
		}
		started.Overdue = true
	}
	r.end, r.err = impatient.Follow(ctx, a.client, a.ref, &started, report)
	return r
}

// impatient is a follower that does not wait long before it tries again.
var impatient = applier.Follower{PollInterval: 50 * time.Millisecond}

// sweep makes an attempt for each request of an undisturbed attempt, which it counts.
func sweep(t *testing.T, s *subject, f flow, try func(t *testing.T, a *attempt, n int)) {
	t.Helper()
	requests := undisturbed(t, s, f)
	for i, request := range requests {
		t.Run(fmt.Sprintf("%02d %s %s", i+1, request.Verb, request.Resource), func(t *testing.T) {
			try(t, s.attempt(t, f), i+1)
		})
	}
	t.Logf("%d points tried", len(requests))
}

// point is a moment between two requests of ours: before the n-th is sent, or after it was processed.
type point struct {
	n     int
	after bool
}

// between makes an attempt for each point between the requests of an undisturbed attempt, which it counts. After a read the next
// request follows at once, so that is the point before the next; after a write and after the start of a watch we wait.
func between(t *testing.T, s *subject, f flow, try func(t *testing.T, a *attempt, p point)) {
	t.Helper()
	points := 0
	for i, request := range undisturbed(t, s, f) {
		name := fmt.Sprintf("%02d %s %s", i+1, request.Verb, request.Resource)
		t.Run("before "+name, func(t *testing.T) { try(t, s.attempt(t, f), point{n: i + 1}) })
		points++
		if request.Verb != "get" {
			t.Run("after "+name, func(t *testing.T) { try(t, s.attempt(t, f), point{n: i + 1, after: true}) })
			points++
		}
	}
	t.Logf("%d points tried", points)
}

// at lets somebody else act at the point. The attempt's run waits until that is done, because the request that waits for it may be
// a watch, and what is read meanwhile can end the operation.
func (a *attempt) at(p point, act func()) {
	hook := func() {
		a.acting.Add(1)
		defer a.acting.Done()
		act()
	}
	if p.after {
		a.faults.On(lab.Any, p.n, lab.After(hook))
		return
	}
	a.faults.On(lab.Any, p.n, lab.Before(hook))
}

// undisturbed returns the requests of an attempt that nobody disturbs.
func undisturbed(t *testing.T, s *subject, f flow) []lab.Request {
	t.Helper()
	a := s.attempt(t, f)
	a.requireSucceeded(t, a.run(t))
	requests := a.faults.Requests()
	require.Greater(t, len(requests), 5)
	return requests
}

// requireSucceeded fails the test unless the commit was applied, and stands as the flow is to leave it.
func (a *attempt) requireSucceeded(t *testing.T, r result) {
	t.Helper()
	require.NoError(t, r.refused)
	require.NoError(t, r.err)
	a.requireSucceededEnd(t, r.end)
}

func (a *attempt) requireSucceededEnd(t *testing.T, end applier.Progress) {
	t.Helper()
	require.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
	if a.appliedBefore(end) {
		a.requireLeft(t)
		return
	}
	assert.Equal(t, fluxmeta.ReconciliationSucceededReason, end.Reason)
	assert.Equal(t, "main@sha1:"+a.commit, end.AppliedRevision)
	assert.Equal(t, a.commit, end.AppliedCommit)
	assert.Equal(t, a.value, a.subject.value(t))
	a.requireLeft(t)
}

// appliedBefore reports whether the end of a live ask with a fetch says that the commit before was applied instead.
// kustomize-controller learns of the stamp and of the artifact by two watches, so it may run at the artifact before; the run for the
// artifact follows. A host asks again.
func (a *attempt) appliedBefore(end applier.Progress) bool {
	return a.flow == liveFetchFlow && a.ranBefore(end)
}

// ranBefore reports whether the end says that the commit before was applied instead.
func (a *attempt) ranBefore(end applier.Progress) bool {
	applied, _, _ := unstructured.NestedString(a.before.Object, "status", "lastAppliedRevision")
	return end.Reason == applier.ReasonAppliedOther && end.AppliedRevision == applied
}

// requireLeft fails the test unless the Kustomization is left as the flow is to leave it: held, or never suspended.
func (a *attempt) requireLeft(t *testing.T) {
	t.Helper()
	if !a.flow.live {
		a.requireHeld(t)
		return
	}
	u := a.get(t)
	assert.False(t, suspended(u), "a live Kustomization is suspended")
	assert.NotContains(t, managersOf(t, u, "f:spec", "f:suspend"), manager)
}

// requireUntouched fails the test if anything was written to the Kustomization since the attempt began.
func (a *attempt) requireUntouched(t *testing.T) {
	t.Helper()
	if !a.flow.live {
		assert.Equal(t, a.before.GetResourceVersion(), a.get(t).GetResourceVersion(), "the Kustomization changed")
	}
	a.requireNotStarted(t)
	a.requireLeft(t)
}

// requireNotStarted fails the test if the request started something.
func (a *attempt) requireNotStarted(t *testing.T) {
	t.Helper()
	u := a.get(t)
	assert.NotEqual(t, a.ask.Token, requested(u))
	if !a.flow.live {
		assert.Equal(t, history(a.before), history(u), "something ran")
	}
}

// requested is the token that u is asked to handle.
func requested(u *unstructured.Unstructured) string {
	return u.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
}

func suspended(u *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	return value
}

// history tells runs apart: each that comes as far as applying changes it.
func history(u *unstructured.Unstructured) string {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "history")
	text, _ := json.Marshal(entries)
	return string(text)
}

var errDied = errors.New("the process died")

// annotate stamps an object of the subject as flux reconcile does.
func (s *subject) annotate(t testing.TB, gvr schema.GroupVersionResource, name, token string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, fluxmeta.ReconcileRequestAnnotation, token)
	_, err := s.lab.Dynamic().Resource(gvr).Namespace(s.ns).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "flux"})
	assert.NoError(t, err)
}

// stampedNow is what flux reconcile stamps.
func stampedNow() string { return time.Now().Format(time.RFC3339Nano) }

// awaitHandled waits until the token that is asked for now is handled.
func (s *subject) awaitHandled(t *testing.T) {
	t.Helper()
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Handled(requested(s.get(t))))
}
