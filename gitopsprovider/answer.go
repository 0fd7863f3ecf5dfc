package gitopsprovider

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer is what a read of the cluster established. The zero value is that nothing was read.
type Answer string

// What a read established. No one of them stands for another.
const (
	// AnswerNone is that nothing was read.
	AnswerNone Answer = ""
	// AnswerFound is an object that is there, or a list that was read whole.
	AnswerFound Answer = "Found"
	// AnswerAbsent is a kind that is served, and no object of that name.
	AnswerAbsent Answer = "Absent"
	// AnswerNotServed is a kind that the cluster does not serve.
	AnswerNotServed Answer = "NotServed"
	// AnswerForbidden is an identity that may not look. It says nothing about the object.
	AnswerForbidden Answer = "Forbidden"
	// AnswerUnknown is a read that got no answer, or one that cannot be read. It says nothing about the object.
	AnswerUnknown Answer = "Unknown"
)

// Established reports whether the answer says something about the object: that it is there, or that it is not.
func (a Answer) Established() bool {
	return a == AnswerFound || a == AnswerAbsent || a == AnswerNotServed
}

// AnswerError is an error of a read whose answer is known. A [Reader] that does not reach an API server returns it.
type AnswerError struct {
	Answer Answer
	Err    error
}

// Error returns the message of Err.
func (e *AnswerError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *AnswerError) Unwrap() error { return e.Err }

// AnswerOf says what the error of a read established: of an [AnswerError] what it says, of an error of an API server
// what that means, of any other error AnswerUnknown, and of nil AnswerFound.
//
// A kind that is not served answers 404 as a missing object does, but not in the API's own words: its body is no Status
// ("404 page not found"), which client-go records as a cause of UnexpectedServerResponse, or, in the groups that kube-apiserver has built in, a
// Status that names no object.
func AnswerOf(err error) Answer {
	var known *AnswerError
	switch {
	case err == nil:
		return AnswerFound
	case errors.As(err, &known):
		return known.Answer
	case meta.IsNoMatchError(err):
		return AnswerNotServed
	case apierrors.IsNotFound(err):
		return answerOfNotFound(err)
	case apierrors.IsForbidden(err):
		return AnswerForbidden
	default:
		return AnswerUnknown
	}
}

// answerOfNotFound tells a missing object from a kind that is not served, and both from a 404 that no API server
// gave, such as a proxy's.
func answerOfNotFound(err error) Answer {
	cause, unexpected := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case !unexpected && namesNothing(err):
		return AnswerNotServed
	case !unexpected:
		return AnswerAbsent
	case strings.TrimSpace(cause.Message) == "404 page not found":
		return AnswerNotServed
	default:
		return AnswerUnknown
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

// describeRead says for people what became of reading something, which is named like "Kustomization team-a/shop in
// cluster prod". verbs are those that what was to be done takes. It is empty for a read that found what it looked for.
func describeRead(what, verbs, named string, err error) string {
	switch AnswerOf(err) {
	case AnswerFound, AnswerNone:
		return ""
	case AnswerAbsent:
		return named + " does not exist"
	case AnswerNotServed:
		return fmt.Sprintf("%s: the cluster does not serve this kind: is what defines it installed there?", named)
	case AnswerForbidden:
		return fmt.Sprintf("this identity may not %s %s: grant it the verbs %s: %v", what, named, verbs, err)
	default:
		return fmt.Sprintf("%s could not be read: %v", named, err)
	}
}

// describe says for people what became of reading an object. One that was named in part alone is asked for as another kind of
// object than was meant, which no cluster serves.
func (v *Views) describe(w Workload, err error) string {
	var missing []string
	if w.Group == "" {
		missing = append(missing, "set Workload.Group, unless the kind is of the core group")
	}
	if w.Namespace == "" {
		missing = append(missing, "set Workload.Namespace, unless the kind has none")
	}
	if !notServed(err) || len(missing) == 0 {
		return describeRead("read", "get and list", v.named(w), err)
	}
	return fmt.Sprintf("%s: the cluster does not serve this kind as it is named here: %s; or is what defines it not installed there?", v.named(w), strings.Join(missing, "; "))
}

// notServed reports whether a kind is not served, or not where it was guessed to be.
func notServed(err error) bool {
	var guess *AnswerError
	return AnswerOf(err) == AnswerNotServed || errors.As(err, &guess) && AnswerOf(guess.Err) == AnswerNotServed
}
