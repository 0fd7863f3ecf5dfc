package applier_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestADeepCopyOfAStatusSharesNothingWithIt(t *testing.T) {
	t.Parallel()
	full := func() *applier.TriggerStatus {
		operation := operationAt("t1", applier.StateRunning)
		operation.Targets = []applier.TargetRef{{Namespace: "team-a", Name: "shop"}}
		operation.Started.Observed = &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": true}}}
		return &applier.TriggerStatus{
			Operation: operation, RepairPending: true, Held: true,
			Source: &applier.TriggerSource{Source: applier.Source{Revision: "main"}, Prefetch: true},
		}
	}
	status := full()
	copied := status.DeepCopy()
	assert.Equal(t, full(), copied)

	status.Operation.Targets[0].Name = "other"
	status.Operation.Started.Observed.Object["spec"].(map[string]any)["suspend"] = false
	status.Operation.Progress.State = applier.StateFailed
	status.Source.Revision = "release"
	assert.Equal(t, full(), copied)

	assert.Nil(t, (*applier.TriggerStatus)(nil).DeepCopy())
	assert.Equal(t, &applier.TriggerStatus{}, new(applier.TriggerStatus).DeepCopy())
}

func TestOnlyAnOperationThatEndedIsCompleted(t *testing.T) {
	t.Parallel()
	var none *applier.Operation
	assert.False(t, none.Completed())
	assert.False(t, operationAt("t1", applier.StateSettling).Completed())
	assert.True(t, operationAt("t1", applier.StateFailed).Completed())
}
