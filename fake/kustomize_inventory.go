package fake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var serviceAccountResource = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// An inventoryEntry names an object that was applied.
type inventoryEntry struct {
	namespace, name, group, kind, version string
}

func entryOf(object *unstructured.Unstructured) inventoryEntry {
	gvk := object.GroupVersionKind()
	return inventoryEntry{namespace: object.GetNamespace(), name: object.GetName(), group: gvk.Group, kind: gvk.Kind, version: gvk.Version}
}

// id is what status.inventory calls the object.
func (e inventoryEntry) id() string {
	return strings.Join([]string{e.namespace, strings.ReplaceAll(e.name, ":", "__"), e.group, e.kind}, "_")
}

// subject is what messages call the object.
func (e inventoryEntry) subject() string {
	if e.namespace == "" {
		return e.kind + "/" + e.name
	}
	return e.kind + "/" + e.namespace + "/" + e.name
}

func (e inventoryEntry) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: e.group, Version: e.version, Kind: e.kind})
	object.SetNamespace(e.namespace)
	object.SetName(e.name)
	return object
}

// An inventory is what a Kustomization has applied.
type inventory []inventoryEntry

// inventoryOf reads status.inventory.
func inventoryOf(ks *managed) inventory {
	entries, _, _ := unstructured.NestedSlice(ks.status, "inventory", "entries")
	var out inventory
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		version, _ := fields["v"].(string)
		namespace, rest, _ := strings.Cut(id, "_")
		kindAt := strings.LastIndexByte(rest, '_')
		if kindAt < 0 {
			continue
		}
		groupAt := strings.LastIndexByte(rest[:kindAt], '_')
		if groupAt < 0 {
			continue
		}
		out = append(out, inventoryEntry{
			namespace: namespace, name: strings.ReplaceAll(rest[:groupAt], "__", ":"),
			group: rest[groupAt+1 : kindAt], kind: rest[kindAt+1:], version: version,
		})
	}
	return out
}

// inventory is the form that status.inventory has.
func (i inventory) inventory() map[string]any {
	entries := make([]any, 0, len(i))
	for _, e := range i {
		entries = append(entries, map[string]any{"id": e.id(), "v": e.version})
	}
	return map[string]any{"entries": entries}
}

func (i inventory) without(others inventory) inventory {
	return slices.DeleteFunc(slices.Clone(i), func(e inventoryEntry) bool {
		return slices.ContainsFunc(others, func(other inventoryEntry) bool { return other.id() == e.id() })
	})
}

// prune deletes what is stale. What could not be deleted stays in the inventory.
func (r *run) prune(ctx context.Context, stale inventory) error {
	if !spec[bool](r.ks, "prune") {
		return nil
	}
	err := r.flux.faults.step(ctx, PruneStep, r.ks.name())
	var done []change
	if err == nil {
		done, stale, err = r.delete(ctx, r.ks, stale)
	}
	if err != nil {
		r.ks.status["inventory"] = append(inventoryOf(r.ks), stale...).inventory()
		return err
	}
	r.report(ctx, changeLog(done))
	return nil
}

// delete deletes objects that carry the labels of ks, and returns what it did, and those that it could not delete.
func (c *kustomizeController) delete(ctx context.Context, ks *managed, objects inventory) (done []change, left inventory, err error) {
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b inventoryEntry) int { return -compareEntries(a, b) })
	var failed []string
	for _, entry := range objects {
		action, err := c.deleteOne(ctx, ks, entry)
		if err != nil {
			left = append(left, entry)
			failed = append(failed, err.Error())
			continue
		}
		done = append(done, change{entry: entry, action: action})
	}
	if len(failed) > 0 {
		return done, left, errors.New("delete failed, errors: " + strings.Join(failed, ";") + ";")
	}
	return done, nil, nil
}

// deleteOne says what became of an object, also of one that was gone before.
func (c *kustomizeController) deleteOne(ctx context.Context, ks *managed, entry inventoryEntry) (action string, err error) {
	resource, err := c.resourceOf(entry.object())
	if err != nil {
		return "", fmt.Errorf("%s query failed: %w", entry.subject(), err)
	}
	existing, err := resource.Get(ctx, entry.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "deleted", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s query failed: %w", entry.subject(), err)
	}
	labels := existing.GetLabels()
	if labels[kustomizeGroup+"/name"] != ks.name().Name || labels[kustomizeGroup+"/namespace"] != ks.name().Namespace || keeps(existing) {
		return "skipped", nil
	}
	background := metav1.DeletePropagationBackground
	err = resource.Delete(ctx, entry.name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%s delete failed: %w", entry.subject(), err)
	}
	return "deleted", nil
}

// keeps reports whether an object says that it is not to be pruned.
func keeps(object *unstructured.Unstructured) bool {
	for key, value := range map[string]string{"prune": "disabled", "reconcile": "disabled", "ssa": "ignore"} {
		key = kustomizeGroup + "/" + key
		if strings.EqualFold(object.GetLabels()[key], value) || strings.EqualFold(object.GetAnnotations()[key], value) {
			return true
		}
	}
	return false
}

// finalize prunes what a Kustomization that is being deleted has applied, and lets it go. A suspended one leaves it.
func (c *kustomizeController) finalize(ctx context.Context, ks *managed) error {
	prunes := spec[bool](ks, "prune")
	switch policy := spec[string](ks, "deletionPolicy"); policy {
	case "", "MirrorPrune":
	default:
		prunes = policy != "Orphan"
	}
	if prunes && !spec[bool](ks, "suspend") {
		applied, _ := ks.status["lastAppliedRevision"].(string)
		done, _, err := c.delete(ctx, ks, inventoryOf(ks))
		if err != nil {
			c.event(ctx, ks, applied, corev1.EventTypeWarning, "pruning for deleted resource failed")
			return err
		}
		if log := strings.TrimSuffix(changeLog(done), "\n"); log != "" {
			c.event(ctx, ks, applied, corev1.EventTypeNormal, log)
		}
	}
	ks.finalizers = without(ks.finalizers, sourceFinalizer)
	return nil
}
