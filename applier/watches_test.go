package applier_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var kustomizations = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}

// watchedCluster is a cluster and the watches of its Kustomizations by an identity that may do what allowed says.
type watchedCluster struct {
	t       testing.TB
	cluster *fake.Cluster
	view    *fake.View
	watches *applier.ObjectWatches
	end     []context.CancelFunc
}

// inWatchedCluster runs a test in a bubble. When it ends all that it watches, nothing may be left.
func inWatchedCluster(t *testing.T, allowed func(authorizationv1.ResourceAttributes) bool, test func(t *testing.T, c *watchedCluster)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newWatchedCluster(t, allowed)
		test(t, c)
		c.endAll()
		synctest.Wait()
		c.view.ResetRequests()
		time.Sleep(time.Hour)
		assert.Empty(t, c.asked(), "nothing is asked once nothing is watched")
		// The bubble fails where a goroutine is left.
	})
}

func newWatchedCluster(t testing.TB, allowed func(authorizationv1.ResourceAttributes) bool) *watchedCluster {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"a", "b"}})
	t.Cleanup(cluster.Stop)
	view := cluster.As("host", allowed)
	return &watchedCluster{
		t: t, cluster: cluster, view: view,
		watches: applier.NewObjectWatches(view.Resource(kustomizations)),
	}
}

func objectNo(namespace string, n int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("app-%05d", n)}
}

func objects(namespace string, n int) []types.NamespacedName {
	all := make([]types.NamespacedName, n)
	for i := range all {
		all[i] = objectNo(namespace, i)
	}
	return all
}

// put creates or changes an object, and returns its resourceVersion.
func (c *watchedCluster) put(ref types.NamespacedName) string {
	c.t.Helper()
	resource := c.cluster.Resource(kustomizations).Namespace(ref.Namespace)
	change := fmt.Sprintf(`{"metadata": {"annotations": {"change": %q}}}`, applier.NewToken())
	written, err := resource.Patch(c.t.Context(), ref.Name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		written, err = resource.Create(c.t.Context(), fake.NewKustomization(ref.Namespace, ref.Name, "app"), metav1.CreateOptions{})
	}
	require.NoError(c.t, err)
	return written.GetResourceVersion()
}

func (c *watchedCluster) putAll(refs []types.NamespacedName) {
	for _, ref := range refs {
		c.put(ref)
	}
}

func (c *watchedCluster) delete(ref types.NamespacedName) {
	c.t.Helper()
	require.NoError(c.t, c.cluster.Resource(kustomizations).Namespace(ref.Namespace).Delete(c.t.Context(), ref.Name, metav1.DeleteOptions{}))
}

func (c *watchedCluster) watch(ref types.NamespacedName) <-chan *unstructured.Unstructured {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.end = append(c.end, cancel)
	return c.watches.Watch(ctx, ref)
}

// watchAll watches objects, and receives what stands of each.
func (c *watchedCluster) watchAll(t *testing.T, refs []types.NamespacedName) []<-chan *unstructured.Unstructured {
	t.Helper()
	shown := make([]<-chan *unstructured.Unstructured, len(refs))
	for i, ref := range refs {
		shown[i] = c.watch(ref)
		if i < 3 {
			synctest.Wait() // the first are watched one by one, until there are more
		}
	}
	time.Sleep(2 * time.Millisecond) // for a request that is delayed
	synctest.Wait()
	for i, ref := range refs {
		object := next(t, shown[i])
		require.NotNil(t, object)
		require.Equal(t, ref.Name, object.GetName())
		require.Equal(t, ref.Namespace, object.GetNamespace())
	}
	return shown
}

func (c *watchedCluster) endAll() {
	for _, end := range c.end {
		end()
	}
	c.end = nil
}

// asked counts the requests by verb and by what they are for: the cluster, a namespace or an object. A watch of one object is not told
// from one of its namespace by the request, and counts as "watch a".
func (c *watchedCluster) asked() map[string]int {
	counts := make(map[string]int)
	for _, r := range c.view.Requests() {
		reach := r.Namespace
		if reach == "" {
			reach = "cluster"
		}
		if r.Verb == "get" {
			reach = "object"
		}
		counts[r.Verb+" "+reach]++
	}
	return counts
}

func requireVersion(t *testing.T, want string, shown <-chan *unstructured.Unstructured) {
	t.Helper()
	object := next(t, shown)
	require.NotNil(t, object, "shown to be gone")
	require.Equal(t, want, object.GetResourceVersion())
}

