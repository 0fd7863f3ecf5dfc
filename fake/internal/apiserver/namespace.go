package apiserver

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// CreateNamespace creates a namespace, unless there is one of that name.
func (s *Server) CreateNamespace(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.namespaceStore()
	if st.objects[name] != nil {
		return
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion("v1")
	object.SetKind("Namespace")
	object.SetName(name)
	fillSystemFields(object)
	st.kind.rules.setDefaults(st.kind.storage, object.Object)
	st.kind.rules.prepareCreate(st.kind.storage, object.Object)
	if _, err := s.put(st, name, object.Object, false); err != nil {
		panic(fmt.Sprintf("create namespace %s: %v", name, err))
	}
}

func (s *Server) namespaceStore() *store {
	for k, st := range s.stores {
		if k.groupResource() == namespaces {
			return st
		}
	}
	panic("no store for namespaces")
}

func (s *Server) namespace(name string) *entry { return s.namespaceStore().objects[name] }

// admitUpdate refuses to change an object in a namespace that is gone.
func (s *Server) admitUpdate(r *Request, v *version) error {
	if !v.kind.namespaced || s.namespace(r.Namespace) != nil {
		return nil
	}
	return apierrors.NewNotFound(namespaces, r.Namespace)
}

// admitCreate refuses to create an object in a namespace that does not exist or is going away.
func (s *Server) admitCreate(r *Request, v *version, name string) error {
	if !v.kind.namespaced {
		return nil
	}
	namespace := s.namespace(r.Namespace)
	if namespace == nil {
		return apierrors.NewNotFound(namespaces, r.Namespace)
	}
	if text(namespace.object, "status", "phase") != string(corev1.NamespaceTerminating) {
		return nil
	}
	err := apierrors.NewForbidden(r.groupResource(), name, fmt.Errorf(
		"unable to create new content in namespace %s because it is being terminated", r.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    corev1.NamespaceTerminatingCause,
		Message: fmt.Sprintf("namespace %s is being terminated", r.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}

// admitDelete refuses to delete the namespaces that a cluster cannot do without.
func admitDelete(r *Request, v *version, name string) error {
	if v.kind.groupResource() == namespaces && slices.Contains([]string{"default", "kube-public", "kube-system"}, name) {
		return apierrors.NewForbidden(r.groupResource(), name, fmt.Errorf("this namespace may not be deleted"))
	}
	return nil
}

// keepsUntilFinalized: a namespace stays, terminating, until its spec names no finalizer.
func (v *version) keepsUntilFinalized(object *unstructured.Unstructured) bool {
	if v.kind.groupResource() != namespaces {
		return false
	}
	finalizers, _, _ := unstructured.NestedSlice(object.Object, "spec", "finalizers")
	if len(finalizers) == 0 {
		return false
	}
	part(object.Object, "status")["phase"] = string(corev1.NamespaceTerminating)
	return true
}
