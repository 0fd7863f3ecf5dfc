package flux

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
)

// owners are the field managers of a field, as metadata.managedFields names them: here of a Kustomization's spec.suspend.
//
// Who applies the field sets it again with its next apply, so it is left to them. Who updated it once
// (flux suspend, kubectl patch) does not come back for it.
type owners struct {
	applied []string
	updated []string
}

// ownersOf reads who owns the field at path, written as in fieldsV1. A manager that changed the status by its subresource
// alone is none.
func ownersOf(f *applier.Fields, path ...string) owners {
	var found owners
	for _, entry := range f.Each("metadata", "managedFields") {
		manager, operation := applier.Field[string](entry, "manager"), applier.Field[string](entry, "operation")
		subresource := applier.Field[string](entry, "subresource")
		owned := applier.Field[map[string]any](entry, append([]string{"fieldsV1"}, path...)...) != nil
		switch {
		case !owned || subresource != "":
		case operation == string(metav1.ManagedFieldsOperationApply):
			found.applied = append(found.applied, manager)
		default:
			found.updated = append(found.updated, manager)
		}
	}
	return found
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
