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

// The conditions of a GitRepository beside Flux's common ones.
const (
	artifactInStorageCondition = "ArtifactInStorage"
	artifactOutdatedCondition  = "ArtifactOutdated"
	fetchFailedCondition       = "FetchFailed"

	gitOperationFailed = "GitOperationFailed"

	sourceManager   = "source-controller"
	sourceFinalizer = "finalizers.fluxcd.io"
)

// A sourceController is source-controller's part for GitRepositories.
type sourceController struct {
	flux *Flux
	identity
	events *recorder
}

func (c *sourceController) run(ctx context.Context) {
	c.events = newRecorder(c.flux.cluster.events, sourceManager)
	q := newQueue(minRetryDelay, maxRetryDelay)
	repositories := newMirror(c.client.Resource(gitRepositoryResource), func(old, current *unstructured.Unstructured) {
		if triggers(old, current) {
			q.add(nameOf(either(current, old)), 0)
		}
	})
	(&work{queue: q, mirrors: []*mirror{repositories}, workers: 2, reconcile: c.reconcile}).run(ctx)
}

// either is the first object that is not nil.
func either(first, second *unstructured.Unstructured) *unstructured.Unstructured {
	if first != nil {
		return first
	}
	return second
}

// An outcome is how a fetch ended, beside its error.
type outcome int

const (
	// finished fetched all that was to be fetched, or found nothing new.
	finished outcome = iota
	// nothing was done: suspended, or being deleted.
	untouched
	// finalized added the finalizer and nothing else.
	finalized
)

func (c *sourceController) reconcile(ctx context.Context, name types.NamespacedName) (next, error) {
	defer c.view.ResetRequests()
	resource := c.client.Resource(gitRepositoryResource).Namespace(name.Namespace)
	object, err := resource.Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return next{}, ignoreNotFound(err)
	}
	g := newManaged(resource, sourceManager, object)
	ended, failed := c.fetch(ctx, g)
	g.handleRequest()
	summarizeSource(g, ended, failed)
	if err := g.patch(ctx); err != nil && (!g.deleting() || !apierrors.IsNotFound(err)) {
		return next{}, errors.Join(failed, err)
	}
	switch {
	case failed != nil:
		return next{}, failed
	case ended == finalized:
		return next{added: true, after: c.flux.options.FirstReconcileDelay}, nil
	case ended == untouched:
		return next{}, nil
	default:
		return next{after: g.duration(time.Minute, "interval")}, nil
	}
}

// summarizeSource sums up the conditions as Ready, and sets observedGeneration, once a reconcile is over.
func summarizeSource(g *managed, ended outcome, failed error) {
	if failed == nil && ended == finished {
		g.conditions.remove(fluxmeta.ReconcilingCondition)
	}
	if reconciling, ok := g.conditions.get(fluxmeta.ReconcilingCondition); ok && reconciling.Status == metav1.ConditionTrue {
		reconciling.Reason = fluxmeta.ProgressingWithRetryReason
		g.conditions.set(g.generation(), reconciling)
	}
	if failed == nil && ended != finalized && len(g.conditions) > 0 {
		g.status["observedGeneration"] = g.generation()
	}
	if summary, ok := readyOfSource(g.conditions); ok {
		g.conditions.set(g.generation(), summary)
	}
}

// readyOfSource is the Ready condition that follows from the others: the first that is wrong and true, else that
// the artifact is in storage.
func readyOfSource(c conditions) (metav1.Condition, bool) {
	for _, wrong := range []string{fetchFailedCondition, artifactOutdatedCondition, fluxmeta.StalledCondition, fluxmeta.ReconcilingCondition} {
		if condition, ok := c.get(wrong); ok && condition.Status == metav1.ConditionTrue {
			return metav1.Condition{Type: fluxmeta.ReadyCondition, Status: metav1.ConditionFalse, Reason: condition.Reason, Message: condition.Message}, true
		}
	}
	if stored, ok := c.get(artifactInStorageCondition); ok {
		stored.Type, stored.LastTransitionTime = fluxmeta.ReadyCondition, metav1.Time{}
		return stored, true
	}
	return metav1.Condition{}, false
}

