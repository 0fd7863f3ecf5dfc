package applier_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func TestAHostComparesAStatusAsAnyOtherOfTheKubernetesAPI(t *testing.T) {
	t.Parallel()
	full := func() *applier.TriggerStatus {
		operation := operationAt("t1", applier.StateSucceeded)
		operation.Started.RequestedAt = metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
		operation.CompletedAt = metav1.NewMicroTime(operation.Started.RequestedAt.Add(time.Minute))
		return &applier.TriggerStatus{Operation: operation, Source: &applier.TriggerSource{}}
	}
	assert.True(t, equality.Semantic.DeepEqual(full(), full()))
	for what, change := range map[string]func(*applier.TriggerStatus){
		"requested": func(s *applier.TriggerStatus) { s.Operation.Started.RequestedAt = metav1.NowMicro() },
		"completed": func(s *applier.TriggerStatus) { s.Operation.CompletedAt = metav1.MicroTime{} },
		"state":     func(s *applier.TriggerStatus) { s.Operation.Progress.State = applier.StateFailed },
		"source":    func(s *applier.TriggerStatus) { s.Source.Prefetch = true },
	} {
		changed := full()
		change(changed)
		assert.False(t, equality.Semantic.DeepEqual(full(), changed), what)
	}
}

func TestOnlyAnOperationThatEndedIsCompleted(t *testing.T) {
	t.Parallel()
	var none *applier.Operation
	assert.False(t, none.Completed())
	assert.False(t, operationAt("t1", applier.StateSettling).Completed())
	assert.True(t, operationAt("t1", applier.StateFailed).Completed())
}
