package applier_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
)

// noGetIn is an identity that may do anything but get objects in a namespace.
func noGetIn(namespace string) func(authorizationv1.ResourceAttributes) bool {
	return func(verb authorizationv1.ResourceAttributes) bool {
		return verb.Verb != "get" || verb.Namespace != namespace
	}
}

// requireOpen requires that no channel is closed, and receives what they hold.
func requireOpen(t *testing.T, shown ...<-chan *unstructured.Unstructured) {
	t.Helper()
	synctest.Wait()
	for i, one := range shown {
		select {
		case _, open := <-one:
			require.True(t, open, "%d of %d was closed", i, len(shown))
		default:
		}
	}
}

// One API server of several that has just been started refuses what it is asked for a second or two, while what is open stays open.
func TestAMomentOfForbiddenReadsCostsNoOpenWatch(t *testing.T) {
	for name, test := range map[string]struct {
		watched   int
		forbidden fake.Fault
		want      map[string]int
	}{
		"one read": {
			watched: 49, forbidden: fake.Fault{Verb: "get", Nth: 1}, want: map[string]int{"get object": 2},
		},
		"all that is asked in a second":                {watched: 49, want: map[string]int{"get object": 3}},
		"all that is asked in a second, of a thousand": {watched: 999, want: map[string]int{"get object": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", test.watched+1)
				c.putAll(refs)
				shown := c.watchAll(t, refs[:test.watched])
				time.Sleep(time.Minute)
				c.view.ResetRequests()

				test.forbidden.Err = forbidden("get")
				mend := c.view.Inject(test.forbidden)
				shown = append(shown, c.watch(refs[test.watched]))
				time.Sleep(1500 * time.Millisecond)
				mend()
				time.Sleep(time.Second)
				require.NotNil(t, next(t, shown[test.watched]))
				assert.Equal(t, test.want, c.asked())
				c.view.ResetRequests()
				time.Sleep(20 * time.Minute)
				assert.Equal(t, map[string]int{"watch cluster": 4}, c.asked(), "the watch is what it was")
				shownAll(t, c, refs, shown)
			})
		})
	}
}

// afterAGap has the shared watch of more than a hundred objects opened anew, and its members read by lists that are forbidden, until
// that is mended. The first object has changed.
func afterAGap(c *watchedCluster, refs []types.NamespacedName) (mend func()) {
	lists := 0
	mend = c.view.Inject(fake.Fault{Verb: "list", Err: forbidden("list"), Match: func(r fake.Request) bool {
		lists++
		return r.Namespace == "" && lists > 1 // the first is what the watch begins with
	}})
	c.cluster.EndWatches(kustomizations.GroupResource())
	c.put(refs[0])
	c.cluster.Compact(kustomizations.GroupResource())
	return mend
}

func TestAMomentOfForbiddenListsCostsNoOpenWatch(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 150)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.ResetRequests()
		mend := afterAGap(c, refs)
		time.Sleep(3 * time.Second)
		requireNothing(t, shown[0])
		mend()
		time.Sleep(10 * time.Second)
		require.NotNil(t, next(t, shown[0]))
		assert.Equal(t, map[string]int{"list cluster": 3, "watch cluster": 2}, c.asked())
		c.view.ResetRequests()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, map[string]int{"watch cluster": 4}, c.asked(), "the watch is what it was")
		shownAll(t, c, refs, shown)
	})
}

func TestForbiddenListsCountOnlyWhileTheWatchIsOpen(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 150)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		mendWatch := c.view.Inject(fake.Fault{Verb: "watch", Err: apierrors.NewInternalError(errLost)})
		mendList := c.view.Inject(fake.Fault{Verb: "list", Err: forbidden("list")})
		c.cluster.EndWatches(kustomizations.GroupResource())
		time.Sleep(time.Minute)
		mendWatch()
		time.Sleep(8 * time.Second) // it is open after six at most
		mendList()
		time.Sleep(20 * time.Minute)
		assert.Zero(t, c.asked()["list a"], "it was not given up")
		shownAll(t, c, refs, shown)
	})
}

