package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// modified is what the server says to a write that was made on an older state of the object.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")

func (s *Server) update(r *Request, v *version) (*Response, error) {
	var options metav1.UpdateOptions
	if err := r.options(&options); err != nil {
		return nil, err
	}
	if errs := validation.ValidateUpdateOptions(&options); len(errs) > 0 {
		return nil, invalidOptions("UpdateOptions", errs)
	}
	object, err := r.object(v, options.FieldValidation)
	if err != nil {
		return nil, err
	}
	if err := matchNamespace(v.namespaceOf(r), object); err != nil {
		return nil, err
	}
	if err := checkName(object, r.Name, r.Namespace); err != nil {
		return nil, err
	}
	r.dropRepeatedOwners(object, "")
	w := write{
		createMissing: r.Subresource == "" && v.kind.rules.createOnUpdate(),
		uid:           object.GetUID(),
		dryRun:        len(options.DryRun) > 0,
		object: func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			updated := v.managers(r.Subresource).UpdateNoErrors(old, object.DeepCopy(), r.manager(options.FieldManager))
			return updated.(*unstructured.Unstructured), nil
		},
	}
	return s.write(r, v, w)
}

// A write is an update or a patch, told in terms of what is stored.
type write struct {
	// createMissing: where there is no object yet, the write creates it.
	createMissing bool
	// uid, unless empty, is the UID the stored object must have.
	uid    types.UID
	dryRun bool
	// object makes the new object from the stored one. Where there is none it gets one without metadata.
	object func(old *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

func (s *Server) write(r *Request, v *version, w write) (*Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[v.kind.store()]
	key := objectKey(v.namespaceOf(r), r.Name)
	existing := st.objects[key]
	if existing == nil {
		return s.writeNew(r, v, w)
	}
	if uid := existing.meta().GetUID(); w.uid != "" && w.uid != uid {
		return nil, wrongUID(r, st.registryKey(key, w.dryRun), w.uid, uid)
	}
	old, err := existing.as(v)
	if err != nil {
		return nil, err
	}
	object, err := w.object(old)
	if err != nil {
		return nil, err
	}
	if err := s.admitUpdate(r, v); err != nil {
		return nil, err
	}
	r.dropRepeatedOwners(object, afterAdmission)
	if err := checkRevision(r, v, object, existing); err != nil {
		return nil, err
	}
	if err := prepareChange(r, v, object, old); err != nil {
		return nil, err
	}
	keepTimes(object, old)
	if deletedByUpdate(object, old) {
		s.remove(st, key, w.dryRun)
		return encode(http.StatusOK, object.Object), nil
	}
	written, err := s.put(st, key, object.Object, w.dryRun)
	if err != nil {
		return nil, err
	}
	return entryResponse(http.StatusOK, v, written)
}

func wrongUID(r *Request, key string, want, got types.UID) error {
	return apierrors.NewConflict(r.groupResource(), r.Name, fmt.Errorf(
		"StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: "+
			"Precondition failed: UID in precondition: %v, UID in object meta: %v", key, want, got))
}

// writeNew is a write where nothing is stored: only some may create.
func (s *Server) writeNew(r *Request, v *version, w write) (*Response, error) {
	if !w.createMissing {
		return nil, apierrors.NewNotFound(r.groupResource(), r.Name)
	}
	st := s.stores[v.kind.store()]
	if w.uid != "" {
		return nil, wrongUID(r, st.registryKey(objectKey(v.namespaceOf(r), r.Name), w.dryRun), w.uid, "")
	}
	empty, _ := conversion{v.kind}.New(v.gvk())
	object, err := w.object(empty.(*unstructured.Unstructured))
	if err != nil {
		return nil, err
	}
	if err := s.admitCreate(r, v, object.GetName()); err != nil {
		return nil, err
	}
	r.dropRepeatedOwners(object, afterAdmission)
	if _, err := resourceVersion(object); err != nil {
		return nil, err
	}
	if err := prepareNew(r, v, object); err != nil {
		return nil, err
	}
	if err := r.authorize("create"); err != nil {
		return nil, err
	}
	written, err := s.put(st, objectKey(object.GetNamespace(), object.GetName()), object.Object, w.dryRun)
	if err != nil {
		return nil, err
	}
	return entryResponse(http.StatusCreated, v, written)
}

// resourceVersion is zero for an object that names none.
func resourceVersion(object *unstructured.Unstructured) (uint64, error) {
	text := object.GetResourceVersion()
	if text == "" {
		return 0, nil
	}
	return strconv.ParseUint(text, 10, 64)
}

// checkRevision refuses a write that was made on another state of the object than the stored one.
func checkRevision(r *Request, v *version, object *unstructured.Unstructured, existing *entry) error {
	revision, err := resourceVersion(object)
	switch {
	case err != nil:
		return err
	case revision == 0 && v.kind.rules.unconditionalUpdate():
		object.SetResourceVersion(existing.meta().GetResourceVersion())
		return nil
	case revision == 0:
		errs := field.ErrorList{field.Invalid(field.NewPath("metadata", "resourceVersion"), revision, "must be specified for an update")}
		return apierrors.NewInvalid(schema.GroupKind{Group: r.Group, Kind: r.Resource}, r.Name, errs)
	case revision != existing.revision:
		return apierrors.NewConflict(r.groupResource(), r.Name, errModified)
	default:
		return nil
	}
}

// prepareChange makes of what was sent an object that can replace the old one, or says why it cannot.
func prepareChange(r *Request, v *version, object, old *unstructured.Unstructured) error {
	if err := matchNamespace(v.namespaceOf(r), object); err != nil {
		return err
	}
	is := groupKind(object)
	object.SetGeneration(old.GetGeneration())
	if old.GetGeneration() == 0 {
		unstructured.RemoveNestedField(object.Object, "metadata", "generation")
	}
	check := v.kind.rules.validateUpdate
	if r.Subresource == "" {
		v.kind.rules.prepareUpdate(v, object.Object, old.Object)
	} else {
		v.kind.rules.prepareSubresource(v, object.Object, old.Object, r.Subresource)
		check = v.kind.rules.validateSubresource
	}
	keepSystemFields(object, old)

	root := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMetaAccessor(object, v.kind.namespaced, validSegment, root)
	errs = append(errs, apivalidation.ValidateObjectMetaAccessorUpdate(object, old, root)...)
	errs = append(errs, check(v, object.Object, old.Object)...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(is, object.GetName(), errs)
	}
	if r.Subresource == "" {
		r.warn(v.kind.rules.warnings(object.Object, old.Object)...)
	}
	return nil
}

// keepSystemFields restores what no update may take away or change.
func keepSystemFields(object, old *unstructured.Unstructured) {
	if object.GetUID() == "" {
		object.SetUID(old.GetUID())
	}
	if created := old.GetCreationTimestamp(); !created.IsZero() {
		object.SetCreationTimestamp(created)
	}
	if deleted := old.GetDeletionTimestamp(); !deleted.IsZero() {
		object.SetDeletionTimestamp(deleted)
	}
	if grace := old.GetDeletionGracePeriodSeconds(); grace != nil && object.GetDeletionGracePeriodSeconds() == nil {
		object.SetDeletionGracePeriodSeconds(grace)
	}
}

// keepTimes restores the times of managed fields where nothing else changed, so that a repeated apply is no write.
func keepTimes(object, old *unstructured.Unstructured) {
	if !equality.Semantic.DeepEqualWithNilDifferentFromEmpty(withoutManagers(object.Object), withoutManagers(old.Object)) {
		return
	}
	now, before := object.GetManagedFields(), old.GetManagedFields()
	if len(now) != len(before) || len(now) == 0 {
		return
	}
	for i := range now {
		a, b := now[i], before[i]
		a.Time, b.Time = nil, nil
		if !reflect.DeepEqual(a, b) {
			return
		}
	}
	object.SetManagedFields(before)
}

func withoutManagers(object map[string]any) map[string]any {
	out := maps.Clone(object)
	if metadata, ok := out["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		delete(metadata, "managedFields")
		out["metadata"] = metadata
	}
	return out
}

// deletedByUpdate: an object that is being deleted goes with its last finalizer.
func deletedByUpdate(object, old *unstructured.Unstructured) bool {
	if len(object.GetFinalizers()) > 0 || old.GetDeletionTimestamp() == nil {
		return false
	}
	grace := old.GetDeletionGracePeriodSeconds()
	return grace == nil || *grace == 0
}
