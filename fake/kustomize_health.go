package fake

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Health is how an object stands, in the words of kstatus, which Flux judges health by.
type Health string

// The states of health. A Kustomization waits for those in progress, and gives up at once where all others are current
// and at least one failed.
const (
	HealthCurrent     Health = "Current"
	HealthInProgress  Health = "InProgress"
	HealthFailed      Health = "Failed"
	HealthTerminating Health = "Terminating"
	HealthNotFound    Health = "NotFound"
)

// HealthOf is the health of an object by what its metadata and conditions say: an object is in progress while its
// status.observedGeneration lags behind or it is Reconciling or not Ready, and failed while it is Stalled. It knows no kinds: a
// Deployment, which nobody rolls out in a Cluster, is current.
func HealthOf(object *unstructured.Unstructured) Health {
	observed, found, _ := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	c := conditionsOf(object)
	ready, hasReady := c.get(fluxmeta.ReadyCondition)
	switch {
	case object.GetDeletionTimestamp() != nil:
		return HealthTerminating
	case found && observed != object.GetGeneration():
		return HealthInProgress
	case c.is(fluxmeta.StalledCondition, metav1.ConditionTrue):
		return HealthFailed
	case c.reconciling(), hasReady && ready.Status != metav1.ConditionTrue:
		return HealthInProgress
	default:
		return HealthCurrent
	}
}

// healthPoll is how often the objects are looked at.
const healthPoll = 5 * time.Second

// checkHealth waits for the health of what spec.wait or spec.healthChecks name. Drifted says that the run has changed something. Neither a suspend nor a newer revision cancels it.
func (r *run) checkHealth(ctx context.Context, applied inventory, drifted bool) error {
	objects := r.toCheck(applied)
	if len(objects) == 0 {
		r.ks.conditions.remove(fluxmeta.HealthyCondition)
		return nil
	}
	wasHealthy := r.ks.conditions.is(fluxmeta.HealthyCondition, metav1.ConditionTrue)
	message := fmt.Sprintf("Running health checks for revision %s with a timeout of %s", r.revision, r.ks.timeout())
	r.ks.markReconciling(fluxmeta.ProgressingReason, "%s", message)
	r.ks.mark(fluxmeta.HealthyCondition, metav1.ConditionUnknown, fluxmeta.ProgressingReason, "%s", message)
	if err := r.ks.patch(ctx); err != nil {
		return fmt.Errorf("unable to update the healthy status to progressing: %w", err)
	}
	began := time.Now()
	if err := r.awaitHealth(ctx, objects); err != nil {
		r.ks.mark(fluxmeta.HealthyCondition, metav1.ConditionFalse, fluxmeta.HealthCheckFailedReason, "%s", err)
		return fmt.Errorf("health check failed after %s: %w", time.Since(began), err)
	}
	message = fmt.Sprintf("Health check passed in %s", r.events.took(began))
	if isNew := r.ks.status["lastAppliedRevision"] != r.revision; !wasHealthy || isNew && drifted {
		r.event(ctx, r.ks, r.revision, corev1.EventTypeNormal, message)
	}
	r.ks.mark(fluxmeta.HealthyCondition, metav1.ConditionTrue, fluxmeta.SucceededReason, "%s", message)
	return r.ks.patch(ctx)
}

// toCheck are the objects to wait for.
func (r *run) toCheck(applied inventory) inventory {
	if spec[bool](r.ks, "wait") {
		return applied
	}
	var objects inventory
	for _, entry := range spec[[]any](r.ks, "healthChecks") {
		fields, _ := entry.(map[string]any)
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": fields["apiVersion"], "kind": fields["kind"], "metadata": fields}}
		if object.GetAPIVersion() == "" {
			object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: object.GetKind()})
		}
		if e := entryOf(object); e.kind != "Kustomization" || nameOf(object) != r.ks.name() {
			objects = append(objects, e)
		}
	}
	return objects
}

// awaitHealth looks at the objects until all are current, or it gives up.
func (r *run) awaitHealth(ctx context.Context, objects inventory) error {
	deadline, cancel := context.WithTimeout(ctx, r.ks.timeout())
	defer cancel()
	switch err := r.flux.faults.step(deadline, HealthStep, r.ks.name()); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return r.unhealthy("timeout waiting for", objects, func(inventoryEntry) Health { return HealthInProgress })
	case err != nil:
		return err
	}
	for {
		health := map[string]Health{}
		waits, failed := false, false
		for _, object := range objects {
			h := r.healthOf(ctx, object)
			health[object.id()] = h
			waits = waits || h != HealthCurrent && h != HealthFailed
			failed = failed || h == HealthFailed
		}
		of := func(e inventoryEntry) Health { return health[e.id()] }
		switch {
		case !waits && !failed:
			return nil
		case !waits:
			return r.unhealthy("failed early due to stalled resources", objects, of)
		}
		if !pauseFor(deadline, healthPoll) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return r.unhealthy("timeout waiting for", objects, of)
		}
	}
}

func (r *run) healthOf(ctx context.Context, entry inventoryEntry) Health {
	resource, err := r.resourceOf(entry.object())
	if err != nil {
		return HealthNotFound
	}
	object, err := resource.Get(ctx, entry.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return HealthNotFound
	case err != nil:
		return HealthInProgress
	default:
		return r.flux.options.Health(object)
	}
}

// unhealthy is the error that lists what is not current.
func (r *run) unhealthy(what string, objects inventory, of func(inventoryEntry) Health) error {
	var list []string
	for _, object := range objects {
		if h := of(object); h != HealthCurrent {
			list = append(list, fmt.Sprintf("%s status: '%s'", object.subject(), h))
		}
	}
	return fmt.Errorf("%s: [%s]", what, strings.Join(list, ", "))
}
