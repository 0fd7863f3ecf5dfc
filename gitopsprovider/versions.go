package gitopsprovider

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// usualVersions are those that are tried for a kind that nobody knows, most common first.
var usualVersions = []string{"v1", "v1beta1", "v1alpha1", "v2", "v1beta2", "v2beta1", "v1alpha2"}

// servedVersions remembers which version of a kind a cluster serves. The zero value knows of none.
type servedVersions struct {
	mu     sync.Mutex
	byKind map[schema.GroupKind]string
}

func (s *servedVersions) last(kind schema.GroupKind) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKind[kind]
}

func (s *servedVersions) set(kind schema.GroupKind, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byKind == nil {
		s.byKind = map[schema.GroupKind]string{}
	}
	s.byKind[kind] = version
}

// inVersion makes a request in the version of a kind that the cluster serves. It tries the one that last was, and then
// the others. An error that says nothing about the version ends it.
func (r *ClusterReader) inVersion(kind Kind, request func(dynamic.NamespaceableResourceInterface) error) error {
	versions := kind.Versions
	if last := r.served.last(kind.GroupKind); last != "" {
		versions = append([]string{last}, versions...)
	}
	for _, version := range versions {
		err := request(r.client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Resource}))
		switch AnswerOf(err) {
		case AnswerNotServed:
			continue
		case AnswerFound, AnswerAbsent:
			r.served.set(kind.GroupKind, version)
		}
		return err
	}
	resource := schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
	return &AnswerError{Answer: AnswerNotServed, Err: fmt.Errorf("the cluster does not serve %s (tried %s)", resource, strings.Join(kind.Versions, ", "))}
}

// kind returns the kind of w, and whether the Dialect has it.
func (r *ClusterReader) kind(w Workload) (Kind, bool) {
	for _, kind := range r.dialect.Kinds {
		if kind.GroupKind == w.GroupKind() {
			return kind, true
		}
	}
	return Kind{GroupKind: w.GroupKind(), Resource: usualPlural(w.Kind), Versions: usualVersions}, false
}

// usualPlural guesses the plural that requests name. What apimachinery guesses is wrong for Gateway and Mesh.
func usualPlural(kind string) string {
	singular := strings.ToLower(kind)
	switch {
	case singular == "endpoints":
		return singular
	case esPlural.MatchString(singular):
		return singular + "es"
	case iesPlural.MatchString(singular):
		return strings.TrimSuffix(singular, "y") + "ies"
	default:
		return singular + "s"
	}
}

var (
	esPlural  = regexp.MustCompile(`(?:s|x|z|sh|ch)$`)
	iesPlural = regexp.MustCompile(`[^aeiou]y$`)
)

func (r *ClusterReader) get(ctx context.Context, kind Kind, w Workload) (*unstructured.Unstructured, error) {
	var object *unstructured.Unstructured
	err := r.inVersion(kind, func(resource dynamic.NamespaceableResourceInterface) (err error) {
		if w.Name == "" {
			return errors.New("the object has no name")
		}
		object, err = resource.Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		return err
	})
	return object, err
}