func TestAListThatIsForbiddenForTenSecondsLeadsToNarrowerWatches(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 150)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.ResetRequests()
		afterAGap(c, refs)
		time.Sleep(9 * time.Second)
		assert.Equal(t, map[string]int{"list cluster": 2, "watch cluster": 2}, c.asked(), "not at once")
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]int{"list cluster": 3, "watch cluster": 2, "list a": 2, "watch a": 1}, c.asked())
		require.NotNil(t, next(t, shown[0]))
		shownAll(t, c, refs, shown)
	})
}

func TestTheTenSecondsOfAForbiddenListBeginAnewOnceNobodyWaitsForIt(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 150)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		mend := afterAGap(c, refs)
		time.Sleep(3 * time.Second)
		mend()
		for _, end := range c.end[5:] {
			end()
		}
		c.end = c.end[:5]
		time.Sleep(time.Minute)
		for i, ref := range refs[5:] {
			shown = append(shown, c.watch(ref))
			if i%50 == 0 {
				time.Sleep(time.Second) // so that none is read by a list
			}
		}
		time.Sleep(time.Minute)

		c.view.ResetRequests()
		mend = afterAGap(c, refs)
		time.Sleep(3 * time.Second)
		mend()
		time.Sleep(20 * time.Minute)
		assert.Zero(t, c.asked()["watch a"], "all share it still")
		shownAll(t, c, refs, slices.Concat(shown[:5], shown[150:]))
	})
}

func TestAnObjectThatMayNotBeReadForTenSecondsGetsAWatchOfItsOwn(t *testing.T) {
	inWatchedCluster(t, noGetIn("b"), func(t *testing.T, c *watchedCluster) {
		refs := slices.Concat(objects("a", 50), objects("b", 1))
		c.putAll(refs)
		shown := c.watchAll(t, refs[:50])
		c.view.ResetRequests()

		shown = append(shown, c.watch(refs[50]))
		time.Sleep(9500 * time.Millisecond)
		requireNothing(t, shown[50])
		assert.Equal(t, map[string]int{"get object": 10}, c.asked(), "not yet")
		requireVersion(t, c.put(refs[50]), shown[50])

		time.Sleep(time.Second)
		assert.Equal(t, map[string]int{"get object": 11, "watch b": 1}, c.asked())
		c.view.ResetRequests()
		time.Sleep(20 * time.Minute)
		assert.Equal(t, map[string]int{"watch cluster": 4, "watch b": 4}, c.asked(), "the others share theirs")
		shownAll(t, c, refs, shown)

		c.view.ResetRequests()
		c.cluster.EndWatches(kustomizations.GroupResource())
		c.put(refs[0])
		c.cluster.Compact(kustomizations.GroupResource())
		time.Sleep(20 * time.Second)
		assert.Equal(t, map[string]int{"list cluster": 1, "watch cluster": 2, "get object": 50, "watch b": 1}, c.asked(),
			"it stays by itself when a shared watch is opened anew")
		shownAll(t, c, refs, shown)
	})
}

func TestWhereNoObjectMayBeReadEachGetsAWatchOfItsOwn(t *testing.T) {
	r := newRights()
	r.get.Store(false)
	inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
		refs, missing := objects("a", 10), objectNo("b", 0)
		c.putAll(refs)
		var shown []<-chan *unstructured.Unstructured
		for _, ref := range refs {
			shown = append(shown, c.watch(ref))
		}
		gone := c.watch(missing)
		time.Sleep(11 * time.Second)
		shownAll(t, c, refs, shown)
		requireNothing(t, gone)

		time.Sleep(11 * time.Second)
		_, open := <-gone
		assert.False(t, open, "of what does not exist, nothing can be known: polling is what is left")
		c.view.ResetRequests()
		time.Sleep(4 * time.Minute)
		assert.Empty(t, c.asked())
		shownAll(t, c, refs, shown)
	})
}

