package applier_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Hosts show them as condition reasons and in Events, and keep them in records that the next version reads.
func TestTheWordsThatHostsShowAndKeepAreStable(t *testing.T) {
	t.Parallel()
	for stable, word := range map[string]string{
		"ApplyRequested":     applier.EventReasonApplyRequested,
		"ApplyRequestFailed": applier.EventReasonApplyRequestFailed,
		"ApplyFailed":        applier.EventReasonApplyFailed,
		"ApplyUnresolved":    applier.EventReasonApplyUnresolved,

		"Succeeded":             applier.ReasonSucceeded,
		"ApplierNotFound":       applier.ReasonApplierNotFound,
		"UnsupportedSource":     applier.ReasonUnsupportedSource,
		"SourceMismatch":        applier.ReasonSourceMismatch,
		"AutomatedSyncEnabled":  applier.ReasonAutomatedSyncEnabled,
		"SuspendOwnedElsewhere": applier.ReasonSuspendOwnedElsewhere,
		"ReconcileSkipped":      applier.ReasonReconcileSkipped,
		"Forbidden":             applier.ReasonForbidden,
		"Failed":                applier.ReasonCheckFailed,
		"NotReferenced":         applier.ReasonNotReferenced,
		"NotBound":              applier.ReasonNotBound,
		"HeldByAnotherTrigger":  applier.ReasonHeldByAnotherTrigger,

		"Current":             applier.ReasonCurrent,
		"AppliedOther":        applier.ReasonAppliedOther,
		"AttemptedOther":      applier.ReasonAttemptedOther,
		"PathNotFound":        applier.ReasonPathNotFound,
		"NotRun":              applier.ReasonNotRun,
		"Interrupted":         applier.ReasonInterrupted,
		"Swallowed":           applier.ReasonSwallowed,
		"Superseded":          applier.ReasonSuperseded,
		"Gone":                applier.ReasonGone,
		"Replaced":            applier.ReasonReplaced,
		"Deleting":            applier.ReasonDeleting,
		"HealthCheckCanceled": applier.ReasonHealthCheckCanceled,

		"Commit":        string(applier.Commit),
		"ForeignCommit": string(applier.ForeignCommit),
		"CatchUp":       string(applier.CatchUp),
		"Refusal":       string(applier.Refusal),
		"Repair":        string(applier.Repair),

		"Requested": string(applier.StateRequested),
		"Running":   string(applier.StateRunning),
		"Settling":  string(applier.StateSettling),

		"Resumed":       string(applier.OutcomeResumed),
		"Stamped":       string(applier.OutcomeStamped),
		"SyncRequested": string(applier.OutcomeSyncRequested),
	} {
		assert.Equal(t, stable, word)
	}
	assert.Equal(t, []string{"Succeeded", "Failed", "Current"},
		[]string{string(applier.StateSucceeded), string(applier.StateFailed), string(applier.OutcomeCurrent)}, "words that stand for two things")
}
