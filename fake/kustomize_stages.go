package fake

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// A change is what an apply did to an object.
type change struct {
	entry  inventoryEntry
	action string
}

// applyStaged applies the objects in two stages: definitions of namespaces and cluster roles first, then the rest. Within
// a stage the server is asked about each object by a dry run before any is written, so one that is refused leaves the stage
// undone; but what an earlier stage wrote stays, and is in no inventory.
func (r *run) applyStaged(ctx context.Context, objects []*unstructured.Unstructured) ([]change, error) {
	if err := r.flux.faults.step(ctx, ApplyStep, r.ks.name()); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, changeLog(nil))
	}
	for _, object := range objects {
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[kustomizeGroup+"/name"], labels[kustomizeGroup+"/namespace"] = r.ks.name().Name, r.ks.name().Namespace
		object.SetLabels(labels)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return compareEntries(entryOf(a), entryOf(b)) })
	var changes []change
	for _, definitions := range []bool{true, false} {
		done, err := r.applyStage(ctx, slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool {
			return isDefinition(o) != definitions
		}))
		changes = append(changes, done...)
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, changeLog(changes))
		}
	}
	return changes, nil
}

func entriesOf(changes []change) inventory {
	var entries inventory
	for _, c := range changes {
		entries = append(entries, c.entry)
	}
	return entries
}

func isDefinition(object *unstructured.Unstructured) bool {
	switch strings.ToLower(object.GetKind()) {
	case "namespace", "clusterrole", "customresourcedefinition":
		return true
	}
	return false
}

// changeLog lists what has changed, one a line.
func changeLog(changes []change) string {
	var log strings.Builder
	for _, c := range changes {
		if c.action != "unchanged" {
			fmt.Fprintf(&log, "%s %s\n", c.entry.subject(), c.action)
		}
	}
	return log.String()
}

// applyStage applies the objects of one stage, after the server has taken a dry run of all of them.
func (r *run) applyStage(ctx context.Context, objects []*unstructured.Unstructured) ([]change, error) {
	changes := make([]change, 0, len(objects))
	for _, object := range objects {
		action, err := r.dryRun(ctx, object)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change{entry: entryOf(object), action: action})
	}
	for i, object := range objects {
		if changes[i].action == "unchanged" {
			continue
		}
		resource, err := r.resourceOf(object)
		if err == nil {
			_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: kustomizeManager, Force: true})
		}
		if err != nil {
			return nil, fmt.Errorf("%s apply failed: %w", entryOf(object).subject(), err)
		}
	}
	return changes, nil
}

// dryRun asks the server what an apply of the object would do.
func (r *run) dryRun(ctx context.Context, object *unstructured.Unstructured) (action string, err error) {
	subject := entryOf(object).subject()
	if err := r.mayApply(ctx, object); err != nil {
		return "", err
	}
	resource, err := r.resourceOf(object)
	if err != nil {
		return "", fmt.Errorf("%s dry-run failed: %w", subject, err)
	}
	existing, _ := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	would, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: kustomizeManager, Force: true, DryRun: []string{metav1.DryRunAll}})
	switch {
	case apierrors.IsNotFound(err) && object.GetNamespace() == "":
		return "", fmt.Errorf("%s namespace not specified: %w", subject, err)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s not found: %w", subject, err)
	case err != nil && apierrors.ReasonForError(err) != "":
		return "", fmt.Errorf("%s dry-run failed (%s): %w", subject, apierrors.ReasonForError(err), err)
	case err != nil:
		return "", fmt.Errorf("%s dry-run failed: %w", subject, err)
	case existing == nil:
		return "created", nil
	case drifted(existing, would):
		return "configured", nil
	default:
		return "unchanged", nil
	}
}

// drifted compares all but the status and what the server itself keeps.
func drifted(existing, would *unstructured.Unstructured) bool {
	if !equalMaps(existing.GetLabels(), would.GetLabels()) || !equalMaps(existing.GetAnnotations(), would.GetAnnotations()) {
		return true
	}
	content := func(u *unstructured.Unstructured) map[string]any {
		out := make(map[string]any, len(u.Object))
		for key, value := range u.Object {
			if key != "metadata" && key != "status" {
				out[key] = value
			}
		}
		return out
	}
	return !reflect.DeepEqual(content(existing), content(would))
}

func equalMaps(a, b map[string]string) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// mayApply refuses what a service account that does not exist would apply. One that exists may do everything.
func (r *run) mayApply(ctx context.Context, object *unstructured.Unstructured) error {
	name := spec[string](r.ks, "serviceAccountName")
	if name == "" {
		return nil
	}
	namespace := r.ks.name().Namespace
	_, err := r.client.Resource(serviceAccountResource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	mapping, _, _ := r.flux.cluster.server.ResourceOf(object.GroupVersionKind())
	refused := apierrors.NewForbidden(mapping.GroupResource(), object.GetName(), fmt.Errorf(
		"User %q cannot patch resource %q in API group %q in the namespace %q",
		"system:serviceaccount:"+namespace+":"+name, mapping.Resource, mapping.Group, object.GetNamespace()))
	return fmt.Errorf("%s dry-run failed (Forbidden): %w", entryOf(object).subject(), refused)
}

// resourceOf is where an object is applied.
func (c *kustomizeController) resourceOf(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	return resourceIn(c.flux.cluster, c.client, object)
}

// resourceIn is where a cluster keeps objects such as this one, in its namespace if it has one.
func resourceIn(cluster *Cluster, client dynamic.Interface, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	resource, isNamespaced, served := cluster.server.ResourceOf(gvk)
	switch {
	case !served:
		return nil, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
	case isNamespaced:
		return client.Resource(resource).Namespace(object.GetNamespace()), nil
	default:
		return client.Resource(resource), nil
	}
}

// isNamespaced reports whether an object's kind lives in namespaces, as that of a kind nobody knows is taken to.
func (c *kustomizeController) isNamespaced(object *unstructured.Unstructured) bool {
	_, isNamespaced, served := c.flux.cluster.server.ResourceOf(object.GroupVersionKind())
	return isNamespaced || !served
}

// applyOrder is the order of kinds in which objects are applied; all others come last.
var applyOrder = []string{
	"CustomResourceDefinition", "Namespace", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "Role", "RoleBinding",
	"ConfigMap", "Secret", "Service", "Deployment",
}

func compareEntries(a, b inventoryEntry) int {
	rank := func(e inventoryEntry) int {
		if i := slices.Index(applyOrder, e.kind); i >= 0 {
			return i
		}
		return len(applyOrder)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.group, b.group), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}
