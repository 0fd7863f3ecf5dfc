package applier_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestARecordOfAnOperationIsRecoveredAndHoldsNothingOfTheProcess(t *testing.T) {
	t.Parallel()
	started := applier.Started{
		Outcome: applier.OutcomeResumed, Token: "t", Commit: "c", UID: "u", Baseline: "b", SuspendToken: "s",
		RequestedAt: metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)),
		Overdue:     true, Unconfirmed: errors.New("lost"), Observed: &unstructured.Unstructured{Object: map[string]any{"kind": "Secret"}},
	}
	record, err := json.Marshal(started)
	require.NoError(t, err)
	assert.JSONEq(t, `{"outcome": "Resumed", "token": "t", "commit": "c", "uid": "u", "baseline": "b", "suspendToken": "s",
		"requestedAt": "2026-01-02T03:04:05.000006Z"}`, string(record))

	var read applier.Started
	require.NoError(t, json.Unmarshal(record, &read))
	started.RequestedAt.Time = started.RequestedAt.Local()
	started.Recovered, started.Overdue, started.Unconfirmed, started.Observed = true, false, nil, nil
	assert.Equal(t, started, read)
}

func TestARecordThatIsNoneIsAnError(t *testing.T) {
	t.Parallel()
	var read applier.Started
	assert.ErrorContains(t, json.Unmarshal([]byte(`{"outcome": 1}`), &read), "the record of an operation")
}

func TestWhatSaysNothingOfTheCommitMayBeAskedAgain(t *testing.T) {
	t.Parallel()
	for reason, again := range map[string]bool{
		applier.ReasonNotRun: true, applier.ReasonInterrupted: true, applier.ReasonAttemptedOther: true, applier.ReasonSwallowed: true,
		applier.ReasonSuperseded: true, applier.ReasonHealthCheckCanceled: true,
		"DependencyNotReady": true, "ArtifactFailed": true,
		"BuildFailed": false, applier.ReasonPathNotFound: false, applier.ReasonGone: false, applier.ReasonReplaced: false, applier.ReasonDeleting: false,
	} {
		assert.Equal(t, again, applier.Progress{State: applier.StateFailed, Reason: reason}.AskAgain(), reason)
	}
	assert.False(t, applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonAppliedOther}.AskAgain())
}
