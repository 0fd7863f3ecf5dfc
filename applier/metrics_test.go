package applier_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// countedMetrics adds up what it is told.
type countedMetrics struct {
	mu     sync.Mutex
	counts map[string]int
	lags   []time.Duration
}

func newCountedMetrics() *countedMetrics { return &countedMetrics{counts: make(map[string]int)} }

func (m *countedMetrics) add(n int, name string, labels ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[name+fmt.Sprint(labels...)] += n
}

func (m *countedMetrics) get(name string, labels ...any) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts[name+fmt.Sprint(labels...)]
}

func (m *countedMetrics) AttemptStarted(l applier.MetricLabels) { m.add(1, "started", l) }
func (m *countedMetrics) AttemptEnded(l applier.MetricLabels, r applier.AttemptResult) {
	m.add(1, "ended", l, r)
}
func (m *countedMetrics) InFlight(l applier.MetricLabels, n int)   { m.add(n, "in flight", l) }
func (m *countedMetrics) Unresolved(l applier.MetricLabels, n int) { m.add(n, "unresolved", l) }
func (m *countedMetrics) Request(cluster, method, code string) {
	m.add(1, "request", cluster, method, code)
}
func (m *countedMetrics) Lag(_ applier.MetricLabels, lag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lags = append(m.lags, lag)
}

var shopLabels = applier.MetricLabels{Cluster: "prod", Kind: "Kustomization", Reason: applier.Commit}

func TestAttemptsAreCountedByHowTheyEnd(t *testing.T) {
	t.Parallel()
	for result, prepare := range map[applier.AttemptResult]func(w *dispatchWorld){
		applier.ResultSucceeded: func(*dispatchWorld) {},
		applier.ResultAppliedOther: func(w *dispatchWorld) {
			w.client.Answers = []fake.Answer{{Steps: []applier.Progress{{State: applier.StateSucceeded, AppliedRevision: "main@sha1:" + commitB}}}}
		},
		applier.ResultFailed:     func(w *dispatchWorld) { w.client.Answers = []fake.Answer{fake.Fails("BuildFailed", "no such base")} },
		applier.ResultCurrent:    func(w *dispatchWorld) { w.client.Answers = []fake.Answer{{Outcome: applier.OutcomeCurrent}} },
		applier.ResultStale:      func(w *dispatchWorld) { w.client.Answers = []fake.Answer{{Refuse: applier.ErrStale}} },
		applier.ResultNotStarted: func(w *dispatchWorld) { w.client.Answers = []fake.Answer{{Refuse: errAway}} },
		applier.ResultAbandoned:  func(w *dispatchWorld) { w.abandon() },
	} {
		t.Run(string(result), func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				metrics := newCountedMetrics()
				w.dispatcher.Metrics = metrics
				prepare(w)
				w.start()
				w.request(w.decided())
				assert.Equal(w, 1, metrics.get("started", shopLabels))
				assert.Equal(w, 1, metrics.get("ended", shopLabels, result))
				assert.Zero(w, metrics.get("in flight", shopLabels))
				if result == applier.ResultSucceeded {
					assert.NotEmpty(w, metrics.lags)
				}
			})
		})
	}
}

func TestOperationsInFlightAndUnresolvedAreGauged(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		metrics := newCountedMetrics()
		w.dispatcher.Metrics = metrics
		w.hang()
		assert.Equal(w, 1, metrics.get("in flight", shopLabels))
		assert.Zero(w, metrics.get("unresolved", shopLabels))
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		assert.Equal(w, 1, metrics.get("unresolved", shopLabels))
		w.finish()
		assert.Zero(w, metrics.get("in flight", shopLabels))
		assert.Zero(w, metrics.get("unresolved", shopLabels))
		assert.Equal(w, 1, metrics.get("ended", shopLabels, applier.ResultSucceeded))
	})
}

func TestAStoppedAttemptCountsAsStopped(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		metrics := newCountedMetrics()
		w.dispatcher.Metrics = metrics
		w.hang()
		w.stop()
		assert.Equal(w, 1, metrics.get("ended", shopLabels, applier.ResultStopped))
		assert.Zero(w, metrics.get("in flight", shopLabels))
	})
}

func TestRequestsToAnAPIServerAreCounted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusConflict) }))
	metrics := newCountedMetrics()
	client := &http.Client{Transport: applier.CountRequests("prod", metrics)(http.DefaultTransport)}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, server.URL, nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	server.Close()
	_, err = client.Do(request) //nolint:bodyclose // There is no response.
	require.Error(t, err)
	assert.Equal(t, 1, metrics.get("request", "prod", "PATCH", "409"))
	assert.Equal(t, 1, metrics.get("request", "prod", "PATCH", ""))
}

func TestAnAppliedOtherEndIsToldApart(t *testing.T) {
	t.Parallel()
	operation := operationAt("t1", applier.StateSucceeded)
	operation.Progress.AppliedCommit = commitA
	assert.False(t, operation.AppliedOther())
	operation.Progress.AppliedCommit = commitB
	assert.True(t, operation.AppliedOther())
	operation.Progress.State = applier.StateFailed
	assert.False(t, operation.AppliedOther())
}

const commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

func TestARecoveredOperationThatIsUnresolvedIsGaugedOnce(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		time.Sleep(applier.DefaultUnresolvedAfter)
		synctest.Wait()
		w.stop()
		metrics := newCountedMetrics()
		next := w.nextProcess()
		next.dispatcher.Metrics = metrics
		next.start()
		next.request(applier.ApplyRequest{Trigger: w.trigger, Recovered: w.kept(), Report: next.report})
		time.Sleep(day)
		assert.Equal(w, 1, metrics.get("unresolved", shopLabels))
		assert.Equal(w, 1, metrics.get("in flight", shopLabels))
		next.stop()
		assert.Zero(w, metrics.get("unresolved", shopLabels))
		assert.Zero(w, metrics.get("in flight", shopLabels))
		assert.Equal(w, 1, metrics.get("ended", shopLabels, applier.ResultStopped))
	})
}

func TestAnOperationThatCannotBeFollowedCountsAsThat(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		metrics := newCountedMetrics()
		w.dispatcher.Metrics = metrics
		w.start()
		record := operationAt("t1", applier.StateRunning)
		record.Applier.Kind, record.Reason = "Helmsman", applier.Repair
		w.recoverRecorded(record)
		labels := applier.MetricLabels{Cluster: "prod", Kind: "Helmsman", Reason: applier.Repair}
		assert.Equal(w, 1, metrics.get("started", labels))
		assert.Equal(w, 1, metrics.get("ended", labels, applier.ResultNotFollowed))
		assert.Zero(w, metrics.get("in flight", labels))
	})
}
