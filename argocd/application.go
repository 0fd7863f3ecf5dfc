package argocd

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// skipReconcile is the annotation that makes the controller pass over an Application where strconv.ParseBool takes
// its value for true (3.2.11, canProcessApp).
const skipReconcile = "argocd.argoproj.io/skip-reconcile"

// application is what an Application shows, as far as this package reads it.
type application struct {
	read            *unstructured.Unstructured
	name            types.NamespacedName
	uid             types.UID
	resourceVersion string
	deleting        bool
	skipped         bool

	source   source
	multiple bool
	hydrated bool
	policy   policy

	// operation is .operation, what the controller is asked to do; state is .status.operationState, what it does or did.
	operation *operation
	state     *state
}

// source is spec.source.
type source struct {
	present        bool
	repository     string
	targetRevision string
	chart          string
}

// policy is what of spec.syncPolicy automated sync would take into an operation.
type policy struct {
	automated bool
	prune     bool
	options   []any
	retry     map[string]any
}

// operation is an operation, asked for or carried out.
type operation struct {
	token     string
	initiator string
	revision  string
	// partial says what makes it another thing than a full sync of the revision, if anything does.
	partial string
}

// state is a status.operationState.
type state struct {
	// raw is the record as read.
	raw       map[string]any
	operation operation
	phase     string
	message   string
	startedAt string
	// synced is syncResult.revision; empty where there is none, as for several sources.
	synced   string
	unpruned []string
	// refused are the resources that could not be synced, and the hooks that failed.
	refused []refusal
}

// refusal is what is said of a resource that failed.
type refusal struct{ resource, message string }

func parseApplication(u *unstructured.Unstructured, infoKey string) (application, error) {
	f := applier.FieldsOf(u)
	skipped, _ := strconv.ParseBool(u.GetAnnotations()[skipReconcile])
	app := application{
		read:            u,
		name:            types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()},
		uid:             u.GetUID(),
		resourceVersion: u.GetResourceVersion(),
		deleting:        u.GetDeletionTimestamp() != nil,
		skipped:         skipped,
		source: source{
			present:        f.Has("spec", "source"),
			repository:     applier.Field[string](f, "spec", "source", "repoURL"),
			targetRevision: applier.Field[string](f, "spec", "source", "targetRevision"),
			chart:          applier.Field[string](f, "spec", "source", "chart"),
		},
		multiple: len(applier.Field[[]any](f, "spec", "sources")) > 0,
		hydrated: f.Has("spec", "sourceHydrator"),
		policy: policy{
			// Any object without enabled: false is on (3.2.11 and 3.6, IsAutomatedSyncEnabled).
			automated: f.Has("spec", "syncPolicy", "automated") &&
				(!f.Has("spec", "syncPolicy", "automated", "enabled") || applier.Field[bool](f, "spec", "syncPolicy", "automated", "enabled")),
			prune:   applier.Field[bool](f, "spec", "syncPolicy", "automated", "prune"),
			options: applier.Field[[]any](f, "spec", "syncPolicy", "syncOptions"),
			retry:   applier.Field[map[string]any](f, "spec", "syncPolicy", "retry"),
		},
	}
	if f.Has("operation") {
		asked := parseOperation(f, infoKey, "operation")
		app.operation = &asked
	}
	if f.Has("status", "operationState") {
		app.state = parseState(f, infoKey)
	}
	return app, f.Err()
}

// at returns a path below another.
func at(path []string, names ...string) []string {
	return append(append([]string{}, path...), names...)
}

func parseOperation(f *applier.Fields, infoKey string, path ...string) operation {
	o := operation{
		initiator: applier.Field[string](f, at(path, "initiatedBy", "username")...),
		revision:  applier.Field[string](f, at(path, "sync", "revision")...),
	}
	if o.initiator == "" && applier.Field[bool](f, at(path, "initiatedBy", "automated")...) {
		o.initiator = "automated sync"
	}
	for _, entry := range f.Each(at(path, "info")...) {
		if applier.Field[string](entry, "name") == infoKey {
			o.token = applier.Field[string](entry, "value")
		}
	}
	switch {
	case applier.Field[bool](f, at(path, "sync", "dryRun")...):
		o.partial = "a dry run"
	case len(applier.Field[[]any](f, at(path, "sync", "resources")...)) > 0:
		o.partial = "a sync of selected resources"
	case len(applier.Field[[]any](f, at(path, "sync", "manifests")...)) > 0:
		o.partial = "a sync of local manifests"
	}
	return o
}

// describe says what kind of sync it is.
func (o operation) describe() string {
	switch {
	case o.partial != "":
		return o.partial
	case o.revision == "":
		return "a sync of no named revision"
	default:
		return "a sync of " + gitref.Short(o.revision)
	}
}

func parseState(f *applier.Fields, infoKey string) *state {
	path := []string{"status", "operationState"}
	s := &state{
		raw:       applier.Field[map[string]any](f, path...),
		operation: parseOperation(f, infoKey, at(path, "operation")...),
		phase:     applier.Field[string](f, at(path, "phase")...),
		message:   applier.Field[string](f, at(path, "message")...),
		startedAt: applier.Field[string](f, at(path, "startedAt")...),
		synced:    applier.Field[string](f, at(path, "syncResult", "revision")...),
	}
	for _, resource := range f.Each(at(path, "syncResult", "resources")...) {
		named := fmt.Sprintf("%s %s", applier.Field[string](resource, "kind"),
			types.NamespacedName{Namespace: applier.Field[string](resource, "namespace"), Name: applier.Field[string](resource, "name")})
		status, hookPhase := applier.Field[string](resource, "status"), applier.Field[string](resource, "hookPhase")
		switch {
		case status == "PruneSkipped":
			s.unpruned = append(s.unpruned, named)
		case status == "SyncFailed" || hookPhase == phaseFailed || hookPhase == phaseError:
			s.refused = append(s.refused, refusal{named, applier.Field[string](resource, "message")})
		}
	}
	return s
}

// maxRefused is how many resources that failed are named, and maxRefusal how much is said of each.
const (
	maxRefused = 3
	maxRefusal = 300
)

// explained is the message of a failure and the first resources that failed: often it says that some did, and not which.
func (s *state) explained() string {
	parts := make([]string, 0, maxRefused+1)
	for i, r := range s.refused {
		if i == maxRefused {
			parts = append(parts, fmt.Sprintf("and %d more", len(s.refused)-i))
			break
		}
		message := r.message
		if len(message) > maxRefusal {
			message = strings.ToValidUTF8(message[:maxRefusal], "") + "…"
		}
		if message == "" || strings.Contains(s.message, message) {
			parts = append(parts, r.resource)
		} else {
			parts = append(parts, r.resource+": "+message)
		}
	}
	if len(parts) == 0 {
		return s.message
	}
	return s.message + "; failed: " + strings.Join(parts, "; ")
}

// The phases of an operation that are final; Running and Terminating are not.
const (
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"
	phaseError     = "Error"
)

// completed reports whether the phase is final. A finishedAt is no sign of it: an operation that waits for its own
// retry has one, and is Running (3.2.11).
func (s *state) completed() bool {
	return s.phase == phaseSucceeded || s.phase == phaseFailed || s.phase == phaseError
}

// identity tells an operation's record from that of any other: nothing of it changes while the operation goes on.
func (s *state) identity() string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s/%s", s.startedAt, s.operation.token, s.operation.initiator, s.operation.revision)
}
