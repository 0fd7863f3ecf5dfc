package appliertest

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The answers of an API server that cannot do what it is asked, as client-go gives them to a backend.

// internalError is an API server that failed; the write may have been made for all that the answer says.
func internalError(*request) error {
	return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
}

// tooManyRequests is an API server that did not take the request up.
func tooManyRequests(*request) error {
	return apierrors.NewTooManyRequests("the server has received too many requests", 0)
}

// conflict is a write that was not made.
func conflict(r *request) error {
	return apierrors.NewConflict(r.resource.GroupResource(), r.name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

// forbidden is a request that the identity may not make.
func forbidden(r *request) error {
	return apierrors.NewForbidden(r.resource.GroupResource(), r.name, errors.New("User \"host\" cannot "+r.verb+" it"))
}

// notServed is a kind that the cluster does not serve: 404, with a body that is no Status.
func notServed(r *request) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, r.verb, r.resource.GroupResource(), r.name, "404 page not found", 0, true)
}

// connectionReset is a connection that broke before the answer.
func connectionReset(*request) error { return noAnswer(syscall.ECONNRESET) }

// timedOut is an answer that did not come in time.
func timedOut(*request) error { return noAnswer(context.DeadlineExceeded) }

// noAnswer is how net/http reports that there was none.
func noAnswer(cause error) error {
	return &url.Error{Op: "Patch", URL: "https://cluster.example.com", Err: cause}
}
