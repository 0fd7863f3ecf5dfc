package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (s *Server) delete(r *Request, v *version) (*Response, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleteOne(r, v, objectKey(v.namespaceOf(r), r.Name), r.Name, options)
}

func (r *Request) deleteOptions() (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if len(r.Body) > 0 {
		if err := json.Unmarshal(r.Body, options); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := r.options(options); err != nil {
		return nil, err
	}
	if errs := validation.ValidateDeleteOptions(options); len(errs) > 0 {
		return nil, invalidOptions("DeleteOptions", errs)
	}
	return options, nil
}

func (s *Server) deleteOne(r *Request, v *version, key, name string, options *metav1.DeleteOptions) (*Response, error) {
	st := s.stores[v.kind.store()]
	existing := st.objects[key]
	if existing == nil {
		return nil, apierrors.NewNotFound(r.groupResource(), name)
	}
	if err := checkPreconditions(v, existing.meta(), options.Preconditions); err != nil {
		return nil, err
	}
	if err := admitDelete(r, v, name); err != nil {
		return nil, err
	}
	dryRun := len(options.DryRun) > 0
	object, err := existing.as(v)
	if err != nil {
		return nil, err
	}
	if r, builtin := v.kind.rules.(*builtinRules); !builtin || !r.uncollected {
		object.SetFinalizers(collectorFinalizers(object.GetFinalizers(), options))
	}
	if len(object.GetFinalizers()) == 0 && !v.keepsUntilFinalized(object) {
		return deletedResponse(r, s.remove(st, key, dryRun))
	}
	markDeleted(object)
	written, err := s.put(st, key, object.Object, dryRun)
	if err != nil {
		return nil, err
	}
	return entryResponse(http.StatusOK, v, written)
}

func checkPreconditions(v *version, object *unstructured.Unstructured, want *metav1.Preconditions) error {
	if want == nil {
		return nil
	}
	resource := schema.GroupResource{Group: v.kind.group, Resource: v.kind.names.Kind}
	if want.UID != nil && *want.UID != object.GetUID() {
		return apierrors.NewConflict(resource, object.GetName(), fmt.Errorf(
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated",
			*want.UID, object.GetUID()))
	}
	if want.ResourceVersion != nil && *want.ResourceVersion != object.GetResourceVersion() {
		return apierrors.NewConflict(resource, object.GetName(), fmt.Errorf(
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified",
			*want.ResourceVersion, object.GetResourceVersion()))
	}
	return nil
}

// collectorFinalizers are the object's finalizers after the deletion's propagation policy has set or removed the two
// that are meant for the garbage collector.
func collectorFinalizers(finalizers []string, options *metav1.DeleteOptions) []string {
	orphan := slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	foreground := slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	switch {
	case options.OrphanDependents != nil:
		orphan, foreground = *options.OrphanDependents, false
	case options.PropagationPolicy != nil:
		orphan = *options.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *options.PropagationPolicy == metav1.DeletePropagationForeground
	}
	var out []string
	for _, finalizer := range finalizers {
		if finalizer != metav1.FinalizerOrphanDependents && finalizer != metav1.FinalizerDeleteDependents {
			out = append(out, finalizer)
		}
	}
	if orphan {
		out = append(out, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		out = append(out, metav1.FinalizerDeleteDependents)
	}
	if sameSet(out, finalizers) {
		return finalizers
	}
	return out
}

func sameSet(a, b []string) bool {
	return !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) }) &&
		!slices.ContainsFunc(b, func(x string) bool { return !slices.Contains(a, x) })
}

func markDeleted(object *unstructured.Unstructured) {
	if object.GetDeletionTimestamp() == nil {
		if generation := object.GetGeneration(); generation > 0 {
			object.SetGeneration(generation + 1)
		}
		now := metav1.Now()
		object.SetDeletionTimestamp(&now)
	}
	object.SetDeletionGracePeriodSeconds(new(int64))
}

func deletedResponse(r *Request, last *entry) (*Response, error) {
	object := last.meta()
	return encode(http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: object.GetName(), Group: r.Group, Kind: r.Resource, UID: object.GetUID(),
		},
	}), nil
}

func (s *Server) deleteCollection(r *Request, v *version) (*Response, error) {
	options, err := r.deleteOptions()
	if err != nil {
		return nil, err
	}
	q, err := r.query(v)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response, found, err := s.listed(r, v, q)
	if err != nil {
		return nil, err
	}
	for _, e := range found {
		_, err := s.deleteOne(r, v, e.key, e.meta().GetName(), options)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return response, nil
}
