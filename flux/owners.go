package flux

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// owners are the field managers of a Kustomization's spec.suspend, as metadata.managedFields names them.
//
// Who applies the field sets it again with its next apply, so it is left to them. Who updated it once
// (flux suspend, kubectl patch) does not come back for it.
type owners struct {
	applied []string
	updated []string
}

var suspendPath = fieldpath.MakePathOrDie("spec", "suspend")

func suspendOwners(u *unstructured.Unstructured) (owners, error) {
	var found owners
	for _, entry := range u.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var set fieldpath.Set
		if err := set.FromJSON(entry.FieldsV1.GetRawReader()); err != nil {
			return owners{}, fmt.Errorf("field .metadata.managedFields of manager %s: %w", entry.Manager, err)
		}
		if !set.Has(suspendPath) {
			continue
		}
		if entry.Operation == metav1.ManagedFieldsOperationApply {
			found.applied = append(found.applied, entry.Manager)
		} else {
			found.updated = append(found.updated, entry.Manager)
		}
	}
	return found, nil
}

// ours reports whether name is or was the host's.
func (o Options) ours(name string) bool {
	return name == o.FieldManager || slices.Contains(o.FormerFieldManagers, name)
}

// heldByUs reports whether spec.suspend is under a name of ours.
func (o Options) heldByUs(held owners) bool {
	return slices.ContainsFunc(held.applied, o.ours)
}

// appliedElsewhere returns another manager that applies spec.suspend, or "".
func (o Options) appliedElsewhere(held owners) string {
	for _, name := range held.applied {
		if !o.ours(name) {
			return name
		}
	}
	return ""
}

// holds reports whether ks stands suspended under a name of ours. Whatever of ours wrote spec.suspend last wrote
// true then, because every one of our writes of it states the value.
func (o Options) holds(ks kustomization) bool {
	return ks.suspended && o.heldByUs(ks.owners)
}
