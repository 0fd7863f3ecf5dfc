package fake

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"syscall"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/fake/internal/apiserver"
)

// A View is a cluster as one client sees it: with an identity, a record of the requests it made, and faults that
// strike only them. It is a dynamic.Interface and safe for concurrent use.
type View struct {
	cluster *Cluster
	user    string
	allowed func(authorizationv1.ResourceAttributes) bool
	client  dynamic.Interface

	mu       sync.Mutex
	requests []*Request
	faults   []*fault
	cut      bool
	watches  map[*openWatch]struct{}
}

var _ dynamic.Interface = (*View)(nil)

func newView(c *Cluster, user string, allowed func(authorizationv1.ResourceAttributes) bool) *View {
	v := &View{cluster: c, user: user, allowed: allowed, watches: map[*openWatch]struct{}{}}
	client, err := dynamic.NewForConfig(v.Config())
	if err != nil {
		panic(fmt.Sprintf("fake: client for a view: %v", err))
	}
	v.client = client
	return v
}

// Client returns the view's client. All clients of a view share its faults and its record.
func (v *View) Client() dynamic.Interface { return v.client }

// Resource makes the view itself a dynamic.Interface.
func (v *View) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return v.client.Resource(resource)
}

// Config returns a configuration with which any client of client-go reaches the cluster, such as a discovery client
// or a typed one. It sets no rate limit, and asks for JSON, which is all that the cluster speaks.
func (v *View) Config() *rest.Config {
	return &rest.Config{
		Host: "https://cluster.fake", Transport: (*transport)(v), QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
}

// transport carries a view's requests to the cluster.
type transport View

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	parsed, err := apiserver.ParseRequest(r)
	if err != nil {
		return nil, err
	}
	v := (*View)(t)
	if v.isCut() {
		return nil, ErrCut
	}
	parsed.User, parsed.Allowed = v.user, v.allowed
	request, faults := v.record(parsed)
	if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders() // as net/http's own transport does for each request that it sends
	}
	ctx, watch := r.Context(), (*openWatch)(nil)
	if request.Verb == "watch" {
		ctx, watch = v.open(ctx)
	}
	response, err := v.answer(ctx, parsed, request, faults)
	if err == nil && v.isCut() {
		err = ErrCut
	}
	if err != nil {
		if response != nil && response.Stream != nil {
			_ = response.Stream.Close()
		}
		watch.close()
		return nil, err
	}
	v.mu.Lock()
	request.Code = response.Code
	v.mu.Unlock()
	if response.Stream != nil {
		watch.ReadCloser = response.Stream
		response.Stream = watch
	} else {
		watch.close()
	}
	return httpResponse(r, response), nil
}

func httpResponse(r *http.Request, response *apiserver.Response) *http.Response {
	out := &http.Response{
		Status:     fmt.Sprintf("%d %s", response.Code, http.StatusText(response.Code)),
		StatusCode: response.Code,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        response.Header,
		Body:          response.Stream,
		ContentLength: -1,
		Request:       r,
	}
	if response.Stream == nil {
		out.Body = io.NopCloser(bytes.NewReader(response.Body))
		out.ContentLength = int64(len(response.Body))
	}
	return out
}

// refused is the error of a connection to a server that is not there.
func refused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// sleep waits, unless the request is given up before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
