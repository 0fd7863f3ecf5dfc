package apiserver

import (
	"context"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Server is one API server with its storage. It is safe for concurrent use.
type Server struct {
	mu       sync.Mutex
	revision uint64
	known    []*kind
	served   []*kind
	stores   map[*kind]*store
}

// New returns a server of all kinds it knows, with the namespaces that every cluster has.
func New() *Server {
	s := &Server{stores: map[*kind]*store{}, revision: 1}
	for _, k := range allKinds() {
		s.add(k)
	}
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		s.CreateNamespace(name)
	}
	return s
}

func (s *Server) add(k *kind) {
	s.known = append(s.known, k)
	s.served = append(s.served, k)
	if k.sharedWith == nil {
		s.stores[k] = newStore(k)
	}
}

// Serve processes one request. The context bounds a watch; everything else is done when Serve returns.
func (s *Server) Serve(ctx context.Context, r *Request) *Response {
	if r.Resource == "" {
		return s.discover(r)
	}
	v := s.find(r)
	// Everybody may ask what they may do.
	if isReview(r) {
		return s.review(r)
	}
	if err := r.authorize(r.Verb); err != nil {
		return ErrorResponse(err)
	}
	switch {
	case v == nil:
		return missing(r)
	case !v.serves(r.Subresource):
		if _, custom := v.kind.rules.(*customRules); custom {
			return ErrorResponse(apierrors.NewNotFound(r.groupResource(), r.Name)).warn(v.deprecations())
		}
		return missing(r)
	case v.kind.namespaced && r.Namespace == "" && !r.readsMany():
		// Only reading is possible across namespaces.
		if r.Name == "" && builtinGroup(r.Group) {
			return generic(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
				"the server does not allow this method on the requested resource")
		}
		return missing(r)
	}
	r.warn(v.deprecations()...)
	response, err := s.serve(ctx, r, v)
	if err != nil {
		response = ErrorResponse(err)
	}
	return response.warn(r.warnings)
}

func (r *Request) readsMany() bool { return r.Verb == "list" || r.Verb == "watch" }

func (s *Server) serve(ctx context.Context, r *Request, v *version) (*Response, error) {
	if r.Subresource != "" && !slices.Contains([]string{"get", "update", "patch"}, r.Verb) {
		return nil, apierrors.NewMethodNotSupported(r.groupResource(), r.Verb)
	}
	switch r.Verb {
	case "get":
		return s.get(r, v)
	case "list":
		return s.list(r, v)
	case "watch":
		return s.watch(ctx, r, v)
	case "create":
		return s.create(r, v)
	case "update":
		return s.update(r, v)
	case "patch":
		return s.patch(r, v)
	case "delete":
		return s.delete(r, v)
	case "deletecollection":
		return s.deleteCollection(r, v)
	default:
		return nil, apierrors.NewMethodNotSupported(r.groupResource(), r.Verb)
	}
}

// find is the version a request is for, nil if it is not served.
func (s *Server) find(r *Request) *version {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.served {
		if k.group != r.Group || k.names.Plural != r.Resource {
			continue
		}
		for _, v := range k.versions {
			if v.name == r.Version {
				if !k.namespaced && r.Namespace != "" && k.names.Plural != "namespaces" {
					return nil
				}
				return v
			}
		}
	}
	return nil
}

// Unserve stops serving a resource, in all its versions, as if its CustomResourceDefinition had been deleted. Its
// watches end.
func (s *Server) Unserve(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = slices.DeleteFunc(s.served, func(k *kind) bool {
		if k.groupResource() != resource {
			return false
		}
		s.stores[k.store()].endWatches()
		return true
	})
}

// ServeAgain undoes Unserve. The objects are as they were.
func (s *Server) ServeAgain(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.known {
		if k.groupResource() == resource && !slices.Contains(s.served, k) {
			s.served = append(s.served, k)
		}
	}
}

// EndWatches closes every watch of a resource, or of all for a zero value, as a server does that shuts down.
func (s *Server) EndWatches(resource schema.GroupResource) {
	s.eachStore(resource, (*store).endWatches)
}

// Compact makes the server forget the history of a resource, or of all for a zero value. A watch or a page of a list
// that goes on from an earlier revision is answered with 410 Expired.
func (s *Server) Compact(resource schema.GroupResource) {
	s.eachStore(resource, func(st *store) { st.compact(s.revision) })
}

// Bookmark sends a bookmark to every watch of a resource that asked for them, or of all for a zero value.
func (s *Server) Bookmark(resource schema.GroupResource) {
	s.eachStore(resource, func(st *store) {
		for w := range st.watchers {
			w.bookmark(s.revision)
		}
	})
}

func (s *Server) eachStore(resource schema.GroupResource, do func(*store)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, st := range s.stores {
		if resource == (schema.GroupResource{}) || k.groupResource() == resource {
			do(st)
		}
	}
}

// Revision is the resourceVersion of the latest write.
func (s *Server) Revision() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}