func TestFewObjectsAreWatchedOneByOne(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.putAll(objects("a", 5))
		shown := c.watchAll(t, objects("a", 3))

		assert.Equal(t, map[string]int{"watch a": 3}, c.asked())
		c.view.ResetRequests()
		requireVersion(t, c.put(objectNo("a", 1)), shown[1])
		c.put(objectNo("a", 4))
		time.Sleep(4 * time.Minute)
		assert.Empty(t, c.asked())
	})
}

func TestManyObjectsShareOneWatch(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := slices.Concat(objects("a", 25), objects("b", 25))
		c.putAll(refs)
		shown := c.watchAll(t, refs)

		assert.Equal(t, map[string]int{
			"watch a":      3, // the first, until it is shared
			"list cluster": 1, "watch cluster": 1, "get object": 50,
		}, c.asked())

		for i, ref := range refs {
			requireVersion(t, c.put(ref), shown[i])
		}
		c.delete(refs[7])
		assert.Nil(t, next(t, shown[7]), "gone")
		requireVersion(t, c.put(refs[7]), shown[7])
		for _, one := range shown {
			requireNothing(t, one)
		}
	})
}

func TestNothingIsAskedWhileNothingChanges(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 50)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.ResetRequests()

		time.Sleep(time.Hour)
		assert.Equal(t, map[string]int{"watch cluster": 11}, c.asked(), "but that the watch is renewed")
		for _, one := range shown {
			requireNothing(t, one)
		}
		requireVersion(t, c.put(refs[9]), shown[9])
	})
}

func TestWhoJoinsManyCostsOneRead(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 11)
		c.putAll(refs)
		c.watchAll(t, refs[:10])
		c.view.ResetRequests()
		c.watchAll(t, refs[10:])
		assert.Equal(t, map[string]int{"get object": 1}, c.asked())
	})
}

func TestAnObjectThatIsNotThereIsShownToBeGone(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.putAll(objects("a", 4))
		c.watchAll(t, objects("a", 4))
		shown := c.watch(objectNo("b", 0))
		assert.Nil(t, next(t, shown))
		requireVersion(t, c.put(objectNo("b", 0)), shown)
	})
}

func TestOneObjectCanBeWatchedMoreThanOnce(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.put(objectNo("a", 0))
		same := slices.Repeat(objects("a", 1), 6)
		shown := c.watchAll(t, same)
		c.end[0]()
		_, open := <-shown[0]
		assert.False(t, open)
		changed := c.put(objectNo("a", 0))
		for _, one := range shown[1:] {
			requireVersion(t, changed, one)
		}
	})
}

func TestAHundredAndMoreAreListedInPages(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		there, missing := objects("a", 600), objects("b", 3)
		c.putAll(there)
		shown := make([]<-chan *unstructured.Unstructured, 0, len(there))
		for _, ref := range slices.Concat(there, missing) {
			shown = append(shown, c.watch(ref))
		}
		synctest.Wait()
		for i := range there {
			require.Equal(t, there[i].Name, next(t, shown[i]).GetName())
		}
		for i := range missing {
			require.Nil(t, next(t, shown[len(there)+i]))
		}
		asked := c.asked()
		assert.LessOrEqual(t, asked["get object"], 100, "of who came first")
		assert.GreaterOrEqual(t, asked["list cluster"], 1+2)
		assert.LessOrEqual(t, asked["list cluster"], 1+2*2)
		assert.Equal(t, 1, asked["watch cluster"])
	})
}

// crowded is a kind of which a cluster has very many objects.
type crowded struct {
	dynamic.NamespaceableResourceInterface
}

func (c crowded) Namespace(namespace string) dynamic.ResourceInterface {
	return crowdedNamespace{c.NamespaceableResourceInterface.Namespace(namespace)}
}

type crowdedNamespace struct{ dynamic.ResourceInterface }

func (c crowdedNamespace) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := c.ResourceInterface.List(ctx, options)
	if err == nil {
		list.SetRemainingItemCount(new(int64(1_000_000)))
	}
	return list, err
}

func TestAHundredAndMoreAreNotListedAmongVeryMany(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.watches = applier.NewObjectWatches(crowded{c.view.Resource(kustomizations)})
		refs := objects("a", 150)
		c.putAll(refs)
		c.watchAll(t, refs)
		assert.Equal(t, map[string]int{"watch a": 3, "list cluster": 1, "watch cluster": 1, "get object": 150}, c.asked())
	})
}

