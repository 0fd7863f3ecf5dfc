package argocdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// values numbers the values that are pushed, so that no two commits sync the same.
var values atomic.Int64

// attempt is one ask, as a host makes it: its requests pass through faults, and its record is kept.
type attempt struct {
	*subject
	faults *lab.Transport
	client *argocd.Client
	ask    applier.Ask
	// commit is what is asked for, value what the ConfigMap holds once it is synced.
	commit, value string
	// before is the Application when the attempt began, and synced how often it had been synced.
	before *unstructured.Unstructured
	synced int
	// recorded is what the host's record holds.
	recorded *applier.Started
	records  int
	// asked is called once the request returned what to follow.
	asked func(applier.Started)
}

// result is how an attempt ended: with an error of Request, or with what Follow returned.
type result struct {
	refused error
	started applier.Started
	end     applier.Progress
	err     error
}

// attempt pushes a commit, and prepares to ask for it.
func (s *subject) attempt(t *testing.T) *attempt {
	t.Helper()
	a := &attempt{subject: s, faults: lab.NewTransport(), value: fmt.Sprint("value-", values.Add(1))}
	a.client = s.through(t, a.faults)
	a.commit = s.push(t, a.value)
	a.before, a.synced = s.get(t), s.syncs(t)
	a.ask = s.ask(a.commit)
	a.ask.Record = func(_ context.Context, started applier.Started) error {
		a.records++
		a.recorded = &started
		return nil
	}
	return a
}

// run requests and follows to the end.
func (a *attempt) run(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	return a.runWith(ctx)
}

func (a *attempt) runWith(ctx context.Context) (r result) {
	r.started, r.refused = a.client.Request(ctx, a.ref, a.ask)
	if r.refused != nil {
		return r
	}
	if a.asked != nil {
		a.asked(r.started)
	}
	started := r.started
	r.end, r.err = impatient.Follow(ctx, a.client, a.ref, &started, nil)
	return r
}

// sweep makes an attempt for each request of an undisturbed attempt, which it counts. It returns how many.
func sweep(t *testing.T, s *subject, try func(t *testing.T, a *attempt, n int)) int {
	t.Helper()
	a := s.attempt(t)
	a.requireSucceeded(t, a.run(t))
	requests := a.faults.Requests()
	require.Greater(t, len(requests), 3)
	for i, request := range requests {
		t.Run(fmt.Sprintf("%02d %s %s", i+1, request.Verb, request.Resource), func(t *testing.T) {
			try(t, s.attempt(t), i+1)
		})
	}
	return len(requests)
}

// requireSucceeded fails the test unless the commit was synced, once.
func (a *attempt) requireSucceeded(t *testing.T, r result) {
	t.Helper()
	require.NoError(t, r.refused)
	require.NoError(t, r.err)
	a.requireSucceededEnd(t, r.end)
}

func (a *attempt) requireSucceededEnd(t *testing.T, end applier.Progress) {
	t.Helper()
	a.requireSynced(t, end, a.commit, a.value)
	assert.Equal(t, a.synced+1, a.syncs(t), "it was not synced once")
	assert.Equal(t, 1, a.records)
}

// requireNotStarted fails the test if the request started something.
func (a *attempt) requireNotStarted(t *testing.T) {
	t.Helper()
	u := a.get(t)
	assert.NotEqual(t, a.ask.Token, tokenOf(u.Object["operation"]))
	assert.NotEqual(t, a.ask.Token, tokenOf(recordOf(u)["operation"]))
	assert.Equal(t, a.synced, a.syncs(t))
	assert.NotEqual(t, a.value, a.subject.value(t))
}

// recovered is the operation as the next process reads it: the fields that a record has to keep, and no other.
func (a *attempt) recovered(t *testing.T) applier.Started {
	t.Helper()
	text, err := json.Marshal(applier.Started{
		Outcome: a.recorded.Outcome, Token: a.recorded.Token, Commit: a.recorded.Commit, UID: a.recorded.UID,
		Baseline: a.recorded.Baseline, RequestedAt: a.recorded.RequestedAt,
	})
	require.NoError(t, err)
	var started applier.Started
	require.NoError(t, json.Unmarshal(text, &started))
	started.Recovered = true
	return started
}

var errDied = errors.New("the process died")

// runBriefly is run, given up after five seconds.
func (a *attempt) runBriefly(t *testing.T) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return a.runWith(ctx)
}
