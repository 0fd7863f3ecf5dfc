package fake_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/dynamicinformer"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/gitops-applier/gitops-applier/fake"
)

func TestDynamicInformerSyncsAndFollows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		putMap(t, c, "a", "x")
		factory := dynamicinformer.NewDynamicSharedInformerFactory(c, 0)
		informer := factory.ForResource(configMaps)
		var mu sync.Mutex
		var seen []string
		note := func(what string) func(any) {
			return func(o any) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, what+" "+o.(*unstructured.Unstructured).GetName())
			}
		}
		_, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: note("add"), DeleteFunc: note("delete"),
			UpdateFunc: func(_, o any) { note("update")(o) },
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced))

		putMap(t, c, "b", "x")
		putMap(t, c, "b", "changed")
		require.NoError(t, maps(c).Delete(t.Context(), "a", metav1.DeleteOptions{}))
		synctest.Wait()
		time.Sleep(time.Second)
		mu.Lock()
		assert.Equal(t, []string{"add a", "add b", "update b", "delete a"}, seen)
		mu.Unlock()

		// It comes back from the end of its watch and from a history that is gone.
		c.EndWatches(schema.GroupResource{})
		putMap(t, c, "c", "x")
		c.Compact(schema.GroupResource{})
		time.Sleep(time.Minute)
		_, err = informer.Lister().ByNamespace(team).Get("c")
		assert.NoError(t, err)
		cancel()
		factory.Shutdown()
	})
}

func TestReflectorWithAWatchList(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		putMap(t, c, "a", "x")
		c.ResetRequests()
		store := cache.NewStore(cache.MetaNamespaceKeyFunc)
		reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return maps(c).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return maps(c).Watch(ctx, o)
			},
		}, &unstructured.Unstructured{}, store, cache.ReflectorOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			reflector.RunWithContext(ctx)
		}()
		synctest.Wait()
		assert.Equal(t, []string{team + "/a"}, store.ListKeys())
		putMap(t, c, "b", "x")
		synctest.Wait()
		assert.ElementsMatch(t, []string{team + "/a", team + "/b"}, store.ListKeys())
		for _, r := range c.Requests() {
			assert.NotEqual(t, "list", r.Verb, "the watch brings the objects that are there")
		}
		cancel()
		<-done
	})
}

func TestRetryWatcherGoesOnWhereAWatchEnded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		rv := putMap(t, c, "a", "x").GetResourceVersion()
		retrying, err := watchtools.NewRetryWatcherWithContext(t.Context(), rv, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return maps(c).Watch(ctx, o)
			},
		})
		require.NoError(t, err)
		putMap(t, c, "b", "x")
		assert.Equal(t, "ADDED b", next(t, retrying))
		c.EndWatches(schema.GroupResource{})
		putMap(t, c, "c", "x")
		assert.Equal(t, "ADDED c", next(t, retrying))
		retrying.Stop()
		<-retrying.Done()
	})
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	client, err := discovery.NewDiscoveryClientForConfig(c.Config())
	require.NoError(t, err)
	resources, err := client.ServerResourcesForGroupVersion("kustomize.toolkit.fluxcd.io/v1")
	require.NoError(t, err)
	names := []string{}
	for _, r := range resources.APIResources {
		names = append(names, r.Name)
	}
	assert.Equal(t, []string{"kustomizations", "kustomizations/status"}, names)

	c.Unserve(kustomizations.GroupResource())
	_, err = client.ServerResourcesForGroupVersion("kustomize.toolkit.fluxcd.io/v1")
	assert.EqualError(t, err, "the server could not find the requested resource")
	_, _, err = client.ServerGroupsAndResources()
	assert.NoError(t, err)
}

func TestATypedClientReachesTheCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	maps := func(config *rest.Config) (*corev1.ConfigMap, error) {
		client, err := typedcorev1.NewForConfig(config)
		require.NoError(t, err)
		return client.ConfigMaps(team).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}, metav1.CreateOptions{})
	}
	created, err := maps(c.Config())
	require.NoError(t, err)
	assert.NotEmpty(t, created.UID)

	binary := c.Config()
	binary.ContentType = runtime.ContentTypeProtobuf
	_, err = maps(binary)
	assert.EqualError(t, err, "the body of the request was in an unknown format - accepted media types include: application/json")
}