// fetch does what one reconcile does, its last status write aside.
func (c *sourceController) fetch(ctx context.Context, g *managed) (outcome, error) {
	switch {
	case g.deleting():
		if c.flux.artifacts.drop(g.name()) {
			c.normal(ctx, g, nil, "GarbageCollectionSucceeded", "garbage collected artifacts for deleted resource")
		}
		delete(g.status, "artifact")
		g.finalizers = without(g.finalizers, sourceFinalizer)
		return untouched, nil
	case !contains(g.finalizers, sourceFinalizer):
		g.finalizers = append(g.finalizers, sourceFinalizer)
		return finalized, nil
	case spec[bool](g, "suspend"):
		return untouched, nil
	}
	if err := c.progressing(ctx, g); err != nil {
		return untouched, err
	}
	if err := c.checkStorage(ctx, g); err != nil {
		return untouched, err
	}
	g.conditions.remove(artifactOutdatedCondition)
	found, err := c.checkout(ctx, g)
	if err != nil {
		g.mark(fetchFailedCondition, metav1.ConditionTrue, fetchFailure(err), "%s", err)
		c.events.event(ctx, g.object, nil, corev1.EventTypeWarning, fetchFailure(err), err.Error())
		return untouched, err
	}
	g.conditions.remove(fetchFailedCondition)
	return finished, c.keep(ctx, g, found)
}

// progressing says that a reconcile goes on, where it is one that somebody asked for.
func (c *sourceController) progressing(ctx context.Context, g *managed) error {
	progressiveStatus(g, false, "reconciliation in progress")
	observed, _ := g.status["observedGeneration"].(int64)
	handled, _ := g.status["lastHandledReconcileAt"].(string)
	switch {
	case observed != g.generation():
		progressiveStatus(g, false, fmt.Sprintf("processing object: new generation %d -> %d", observed, g.generation()))
		return g.patch(ctx)
	case g.object.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation] != handled:
		return g.patch(ctx)
	}
	return nil
}

// progressiveStatus marks a reconcile as going on. Ready turns Unknown only for something new, or if it was so before.
func progressiveStatus(g *managed, drift bool, message string) {
	g.markReconciling(fluxmeta.ProgressingReason, "%s", message)
	if drift || !g.conditions.has(fluxmeta.ReadyCondition) || g.conditions.is(fluxmeta.ReadyCondition, metav1.ConditionUnknown) {
		g.mark(fluxmeta.ReadyCondition, metav1.ConditionUnknown, fluxmeta.ProgressingReason, "%s", message)
	}
}

// checkStorage forgets an artifact that is no longer in storage.
func (c *sourceController) checkStorage(ctx context.Context, g *managed) error {
	message := "building artifact"
	if artifact, ok := g.status["artifact"].(map[string]any); ok {
		url, _ := artifact["url"].(string)
		if _, stored := c.flux.artifacts.get(url); stored {
			return nil
		}
		delete(g.status, "artifact")
		message += ": disappeared from storage"
	}
	progressiveStatus(g, true, message)
	g.conditions.remove(artifactInStorageCondition)
	return g.patch(ctx)
}

// keep makes what was checked out the artifact, unless it is already.
func (c *sourceController) keep(ctx context.Context, g *managed, found checkout) error {
	held, _ := g.status["artifact"].(map[string]any)
	if held["revision"] != found.revision {
		message := fmt.Sprintf("new upstream revision '%s'", found.revision)
		if held != nil {
			g.mark(artifactOutdatedCondition, metav1.ConditionTrue, "NewRevision", "%s", message)
		}
		progressiveStatus(g, true, "building artifact: "+message)
		if err := g.patch(ctx); err != nil {
			return err
		}
		stored := c.flux.artifacts.store(g.name(), found.commit, found.revision, found.files)
		stored["lastUpdateTime"] = time.Now().UTC().Format(time.RFC3339)
		g.status["artifact"] = stored
	}
	c.announce(ctx, g, held, found)
	g.conditions.remove(artifactOutdatedCondition)
	g.mark(artifactInStorageCondition, metav1.ConditionTrue, fluxmeta.SucceededReason, "stored artifact for revision '%s'", found.revision)
	return nil
}
