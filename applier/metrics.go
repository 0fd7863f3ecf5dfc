package applier

import (
	"net/http"
	"strconv"
	"time"
)

// Metrics is told what a [Dispatcher] does. The names given here are those that a host exports them under, so that
// dashboards can be shared. Their labels are cluster, kind and reason, from MetricLabels, and those named here. It is called from several
// goroutines and must not block.
type Metrics interface {
	// AttemptStarted is gitops_applier_attempts_started_total, a counter: attempts begun, those that follow a recorded
	// operation included.
	AttemptStarted(labels MetricLabels)
	// AttemptEnded is gitops_applier_attempts_ended_total, a counter with the label result as well.
	AttemptEnded(labels MetricLabels, result AttemptResult)
	// InFlight is gitops_applier_operations_in_flight, a gauge: operations that are followed. It is told of each change.
	InFlight(labels MetricLabels, change int)
	// Unresolved is gitops_applier_operations_unresolved, a gauge: those in flight that outlived UnresolvedAfter. It is
	// told of each change.
	Unresolved(labels MetricLabels, change int)
	// Lag is gitops_applier_report_lag_seconds, a histogram: from the arrival of a change of an applier to the
	// report that it led to. It holds the next step of the operation, where the change called for one. Most are of milliseconds; one that was
	// polled has up to the poll interval.
	Lag(labels MetricLabels, lag time.Duration)
	// Request is gitops_applier_api_requests_total, a counter with the labels cluster, method and code alone: requests to the API server
	// of a cluster, by [CountRequests]. The code is that of the answer, or "" without one.
	Request(cluster, method, code string)
}

// MetricLabels are what every metric of an attempt is told apart by. They do not name the applier: there may be
// thousands.
type MetricLabels struct {
	// Cluster and Kind are the applier's.
	Cluster, Kind string
	// Reason is why it is asked.
	Reason ApplyReason
}

// AttemptResult is how an attempt ended, for a metric.
type AttemptResult string

// The results of an attempt.
const (
	// ResultSucceeded is an operation that applied the commit asked for.
	ResultSucceeded AttemptResult = "Succeeded"
	// ResultAppliedOther is an operation that succeeded at another revision.
	ResultAppliedOther AttemptResult = "AppliedOther"
	// ResultFailed is an operation that failed.
	ResultFailed AttemptResult = "Failed"
	// ResultCurrent is an attempt that asked nothing, because the applier needed nothing.
	ResultCurrent AttemptResult = "Current"
	// ResultStale is an attempt that asked nothing, because the decision no longer held.
	ResultStale AttemptResult = "Stale"
	// ResultNotStarted is an attempt that failed before it started anything.
	ResultNotStarted AttemptResult = "NotStarted"
	// ResultNotFollowed is a recorded operation that could not be followed.
	ResultNotFollowed AttemptResult = "NotFollowed"
	// ResultAbandoned is an attempt that was abandoned; what it started is settled all the same.
	ResultAbandoned AttemptResult = "Abandoned"
	// ResultStopped is an attempt that the stop of the dispatcher cut short; the next process follows what it started.
	ResultStopped AttemptResult = "Stopped"
)

// noMetrics is told and does nothing.
type noMetrics struct{}

func (noMetrics) AttemptStarted(MetricLabels)              {}
func (noMetrics) AttemptEnded(MetricLabels, AttemptResult) {}
func (noMetrics) InFlight(MetricLabels, int)               {}
func (noMetrics) Unresolved(MetricLabels, int)             {}
func (noMetrics) Lag(MetricLabels, time.Duration)          {}
func (noMetrics) Request(string, string, string)           {}

// CountRequests returns a wrapper for rest.Config.Wrap that tells metrics of each request to the API server of a
// cluster. client-go's own retries count as requests of their own.
func CountRequests(cluster string, metrics Metrics) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return countingTransport{cluster, metrics, next}
	}
}

type countingTransport struct {
	cluster string
	metrics Metrics
	next    http.RoundTripper
}

// RoundTrip makes the request and counts it.
func (t countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	code := ""
	if err == nil {
		code = strconv.Itoa(response.StatusCode)
	}
	t.metrics.Request(t.cluster, request.Method, code)
	return response, err
}

// WrappedRoundTripper returns the transport inside, by which client-go finds what it has to cancel.
func (t countingTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
