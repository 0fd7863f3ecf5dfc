package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Request is one HTTP request as the API server understands it.
type Request struct {
	// Verb is the verb of Kubernetes' authorization: get, list, watch, create, update, patch, delete or
	// deletecollection; for a path that names no resource the HTTP method in lower case.
	Verb string
	// Path is the URL's path.
	Path string

	// Group, Version, Resource and Subresource say what is asked for. Resource is empty where Path names none.
	Group, Version, Resource, Subresource string
	// Namespace is empty for a cluster-scoped request, Name for one of a whole collection.
	Namespace, Name string

	Query       url.Values
	ContentType string
	Accept      string
	UserAgent   string
	Body        []byte

	// User is the name of whoever sent the request, and Allowed what it may do; nil allows everything.
	User    string
	Allowed func(authorizationv1.ResourceAttributes) bool

	// warnings are what the server noticed but let pass.
	warnings []string
}

func (r *Request) warn(text ...string) { r.warnings = append(r.warnings, text...) }

// ParseRequest reads an HTTP request, its body included.
func ParseRequest(r *http.Request) (*Request, error) {
	req := &Request{
		Verb:        strings.ToLower(r.Method),
		Path:        r.URL.Path,
		Query:       r.URL.Query(),
		ContentType: mediaType(r.Header.Get("Content-Type")),
		Accept:      r.Header.Get("Accept"),
		UserAgent:   r.Header.Get("User-Agent"),
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read the request's body: %w", err)
		}
		req.Body = body
	}
	parts := splitPath(r.URL.Path)
	if !req.parseVersion(&parts) {
		return req, nil
	}
	req.parseResource(parts)
	req.Verb = resourceVerb(r.Method, req)
	return req, nil
}

func mediaType(header string) string {
	media, _, _ := strings.Cut(header, ";")
	return media
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// parseVersion takes /api/{version} or /apis/{group}/{version} off the path and says whether a resource follows.
func (r *Request) parseVersion(parts *[]string) bool {
	p := *parts
	switch {
	case len(p) > 2 && p[0] == "api":
		r.Version, *parts = p[1], p[2:]
	case len(p) > 3 && p[0] == "apis":
		r.Group, r.Version, *parts = p[1], p[2], p[3:]
	default:
		return false
	}
	return true
}

func (r *Request) parseResource(parts []string) {
	if parts[0] == "namespaces" && len(parts) > 1 {
		r.Namespace = parts[1]
		if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
			parts = parts[2:]
		}
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
}

func resourceVerb(method string, r *Request) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if r.Name == "" {
			return "deletecollection"
		}
		return "delete"
	case http.MethodGet, http.MethodHead:
		if r.Name != "" {
			return "get"
		}
		verb := "list"
		if watch := r.Query["watch"]; len(watch) > 0 && watch[0] != "false" && watch[0] != "0" {
			verb = "watch"
		}
		// A selector for one name makes it the name that authorization sees.
		if selector, err := fields.ParseSelector(r.Query.Get("fieldSelector")); err == nil {
			r.Name, _ = selector.RequiresExactMatch("metadata.name")
		}
		return verb
	default:
		return strings.ToLower(method)
	}
}

func (r *Request) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// attributes are what authorization judges the request by, under a verb that may differ from its own.
func (r *Request) attributes(verb string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Verb: verb, Group: r.Group, Version: r.Version, Resource: r.Resource, Subresource: r.Subresource,
		Namespace: r.Namespace, Name: r.Name,
	}
}

// authorize answers Forbidden where the requester may not use the verb.
func (r *Request) authorize(verb string) error {
	if r.Resource == "" || r.Allowed == nil || r.Allowed(r.attributes(verb)) {
		return nil
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	where := "at the cluster scope"
	if r.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", r.Namespace)
	}
	return apierrors.NewForbidden(r.groupResource(), r.Name, fmt.Errorf(
		"User %q cannot %s resource %q in API group %q %s", r.User, verb, resource, r.Group, where))
}

// options reads a request's query into one of metav1's options.
func (r *Request) options(into runtime.Object) error {
	if err := internalscheme.ParameterCodec.DecodeParameters(r.Query, metav1.SchemeGroupVersion, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// manager is the field manager that a write is recorded under: the one it names, else the program that sent it.
func (r *Request) manager(named string) string {
	if named != "" {
		return named
	}
	program, _, _ := strings.Cut(r.UserAgent, "/")
	var b strings.Builder
	for _, c := range program {
		if !unicode.IsPrint(c) {
			continue
		}
		if b.Len()+utf8.RuneLen(c) > validation.FieldManagerMaxLength {
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}
