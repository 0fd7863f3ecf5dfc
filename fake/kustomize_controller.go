package fake

import (
	"context"
	"errors"
	"fmt"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

const (
	kustomizeManager       = "kustomize-controller"
	kustomizeStatusManager = "gotk-kustomize-controller"
	kustomizeGroup         = "kustomize.toolkit.fluxcd.io"
)

// A kustomizeController is kustomize-controller.
type kustomizeController struct {
	flux *Flux
	identity
	events *recorder
}

func (c *kustomizeController) run(ctx context.Context) {
	c.events = newRecorder(c.flux.cluster.events, kustomizeManager)
	q := newQueue(minRetryDelay, maxRetryDelay)
	kustomizations := newMirror(c.client.Resource(kustomizationResource), func(old, current *unstructured.Unstructured) {
		if triggers(old, current) {
			q.add(nameOf(either(current, old)), 0)
		}
	})
	sources := newMirror(c.client.Resource(gitRepositoryResource), func(old, current *unstructured.Unstructured) {
		source := either(current, old)
		if !newRevision(old, current) {
			return
		}
		for _, ks := range kustomizations.list() {
			if sourceOf(ks) == nameOf(source) && !concerns(ks, revisionOf(source)) {
				q.add(nameOf(ks), 0)
			}
		}
	})
	(&work{queue: q, mirrors: []*mirror{kustomizations, sources}, workers: c.flux.options.Workers, reconcile: c.reconcile}).run(ctx)
}

// newRevision reports whether a change of a source is one that its Kustomizations are reconciled for.
func newRevision(old, current *unstructured.Unstructured) bool {
	revision := revisionOf(either(current, old))
	return revision != "" && (old == nil || current == nil || revisionOf(old) != revision)
}

func revisionOf(source *unstructured.Unstructured) string {
	revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "revision")
	return revision
}

// concerns reports whether a Kustomization is at a revision already, or on its way to it.
func concerns(ks *unstructured.Unstructured, revision string) bool {
	attempted, _, _ := unstructured.NestedString(ks.Object, "status", "lastAttemptedRevision")
	c := conditionsOf(ks)
	return (c.ready() || c.reconciling()) && attempted == revision
}

// sourceOf is the GitRepository that a Kustomization applies, if it applies one.
func sourceOf(ks *unstructured.Unstructured) types.NamespacedName {
	ref, _, _ := unstructured.NestedStringMap(ks.Object, "spec", "sourceRef")
	if ref["kind"] != "GitRepository" {
		return types.NamespacedName{}
	}
	if ref["namespace"] == "" {
		return namespaced(ks.GetNamespace(), ref["name"])
	}
	return namespaced(ref["namespace"], ref["name"])
}

func (c *kustomizeController) reconcile(ctx context.Context, name types.NamespacedName) (next, error) {
	defer c.view.ResetRequests()
	resource := c.client.Resource(kustomizationResource).Namespace(name.Namespace)
	object, err := resource.Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return next{}, ignoreNotFound(err)
	}
	ks := newManaged(resource, kustomizeStatusManager, object)
	began := time.Now()
	again, failed := c.decide(ctx, ks)
	finishKustomization(ks)
	if err := ks.patch(ctx); err != nil && (!ks.deleting() || !apierrors.IsNotFound(err)) {
		failed = errors.Join(failed, err)
	}
	if ks.conditions.ready() && !spec[bool](ks, "suspend") {
		c.finished(ctx, ks, c.events.took(began))
	}
	return again, failed
}

// finishKustomization makes the status ready for the last write of a reconcile, however it ended.
func finishKustomization(ks *managed) {
	ks.handleRequest()
	if ks.conditions.is(fluxmeta.ReadyCondition, metav1.ConditionTrue) {
		ks.conditions.remove(fluxmeta.ReconcilingCondition)
		ks.status["observedGeneration"] = ks.generation()
	}
	if reconciling, ok := ks.conditions.get(fluxmeta.ReconcilingCondition); ok && ks.conditions.is(fluxmeta.ReadyCondition, metav1.ConditionFalse) {
		reconciling.Reason = fluxmeta.ProgressingWithRetryReason
		ks.conditions.set(ks.generation(), reconciling)
	}
}

