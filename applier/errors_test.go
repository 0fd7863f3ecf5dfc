package applier_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
)

var apps = schema.GroupResource{Group: "example.com", Resource: "apps"}

func TestPermanentMarksAnErrorThroughWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	marked := fmt.Errorf("outer: %w", applier.Permanent(fmt.Errorf("inner: %w", cause)))

	assert.True(t, applier.IsPermanent(marked))
	assert.ErrorIs(t, marked, cause, "the cause stays reachable")
	assert.EqualError(t, marked, "outer: inner: cause", "the mark is not seen")
	assert.True(t, applier.IsPermanent(errors.Join(io.EOF, marked)))
	assert.False(t, applier.IsPermanent(cause))
	assert.False(t, applier.IsPermanent(nil))
	assert.NoError(t, applier.Permanent(nil))
}

// An answer of 400 to 499 says that the write was not made. Everything else leaves it open.
func TestAWriteIsUnconfirmedUnlessItsAnswerSaysThatItWasNotMade(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err         error
		unconfirmed bool
	}{
		"400":                      {err: apierrors.NewBadRequest("no")},
		"401":                      {err: apierrors.NewUnauthorized("no")},
		"403":                      {err: apierrors.NewForbidden(apps, "a", nil)},
		"404":                      {err: apierrors.NewNotFound(apps, "a")},
		"409":                      {err: apierrors.NewConflict(apps, "a", nil)},
		"422":                      {err: apierrors.NewInvalid(schema.GroupKind{}, "a", nil)},
		"429":                      {err: apierrors.NewTooManyRequests("slow", 1)},
		"408, which a proxy gives": {err: apierrors.NewGenericServerResponse(http.StatusRequestTimeout, "patch", apps, "a", "", 0, true), unconfirmed: true},
		"500":                      {err: apierrors.NewInternalError(errors.New("etcd")), unconfirmed: true},
		"503":                      {err: apierrors.NewServiceUnavailable("no"), unconfirmed: true},
		"504":                      {err: apierrors.NewTimeoutError("slow", 1), unconfirmed: true},
		"200 that cannot be read":  {err: &apierrors.StatusError{}, unconfirmed: true},
		"a lost connection":        {err: io.ErrUnexpectedEOF, unconfirmed: true},
		"a deadline":               {err: context.DeadlineExceeded, unconfirmed: true},
		"409, wrapped":             {err: fmt.Errorf("apply: %w", apierrors.NewConflict(apps, "a", nil))},
		"500, wrapped":             {err: fmt.Errorf("apply: %w", apierrors.NewInternalError(errors.New("etcd"))), unconfirmed: true},
		"what is marked already":   {err: fmt.Errorf("x: %w", applier.ErrUnconfirmed), unconfirmed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := applier.WriteError(test.err)
			assert.Equal(t, test.unconfirmed, errors.Is(got, applier.ErrUnconfirmed))
			assert.ErrorIs(t, got, test.err, "the answer stays reachable")
			assert.Equal(t, got, applier.WriteError(got), "marking twice changes nothing")
		})
	}
	assert.NoError(t, applier.WriteError(nil))
}

// client-go makes a 404 of a path that is served by nobody from a body that is no Status.
func notServed() error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", apps, "a", "404 page not found", 0, true)
}

// kube-apiserver answers so for what its own groups do not have, such as Deployments of the core group.
func notBuiltIn() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

func TestFourAnswersStayFour(t *testing.T) {
	t.Parallel()
	for want, errs := range map[applier.Absence][]error{
		applier.AbsenceNone:      {nil},
		applier.AbsenceNotFound:  {apierrors.NewNotFound(apps, "a"), fmt.Errorf("read: %w", apierrors.NewNotFound(apps, "a"))},
		applier.AbsenceNotServed: {notServed(), notBuiltIn(), fmt.Errorf("read: %w", notServed()), &meta.NoKindMatchError{}, &meta.NoResourceMatchError{}},
		applier.AbsenceForbidden: {apierrors.NewForbidden(apps, "a", nil)},
		applier.AbsenceUnknown: {
			io.EOF, context.Canceled, apierrors.NewInternalError(io.EOF), apierrors.NewConflict(apps, "a", nil),
			apierrors.NewTooManyRequests("slow", 1), apierrors.NewResourceExpired("old"), apierrors.NewServiceUnavailable("no"), apierrors.NewUnauthorized("expired"),
		},
	} {
		for _, err := range errs {
			assert.Equal(t, want, applier.AbsenceOf(err), "%v", err)
		}
	}
}

func TestAnOperationThatEndedOtherwiseIsOneOfTwoErrors(t *testing.T) {
	t.Parallel()
	commit := "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	failed := fmt.Errorf("wrapped: %w", &applier.OperationError{Commit: commit, Progress: applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: "bad"}})
	assert.ErrorIs(t, failed, applier.ErrFailed)
	assert.NotErrorIs(t, failed, applier.ErrAppliedOther)
	assert.EqualError(t, failed, "wrapped: the apply failed: BuildFailed: bad")

	other := fmt.Errorf("wrapped: %w", &applier.OperationError{Commit: commit, Progress: applier.Progress{State: applier.StateSucceeded, AppliedRevision: "main@sha1:b", Message: "newer"}})
	assert.ErrorIs(t, other, applier.ErrAppliedOther)
	assert.NotErrorIs(t, other, applier.ErrFailed)
	assert.EqualError(t, other, "wrapped: another revision was applied: asked for commit aaaaaaaaaaaa, applied main@sha1:b: newer")
	var operation *applier.OperationError
	require.ErrorAs(t, other, &operation)
	assert.Equal(t, "main@sha1:b", operation.Progress.AppliedRevision)
}

func TestAVerdictIsAnErrorThatKeepsItsReason(t *testing.T) {
	t.Parallel()
	assert.NoError(t, applier.Verdict{OK: true, Reason: applier.ReasonSucceeded}.AsError())

	refused := fmt.Errorf("ask: %w", applier.Verdict{Reason: applier.ReasonForbidden, Message: "may not"}.AsError())
	assert.EqualError(t, refused, "ask: may not")
	assert.True(t, applier.IsPermanent(refused))
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(refused))

	unchecked := applier.Verdict{Reason: applier.ReasonCheckFailed, Message: "no answer", Err: io.EOF}.AsError()
	assert.False(t, applier.IsPermanent(unchecked), "it says nothing about the applier")
	assert.ErrorIs(t, unchecked, io.EOF)
	assert.Equal(t, applier.ReasonCheckFailed, applier.VerdictReason(unchecked))

	assert.Empty(t, applier.VerdictReason(io.EOF))
	assert.Empty(t, applier.VerdictReason(nil))
	var none applier.Verdict
	assert.Error(t, none.AsError(), "the zero value is no permission")
}
