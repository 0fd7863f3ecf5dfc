package fake

import (
	"context"
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// resync is how often an Application is compared though nothing happened. The real controller adds up to a minute.
const resync = 2 * time.Minute

// A comparison is what an Application's cluster looks like beside the tip of its branch.
type comparison struct {
	status, revision, health string
	// onlyPrunes is whether all that is out of sync is what the source no longer has; targets is how much it has.
	onlyPrunes bool
	targets    int
	// trouble is why nothing can be compared.
	trouble error
}

// compare compares an Application with the tip of its branch, writes status.sync, and syncs it where it is to do so by itself.
func (c *applicationController) compare(ctx context.Context, name types.NamespacedName) (next, error) {
	defer c.view.ResetRequests()
	app, err := c.get(ctx, name)
	if err != nil {
		return next{}, ignoreNotFound(err)
	}
	if skipped(app) || app.GetDeletionTimestamp() != nil {
		return next{}, nil
	}
	found, err := c.comparison(ctx, app)
	if err == nil {
		c.reportChanges(ctx, app, found)
		err = c.patch(ctx, name, found.patch(app))
	}
	if err == nil {
		err = c.autoSync(ctx, name, found)
	}
	return next{after: resync}, err
}

func (c *applicationController) comparison(ctx context.Context, app *unstructured.Unstructured) (comparison, error) {
	found := comparison{status: "Synced", health: "Healthy", onlyPrunes: true}
	source, _, _ := unstructured.NestedMap(app.Object, "spec", "source")
	targets, commit, err := c.load(app, source, "")
	if err != nil {
		found.status, found.health, found.trouble = "Unknown", "Unknown", err
		return found, nil //nolint:nilerr // it is reported in the status
	}
	found.revision, found.targets = commit, len(targets)
	for _, target := range targets {
		if target.GetAnnotations()[hookAnnotation] != "" {
			continue
		}
		exists, same := c.isApplied(ctx, target)
		if !exists && hasHealth(target) {
			found.health = "Missing"
		}
		if !same {
			found.status, found.onlyPrunes = "OutOfSync", false
		}
	}
	extra, err := c.extra(ctx, app, targets)
	if len(extra) > 0 {
		found.status = "OutOfSync"
	}
	return found, err
}

// hasHealth reports whether Argo CD has a health of its own for an object's kind. One of another kind that does not exist yet
// makes no Application unhealthy.
func hasHealth(object *unstructured.Unstructured) bool {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "Service"}, schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "batch", Kind: "Job"}:
		return true
	}
	return false
}

// isApplied reports whether an object exists, and whether it is as it would be applied.
func (c *applicationController) isApplied(ctx context.Context, target *unstructured.Unstructured) (exists, same bool) {
	resource, err := c.resourceOf(target)
	if err != nil {
		return false, false
	}
	live, err := resource.Get(ctx, target.GetName(), metav1.GetOptions{})
	if err != nil {
		return false, false
	}
	would, err := resource.Apply(ctx, target.GetName(), target, metav1.ApplyOptions{FieldManager: argoManager, Force: true, DryRun: []string{metav1.DryRunAll}})
	return true, err == nil && !drifted(live, would)
}

// patch is what the comparison writes.
func (f comparison) patch(app *unstructured.Unstructured) map[string]any {
	comparedTo := map[string]any{}
	for _, field := range []string{"source", "destination"} {
		if value, ok, _ := unstructured.NestedFieldNoCopy(app.Object, "spec", field); ok {
			comparedTo[field] = value
		}
	}
	sync := map[string]any{"status": f.status, "comparedTo": comparedTo, "revision": nil}
	if f.revision != "" {
		sync["revision"] = f.revision
	}
	status := map[string]any{"sync": sync, "health": map[string]any{"status": f.health}, "reconciledAt": argoNow(), "conditions": nil}
	if f.trouble != nil {
		status["conditions"] = []any{map[string]any{
			"type": "ComparisonError", "message": "Failed to load target state: " + f.trouble.Error(), "lastTransitionTime": argoNow(),
		}}
	}
	patch := map[string]any{"status": status}
	if _, asked := app.GetAnnotations()[refreshAnnotation]; asked {
		patch["metadata"] = map[string]any{"annotations": map[string]any{refreshAnnotation: nil}}
	}
	return patch
}

// autoSync sets the operation that syncs an Application which is to be synced by itself. A commit that was attempted before
// is not attempted again.
func (c *applicationController) autoSync(ctx context.Context, name types.NamespacedName, found comparison) error {
	app, err := c.get(ctx, name)
	if err != nil {
		return ignoreNotFound(err)
	}
	automated, on, _ := unstructured.NestedMap(app.Object, "spec", "syncPolicy", "automated")
	prune, _ := automated["prune"].(bool)
	allowEmpty, _ := automated["allowEmpty"].(bool)
	switch enabled, set := automated["enabled"].(bool); {
	case !on, set && !enabled, found.status != "OutOfSync", c.argo.denies(false):
		return nil
	case app.Object["operation"] != nil, app.GetDeletionTimestamp() != nil:
		return nil
	case found.onlyPrunes && !prune, prune && !allowEmpty && found.targets == 0:
		return nil
	}
	attempted, err := fieldOf[argoState](app, "status", "operationState")
	if err != nil {
		return err
	}
	source, _, _ := unstructured.NestedMap(app.Object, "spec", "source")
	if attempted != nil && attempted.SyncResult != nil && attempted.SyncResult.Revision == found.revision && reflect.DeepEqual(attempted.SyncResult.Source, source) {
		return nil
	}
	app.Object["operation"] = automatedOperation(app, source, found.revision, prune)
	unstructured.RemoveNestedField(app.Object, "status", "operationState")
	_, err = c.client.Resource(applicationResource).Namespace(name.Namespace).Update(ctx, app, metav1.UpdateOptions{FieldManager: argoManager})
	if err == nil {
		c.event(ctx, app, corev1.EventTypeNormal, "OperationStarted", fmt.Sprintf("Initiated automated sync to '%s'", found.revision))
	}
	return ignoreNotFound(err)
}

// automatedOperation is the operation of an automated sync.
func automatedOperation(app *unstructured.Unstructured, source map[string]any, revision string, prune bool) map[string]any {
	sync := map[string]any{"source": source, "revision": revision}
	if prune {
		sync["prune"] = true
	}
	if options, ok, _ := unstructured.NestedFieldCopy(app.Object, "spec", "syncPolicy", "syncOptions"); ok {
		sync["syncOptions"] = options
	}
	var retry any = map[string]any{"limit": int64(5)}
	if policy, ok, _ := unstructured.NestedFieldCopy(app.Object, "spec", "syncPolicy", "retry"); ok {
		retry = policy
	}
	return map[string]any{"sync": sync, "initiatedBy": map[string]any{"automated": true}, "retry": retry}
}
