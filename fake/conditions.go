package fake

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// conditions are an object's status.conditions, kept as fluxcd/pkg/runtime/conditions v0.110 keeps them.
type conditions []metav1.Condition

func conditionsOf(u *unstructured.Unstructured) conditions {
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	var out conditions
	for _, entry := range entries {
		fields, ok := entry.(map[string]any)
		var c metav1.Condition
		if ok && runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) == nil {
			out = append(out, c)
		}
	}
	return out
}

// plain is the form that an object holds.
func (c conditions) plain() []any {
	out := make([]any, 0, len(c))
	for _, condition := range c {
		fields := map[string]any{
			"type": condition.Type, "status": string(condition.Status), "reason": condition.Reason, "message": condition.Message,
			"lastTransitionTime": condition.LastTransitionTime.UTC().Format(time.RFC3339),
		}
		if condition.ObservedGeneration != 0 {
			fields["observedGeneration"] = condition.ObservedGeneration
		}
		out = append(out, fields)
	}
	return out
}

func (c conditions) get(kind string) (metav1.Condition, bool) {
	for _, condition := range c {
		if condition.Type == kind {
			return condition, true
		}
	}
	return metav1.Condition{}, false
}

func (c conditions) is(kind string, status metav1.ConditionStatus) bool {
	condition, ok := c.get(kind)
	return ok && condition.Status == status
}

func (c conditions) has(kind string) bool {
	_, ok := c.get(kind)
	return ok
}

// ready is what conditions.IsReady says.
func (c conditions) ready() bool {
	return !c.is(fluxmeta.StalledCondition, metav1.ConditionTrue) && !c.reconciling() && c.is(fluxmeta.ReadyCondition, metav1.ConditionTrue)
}

func (c conditions) reconciling() bool {
	return c.is(fluxmeta.ReconcilingCondition, metav1.ConditionTrue)
}

// set sets a condition under a generation. The transition time stays as long as status, reason and message do, and the
// generation is always taken over.
func (c *conditions) set(generation int64, condition metav1.Condition) {
	condition.ObservedGeneration = generation
	i := slices.IndexFunc(*c, func(had metav1.Condition) bool { return had.Type == condition.Type })
	switch {
	case i < 0:
		if condition.LastTransitionTime.IsZero() {
			condition.LastTransitionTime = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		}
		*c = append(*c, condition)
	default:
		had := (*c)[i]
		condition.LastTransitionTime = had.LastTransitionTime
		if had.Status != condition.Status || had.Reason != condition.Reason || had.Message != condition.Message {
			condition.LastTransitionTime = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		}
		(*c)[i] = condition
	}
	slices.SortStableFunc(*c, compareConditions)
}

func (c *conditions) mark(generation int64, kind string, status metav1.ConditionStatus, reason, format string, args ...any) {
	c.set(generation, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (c *conditions) remove(kind string) {
	*c = slices.DeleteFunc(slices.Clone(*c), func(condition metav1.Condition) bool { return condition.Type == kind })
}

// compareConditions puts Stalled, Reconciling and Ready first, and then what was observed at the highest generation.
func compareConditions(a, b metav1.Condition) int {
	weight := func(c metav1.Condition) int {
		if i := slices.Index([]string{fluxmeta.StalledCondition, fluxmeta.ReconcilingCondition, fluxmeta.ReadyCondition}, c.Type); i >= 0 {
			return i
		}
		return 3
	}
	if w := cmp.Compare(weight(a), weight(b)); w != 0 || weight(a) < 3 {
		return w
	}
	return cmp.Or(cmp.Compare(b.ObservedGeneration, a.ObservedGeneration), cmp.Compare(a.Type, b.Type))
}

// changed lists the conditions that are not as before, and the types of those that are gone.
func (c conditions) changed(before conditions) (set []metav1.Condition, gone []string) {
	for _, condition := range c {
		if had, ok := before.get(condition.Type); !ok || !reflect.DeepEqual(had, condition) {
			set = append(set, condition)
		}
	}
	for _, had := range before {
		if !c.has(had.Type) {
			gone = append(gone, had.Type)
		}
	}
	return set, gone
}
