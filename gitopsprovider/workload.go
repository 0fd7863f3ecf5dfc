package gitopsprovider

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Engine names a GitOps engine, such as "Flux". Each Reader has its own.
type Engine string

// Workload names one object of a cluster. It is comparable.
type Workload struct {
	// Group is the API group, empty for the core group. It may be left empty for a kind that a Reader knows.
	Group string `json:"group,omitempty"`
	// Kind may be written in any case for a kind that a Reader knows.
	Kind string `json:"kind"`
	// Namespace is empty for an object of the cluster as a whole.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// GroupKind returns the kind of w.
func (w Workload) GroupKind() schema.GroupKind { return schema.GroupKind{Group: w.Group, Kind: w.Kind} }

// IsZero reports whether w names nothing.
func (w Workload) IsZero() bool { return w == Workload{} }

// String names w in a message: "Kustomization team-a/shop".
func (w Workload) String() string {
	if w.Namespace == "" {
		return w.Kind + " " + w.Name
	}
	return w.Kind + " " + w.Namespace + "/" + w.Name
}

// compareWorkloads orders workloads by kind, namespace, name and group.
func compareWorkloads(a, b Workload) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.Group, b.Group))
}

// Selector chooses appliers. An empty field matches any; the zero value matches all.
type Selector struct {
	// Namespace is the applier's own, or the one that it deploys into.
	Namespace string
	// Kind and Name are the applier's own. Kind may be written in any case.
	Kind, Name string
}

func (s Selector) matches(o Object) bool {
	return (s.Namespace == "" || s.Namespace == o.Namespace || s.Namespace == o.TargetNamespace) &&
		(s.Kind == "" || strings.EqualFold(s.Kind, o.Kind)) && (s.Name == "" || s.Name == o.Name)
}

// TimeWindow is a span of time, both ends included. Since has to be set for it to be one: the zero value asks for
// what stands now.
type TimeWindow struct {
	Since time.Time
	// Until is the end. Zero is none. What was deployed after it is not told.
	Until time.Time
	// Limit is the largest number of changes to return. Zero is DefaultLimit with a Since, and no bound without.
	Limit int
}

// DefaultLimit bounds the changes of a window that sets no Limit.
const DefaultLimit = 500

// validate refuses what is no span of time.
func (w TimeWindow) validate() error {
	switch {
	case w.Since.IsZero() && !w.Until.IsZero():
		return errors.New("a window that ends has to begin: set TimeWindow.Since")
	case !w.Until.IsZero() && w.Until.Before(w.Since):
		return fmt.Errorf("the window ends at %s, before it begins at %s", w.Until.Format(time.RFC3339), w.Since.Format(time.RFC3339))
	case w.Limit < 0:
		return fmt.Errorf("the limit %d is negative", w.Limit)
	}
	return nil
}

func (w TimeWindow) isSet() bool { return !w.Since.IsZero() }

func (w TimeWindow) contains(t time.Time) bool {
	return !t.IsZero() && !t.Before(w.Since) && (w.Until.IsZero() || !t.After(w.Until))
}

func (w TimeWindow) limit() int {
	if w.Limit == 0 && w.isSet() {
		return DefaultLimit
	}
	return w.Limit
}
