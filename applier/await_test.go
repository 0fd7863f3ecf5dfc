package applier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/gitops-applier/gitops-applier/applier"
)

// until is satisfied by an object at a resourceVersion, and keeps what it saw.
func until(version string, seen *[]string) func(*unstructured.Unstructured) (bool, error) {
	return func(u *unstructured.Unstructured) (bool, error) {
		*seen = append(*seen, u.GetResourceVersion())
		return u.GetResourceVersion() == version, nil
	}
}

func TestAnObjectIsAwaitedByWatchingIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{start: time.Now(), object: version(1)}
		time.AfterFunc(time.Minute, func() { r.send(watch.Modified, version(2)) })
		var seen []string

		require.NoError(t, applier.AwaitObject(t.Context(), r, "app", time.Second, until("2", &seen)))

		assert.Equal(t, []string{"1", "2"}, seen)
		assert.Equal(t, time.Minute, time.Since(r.start))
		synctest.Wait()
		r.set(func(r *resource) {
			assert.Zero(t, r.reads)
			assert.Zero(t, r.open, "the watch was stopped")
		})
	})
}

func TestAnObjectThatMayNotBeWatchedIsAwaitedByReadingIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &resource{start: time.Now(), object: version(1), refuse: apierrors.NewForbidden(apps, "app", nil)}
		time.AfterFunc(10*time.Second, func() { r.set(func(r *resource) { r.object = version(2) }) })
		var seen []string

		require.NoError(t, applier.AwaitObject(t.Context(), r, "app", 3*time.Second, until("2", &seen)))

		assert.Equal(t, []string{"1", "1", "1", "1", "2"}, seen)
		assert.Equal(t, 12*time.Second, time.Since(r.start))
	})
}

func TestAwaitingEndsWithWhatWentWrong(t *testing.T) {
	t.Parallel()
	cause := errors.New("the host stops")
	forbidden := apierrors.NewForbidden(apps, "app", nil)
	for name, test := range map[string]struct {
		resource  func() *resource
		meanwhile func(r *resource, cancel context.CancelCauseFunc)
		done      error
		is        error
	}{
		"the object is deleted": {
			resource:  func() *resource { return &resource{object: version(1)} },
			meanwhile: func(r *resource, _ context.CancelCauseFunc) { r.send(watch.Deleted, version(2)) }, is: applier.ErrObjectGone,
		},
		"the object is not there":                         {resource: func() *resource { return &resource{} }, is: applier.ErrObjectGone},
		"the object is not there, and may not be watched": {resource: func() *resource { return &resource{refuse: forbidden} }, is: applier.ErrObjectGone},
		"it may not be read":                              {resource: func() *resource { return &resource{refuse: forbidden, unread: forbidden} }, is: forbidden},
		"the judgement fails":                             {resource: func() *resource { return &resource{object: version(1)} }, done: errLost, is: errLost},
		"reads get no answer until its context ends": {
			resource:  func() *resource { return &resource{refuse: forbidden, unread: errLost} },
			meanwhile: func(_ *resource, cancel context.CancelCauseFunc) { cancel(cause) }, is: cause,
		},
		"its context ends": {
			resource:  func() *resource { return &resource{object: version(1)} },
			meanwhile: func(_ *resource, cancel context.CancelCauseFunc) { cancel(cause) }, is: cause,
		},
		"its context ends between reads": {
			resource:  func() *resource { return &resource{object: version(1), refuse: forbidden} },
			meanwhile: func(_ *resource, cancel context.CancelCauseFunc) { cancel(cause) }, is: cause,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r := test.resource()
				if test.meanwhile != nil {
					time.AfterFunc(time.Minute, func() { test.meanwhile(r, cancel) })
				}
				err := applier.AwaitObject(ctx, r, "app", 3*time.Second, func(*unstructured.Unstructured) (bool, error) { return false, test.done })
				assert.ErrorIs(t, err, test.is)
			})
		})
	}
}
