package fake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// app is the Kustomization that the host asks.
var app = types.NamespacedName{Namespace: team, Name: "app"}

// newClient returns a client of the host's and the view that its requests come through.
func (w *world) newClient() (*flux.Client, *fake.View) {
	w.Helper()
	view := w.cluster.As("host", nil)
	client, err := flux.New("prod", view, flux.Options{FieldManager: "host"})
	require.NoError(w, err)
	return client, view
}

// flow is one way of asking, and how it ends when nothing gets in its way.
type flow struct {
	name string
	live bool
	// fetch is an artifact that does not hold the commit when it is asked for.
	fetch bool
	// broken is a commit that cannot be built.
	broken bool
	// slow is a commit that takes a while to become healthy, and overdue a host that does not wait for it.
	slow, overdue bool
}

// Those that fetch make all the requests of those that need not, and more.
var flows = []flow{
	{name: "held", fetch: true},
	{name: "held at a commit that cannot be built", broken: true},
	{name: "held and overdue", slow: true, overdue: true},
	{name: "live", live: true, fetch: true},
}

func (f flow) files(text string) fake.Files {
	if f.broken {
		return fake.Files{"cm.yaml": broken}
	}
	return value(text)
}

// prepared is a world whose Kustomization the flow can ask, again and again.
func (f flow) prepared(w *world) {
	w.Helper()
	w.applied(set(f.slow, "spec", "wait"))
	w.observer, _ = w.newClient()
	if f.slow {
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: 10 * time.Second})
	}
	if !f.live {
		_, err := w.observer.Suspend(w.Context(), app)
		require.NoError(w, err)
		synctest.Wait()
	}
}

// attempt is one ask of a flow, as a host makes it: its requests pass through a view of its own, and its record is kept.
type attempt struct {
	*world
	flow   flow
	client *flux.Client
	view   *fake.View
	ask    applier.Ask
	// commit is what is asked for, value what the ConfigMap holds once it is applied.
	commit, value string
	// before is the Kustomization when the attempt began.
	before   *unstructured.Unstructured
	recorded *applier.Started
}

// result is how an attempt ended: with an error of Request, or with what Follow returned.
type result struct {
	refused, err error
	end          applier.Progress
}

func (w *world) attempt(f flow, number int) *attempt {
	w.Helper()
	a := &attempt{world: w, flow: f, value: w.standingValue, commit: w.standing}
	a.client, a.view = w.newClient()
	if f.fetch || w.standing == "" {
		a.value = fmt.Sprint("value-", number)
		a.commit = w.push(a.value, f.files(a.value))
	}
	if !f.fetch && w.standing == "" {
		w.standing, w.standingValue = a.commit, a.value
		w.fetch()
	}
	a.before = w.get(kustomizations, "app")
	a.ask = applier.Ask{
		Want: applier.Binding{Repository: repositoryURL, Branch: "main"}, Commit: a.commit, Token: applier.NewToken(), Live: f.live,
		Record: func(_ context.Context, started applier.Started) error {
			a.recorded = &started
			return nil
		},
	}
	return a
}

// run requests and follows to the end, which it gives up waiting for after a while.
func (a *attempt) run(ctx context.Context) (r result) {
	started, err := a.client.Request(ctx, app, a.ask)
	if err != nil {
		r.refused = err
		return r
	}
	started.Overdue = a.flow.overdue
	report := func(p applier.Progress) { a.recorded.SuspendToken = p.SuspendToken }
	waiting, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if r.end, r.err = (applier.Follower{}).Follow(waiting, a.client, app, &started, report); r.err == nil || ctx.Err() != nil {
		return r
	}
	started.Overdue = true
	r.end, r.err = applier.Follower{}.Follow(ctx, a.client, app, &started, report)
	return r
}

// ended fails the test unless the attempt ended as its flow does, or, where that may be, without having started.
func (a *attempt) ended(end applier.Progress, mayNotRun bool) {
	a.Helper()
	synctest.Wait()
	switch {
	case (mayNotRun || a.flow.overdue) && end.Reason == applier.ReasonNotRun:
		// An overdue host may suspend before the controller has seen the resume.
		require.Equal(a, applier.StateFailed, end.State)
		a.notStarted()
	case a.flow.broken:
		require.Equal(a, applier.StateFailed, end.State, "%+v", end)
		assert.Equal(a, "BuildFailed", end.Reason)
	default:
		require.Equal(a, applier.StateSucceeded, end.State, "%+v", end)
		assert.Equal(a, a.commit, end.AppliedCommit)
		assert.Equal(a, "main@sha1:"+a.commit, end.AppliedRevision)
		assert.Equal(a, a.value, a.data("cm"))
	}
	a.left()
}

// notStarted fails the test if the request started something.
func (a *attempt) notStarted() {
	a.Helper()
	u := a.get(kustomizations, "app")
	assert.NotEqual(a, a.ask.Token, u.GetAnnotations()[requestedAt])
	if !a.flow.live {
		assert.Equal(a, history(a.before), history(u), "something ran")
	}
	a.left()
}

// left fails the test unless the Kustomization stands as the flow is to leave it: held, or never suspended.
func (a *attempt) left() {
	a.Helper()
	suspension, err := a.observer.Suspension(a.Context(), app)
	require.NoError(a, err)
	if a.flow.live {
		assert.False(a, suspension.Suspended, "it is suspended")
		return
	}
	assert.True(a, suspension.Suspended && suspension.Held && suspension.Handled, "it is not held: %+v", suspension)
}

// history tells runs apart: each that comes as far as applying changes it.
func history(u *unstructured.Unstructured) string {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "history")
	text, _ := json.Marshal(entries)
	return string(text)
}

// recovered is the operation as the next process reads it: the fields that a record has to keep, and no other.
func (a *attempt) recovered(suspendToken bool) applier.Started {
	kept := applier.Started{
		Outcome: a.recorded.Outcome, Token: a.recorded.Token, Commit: a.recorded.Commit, UID: a.recorded.UID,
		Baseline: a.recorded.Baseline, RequestedAt: a.recorded.RequestedAt, SuspendToken: a.recorded.SuspendToken,
		Recovered: true,
	}
	if !suspendToken {
		kept.SuspendToken = ""
	}
	return kept
}

// undisturbed returns the requests of an attempt that nobody disturbs.
func (w *world) undisturbed(f flow) []fake.Request {
	w.Helper()
	a := w.attempt(f, 0)
	r := a.run(w.Context())
	require.NoError(w, errors.Join(r.refused, r.err))
	a.ended(r.end, false)
	return a.view.Requests()
}
