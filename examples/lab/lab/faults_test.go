package lab_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestTransport(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns := l.Namespace(t)
	admin := configMaps(t, l, lab.NewTransport(), ns)

	apply := func(client typedcorev1.ConfigMapInterface, name, value string) error {
		_, err := client.Apply(t.Context(), applycorev1.ConfigMap(name, ns).WithData(map[string]string{"key": value}),
			metav1.ApplyOptions{FieldManager: "tester", Force: true})
		return err
	}
	stored := func(t *testing.T, name string) string {
		t.Helper()
		object, err := admin.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "absent"
		}
		require.NoError(t, err)
		return object.Data["key"]
	}

	t.Run("records what was asked", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		require.NoError(t, apply(client, "recorded", "1"))
		_, err := client.Get(t.Context(), "recorded", metav1.GetOptions{})
		require.NoError(t, err)
		_, err = client.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		watch, err := client.Watch(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		watch.Stop()
		require.NoError(t, client.Delete(t.Context(), "recorded", metav1.DeleteOptions{}))

		var lines []string
		for _, request := range faults.Requests() {
			lines = append(lines, request.String())
		}
		assert.Equal(t, []string{
			"apply configmaps " + ns + "/recorded",
			"get configmaps " + ns + "/recorded",
			"list configmaps " + ns,
			"watch configmaps " + ns,
			"delete configmaps " + ns + "/recorded",
		}, lines)
		first := faults.Requests()[0]
		assert.Equal(t, "tester", first.FieldManager)
		assert.True(t, json.Valid(first.Body), "%s", first.Body)
		assert.Equal(t, 2, faults.Count(lab.Writes))
	})
	t.Run("acts on the n-th match only", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		faults.On(lab.To("apply", "configmaps"), 2, lab.Fail(nil))
		assert.NoError(t, apply(client, "nth", "1"))
		assert.ErrorIs(t, apply(client, "nth", "2"), lab.ErrLost)
		assert.NoError(t, apply(client, "nth", "3"))
	})
	t.Run("acts on every match with 0", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		faults.On(lab.Verb("apply"), 0, lab.Fail(nil))
		assert.ErrorIs(t, apply(client, "all", "1"), lab.ErrLost)
		assert.ErrorIs(t, apply(client, "all", "1"), lab.ErrLost)
		faults.Reset()
		assert.NoError(t, apply(client, "all", "1"))
	})

	tests := []struct {
		name   string
		action func(*lab.Transport) lab.Action
		check  func(error) bool
		stored string
	}{
		{"fails before the request is sent", func(*lab.Transport) lab.Action { return lab.Fail(http.ErrHandlerTimeout) },
			is(http.ErrHandlerTimeout), "absent"},
		{"loses the response", func(*lab.Transport) lab.Action { return lab.LoseResponse() },
			is(lab.ErrLost), "1"},
		{"cuts off before", func(f *lab.Transport) lab.Action { return f.CutBefore() },
			is(lab.ErrCut), "absent"},
		{"cuts off after", func(f *lab.Transport) lab.Action { return f.CutAfter() },
			is(lab.ErrCut), "1"},
		{"answers 409", func(*lab.Transport) lab.Action {
			return lab.Answer(http.StatusConflict, metav1.StatusReasonConflict, 0)
		},
			apierrors.IsConflict, "absent"},
		{"answers 500", func(*lab.Transport) lab.Action {
			return lab.Answer(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)
		}, apierrors.IsInternalError, "absent"},
		{"answers 504", func(*lab.Transport) lab.Action {
			return lab.Answer(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0)
		}, apierrors.IsTimeout, "absent"},
		{"answers 429 without a Retry-After", func(*lab.Transport) lab.Action {
			return lab.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, 0)
		}, apierrors.IsTooManyRequests, "absent"},
		{"answers 500 for a request that was processed", func(*lab.Transport) lab.Action {
			return lab.AnswerAfter(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0)
		}, apierrors.IsInternalError, "1"},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			faults := lab.NewTransport()
			client := configMaps(t, l, faults, ns)
			faults.On(lab.Any, 1, test.action(faults))
			name := "fault-" + string(rune('a'+i))
			err := apply(client, name, "1")
			assert.True(t, test.check(err), "got %v", err)
			assert.Equal(t, test.stored, stored(t, name))
			assert.Len(t, faults.Requests(), 1)
		})
	}

	t.Run("a Retry-After makes client-go send again", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		faults.On(lab.Any, 1, lab.Answer(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, time.Second))
		require.NoError(t, apply(client, "again", "1"))
		assert.Len(t, faults.Requests(), 2)
		assert.Equal(t, faults.Requests()[0].Body, faults.Requests()[1].Body)
	})
	t.Run("lets somebody act before and after a request", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		require.NoError(t, apply(client, "between", "0"))
		var before, after string
		faults.On(lab.Any, 1, lab.Before(func() { before = stored(t, "between") }))
		faults.On(lab.Any, 2, lab.After(func() { after = stored(t, "between") }))
		require.NoError(t, apply(client, "between", "1"))
		require.NoError(t, apply(client, "between", "2"))
		assert.Equal(t, "0", before)
		assert.Equal(t, "2", after)
	})
	t.Run("hangs until the client gives up", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		faults.On(lab.Any, 1, lab.Hang())
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
		_, err := client.Get(ctx, "hanging", metav1.GetOptions{})
		assert.ErrorIs(t, err, cause)
	})
	t.Run("a cut ends watches and stops everything after it", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		watch, err := client.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=none"})
		require.NoError(t, err)
		called := false
		faults.On(lab.Writes, 1, faults.CutBefore(func() { called = true }))
		require.ErrorIs(t, apply(client, "cut", "1"), lab.ErrCut)
		assert.True(t, called)
		for range watch.ResultChan() { // ends
		}
		_, err = client.List(t.Context(), metav1.ListOptions{})
		assert.ErrorIs(t, err, lab.ErrCut)
		assert.Len(t, faults.Requests(), 2, "requests after the cut are not made")
	})
	t.Run("broken watches can be opened again", func(t *testing.T) {
		faults := lab.NewTransport()
		client := configMaps(t, l, faults, ns)
		options := metav1.ListOptions{FieldSelector: "metadata.name=watched"}
		watch, err := client.Watch(t.Context(), options)
		require.NoError(t, err)
		faults.BreakWatches()
		for range watch.ResultChan() { // ends
		}
		watch, err = client.Watch(t.Context(), options)
		require.NoError(t, err)
		defer watch.Stop()
		require.NoError(t, apply(client, "watched", "1"))
		event := <-watch.ResultChan()
		assert.Equal(t, "watched", event.Object.(*corev1.ConfigMap).Name)
	})
}

func configMaps(t *testing.T, l *lab.Lab, faults *lab.Transport, namespace string) typedcorev1.ConfigMapInterface {
	t.Helper()
	config := l.RESTConfig()
	config.Wrap(faults.Wrap)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client.CoreV1().ConfigMaps(namespace)
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
