package apiserver

import "k8s.io/apimachinery/pkg/runtime/schema"

// ResourceOf is the resource that serves a kind, and whether its objects live in namespaces, where the kind is served.
func (s *Server) ResourceOf(gvk schema.GroupVersionKind) (resource schema.GroupVersionResource, namespaced, served bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.served {
		if k.group != gvk.Group || k.names.Kind != gvk.Kind {
			continue
		}
		for _, v := range k.versions {
			if v.name == gvk.Version {
				return v.gvr(), k.namespaced, true
			}
		}
	}
	return schema.GroupVersionResource{}, false, false
}
