package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// A run is one apply of a Kustomization, from the artifact to the health of what was applied.
type run struct {
	*kustomizeController
	ks       *managed
	revision string
	began    time.Time
	digest   string
}

// apply runs one apply. Before it returns an error it has marked ks as failed.
func (c *kustomizeController) apply(ctx context.Context, ks *managed, source *unstructured.Unstructured) error {
	r := &run{kustomizeController: c, ks: ks, revision: revisionOf(source), began: time.Now()}
	ks.mark(fluxmeta.ReadyCondition, metav1.ConditionUnknown, fluxmeta.ProgressingReason, "Reconciliation in progress")
	if err := r.progress(ctx, "Fetching manifests"); err != nil {
		return err
	}
	url, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "url")
	files, err := c.download(ctx, ks, url)
	if err == nil {
		files, err = below(files, spec[string](ks, "path"))
	}
	if err != nil {
		return r.failed(fluxmeta.ArtifactFailedReason, err)
	}
	ks.status["lastAttemptedRevision"] = r.revision
	if err := r.progress(ctx, "Building manifests"); err != nil {
		return err
	}
	manifests, err := c.build(ctx, ks, files)
	if err != nil {
		return r.failed(fluxmeta.BuildFailedReason, err)
	}
	r.digest = fmt.Sprintf("sha256:%x", sha256.Sum256(manifests.text))
	if err := r.progress(ctx, "Detecting drift"); err != nil {
		return err
	}
	return r.applied(ctx, manifests.objects)
}

// applied applies the objects, prunes what is no longer among them, and waits for their health.
func (r *run) applied(ctx context.Context, objects []*unstructured.Unstructured) error {
	changes, err := r.applyStaged(ctx, objects)
	if err != nil {
		return r.ended(fluxmeta.ReconciliationFailedReason, err)
	}
	log := changeLog(changes)
	r.report(ctx, log)
	entries := entriesOf(changes)
	old := inventoryOf(r.ks)
	r.ks.status["inventory"] = entries.inventory()
	if err := r.prune(ctx, old.without(entries)); err != nil {
		return r.ended(fluxmeta.PruneFailedReason, err)
	}
	if err := r.checkHealth(ctx, entries, log != ""); err != nil {
		return r.ended(fluxmeta.HealthCheckFailedReason, err)
	}
	r.ks.status["lastAppliedRevision"] = r.revision
	r.ks.mark(fluxmeta.ReadyCondition, metav1.ConditionTrue, fluxmeta.ReconciliationSucceededReason, "Applied revision: %s", r.revision)
	return r.ended(fluxmeta.ReconciliationSucceededReason, nil)
}

// report writes an Event that says what the run has changed, if it has changed anything.
func (r *run) report(ctx context.Context, log string) {
	if log = strings.TrimSuffix(log, "\n"); log != "" {
		r.event(ctx, r.ks, r.revision, corev1.EventTypeNormal, log)
	}
}

// progress writes how far the run has come.
func (r *run) progress(ctx context.Context, doing string) error {
	r.ks.markReconciling(fluxmeta.ProgressingReason, "%s for revision %s with a timeout of %s", doing, r.revision, r.ks.timeout())
	if err := r.ks.patch(ctx); err != nil {
		return fmt.Errorf("failed to update status: %w", err)
	}
	return nil
}

func (r *run) failed(reason string, err error) error {
	r.ks.fail(reason, "%s", err)
	return err
}

// ended enters a run that came as far as applying into status.history, and marks ks as failed where it did.
func (r *run) ended(reason string, err error) error {
	var history struct {
		Entries fluxmeta.History `json:"history"`
	}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"history": r.ks.status["history"]}, &history)
	history.Entries.Upsert(r.digest, time.Now().UTC(), time.Since(r.began), reason, map[string]string{"revision": r.revision})
	if plain, failed := runtime.DefaultUnstructuredConverter.ToUnstructured(&history); failed == nil {
		r.ks.status["history"] = plain["history"]
	}
	if err != nil {
		return r.failed(reason, err)
	}
	return nil
}