func TestAChangeBetweenAReadAndTheWatchIsNotLost(t *testing.T) {
	for name, fault := range map[string]func(change func(fake.Request)) fake.Fault{
		"before the list that the watch begins with": func(change func(fake.Request)) fake.Fault { return fake.Fault{Verb: "list", Before: change} },
		"after that list":        func(change func(fake.Request)) fake.Fault { return fake.Fault{Verb: "list", After: change} },
		"when the watch is open": func(change func(fake.Request)) fake.Fault { return fake.Fault{Verb: "watch", After: change} },
		"before the read": func(change func(fake.Request)) fake.Fault {
			return fake.Fault{Verb: "get", Name: "app-00004", Before: change}
		},
		"before the read is answered": func(change func(fake.Request)) fake.Fault {
			return fake.Fault{Verb: "get", Name: "app-00004", After: change}
		},
	} {
		for change, does := range map[string]func(c *watchedCluster) string{
			"a change":   func(c *watchedCluster) string { return c.put(objectNo("a", 4)) },
			"a deletion": func(c *watchedCluster) string { c.delete(objectNo("a", 4)); return "" },
			"an object made anew": func(c *watchedCluster) string {
				c.delete(objectNo("a", 4))
				return c.put(objectNo("a", 4))
			},
		} {
			for order, lag := range map[string]time.Duration{"": 0, ", whose event comes first": time.Millisecond} {
				t.Run(name+"/"+change+order, func(t *testing.T) {
					inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
						c.putAll(objects("a", 5))
						c.watchAll(t, objects("a", 3))
						want, done := "", false
						c.view.Inject(fault(func(fake.Request) {
							if !done {
								done, want = true, does(c)
								time.Sleep(lag)
							}
						}))
						shown := c.watch(objectNo("a", 4))
						time.Sleep(time.Second)
						synctest.Wait()
						require.True(t, done)
						if object := next(t, shown); want == "" {
							assert.Nil(t, object)
						} else {
							require.NotNil(t, object)
							assert.Equal(t, want, object.GetResourceVersion())
						}
						requireNothing(t, shown)
					})
				})
			}
		}
	}
}

func TestAnObjectMadeWhileItIsReadIsNotShownToBeGone(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.putAll(objects("a", 4))
		c.watchAll(t, objects("a", 4))
		var made string
		c.view.Inject(fake.Fault{Verb: "get", Name: objectNo("b", 1).Name, After: func(fake.Request) {
			made = c.put(objectNo("b", 1))
			time.Sleep(time.Millisecond) // the event comes before the answer
		}})
		shown := c.watch(objectNo("b", 1))
		time.Sleep(time.Second)
		synctest.Wait()
		requireVersion(t, made, shown)
		requireNothing(t, shown)
	})
}

func TestWhoIsSlowHoldsUpNobodyAndGetsTheNewestState(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 5)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		for range 50 {
			c.put(refs[0])
			requireVersion(t, c.put(refs[1]), shown[1])
		}
		requireVersion(t, c.put(refs[0]), shown[0])
		requireNothing(t, shown[0])
	})
}

func TestTheLastEndStopsTheSharedWatch(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		for i, end := range c.end[:9] {
			end()
			synctest.Wait()
			_, open := <-shown[i]
			assert.False(t, open, "closed")
		}
		requireVersion(t, c.put(refs[9]), shown[9])
		c.endAll()
		synctest.Wait()
		c.view.ResetRequests()
		c.putAll(refs)
		time.Sleep(time.Hour)
		assert.Empty(t, c.asked())

		c.watchAll(t, refs[:1])
		assert.Equal(t, map[string]int{"watch a": 1}, c.asked(), "and it begins anew")
	})
}

func TestAContextThatHasEndedWatchesNothing(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, open := <-c.watches.Watch(ctx, objectNo("a", 0))
		assert.False(t, open)
		synctest.Wait()
		assert.Empty(t, c.asked())
	})
}

func TestManyMayComeAndGoAtOnce(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 40)
		c.putAll(refs)
		for round := range 5 {
			shown := c.watchAll(t, refs)
			for i, ref := range refs {
				go c.put(ref)
				go c.end[i]()
			}
			synctest.Wait()
			for _, one := range shown {
				for range one { // to its end
				}
			}
			c.end = nil
			require.Contains(t, strings.Join(slices.Sorted(maps.Keys(c.asked())), " "), "watch", round)
		}
	})
}
