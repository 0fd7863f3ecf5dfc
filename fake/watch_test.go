package fake_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/fake"
)

// maps are the ConfigMaps of team-a.
func maps(c dynamic.Interface) dynamic.ResourceInterface {
	return c.Resource(configMaps).Namespace(team)
}

func putMap(t testing.TB, c dynamic.Interface, name, label string) *unstructured.Unstructured {
	t.Helper()
	u := object(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {tier: %s}}}", name, label))
	written, err := maps(c).Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test"})
	require.NoError(t, err)
	return written
}

// next gives the next event as "TYPE name", and "closed" once there is none any more.
func next(t testing.TB, w watch.Interface) string {
	t.Helper()
	select {
	case event, open := <-w.ResultChan():
		if !open {
			return "closed"
		}
		if status, ok := event.Object.(*metav1.Status); ok {
			return fmt.Sprintf("%s %d", event.Type, status.Code)
		}
		u := event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Bookmark {
			return fmt.Sprintf("%s %v", event.Type, u.GetAnnotations())
		}
		return fmt.Sprintf("%s %s", event.Type, u.GetName())
	case <-time.After(30 * time.Second):
		return "nothing"
	}
}

func startWatch(t testing.TB, c dynamic.Interface, options metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := maps(c).Watch(t.Context(), options)
	require.NoError(t, err)
	return w
}

// inBubble runs a test in a synctest bubble, on a cluster of its own.
func inBubble(t *testing.T, test func(t *testing.T, c *fake.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newCluster(t)) })
}

func TestWatchStarts(t *testing.T) {
	t.Parallel()
	yes := true
	for _, tc := range []struct {
		name    string
		options func(first, last string) metav1.ListOptions
		want    []string
	}{
		{"with the objects as they are, without a resourceVersion", func(_, _ string) metav1.ListOptions {
			return metav1.ListOptions{}
		}, []string{"ADDED a", "ADDED b"}},
		{"with the objects as they are, at resourceVersion 0", func(_, _ string) metav1.ListOptions {
			return metav1.ListOptions{ResourceVersion: "0"}
		}, []string{"ADDED a", "ADDED b"}},
		{"with what happened since a resourceVersion", func(first, _ string) metav1.ListOptions {
			return metav1.ListOptions{ResourceVersion: first}
		}, []string{"ADDED b", "MODIFIED a"}},
		{"with nothing at the latest resourceVersion", func(_, last string) metav1.ListOptions {
			return metav1.ListOptions{ResourceVersion: last}
		}, nil},
		{"with the initial events and the bookmark that ends them", func(_, _ string) metav1.ListOptions {
			return metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
		}, []string{"ADDED a", "ADDED b", "BOOKMARK map[k8s.io/initial-events-end:true]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, c *fake.Cluster) {
				first := putMap(t, c, "a", "x").GetResourceVersion()
				putMap(t, c, "b", "x")
				last := putMap(t, c, "a", "y2").GetResourceVersion()
				w := startWatch(t, c, tc.options(first, last))
				defer w.Stop()
				for _, want := range tc.want {
					assert.Equal(t, want, next(t, w))
				}
				assert.Equal(t, "nothing", next(t, w))
				putMap(t, c, "end", "x")
				assert.Equal(t, "ADDED end", next(t, w))
			})
		})
	}
}

func TestWatchFollowsItsSelector(t *testing.T) {
	t.Parallel()
	t.Run("of labels", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			w := startWatch(t, c, metav1.ListOptions{LabelSelector: "tier=web"})
			defer w.Stop()
			putMap(t, c, "a", "db")
			putMap(t, c, "a", "web")
			putMap(t, c, "b", "web")
			moved := putMap(t, c, "a", "db")
			assert.Equal(t, "ADDED a", next(t, w), "it came to match")
			assert.Equal(t, "ADDED b", next(t, w))
			event := <-w.ResultChan()
			assert.Equal(t, watch.Deleted, event.Type, "it no longer matches")
			left := event.Object.(*unstructured.Unstructured)
			assert.Equal(t, map[string]string{"tier": "web"}, left.GetLabels(), "as it was when it matched")
			assert.Equal(t, moved.GetResourceVersion(), left.GetResourceVersion(), "at the revision of the change")
		})
	})
	t.Run("of a name", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			w := startWatch(t, c, metav1.ListOptions{FieldSelector: "metadata.name=shop"})
			defer w.Stop()
			putMap(t, c, "shop-db", "x")
			putMap(t, c, "shop", "x")
			require.NoError(t, maps(c).Delete(t.Context(), "shop-db", metav1.DeleteOptions{}))
			require.NoError(t, maps(c).Delete(t.Context(), "shop", metav1.DeleteOptions{}))
			assert.Equal(t, "ADDED shop", next(t, w))
			assert.Equal(t, "DELETED shop", next(t, w))
			assert.Equal(t, "nothing", next(t, w))
		})
	})
}

func TestWatchTellsWhatHappenedBetweenListAndWatch(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		putMap(t, c, "a", "x")
		list, err := maps(c).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		putMap(t, c, "a", "changed")
		w := startWatch(t, c, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		defer w.Stop()
		assert.Equal(t, "MODIFIED a", next(t, w))
	})
}

