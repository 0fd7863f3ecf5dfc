package applier_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
)

// rights are what an identity may do. They may be changed.
type rights struct{ cluster, namespaceA, namespaceB, objects, get atomic.Bool }

func (r *rights) allow(verb authorizationv1.ResourceAttributes) bool {
	switch {
	case verb.Verb == "get":
		return r.get.Load()
	case verb.Name != "":
		return r.objects.Load()
	case verb.Namespace == "a":
		return r.namespaceA.Load()
	case verb.Namespace == "b":
		return r.namespaceB.Load()
	}
	return r.cluster.Load()
}

func (r *rights) set(to ...*atomic.Bool) *rights {
	for _, right := range []*atomic.Bool{&r.cluster, &r.namespaceA, &r.namespaceB, &r.objects} {
		right.Store(slices.Contains(to, right))
	}
	return r
}

func newRights() *rights {
	r := &rights{}
	r.get.Store(true)
	return r.set(&r.cluster, &r.namespaceA, &r.namespaceB, &r.objects)
}

func TestAWatchIsSharedAsFarAsTheIdentityMay(t *testing.T) {
	for name, test := range map[string]struct {
		rights func(r *rights) *rights
		want   map[string]int
	}{
		"in the whole cluster": {
			rights: func(r *rights) *rights { return r.set(&r.cluster, &r.namespaceA, &r.namespaceB, &r.objects) },
			want:   map[string]int{"watch a": 3, "list cluster": 1, "watch cluster": 1, "get object": 20},
		},
		"in each namespace": {
			rights: func(r *rights) *rights { return r.set(&r.namespaceA, &r.namespaceB, &r.objects) },
			want: map[string]int{
				"list cluster": 1, // refused
				"list a":       1, "list b": 1, "watch a": 3 + 1, "watch b": 1, "get object": 20,
			},
		},
		"in one namespace, and alone in the other": {
			rights: func(r *rights) *rights { return r.set(&r.namespaceA, &r.objects) },
			want: map[string]int{
				"list cluster": 1, "list b": 1, // refused
				"list a": 1, "watch a": 3 + 1, "watch b": 10, "get object": 10,
			},
		},
		"nowhere": {
			rights: func(r *rights) *rights { return r.set(&r.objects) },
			want: map[string]int{
				"list cluster": 1, "list a": 1, "list b": 1, // refused
				"watch a": 10, "watch b": 10,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := test.rights(newRights())
			inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
				refs := slices.Concat(objects("a", 10), objects("b", 10))
				c.putAll(refs)
				// All are watched by the time at which a watch of the cluster may be refused.
				c.view.Inject(fake.Fault{Verb: "list", Nth: 1, Delay: time.Millisecond})
				shown := c.watchAll(t, refs)
				assert.Equal(t, test.want, c.asked())
				c.view.ResetRequests()
				for i, ref := range refs {
					requireVersion(t, c.put(ref), shown[i])
				}
				time.Sleep(4 * time.Minute)
				assert.Empty(t, c.asked())
			})
		})
	}
}

func TestTheChannelIsClosedWhereTheObjectItselfMayNotBeWatched(t *testing.T) {
	r := newRights()
	r.set()
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		c.putAll(objects("a", 10))
		for _, ref := range objects("a", 10) {
			shown := c.watch(ref)
			synctest.Wait()
			_, open := <-shown
			assert.False(t, open)
		}
		assert.Equal(t, map[string]int{"watch a": 10}, c.asked(), "each was the only one")
	})
}

// shownAll requires that a change of each object is shown, once what the watches begin with was.
func shownAll(t *testing.T, c *watchedCluster, refs []types.NamespacedName, shown []<-chan *unstructured.Unstructured) {
	t.Helper()
	for i, ref := range refs {
		want := c.put(ref)
		synctest.Wait()
		var last string
		for drained := false; !drained; {
			select {
			case object, open := <-shown[i]:
				require.True(t, open, "%v was closed", ref)
				last = object.GetResourceVersion()
			default:
				drained = true
			}
		}
		require.Equal(t, want, last, ref)
	}
}

func TestRightsThatAreWithdrawnLeadToNarrowerWatches(t *testing.T) {
	r := newRights()
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		refs := slices.Concat(objects("a", 10), objects("b", 10))
		c.putAll(refs)
		shown := c.watchAll(t, refs)

		r.set(&r.namespaceA, &r.namespaceB, &r.objects)
		c.view.ResetRequests()
		time.Sleep(6 * time.Minute) // API servers look at rights when a watch is opened
		asked := c.asked()
		assert.Equal(t, []int{1, 1, 1, 1}, []int{asked["list a"], asked["list b"], asked["watch a"], asked["watch b"]})
		shownAll(t, c, refs, shown)

		r.set(&r.namespaceA, &r.objects)
		c.view.ResetRequests()
		time.Sleep(6 * time.Minute)
		asked = c.asked()
		assert.Zero(t, asked["list a"])
		assert.GreaterOrEqual(t, asked["watch b"], 10)
		shownAll(t, c, refs, shown)

		r.set(&r.namespaceA)
		time.Sleep(6 * time.Minute)
		shownAll(t, c, refs[:10], shown[:10])
		for _, one := range shown[10:] {
			for range one { // to its end: polling is what is left
			}
		}
	})
}

