package applier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The errors that a host acts on. Test for them with errors.Is.
var (
	// ErrStale is a decision that no longer held when the request was about to write. Nothing was started. The causes are:
	//   - [Ask].Current said so;
	//   - the applier was replaced, suspended or stamped anew, or its source fetched another revision, between what was read
	//     and what was to be written;
	//   - from a [Dispatcher] also what stands in the host's own records: see [EndAskedNothing].
	//
	// The message says which.
	ErrStale = errors.New("the decision to apply no longer holds")
	// ErrNotFetched is a source that was made to fetch and does not lead to the commit: it was not pushed yet, or is
	// no longer the newest of its branch. Nothing was started. An [Ask].Current that reports whether it is the newest tells the two
	// apart: the latter is then ErrStale.
	ErrNotFetched = errors.New("the source does not lead to the commit")
	// ErrBusy is an operation in progress on the applier that did not end while the request waited for it. Nothing was
	// started, and the request may be made again.
	ErrBusy = errors.New("an operation is in progress")
	// ErrNotHeld is a Flux Kustomization that is not held suspended under the client's field manager. Nothing was started. From a
	// client it is permanent: call Suspend. From a [Dispatcher] it is not, where the trigger's Status.Held says that the host does not
	// hold it yet: ask again once it does.
	ErrNotHeld = errors.New("the applier is not held")
	// ErrSuspended is a Flux Kustomization that is suspended, asked by a Live ask. Nothing was started.
	ErrSuspended = errors.New("the applier is suspended")
	// ErrUnconfirmed is a write that may or may not have been made: the API server did not say.
	ErrUnconfirmed = errors.New("it is not known whether the write was made")
	// ErrFailed is an operation that ended Failed; see [OperationError].
	ErrFailed = errors.New("the apply failed")
	// ErrAppliedOther is an operation that succeeded at another revision than the commit asked for; see
	// [OperationError], whose Progress names it.
	ErrAppliedOther = errors.New("another revision was applied")
	// ErrNotPrefetched is a source that already holds the commit, and was not made to fetch.
	ErrNotPrefetched = errors.New("the source holds the commit already")
	// ErrPrefetchHeld is a source that is not the one whose consumers were checked, and was
	// not made to fetch.
	ErrPrefetchHeld = errors.New("the source is not the one that was checked")
)

// OperationError is an operation that ended otherwise than at the commit asked for. It is ErrFailed or ErrAppliedOther.
type OperationError struct {
	// Commit is the commit that was asked for.
	Commit string
	// Progress is the operation's end.
	Progress Progress
}

// Error returns what the applier reported.
func (e *OperationError) Error() string {
	if e.Progress.State == StateSucceeded {
		return fmt.Sprintf("%v: asked for %s, applied %s: %s",
			ErrAppliedOther, DescribeCommit(e.Commit), e.Progress.AppliedRevision, e.Progress.Message)
	}
	return fmt.Sprintf("%v: %s: %s", ErrFailed, e.Progress.Reason, e.Progress.Message)
}

// Is reports whether target is the sentinel for this end.
func (e *OperationError) Is(target error) bool {
	if e.Progress.State == StateSucceeded {
		return target == ErrAppliedOther
	}
	return target == ErrFailed
}

// Permanent marks err as one that no retry can mend: a configuration has to change first. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// IsPermanent reports whether err, or an error that it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var permanent permanentError
	return errors.As(err, &permanent)
}

// lateWrite is how long a write that got no answer may still be on its way. An API server ends a request after a minute
// (its --request-timeout).
const lateWrite = time.Minute

// WriteError returns the error of a write to an API server, wrapped as ErrUnconfirmed when it does not say whether
// the write was made. It returns nil for nil.
//
// An answer of 400 to 499 means that the write was not made. No answer at all (a lost connection, a deadline), and an
// answer of 500 and above, leave it open: the server may have stored the object before it failed. So does 408, which
// a proxy gives. Errors from before anything was sent, such as a refused connection or a deadline in client-go's own
// rate limiter, count as no answer too: client-go resends a request by itself, and the error of the last try does not
// tell what became of an earlier one.
//
// For the same reason an answer of 400 to 499 may be the echo of a write that was made, answered by 5xx, and sent again:
// read the object again before you rely on it.
func WriteError(err error) error {
	if err == nil || errors.Is(err, ErrUnconfirmed) {
		return err
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		if code >= 400 && code < 500 && code != http.StatusRequestTimeout {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrUnconfirmed, err)
}

// Absence is what a read established about an object that it did not return.
type Absence string

// What a failed read established. They are four different answers, and none stands for another.
const (
	// AbsenceNone is a read that succeeded.
	AbsenceNone Absence = ""
	// AbsenceNotFound is a kind that is served, and no object of that name.
	AbsenceNotFound Absence = "NotFound"
	// AbsenceNotServed is a kind that the cluster does not serve.
	AbsenceNotServed Absence = "NotServed"
	// AbsenceForbidden is an identity that may not look. It says nothing about the object.
	AbsenceForbidden Absence = "Forbidden"
	// AbsenceUnknown is a read that got no answer, or another one. It says nothing about the object.
	AbsenceUnknown Absence = "Unknown"
)

// AbsenceOf says what the error of a read of an API server established.
//
// A kind that is not served answers 404 as a missing object does, but not in the API's own words: its
// body is no Status ("404 page not found"), which client-go records as a cause of UnexpectedServerResponse, or, in the groups that
// kube-apiserver has built in, a Status that names no object.
func AbsenceOf(err error) Absence {
	switch {
	case err == nil:
		return AbsenceNone
	case meta.IsNoMatchError(err):
		return AbsenceNotServed
	case apierrors.IsNotFound(err):
		return notFound(err)
	case apierrors.IsForbidden(err):
		return AbsenceForbidden
	default:
		return AbsenceUnknown
	}
}

// notFound tells a missing object from a kind that is not served, and both from a 404 that no API server gave, such
// as a proxy's.
func notFound(err error) Absence {
	cause, unexpected := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case !unexpected && namesNothing(err):
		return AbsenceNotServed
	case !unexpected:
		return AbsenceNotFound
	case strings.TrimSpace(cause.Message) == "404 page not found":
		return AbsenceNotServed
	default:
		return AbsenceUnknown
	}
}

func namesNothing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" && details.Kind == ""
}

// contextError returns err with the cause of ctx's end, if ctx ended.
func contextError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return errors.Join(cause, err)
	}
	return err
}
