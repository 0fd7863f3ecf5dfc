package argocd

import (
	"fmt"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// The words of status.health that do not stand for themselves.
const (
	healthHealthy     = "Healthy"
	healthProgressing = "Progressing"
	healthDegraded    = "Degraded"
	healthSuspended   = "Suspended"
	healthMissing     = "Missing"
)

// outOfSync is the word of status.sync, and of each resource, for what is not as the followed revision has it.
const outOfSync = "OutOfSync"

// readinessOfApplication says how an Application is doing: an operation that was asked for or goes on, a failure, and
// else its health. An operation is removed in the write that ends it, so while it is there the failure of the one before
// is no longer the last word.
func readinessOfApplication(f *applier.Fields, o *gitopsprovider.Object) gitopsprovider.Condition {
	state := parseState(f, "")
	condition := gitopsprovider.Condition{Reason: state.phase, Message: state.message, Since: gitopsprovider.ParseTime(state.startedAt)}
	switch failing, found := failingCondition(f); {
	case f.Has("operation") && (state.phase == "" || state.completed()):
		return gitopsprovider.Condition{State: gitopsprovider.StateProgressing, Reason: "Requested", Message: "a sync was asked for"}
	case state.phase != "" && !state.completed():
		condition.State = gitopsprovider.StateProgressing
		return condition
	case state.failed():
		condition.State = gitopsprovider.StateFailing
		return condition
	case found:
		return failing
	}
	condition = health(f, state)
	if condition.State != gitopsprovider.StateFailing && o.Suspended {
		condition.State = gitopsprovider.StateSuspended
	}
	return condition
}

// isDryRun reports whether the operation changes nothing in the cluster.
func (s *state) isDryRun() bool { return s.operation.partial == "a dry run" }

// failed reports whether the operation was to change something and did not get through.
func (s *state) failed() bool {
	return (s.phase == phaseFailed || s.phase == phaseError) && !s.isDryRun()
}

// failingCondition returns a condition that is an error. All that are end in that word; warnings and notices end in others
// (3.2.11, ApplicationConditionType).
func failingCondition(f *applier.Fields) (gitopsprovider.Condition, bool) {
	for _, entry := range f.Each("status", "conditions") {
		if kind := applier.Field[string](entry, "type"); strings.HasSuffix(kind, "Error") {
			return gitopsprovider.Condition{
				State: gitopsprovider.StateFailing, Reason: kind, Message: applier.Field[string](entry, "message"),
				Since: gitopsprovider.ParseTime(applier.Field[string](entry, "lastTransitionTime")),
			}, true
		}
	}
	return gitopsprovider.Condition{}, false
}

// health reads status.health, which is that of before a sync until the Application is compared again. Before anything
// was synced it says little: Healthy, where the objects are of kinds that have no health, or Missing (3.2.11). Missing is
// no failure: it is said of what the followed revision has and nobody synced yet.
//
// The record of a dry run stands in the place of the last sync's, which may have failed. That one is over only if the
// Application is Synced.
func health(f *applier.Fields, state *state) gitopsprovider.Condition {
	status := applier.Field[string](f, "status", "health", "status")
	condition := gitopsprovider.Condition{
		Reason: status, Message: applier.Field[string](f, "status", "health", "message"),
		Since: gitopsprovider.ParseTime(applier.Field[string](f, "status", "health", "lastTransitionTime")),
	}
	behind := applier.Field[string](f, "status", "sync", "status") == outOfSync
	var finished time.Time
	if !state.isDryRun() {
		finished = gitopsprovider.ParseTime(applier.Field[string](f, "status", "operationState", "finishedAt"))
	}
	judged := gitopsprovider.ParseTime(applier.Field[string](f, "status", "reconciledAt"))
	switch {
	case len(applier.Field[[]any](f, "status", "history")) == 0 && (status == healthHealthy || status == healthMissing) && behind:
		condition.Reason, condition.Message = "NeverSynced", "nothing was synced yet"
	case status != "" && judged.Before(finished):
		condition.Reason = "NotJudged"
		condition.Message = fmt.Sprintf("health was not judged since the sync that ended at %s; before it, it was %s",
			finished.UTC().Format(time.RFC3339), status)
	case status == healthProgressing:
		condition.State = gitopsprovider.StateProgressing
	case status == healthDegraded:
		condition.State = gitopsprovider.StateFailing
	case state.isDryRun() && behind:
		condition.Reason = "DryRun"
		condition.Message = "the last operation was a dry run, so that how the sync before it ended is not known; health is " + status
	case status == healthHealthy:
		condition.State = gitopsprovider.StateReady
	case status == healthSuspended:
		condition.State = gitopsprovider.StateSuspended
	}
	return condition
}

// readinessOfSet reads the conditions of an ApplicationSet: ErrorOccurred is its failure, ResourcesUpToDate its success
// (3.2.11, ApplicationSetConditionType).
func readinessOfSet(f *applier.Fields) gitopsprovider.Condition {
	var result gitopsprovider.Condition
	for _, entry := range f.Each("status", "conditions") {
		kind, is := applier.Field[string](entry, "type"), applier.Field[string](entry, "status") == "True"
		condition := gitopsprovider.Condition{
			Reason: applier.Field[string](entry, "reason"), Message: applier.Field[string](entry, "message"),
			Since: gitopsprovider.ParseTime(applier.Field[string](entry, "lastTransitionTime")),
		}
		switch {
		case kind == "ErrorOccurred" && is:
			condition.State = gitopsprovider.StateFailing
			return condition
		case kind == "RolloutProgressing" && is:
			condition.State = gitopsprovider.StateProgressing
			result = condition
		case kind == "ResourcesUpToDate" && is && result.State == gitopsprovider.StateUnknown:
			condition.State = gitopsprovider.StateReady
			result = condition
		}
	}
	return result
}