func TestFewInANamespaceAreWatchedOneByOneWhereTheClusterMayNotBeWatched(t *testing.T) {
	r := newRights()
	r.set(&r.namespaceA, &r.namespaceB, &r.objects)
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		refs := slices.Concat(objects("a", 3), objects("b", 3))
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		assert.Equal(t, map[string]int{"list cluster": 1, "watch a": 3, "watch b": 3}, c.asked())
		shownAll(t, c, refs, shown)
	})
}

func TestAWatchOfOneObjectOutlivesAMomentOfRefusal(t *testing.T) {
	r := newRights()
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 2)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		r.set()
		r.get.Store(false)
		c.view.Cut()
		c.view.Mend()
		time.Sleep(5 * time.Second)
		r.set(&r.objects)
		r.get.Store(true)
		time.Sleep(5 * time.Second)
		shownAll(t, c, refs, shown)

		r.set()
		time.Sleep(6 * time.Minute)
		for _, one := range shown {
			for range one { // to its end
			}
		}
	})
}

func TestAMomentOfRefusalIsNotBelievedOfAWatchThatWasOpen(t *testing.T) {
	r := newRights()
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		alone := c.watchAll(t, refs[:1])
		shown := c.watchAll(t, refs[1:])
		c.view.ResetRequests()

		// As an API server does that has just been started.
		r.set()
		r.get.Store(false)
		c.view.Cut()
		c.view.Mend()
		time.Sleep(5 * time.Second)
		changed := c.put(refs[9])
		r.set(&r.cluster, &r.namespaceA, &r.objects)
		r.get.Store(true)
		time.Sleep(5 * time.Second)
		requireVersion(t, changed, shown[8])
		c.view.ResetRequests()
		shownAll(t, c, refs, slices.Concat(alone, shown))
		time.Sleep(10*time.Minute + time.Second)
		assert.Equal(t, map[string]int{"watch cluster": 2}, c.asked())
	})
}

func TestARefusalIsForgotten(t *testing.T) {
	t.Run("after ten minutes", func(t *testing.T) {
		r := newRights()
		r.set(&r.namespaceA, &r.objects)
		inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
			refs := objects("a", 12)
			c.putAll(refs)
			shown := c.watchAll(t, refs[:10])
			r.set(&r.cluster, &r.namespaceA, &r.objects)
			c.view.ResetRequests()
			shown = append(shown, c.watchAll(t, refs[10:11])...)
			assert.Zero(t, c.asked()["list cluster"], "not yet")

			time.Sleep(11 * time.Minute)
			c.view.ResetRequests()
			shown = append(shown, c.watchAll(t, refs[11:])...)
			assert.Equal(t, map[string]int{"list cluster": 1, "watch cluster": 1, "get object": 12}, c.asked(), "all share it")
			shownAll(t, c, refs, shown)
			c.view.ResetRequests()
			time.Sleep(10*time.Minute + time.Second)
			assert.Equal(t, map[string]int{"watch cluster": 2}, c.asked())
		})
	})
	t.Run("while a narrower watch is opened anew", func(t *testing.T) {
		r := newRights()
		r.set(&r.namespaceA, &r.objects)
		inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
			refs := objects("a", 12)
			c.putAll(refs)
			shown := c.watchAll(t, refs[:11])
			time.Sleep(11 * time.Minute)
			r.set(&r.cluster, &r.namespaceA, &r.objects)
			c.view.ResetRequests()
			c.view.Inject(fake.Fault{Verb: "list", Match: func(r fake.Request) bool { return r.Namespace == "" }, Delay: 10 * time.Second})
			shown = append(shown, c.watch(refs[11]))
			c.cluster.EndWatches(kustomizations.GroupResource())
			c.put(refs[0])
			c.cluster.Compact(kustomizations.GroupResource())
			time.Sleep(20 * time.Second)
			shownAll(t, c, refs, shown)
			asked := c.asked()
			assert.Equal(t, []int{1, 1}, []int{asked["list cluster"], asked["watch cluster"]})
		})
	})
	t.Run("not where it is refused still", func(t *testing.T) {
		r := newRights()
		r.set(&r.namespaceA, &r.objects)
		inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
			refs := objects("a", 12)
			c.putAll(refs)
			shown := c.watchAll(t, refs[:11])
			time.Sleep(11 * time.Minute)
			c.view.ResetRequests()
			shown = append(shown, c.watchAll(t, refs[11:])...)
			assert.Equal(t, map[string]int{"list cluster": 1, "get object": 1}, c.asked())
			shownAll(t, c, refs, shown)
		})
	})
	t.Run("once nothing is watched", func(t *testing.T) {
		r := newRights()
		r.set(&r.objects)
		inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
			refs := objects("a", 10)
			c.putAll(refs)
			c.watchAll(t, refs)
			c.endAll()
			synctest.Wait()
			r.set(&r.cluster, &r.objects)
			c.view.ResetRequests()
			c.watchAll(t, refs)
			assert.Equal(t, 1, c.asked()["watch cluster"])
		})
	})
}

func TestAListThatIsRefusedLaterLeadsToNarrowerWatches(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 20)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.Inject(fake.Fault{Verb: "list", Match: func(r fake.Request) bool { return r.Namespace == "" }, Err: forbidden("list")})
		c.cluster.EndWatches(kustomizations.GroupResource())
		c.put(refs[0])
		c.cluster.Compact(kustomizations.GroupResource())
		time.Sleep(20 * time.Second)
		assert.Equal(t, 1, c.asked()["list a"])
		shownAll(t, c, refs, shown)
	})
}
