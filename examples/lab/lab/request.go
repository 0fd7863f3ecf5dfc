package lab

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Request is one request to the API server, in the words of its authorizer.
type Request struct {
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection, and apply for a server-side apply.
	Verb string

	Group, Version, Resource     string
	Namespace, Name, Subresource string
	FieldManager                 string
	DryRun                       bool
	Path                         string // for what is no resource, such as discovery
	Body                         []byte
}

// String is the request on one line, for test names and messages.
func (r Request) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	object := strings.Trim(r.Namespace+"/"+r.Name, "/")
	return strings.TrimSpace(r.Verb + " " + resource + " " + object)
}

// Writes says that the request may change something.
func (r Request) Writes() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) && !r.DryRun &&
		r.Group != "authorization.k8s.io"
}

// Matcher chooses requests.
type Matcher func(Request) bool

// Any matches every request.
func Any(Request) bool { return true }

// Writes matches requests that may change something.
func Writes(r Request) bool { return r.Writes() }

// Verb matches requests with one of the verbs.
func Verb(verbs ...string) Matcher {
	return func(r Request) bool { return slices.Contains(verbs, r.Verb) }
}

// To matches requests with the verb to the resource, such as apply to
// kustomizations. An empty word matches all.
func To(verb, resource string) Matcher {
	return func(r Request) bool {
		return (verb == "" || r.Verb == verb) && (resource == "" || r.Resource == resource)
	}
}

// parseRequest reads a request and leaves its body as it was.
func parseRequest(req *http.Request) (Request, error) {
	query := req.URL.Query()
	r := Request{
		Path:         req.URL.Path,
		FieldManager: query.Get("fieldManager"),
		DryRun:       len(query["dryRun"]) > 0,
	}
	r.parsePath(req.URL.Path)
	r.Verb = verb(req, r)
	if req.Body != nil && req.Body != http.NoBody {
		body, err := io.ReadAll(req.Body)
		req.Body.Close()
		if err != nil {
			return r, fmt.Errorf("read the body of %s: %w", r, err)
		}
		r.Body = body
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r, nil
}

// parsePath reads /api/VERSION/… and /apis/GROUP/VERSION/…, followed by
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]].
func (r *Request) parsePath(path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		r.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		r.Group, r.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return
	}
	// A namespace's own subresources are status and finalize.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = strings.Join(parts[2:], "/")
	}
}

func verb(req *http.Request, r Request) string {
	switch req.Method {
	case http.MethodGet:
		switch {
		case slices.Contains([]string{"1", "true"}, req.URL.Query().Get("watch")):
			return "watch"
		case r.Resource != "" && r.Name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
		if media == string(types.ApplyYAMLPatchType) || media == string(types.ApplyCBORPatchType) {
			return "apply"
		}
		return "patch"
	case http.MethodDelete:
		if r.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	return strings.ToLower(req.Method)
}
