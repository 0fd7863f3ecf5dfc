package fake

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gitops-applier/gitops-applier/fake/internal/apiserver"
)

// A Fault is something that happens to the requests of a view that match it. The zero value matches every request
// and does nothing to it.
type Fault struct {
	// Verb, Group, Resource, Subresource, Namespace and Name match a request that has these values; an empty one
	// matches any. Subresource "-" matches only requests that name none.
	Verb, Group, Resource, Subresource, Namespace, Name string
	// Match, if set, has to agree as well. It must not use the view.
	Match func(Request) bool
	// Nth is the one request that is struck, counting from 1 those that match since the fault was injected. Zero
	// strikes each of them.
	Nth int

	// Delay passes before anything else happens, or until the client gives up.
	Delay time.Duration
	// Before is called before the request is processed. It may use the cluster, also through the same view.
	Before func(Request)
	// Err is answered instead of processing the request. An error of apimachinery's api/errors is the server's
	// answer, with its code; any other is what the client's connection failed with, such as io.EOF.
	Err error
	// Lost is what the client's connection fails with after the request was processed: the write is made, but
	// its answer lost. io.ErrUnexpectedEOF is a good one.
	Lost error
	// After is called after the request was processed, before the client has its answer. It may use the cluster.
	After func(Request)

	// EndWatch cuts the stream of a watch after Events events, SilenceWatch keeps it open but delivers no more.
	EndWatch, SilenceWatch bool
	Events                 int
}

type fault struct {
	Fault
	matched int
}

// Inject makes a fault strike the view's requests from now on, until the returned function is called. Of several
// faults that strike one request all run their hooks and delays; the first that answers it does.
func (v *View) Inject(f Fault) (remove func()) {
	injected := &fault{Fault: f}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.faults = append(v.faults, injected)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.faults = slices.DeleteFunc(v.faults, func(other *fault) bool { return other == injected })
	}
}

// strikes says whether a request is to be struck, and counts it. The view's lock is held.
func (f *fault) strikes(r Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	subresource := is(f.Subresource, r.Subresource) || f.Subresource == "-" && r.Subresource == ""
	if !is(f.Verb, r.Verb) || !is(f.Group, r.Group) || !is(f.Resource, r.Resource) || !subresource ||
		!is(f.Namespace, r.Namespace) || !is(f.Name, r.Name) || f.Match != nil && !f.Match(r) {
		return false
	}
	f.matched++
	return f.Nth == 0 || f.Nth == f.matched
}

// answer has the server process a request, with whatever faults strike it.
func (v *View) answer(ctx context.Context, parsed *apiserver.Request, request *Request, faults []*fault) (*apiserver.Response, error) {
	seen := v.snapshot(request)
	for _, f := range faults {
		if err := sleep(ctx, f.Delay); err != nil {
			return nil, err
		}
		if f.Before != nil {
			f.Before(seen)
		}
	}
	for _, f := range faults {
		if f.Err != nil {
			return failure(f.Err)
		}
	}
	switch {
	case v.isCut():
		return nil, ErrCut
	case v.cluster.stopped.Load():
		return nil, refused()
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	response := v.cluster.server.Serve(ctx, parsed)
	for _, f := range faults {
		if f.After != nil {
			f.After(seen)
		}
	}
	for _, f := range faults {
		if f.Lost != nil {
			return response, f.Lost
		}
		if response.Stream != nil && (f.EndWatch || f.SilenceWatch) {
			response.Stream = newCutStream(ctx, response.Stream, f.Events, f.SilenceWatch)
		}
	}
	return response, nil
}

func (v *View) snapshot(r *Request) Request {
	v.mu.Lock()
	defer v.mu.Unlock()
	return *r
}

func failure(err error) (*apiserver.Response, error) {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apiserver.ErrorResponse(err), nil
	}
	return nil, err
}

// A cutStream is a watch that delivers a number of events and then ends or falls silent.
type cutStream struct {
	ctx    context.Context
	source io.ReadCloser
	lines  *bufio.Reader
	left   int
	silent bool
	rest   []byte

	closing sync.Once
	closed  chan struct{}
}

func newCutStream(ctx context.Context, source io.ReadCloser, events int, silent bool) *cutStream {
	return &cutStream{
		ctx: ctx, source: source, lines: bufio.NewReader(source), left: events, silent: silent, closed: make(chan struct{}),
	}
}

func (s *cutStream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.left == 0 {
			return 0, s.end()
		}
		line, err := s.lines.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		s.left--
		s.rest = line
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *cutStream) end() error {
	if !s.silent {
		return io.EOF
	}
	select {
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-s.closed:
		return io.EOF
	}
}

func (s *cutStream) Close() error {
	s.closing.Do(func() { close(s.closed) })
	return s.source.Close()
}