// decide reconciles ks as far as it is to be, and says when again. An error is retried with backoff.
func (c *kustomizeController) decide(ctx context.Context, ks *managed) (next, error) {
	switch {
	case ks.deleting():
		return next{}, c.finalize(ctx, ks)
	case !contains(ks.finalizers, sourceFinalizer):
		ks.finalizers = append(ks.finalizers, sourceFinalizer)
		return next{added: true, after: c.flux.options.FirstReconcileDelay}, nil
	case spec[bool](ks, "suspend"):
		return next{}, nil
	}
	interval := ks.duration(0, "interval")
	retry := next{after: ks.duration(interval, "retryInterval")}

	source, err := c.source(ctx, ks)
	if err != nil {
		ks.fail(fluxmeta.ArtifactFailedReason, "%s", err)
		if apierrors.IsNotFound(err) {
			return retry, nil
		}
		return next{}, err
	}
	if revisionOf(source) == "" {
		ks.fail(fluxmeta.ArtifactFailedReason, "Source artifact not found, retrying in %s", dependencyRequeue)
		return next{after: dependencyRequeue}, nil
	}
	if err := c.checkDependencies(ctx, ks, revisionOf(source)); err != nil {
		ks.fail(fluxmeta.DependencyNotReadyReason, "%s", err)
		c.event(ctx, ks, revisionOf(source), corev1.EventTypeNormal, fmt.Sprintf("Dependencies do not meet ready condition, retrying in %s", dependencyRequeue))
		return next{after: dependencyRequeue}, nil
	}
	switch err := c.apply(ctx, ks, source); {
	case errors.Is(err, errArtifactGone):
		ks.fail(fluxmeta.ArtifactFailedReason, "Source is not ready, artifact not found, retrying in %s", dependencyRequeue)
		return next{after: dependencyRequeue}, nil
	case err != nil:
		c.event(ctx, ks, revisionOf(source), corev1.EventTypeWarning, err.Error())
		return retry, nil
	default:
		return next{after: interval}, nil
	}
}

// fail marks a reconcile as failed.
func (m *managed) fail(reason, format string, args ...any) {
	m.mark(fluxmeta.ReadyCondition, metav1.ConditionFalse, reason, format, args...)
}

// source reads the source of ks. The error is the API server's own where there is no such object.
func (c *kustomizeController) source(ctx context.Context, ks *managed) (*unstructured.Unstructured, error) {
	name := sourceOf(ks.object)
	if name == (types.NamespacedName{}) {
		return nil, fmt.Errorf("source `%s` kind '%s' not supported", spec[string](ks, "sourceRef", "name"), spec[string](ks, "sourceRef", "kind"))
	}
	source, err := c.client.Resource(gitRepositoryResource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("unable to get source '%s': %w", name, err)
	}
	return source, err
}

// checkDependencies says what ks still has to wait for.
func (c *kustomizeController) checkDependencies(ctx context.Context, ks *managed, revision string) error {
	for _, entry := range spec[[]any](ks, "dependsOn") {
		fields, _ := entry.(map[string]any)
		if fields["readyExpr"] != nil {
			return errors.New("the simulated kustomize-controller does not support readyExpr in spec.dependsOn")
		}
		ref := &unstructured.Unstructured{Object: map[string]any{"metadata": fields}}
		name := nameOf(ref)
		if name.Namespace == "" {
			name.Namespace = ks.name().Namespace
		}
		dependency, err := c.client.Resource(kustomizationResource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("dependency '%s' not found: %w", name, err)
		}
		observed, _, _ := unstructured.NestedInt64(dependency.Object, "status", "observedGeneration")
		applied, _, _ := unstructured.NestedString(dependency.Object, "status", "lastAppliedRevision")
		switch {
		case observed != dependency.GetGeneration() || !conditionsOf(dependency).is(fluxmeta.ReadyCondition, metav1.ConditionTrue):
			return fmt.Errorf("dependency '%s' is not ready", name)
		case sourceOf(dependency) == sourceOf(ks.object) && applied != revision:
			return fmt.Errorf("dependency '%s' revision is not up to date", name)
		}
	}
	return nil
}

// timeout is how long a Kustomization waits for health: never less than 30 seconds, whatever spec.timeout says.
func (m *managed) timeout() time.Duration {
	const least = 30 * time.Second
	return max(least, m.duration(m.duration(0, "interval")-least, "timeout"))
}

// event writes an Event about a Kustomization at a revision. Its reason is that of Ready as it is by now.
func (c *kustomizeController) event(ctx context.Context, ks *managed, revision, kind, message string) {
	c.annotatedEvent(ctx, ks, revision, kind, message, map[string]string{})
}

func (c *kustomizeController) annotatedEvent(ctx context.Context, ks *managed, revision, kind, message string, annotations map[string]string) {
	if revision != "" {
		annotations[kustomizeGroup+"/revision"] = revision
	}
	reason := "info"
	if kind == corev1.EventTypeWarning {
		reason = "error"
	}
	if ready, ok := ks.conditions.get(fluxmeta.ReadyCondition); ok {
		reason = ready.Reason
	}
	c.events.event(ctx, ks.object, annotations, kind, reason, message)
}

// finished says that a reconcile has left ks ready, be it that nothing was to be done, or that ks is gone now.
func (c *kustomizeController) finished(ctx context.Context, ks *managed, took time.Duration) {
	applied, _ := ks.status["lastAppliedRevision"].(string)
	message := fmt.Sprintf("Reconciliation finished in %s, next run in %s", took, ks.duration(0, "interval"))
	c.annotatedEvent(ctx, ks, applied, corev1.EventTypeNormal, message, map[string]string{kustomizeGroup + "/commit_status": "update"})
}
