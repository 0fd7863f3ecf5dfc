package fake

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake/internal/apiserver"
)

// A Request is one HTTP request of a view, as the API server understood it. A request that client-go sends again
// after a failure is a request of its own.
type Request struct {
	// Index counts the view's requests, from 1.
	Index int
	Time  time.Time

	// Verb is the verb of RBAC: get, list, watch, create, update, patch, delete or deletecollection.
	Verb string
	// Group, Version, Resource and Subresource are empty for a request that names no resource, such as discovery.
	Group, Version, Resource, Subresource string
	// Namespace and Name are the object's. Name is empty for a collection; a create has the name of its body.
	Namespace, Name string

	// PatchType, FieldManager, Force and DryRun are the options of a write.
	PatchType    types.PatchType
	FieldManager string
	Force        bool
	DryRun       bool

	// Body is what was sent. It must not be changed.
	Body []byte

	// Code is the HTTP status of the answer, 0 while there is none or if the client got none.
	Code int
}

// String names the request in a line, without its body.
func (r Request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %s %s", r.Index, r.Verb, r.Resource)
	if r.Group != "" {
		b.WriteString("." + r.Group)
	}
	if r.Subresource != "" {
		b.WriteString("/" + r.Subresource)
	}
	if r.Name != "" || r.Namespace != "" {
		fmt.Fprintf(&b, " %s/%s", r.Namespace, r.Name)
	}
	if r.PatchType != "" {
		fmt.Fprintf(&b, " (%s by %q)", r.PatchType, r.FieldManager)
	}
	if r.Code != 0 {
		fmt.Fprintf(&b, " -> %d", r.Code)
	}
	return b.String()
}

// Requests returns the requests that the view has made so far.
func (v *View) Requests() []Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]Request, 0, len(v.requests))
	for _, r := range v.requests {
		out = append(out, *r)
	}
	return out
}

// ResetRequests forgets the requests made so far. The next one has index 1 again; counts of faults go on.
func (v *View) ResetRequests() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.requests = nil
}

// record notes a request and finds the faults that strike it.
func (v *View) record(parsed *apiserver.Request) (*Request, []*fault) {
	request := describe(parsed)
	v.mu.Lock()
	defer v.mu.Unlock()
	request.Index = len(v.requests) + 1
	v.requests = append(v.requests, request)
	seen := *request
	var struck []*fault
	for _, f := range slices.Clone(v.faults) {
		if f.strikes(seen) {
			struck = append(struck, f)
		}
	}
	return request, struck
}

func describe(parsed *apiserver.Request) *Request {
	r := &Request{
		Time: time.Now(), Verb: parsed.Verb,
		Group: parsed.Group, Version: parsed.Version, Resource: parsed.Resource, Subresource: parsed.Subresource,
		Namespace: parsed.Namespace, Name: parsed.Name,
		FieldManager: parsed.Query.Get("fieldManager"),
		Force:        parsed.Query.Get("force") == "true",
		DryRun:       parsed.Query.Get("dryRun") != "",
		Body:         parsed.Body,
	}
	if r.Verb == "patch" {
		r.PatchType = types.PatchType(parsed.ContentType)
	}
	if r.Verb == "create" && r.Name == "" {
		var object metav1.PartialObjectMetadata
		if json.Unmarshal(parsed.Body, &object) == nil {
			r.Name = object.Name
		}
	}
	return r
}
