package gitopsprovider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func TestAnswerOf(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: group, Resource: "apps"}
	notServedByServer := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "a", "404 page not found\n", 0, true)
	fromProxy := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "a", "<html>not here</html>", 0, true)
	notBuiltIn := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
	absences := map[gitopsprovider.Answer]applier.Absence{
		gitopsprovider.AnswerFound: applier.AbsenceNone, gitopsprovider.AnswerAbsent: applier.AbsenceNotFound,
		gitopsprovider.AnswerNotServed: applier.AbsenceNotServed, gitopsprovider.AnswerForbidden: applier.AbsenceForbidden,
		gitopsprovider.AnswerUnknown: applier.AbsenceUnknown,
	}
	for want, errs := range map[gitopsprovider.Answer][]error{
		gitopsprovider.AnswerFound:     {nil},
		gitopsprovider.AnswerAbsent:    {apierrors.NewNotFound(resource, "a")},
		gitopsprovider.AnswerNotServed: {notServedByServer, notBuiltIn, &meta.NoKindMatchError{}},
		gitopsprovider.AnswerForbidden: {apierrors.NewForbidden(resource, "a", errors.New("no"))},
		gitopsprovider.AnswerUnknown: {fromProxy, apierrors.NewUnauthorized("expired"), apierrors.NewInternalError(errors.New("x")),
			apierrors.NewServiceUnavailable("x"), context.DeadlineExceeded, errSilent},
	} {
		for _, err := range errs {
			assert.Equal(t, want, gitopsprovider.AnswerOf(err), "%v", err)
			assert.Equal(t, absences[want], applier.AbsenceOf(err), "the backends tell the same of %v", err)
			if err != nil {
				assert.Equal(t, want, gitopsprovider.AnswerOf(fmt.Errorf("wrapped: %w", err)), "%v", err)
			}
		}
	}
}

func TestAnAnswerErrorSaysWhatItsReaderKnows(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("wrapped: %w", &gitopsprovider.AnswerError{Answer: gitopsprovider.AnswerForbidden, Err: errSilent})
	assert.Equal(t, gitopsprovider.AnswerForbidden, gitopsprovider.AnswerOf(err))
	require.ErrorIs(t, err, errSilent)
	assert.EqualError(t, err, "wrapped: connection refused")
}

func TestOnlyThreeAnswersSaySomethingOfTheObject(t *testing.T) {
	t.Parallel()
	for answer, want := range map[gitopsprovider.Answer]bool{
		gitopsprovider.AnswerNone: false, gitopsprovider.AnswerFound: true, gitopsprovider.AnswerAbsent: true,
		gitopsprovider.AnswerNotServed: true, gitopsprovider.AnswerForbidden: false, gitopsprovider.AnswerUnknown: false,
	} {
		assert.Equal(t, want, answer.Established(), "%q", answer)
	}
	assert.Zero(t, gitopsprovider.AnswerNone)
	assert.Zero(t, gitopsprovider.StateUnknown)
	assert.Equal(t, "Unknown", gitopsprovider.StateUnknown.String())
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	other := newMemory()
	other.engine = "Other"
	for want, make := range map[string]func() (*gitopsprovider.Views, error){
		"a Differ is required": func() (*gitopsprovider.Views, error) { return gitopsprovider.New("test", nil, newMemory()) },
		"no Reader":            func() (*gitopsprovider.Views, error) { return gitopsprovider.New("test", gitopsprovider.NoDiffer{}) },
		"a Reader is nil": func() (*gitopsprovider.Views, error) {
			return gitopsprovider.New("test", gitopsprovider.NoDiffer{}, nil)
		},
		"two Readers of Delivery": func() (*gitopsprovider.Views, error) {
			return gitopsprovider.New("test", gitopsprovider.NoDiffer{}, newMemory(), newMemory())
		},
	} {
		_, err := make()
		require.ErrorContains(t, err, want)
	}
	_, err := gitopsprovider.New("test", gitopsprovider.NoDiffer{}, newMemory(), other)
	require.NoError(t, err)
}
