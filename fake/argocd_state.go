package fake

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The phases of an operation.
const (
	argoRunning     = "Running"
	argoTerminating = "Terminating"
	argoSucceeded   = "Succeeded"
	argoFailed      = "Failed"
	argoError       = "Error"
)

// An argoOperation is .operation, and what of it stands in the record. What is empty is left out of a patch, as in the real
// controller, so a merge patch leaves there what the previous operation had.
type argoOperation struct {
	Sync        *argoSync     `json:"sync,omitempty"`
	InitiatedBy argoInitiator `json:"initiatedBy"`
	Info        []argoInfo    `json:"info,omitempty"`
	Retry       argoRetry     `json:"retry"`
}

type argoInitiator struct {
	Username  string `json:"username,omitempty"`
	Automated bool   `json:"automated,omitempty"`
}

type argoInfo struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type argoSync struct {
	Revision     string         `json:"revision,omitempty"`
	Prune        bool           `json:"prune,omitempty"`
	DryRun       bool           `json:"dryRun,omitempty"`
	SyncStrategy map[string]any `json:"syncStrategy,omitempty"`
	Resources    []argoSelected `json:"resources,omitempty"`
	Source       map[string]any `json:"source,omitempty"`
	Manifests    []string       `json:"manifests,omitempty"`
	SyncOptions  []string       `json:"syncOptions,omitempty"`
	Sources      []any          `json:"sources,omitempty"`
	Revisions    []string       `json:"revisions,omitempty"`
}

// An argoSelected is a resource that a selective sync is for.
type argoSelected struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type argoRetry struct {
	Limit   int64        `json:"limit,omitempty"`
	Refresh bool         `json:"refresh,omitempty"`
	Backoff *argoBackoff `json:"backoff,omitempty"`
}

type argoBackoff struct {
	Duration    string `json:"duration,omitempty"`
	Factor      *int64 `json:"factor,omitempty"`
	MaxDuration string `json:"maxDuration,omitempty"`
}

// wait is how long an operation waits for a retry after the given number of them.
func (r argoRetry) wait(retries int64) (time.Duration, error) {
	duration, factor, longest := 5*time.Second, int64(2), 3*time.Minute
	if b := r.Backoff; b != nil {
		for text, to := range map[string]*time.Duration{b.Duration: &duration, b.MaxDuration: &longest} {
			if text == "" {
				continue
			}
			d, err := time.ParseDuration(text)
			if err != nil {
				return 0, fmt.Errorf("unable to parse %s as a duration", text)
			}
			*to = d
		}
		if b.Factor != nil {
			factor = *b.Factor
		}
	}
	return time.Duration(min(float64(longest), float64(duration)*math.Pow(float64(factor), float64(retries)))), nil
}

// An argoState is status.operationState, the record of an operation.
type argoState struct {
	Operation  argoOperation `json:"operation"`
	Phase      string        `json:"phase"`
	Message    string        `json:"message,omitempty"`
	SyncResult *argoResult   `json:"syncResult,omitempty"`
	StartedAt  string        `json:"startedAt"`
	FinishedAt string        `json:"finishedAt,omitempty"`
	RetryCount int64         `json:"retryCount,omitempty"`
}

func (s *argoState) completed() bool {
	return s.Phase == argoSucceeded || s.Phase == argoFailed || s.Phase == argoError
}

// end says how far the operation is.
func (s *argoState) end(phase, format string, args ...any) {
	s.Phase, s.Message = phase, fmt.Sprintf(format, args...)
}

type argoResult struct {
	Revision  string           `json:"revision"`
	Source    map[string]any   `json:"source,omitempty"`
	Resources []argoResourceOf `json:"resources,omitempty"`
}

// An argoResourceOf is what became of one resource in a sync.
type argoResourceOf struct {
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Status    string `json:"status,omitempty"`
	Message   string `json:"message,omitempty"`
	HookType  string `json:"hookType,omitempty"`
	HookPhase string `json:"hookPhase,omitempty"`
	SyncPhase string `json:"syncPhase,omitempty"`
}

// fieldOf reads a field of an object into a value; nil where it is not set.
func fieldOf[T any](object *unstructured.Unstructured, path ...string) (*T, error) {
	field, found, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil || !found || field == nil {
		return nil, err
	}
	text, err := json.Marshal(field)
	if err != nil {
		return nil, err
	}
	value := new(T)
	return value, json.Unmarshal(text, value)
}

// argoNow is the time as Argo CD writes it, to the second.
func argoNow() string { return time.Now().UTC().Format(time.RFC3339) }
