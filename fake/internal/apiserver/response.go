package apiserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Response is the server's answer to one Request.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte
	// Stream is set in place of Body where the answer is a watch. Reading it blocks until there is an event, or the
	// request's context ends. Whoever reads it closes it.
	Stream io.ReadCloser
}

func jsonResponse(code int, body []byte) *Response {
	return &Response{Code: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func encode(code int, v any) *Response {
	body, err := json.Marshal(v)
	if err != nil {
		return ErrorResponse(err)
	}
	return jsonResponse(code, body)
}

func notFoundPage() *Response {
	return &Response{
		Code:   http.StatusNotFound,
		Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}},
		Body:   []byte("404 page not found\n"),
	}
}

// missing answers a path that the server serves nothing at. For the groups compiled into the server it is a Status that
// names no object, for all others not even that; clients tell by it a kind that is not served from an object that does
// not exist.
func missing(r *Request) *Response {
	if !builtinGroup(r.Group) {
		return notFoundPage()
	}
	return generic(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func builtinGroup(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

func generic(code int, reason metav1.StatusReason, message string) *Response {
	return encode(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	})
}

// ErrorResponse is the answer that carries an error: an API status as it is, anything else as an internal error.
func ErrorResponse(err error) *Response {
	status := errorStatus(err)
	response := encode(int(status.Code), status)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return response
}

func errorStatus(err error) *metav1.Status {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonUnknown,
		Message: err.Error(),
	}
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status = api.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

// warn gives the response the Warning headers for what the server noticed but let pass.
func (r *Response) warn(warnings []string) *Response {
	for _, warning := range warnings {
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(warning)
		r.Header.Add("Warning", `299 - "`+quoted+`"`)
	}
	return r
}
