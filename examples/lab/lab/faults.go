package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Transport stands between a client and the API server. It records every
// request and lets a test decide what happens to chosen ones:
//
//	faults := lab.NewTransport()
//	config := l.RESTConfig()
//	config.Wrap(faults.Wrap)
//	faults.On(lab.Verb("apply"), 2, lab.LoseResponse())
//
// To try every request of an operation, run it once and count what
// [Transport.Requests] returns, then once more for each of them with
// On(lab.Any, n, …).
//
// A request that client-go sends again counts again, and so does each start of
// a watch. Transport is safe for concurrent use, and one may serve several
// clients; to it they are then one process.
type Transport struct {
	mu       sync.Mutex
	requests []Request
	rules    []*rule
	open     map[*context.CancelCauseFunc]bool // of watches
	cut      bool
}

type rule struct {
	match Matcher
	n     int // matching requests until this one; 0 means each
	do    Action
}

// An Action carries a request out, or does not. To send it call
// next.RoundTrip. What it returns is what the client gets.
type Action func(next http.RoundTripper, req *http.Request) (*http.Response, error)

// NewTransport returns a Transport that lets everything pass.
func NewTransport() *Transport {
	return &Transport{open: make(map[*context.CancelCauseFunc]bool)}
}

// Wrap is for rest.Config's Wrap or WrapTransport.
func (t *Transport) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return t.roundTrip(next, req) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Requests returns all requests so far, in the order in which they were made.
func (t *Transport) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Request(nil), t.requests...)
}

// Count returns how many requests matched so far.
func (t *Transport) Count(match Matcher) int {
	n := 0
	for _, r := range t.Requests() {
		if match(r) {
			n++
		}
	}
	return n
}

// On does something to the n-th request from now on that matches, 1 being the
// next. With n 0 it does so to each. Where several rules meet one request, the
// first that was added wins, and the others still count it.
func (t *Transport) On(match Matcher, n int, do Action) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules = append(t.rules, &rule{match: match, n: n, do: do})
}

// Reset forgets rules and requests and mends what was cut.
func (t *Transport) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests, t.rules, t.cut = nil, nil, false
}

// ErrCut is what a client gets, wrapped, after Cut.
var ErrCut = errors.New("lab: the client was cut off from the API server")

// ErrLost is what a client gets, wrapped, whose request or response was lost.
var ErrLost = errors.New("lab: connection lost")

// Cut ends all watches and lets no further request through, as if the process
// had died. To the client each looks like a network error.
func (t *Transport) Cut() {
	t.mu.Lock()
	t.cut = true
	t.mu.Unlock()
	t.endWatches(ErrCut)
}

// BreakWatches ends all watches that are open. New ones are let through.
func (t *Transport) BreakWatches() { t.endWatches(ErrLost) }

func (t *Transport) endWatches(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for cancel := range t.open {
		(*cancel)(cause)
	}
}

func (t *Transport) roundTrip(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	seen, err := parseRequest(req)
	if err != nil {
		return nil, err
	}
	do, err := t.admit(seen)
	if err != nil {
		return nil, err
	}
	if seen.Verb == "watch" {
		next = t.endable(next)
	}
	if do == nil {
		do = send
	}
	resp, err := do(next, req)
	if err == nil && t.isCut() {
		resp.Body.Close() // the process died before it saw this
		return nil, fmt.Errorf("%s: %w", seen, ErrCut)
	}
	return resp, err
}

func send(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	return next.RoundTrip(req)
}

func (t *Transport) isCut() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cut
}

// admit records a request and returns the action that applies to it, if any.
func (t *Transport) admit(seen Request) (Action, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cut {
		return nil, fmt.Errorf("%s: %w", seen, ErrCut)
	}
	t.requests = append(t.requests, seen)
	var do Action
	for _, r := range t.rules {
		if r.n < 0 || !r.match(seen) {
			continue
		}
		due := r.n == 0
		if r.n > 0 {
			if r.n--; r.n == 0 {
				r.n, due = -1, true // done for good
			}
		}
		if due && do == nil {
			do = r.do
		}
	}
	return do, nil
}

// endable makes a watch one that endWatches can end.
func (t *Transport) endable(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancelCause(req.Context())
		t.mu.Lock()
		t.open[&cancel] = true
		t.mu.Unlock()
		closed := func() {
			t.mu.Lock()
			delete(t.open, &cancel)
			t.mu.Unlock()
			cancel(nil)
		}
		resp, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			closed()
			return nil, err
		}
		resp.Body = &watchBody{ReadCloser: resp.Body, closed: closed}
		return resp, nil
	})
}

type watchBody struct {
	io.ReadCloser
	closed func()
}

func (b *watchBody) Close() error {
	defer b.closed()
	return b.ReadCloser.Close()
}

// Fail does not send the request; the client gets the error, as if it could
// not be sent. With nil that is [ErrLost].
func Fail(err error) Action {
	if err == nil {
		err = ErrLost
	}
	return func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, err }
}

// LoseResponse sends the request, waits until the API server has answered, and
// gives the client [ErrLost] instead of the answer.
func LoseResponse() Action {
	return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if resp, err := next.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		return nil, ErrLost
	}
}

// Before calls a function, on the client's goroutine, and then sends the
// request: what somebody else does between two requests of ours.
func Before(hook func()) Action {
	return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		hook()
		return next.RoundTrip(req)
	}
}

// After sends the request and calls a function, on the client's goroutine,
// before the client gets the answer.
func After(hook func()) Action {
	return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		hook()
		return resp, err
	}
}

// CutBefore cuts the client off instead of sending the request: the process
// died before it. The functions are called after that, on the client's
// goroutine.
func (t *Transport) CutBefore(hooks ...func()) Action {
	return func(_ http.RoundTripper, _ *http.Request) (*http.Response, error) {
		t.Cut()
		for _, hook := range hooks {
			hook()
		}
		return nil, ErrCut
	}
}

// CutAfter sends the request, waits until the API server has answered, and
// cuts the client off: the process died after it, without having seen the
// answer.
func (t *Transport) CutAfter(hooks ...func()) Action {
	return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		if resp, err := next.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		return t.CutBefore(hooks...)(next, req)
	}
}

// Hang does not send the request; the client waits until it gives up.
func Hang() Action {
	return func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, context.Cause(req.Context())
	}
}

// Answer does not send the request; the client gets an API error of that code
// and reason, such as 500 and metav1.StatusReasonInternalError. With a
// retryAfter of a second or more client-go waits so long and sends the request
// again by itself; with 0 it leaves that to its caller.
func Answer(code int, reason metav1.StatusReason, retryAfter time.Duration) Action {
	return func(_ http.RoundTripper, req *http.Request) (*http.Response, error) {
		return answer(req, code, reason, retryAfter)
	}
}

// AnswerAfter is Answer, but the request is sent first and its own answer
// thrown away: a server that did the work and then failed to say so.
func AnswerAfter(code int, reason metav1.StatusReason, retryAfter time.Duration) Action {
	return func(next http.RoundTripper, req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		return answer(req, code, reason, retryAfter)
	}
}

func answer(req *http.Request, code int, reason metav1.StatusReason, retryAfter time.Duration) (*http.Response, error) {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure,
		Code:     int32(code),
		Reason:   reason,
		Message:  fmt.Sprintf("lab: answered %d on purpose", code),
	}
	header := http.Header{"Content-Type": {runtime.ContentTypeJSON}}
	if seconds := int(retryAfter / time.Second); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode:    code,
		Status:        strconv.Itoa(code) + " " + http.StatusText(code),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}, nil
}