func TestTheTenSecondsOfAForbiddenReadBeginAnew(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, c *watchedCluster, r *rights, shown <-chan *unstructured.Unstructured){
		"after an answer": func(t *testing.T, c *watchedCluster, r *rights, shown <-chan *unstructured.Unstructured) {
			r.get.Store(true)
			time.Sleep(time.Second)
			require.NotNil(t, next(t, shown))
			r.get.Store(false)
			c.cluster.EndWatches(kustomizations.GroupResource()) // all are owed a read again
			c.put(objectNo("a", 0))
			c.cluster.Compact(kustomizations.GroupResource())
		},
		"after a read that fails otherwise": func(_ *testing.T, c *watchedCluster, _ *rights, _ <-chan *unstructured.Unstructured) {
			mend := c.view.Inject(fake.Fault{Verb: "get", Err: apierrors.NewInternalError(errLost)})
			time.Sleep(time.Second)
			mend()
		},
		"when the watch has been closed": func(_ *testing.T, c *watchedCluster, _ *rights, _ <-chan *unstructured.Unstructured) {
			mend := c.view.Inject(fake.Fault{Verb: "watch", Err: apierrors.NewInternalError(errLost)})
			c.cluster.EndWatches(kustomizations.GroupResource())
			time.Sleep(time.Minute) // all reads are refused
			c.view.ResetRequests()
			mend()
			for range 60 { // until it is open, after six seconds at most
				if time.Sleep(100 * time.Millisecond); c.asked()["watch cluster"] > 0 {
					break
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRights()
			inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", 11)
				c.putAll(refs)
				shown := c.watchAll(t, refs[:10])
				r.get.Store(false)
				shown = append(shown, c.watch(refs[10]))
				time.Sleep(6500 * time.Millisecond) // between two reads
				between(t, c, r, shown[10])
				time.Sleep(6500 * time.Millisecond)
				r.get.Store(true)
				time.Sleep(1500 * time.Millisecond)
				c.view.ResetRequests()
				shownAll(t, c, refs, shown)
				time.Sleep(10*time.Minute + time.Second)
				assert.Equal(t, map[string]int{"watch cluster": 2}, c.asked(), "all share it still")
			})
		})
	}
}

func TestWhoComesFromAWatchThatWorkedOutlivesAMomentOfRefusalThereToo(t *testing.T) {
	for name, test := range map[string]struct {
		moment  time.Duration // in which one wider watch after the other is given up
		granted func(r *rights) *rights
		watches int
	}{
		"in a namespace": {
			moment: 20 * time.Second, granted: func(r *rights) *rights { return r.set(&r.namespaceA, &r.objects) }, watches: 1,
		},
		"alone": {moment: 29 * time.Second, granted: func(r *rights) *rights { return r.set(&r.objects) }, watches: 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRights()
			inWatchedCluster(t, r.allow, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", 10)
				c.putAll(refs)
				shown := c.watchAll(t, refs)
				r.set()
				r.get.Store(false)
				c.view.Cut()
				c.view.Mend()
				time.Sleep(test.moment)
				requireOpen(t, shown...)
				test.granted(r)
				r.get.Store(true)
				time.Sleep(30 * time.Second)
				shownAll(t, c, refs, shown)
				c.view.ResetRequests()
				time.Sleep(5 * time.Minute)
				assert.Equal(t, map[string]int{"watch a": test.watches}, c.asked())
			})
		})
	}
}

func TestAnObjectThatMayNotBeReadCanBeUnwatchedAtAnyTime(t *testing.T) {
	for _, after := range []time.Duration{
		0, time.Second, 10700 * time.Millisecond, // while its last forbidden read is on its way
		12 * time.Second,
	} {
		t.Run(after.String(), func(t *testing.T) {
			inWatchedCluster(t, noGetIn("b"), func(t *testing.T, c *watchedCluster) {
				refs := objects("a", 4)
				c.putAll(refs)
				shown := c.watchAll(t, refs)
				c.view.Inject(fake.Fault{Verb: "get", Namespace: "b", Delay: 500 * time.Millisecond})
				unread := c.watch(types.NamespacedName{Namespace: "b", Name: "missing"})
				time.Sleep(after)
				c.end[4]()
				for range unread { // to its end
				}
				time.Sleep(time.Second)
				c.view.ResetRequests()
				time.Sleep(4 * time.Minute)
				assert.Empty(t, c.asked())
				shownAll(t, c, refs, shown)
			})
		})
	}
}