func TestADeletionCarriesItsOwnResourceVersion(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		written := putMap(t, c, "a", "x")
		w := startWatch(t, c, metav1.ListOptions{ResourceVersion: written.GetResourceVersion()})
		defer w.Stop()
		require.NoError(t, maps(c).Delete(t.Context(), "a", metav1.DeleteOptions{}))
		event := <-w.ResultChan()
		require.Equal(t, watch.Deleted, event.Type)
		assert.Greater(t, event.Object.(*unstructured.Unstructured).GetResourceVersion(), written.GetResourceVersion())
	})
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		first := putMap(t, c, "a", "x").GetResourceVersion()
		open := startWatch(t, c, metav1.ListOptions{ResourceVersion: first})
		defer open.Stop()
		putMap(t, c, "b", "x")
		page, err := maps(c).List(t.Context(), metav1.ListOptions{Limit: 1})
		require.NoError(t, err)
		last := putMap(t, c, "b", "y2").GetResourceVersion()
		c.Compact(schema.GroupResource{})

		w := startWatch(t, c, metav1.ListOptions{ResourceVersion: first})
		defer w.Stop()
		assert.Equal(t, "ERROR 410", next(t, w))
		assert.Equal(t, "closed", next(t, w))

		_, err = maps(c).List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page.GetContinue()})
		assert.True(t, apierrors.IsResourceExpired(err), "a page of before: %v", err)
		_, err = maps(c).List(t.Context(), metav1.ListOptions{ResourceVersion: first, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		assert.True(t, apierrors.IsResourceExpired(err), "a list of before: %v", err)

		assert.Equal(t, "ADDED b", next(t, open), "a watch that is open loses nothing")
		assert.Equal(t, "MODIFIED b", next(t, open))
		current := startWatch(t, c, metav1.ListOptions{ResourceVersion: last})
		defer current.Stop()
		assert.Equal(t, "nothing", next(t, current))
	})
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	t.Run("after its timeout", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			seconds := int64(300)
			start := time.Now()
			w := startWatch(t, c, metav1.ListOptions{TimeoutSeconds: &seconds})
			_, open := <-w.ResultChan()
			assert.False(t, open)
			assert.Equal(t, 5*time.Minute, time.Since(start))
		})
	})
	t.Run("when the test says so", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			w := startWatch(t, c, metav1.ListOptions{})
			c.EndWatches(schema.GroupResource{Resource: "configmaps"})
			assert.Equal(t, "closed", next(t, w))
		})
	})
	t.Run("when its kind is served no more", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			w := startWatch(t, c, metav1.ListOptions{})
			c.Unserve(configMaps.GroupResource())
			assert.Equal(t, "closed", next(t, w))
		})
	})
	t.Run("when the cluster stops", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(t *testing.T, c *fake.Cluster) {
			w := startWatch(t, c, metav1.ListOptions{})
			c.Stop()
			assert.Equal(t, "closed", next(t, w))
			_, err := maps(c).Get(t.Context(), "a", metav1.GetOptions{})
			assert.ErrorContains(t, err, "connection refused")
		})
	})
}

func TestBookmarksComeWhenAskedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		rv := putMap(t, c, "a", "x").GetResourceVersion()
		w := startWatch(t, c, metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
		defer w.Stop()
		plain := startWatch(t, c, metav1.ListOptions{ResourceVersion: rv})
		defer plain.Stop()
		createShop(t, c)
		c.Bookmark(schema.GroupResource{})
		event := <-w.ResultChan()
		assert.Equal(t, watch.Bookmark, event.Type)
		assert.NotEqual(t, rv, event.Object.(*unstructured.Unstructured).GetResourceVersion(), "other kinds move it on")
		assert.Equal(t, "nothing", next(t, plain))
	})
}

func TestAWatcherThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		w := startWatch(t, c, metav1.ListOptions{})
		defer w.Stop()
		const writes = 500
		for i := range writes {
			putMap(t, c, "a", fmt.Sprint("v", i))
		}
		for i := range writes {
			event := <-w.ResultChan()
			require.Equal(t, fmt.Sprint("v", i), event.Object.(*unstructured.Unstructured).GetLabels()["tier"], "nothing is dropped")
		}
	})
}

func TestPagesOfAListAreOfOneMoment(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		putMap(t, c, name, "x")
	}
	first, err := maps(c).List(t.Context(), metav1.ListOptions{Limit: 2})
	require.NoError(t, err)
	assert.Equal(t, int64(2), *first.GetRemainingItemCount())
	putMap(t, c, "d", "later")
	putMap(t, c, "e", "later")
	require.NoError(t, maps(c).Delete(t.Context(), "c", metav1.DeleteOptions{}))

	second, err := maps(c).List(t.Context(), metav1.ListOptions{Limit: 2, Continue: first.GetContinue()})
	require.NoError(t, err)
	require.Len(t, second.Items, 2)
	assert.Equal(t, "c", second.Items[0].GetName())
	assert.Equal(t, map[string]string{"tier": "x"}, second.Items[1].GetLabels())
	assert.Equal(t, first.GetResourceVersion(), second.GetResourceVersion())
	assert.Empty(t, second.GetContinue())

	now, err := maps(c).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	assert.Len(t, now.Items, 4)
	_, err = maps(c).List(t.Context(), metav1.ListOptions{FieldSelector: "data.key=x"})
	assert.True(t, apierrors.IsBadRequest(err))
}
