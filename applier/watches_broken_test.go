package applier_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/fake"
)

func forbidden(verb string) error {
	return apierrors.NewForbidden(kustomizations.GroupResource(), verb, nil)
}

// resourceVersionTooLarge is the answer of an API server that has not come to a resourceVersion, as after its etcd was restored.
func resourceVersionTooLarge() error {
	err := apierrors.NewTimeoutError("Too large resource version: 9, current: 5", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	return err
}

func TestASharedWatchThatBreaksGoesOn(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.ResetRequests()

		c.cluster.EndWatches(kustomizations.GroupResource())
		changed := c.put(refs[4])
		c.delete(refs[5])
		time.Sleep(500 * time.Millisecond)

		requireVersion(t, changed, shown[4])
		assert.Nil(t, next(t, shown[5]))
		requireNothing(t, shown[6])
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]int{"watch cluster": 1}, c.asked(), "from where it was")
	})
}

func TestBookmarksSaveAReadOfEverything(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		c.watchAll(t, refs)
		c.cluster.CreateNamespace("other") // moves the cluster's resourceVersion on
		c.cluster.Bookmark(kustomizations.GroupResource())
		synctest.Wait()
		c.cluster.Compact(kustomizations.GroupResource())
		c.view.ResetRequests()
		time.Sleep(6 * time.Minute)
		assert.Equal(t, map[string]int{"watch cluster": 1}, c.asked())
	})
}

func TestAfterAGapEverybodyIsShownWhatStands(t *testing.T) {
	for name, test := range map[string]struct {
		objects int
		refuse  error // the answer to the watch; nil is an event
		want    map[string]int
	}{
		"few by reads":  {objects: 20, want: map[string]int{"watch cluster": 2, "list cluster": 1, "get object": 20}},
		"many by pages": {objects: 600, want: map[string]int{"watch cluster": 2, "list cluster": 1 + 2}},
		"of which a 410 tells": {
			objects: 20, refuse: apierrors.NewResourceExpired("too old"),
			want: map[string]int{"watch cluster": 2, "list cluster": 1, "get object": 20},
		},
		"of which a 504 tells": {
			objects: 20, refuse: resourceVersionTooLarge(),
			want: map[string]int{"watch cluster": 2, "list cluster": 1, "get object": 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", test.objects)
				c.putAll(refs)
				shown := c.watchAll(t, refs)
				time.Sleep(time.Minute)
				c.view.ResetRequests()

				if test.refuse != nil {
					c.view.Inject(fake.Fault{Verb: "watch", Nth: 1, Err: test.refuse})
				}
				c.cluster.EndWatches(kustomizations.GroupResource())
				first, last := c.put(refs[0]), c.put(refs[test.objects-1])
				c.delete(refs[5])
				c.delete(refs[6])
				again := c.put(refs[6])
				c.cluster.Compact(kustomizations.GroupResource()) // the watch cannot go on: 410
				time.Sleep(time.Second)

				requireVersion(t, first, shown[0])
				requireVersion(t, last, shown[test.objects-1])
				assert.Nil(t, next(t, shown[5]))
				requireVersion(t, again, shown[6])
				for i, one := range shown {
					if !slices.Contains([]int{0, 5, 6, test.objects - 1}, i) {
						requireNothing(t, one)
					}
				}
				time.Sleep(time.Minute)
				assert.Equal(t, test.want, c.asked())
				requireVersion(t, c.put(refs[3]), shown[3])
			})
		})
	}
}

func TestAListThatExpiresBetweenItsPagesIsMadeAgain(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 600)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.cluster.EndWatches(kustomizations.GroupResource())
		last := c.put(refs[599])
		c.cluster.Compact(kustomizations.GroupResource())
		c.view.Inject(fake.Fault{Verb: "list", Nth: 3, Before: func(fake.Request) {
			c.put(refs[1])
			c.cluster.Compact(kustomizations.GroupResource())
		}})
		time.Sleep(15 * time.Second)
		requireVersion(t, last, shown[599])
	})
}

func TestWhileTheAPIServerIsGoneItIsAskedLittleAndThenTruthIsShown(t *testing.T) {
	for name, test := range map[string]struct {
		objects int
		forgets bool // what happened before it was there again
	}{
		"few":                           {objects: 20},
		"few, and it forgets its past":  {objects: 20, forgets: true},
		"many":                          {objects: 600},
		"many, and it forgets its past": {objects: 600, forgets: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", test.objects)
				c.putAll(refs)
				shown := c.watchAll(t, refs)
				mend := c.view.Inject(fake.Fault{Err: errLost})
				c.cluster.EndWatches(kustomizations.GroupResource())
				c.view.ResetRequests()
				time.Sleep(52 * time.Second)
				asked := c.asked()
				assert.LessOrEqual(t, asked["watch cluster"], 25)
				assert.LessOrEqual(t, asked["get object"], 60*8)
				assert.LessOrEqual(t, asked["list cluster"], 10)

				changed := c.put(refs[7])
				c.delete(refs[8])
				if test.forgets {
					c.cluster.Compact(kustomizations.GroupResource())
				}
				mend()
				time.Sleep(13 * time.Second) // two attempts at a watch, five seconds and a bit apart
				requireVersion(t, changed, shown[7])
				assert.Nil(t, next(t, shown[8]))
				requireNothing(t, shown[9])
			})
		})
	}
}

func TestWhileNoWatchCanBeOpenedObjectsAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		objects     int
		within      time.Duration
		verb        string
		most, least int
	}{
		"few every second":      {objects: 20, within: 2 * time.Second, verb: "get object", least: 50 * 20, most: 60 * 20},
		"many every ten second": {objects: 600, within: 11 * time.Second, verb: "list cluster", least: 2 * 5, most: 2 * 7},
	} {
		t.Run(name, func(t *testing.T) {
			inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
				refs := objects("a", test.objects)
				c.putAll(refs)
				shown := c.watchAll(t, refs)
				mend := c.view.Inject(fake.Fault{Verb: "watch", Err: apierrors.NewInternalError(errLost)})
				c.cluster.EndWatches(kustomizations.GroupResource())
				time.Sleep(900 * time.Millisecond)
				c.view.ResetRequests()
				changed := c.put(refs[7])
				c.delete(refs[8])
				time.Sleep(test.within)
				requireVersion(t, changed, shown[7])
				assert.Nil(t, next(t, shown[8]))

				c.view.ResetRequests()
				time.Sleep(time.Minute)
				asked := c.asked()
				assert.GreaterOrEqual(t, asked[test.verb], test.least)
				assert.LessOrEqual(t, asked[test.verb], test.most)
				assert.LessOrEqual(t, asked["watch cluster"], 25)
				for _, one := range shown {
					requireNothing(t, one)
				}

				mend()
				time.Sleep(6 * time.Second)
				c.view.ResetRequests()
				shownAll(t, c, refs, shown)
				assert.Empty(t, c.asked(), "it is watched again")
			})
		})
	}
}

func TestWhoJoinsWhileNoWatchCanBeOpenedIsShownWhatStands(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		c.putAll(objects("a", 10))
		c.view.Inject(fake.Fault{Verb: "watch", Match: func(r fake.Request) bool { return r.Namespace == "" }, Err: apierrors.NewInternalError(errLost)})
		shown := make([]<-chan *unstructured.Unstructured, 0, 10)
		for _, ref := range objects("a", 10) {
			shown = append(shown, c.watch(ref))
		}
		time.Sleep(1100 * time.Millisecond)
		for _, one := range shown {
			require.NotNil(t, next(t, one))
		}
	})
}

func TestASilentSharedWatchIsRenewed(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		mend := c.view.Inject(fake.Fault{Verb: "watch", SilenceWatch: true, Match: func(r fake.Request) bool { return r.Namespace == "" }})
		shown := c.watchAll(t, refs)
		mend()
		changed := c.put(refs[2])
		requireNothing(t, shown[2])
		time.Sleep(5*time.Minute + 11*time.Second)
		requireVersion(t, changed, shown[2])
	})
}

func TestAReadThatFailsIsMadeAgain(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		c.watchAll(t, refs[:5])
		mend := c.view.Inject(fake.Fault{Verb: "get", Name: refs[6].Name, Err: apierrors.NewInternalError(errLost)})
		broken, sound := c.watch(refs[6]), c.watch(refs[7])
		require.NotNil(t, next(t, sound))
		time.Sleep(3 * time.Second)
		requireNothing(t, broken)
		mend()
		time.Sleep(time.Second)
		require.NotNil(t, next(t, broken))
	})
}

func TestAKindThatIsNotServedSaysNothing(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.cluster.Unserve(kustomizations.GroupResource())
		c.view.ResetRequests()
		time.Sleep(time.Minute)
		for _, one := range shown {
			requireNothing(t, one)
		}
		assert.LessOrEqual(t, c.asked()["get object"], 60*8)
		c.cluster.Serve(kustomizations.GroupResource())
		time.Sleep(6 * time.Second)
		shownAll(t, c, refs, shown)
	})
}

func TestCutAndMend(t *testing.T) {
	inWatchedCluster(t, nil, func(t *testing.T, c *watchedCluster) {
		refs := objects("a", 10)
		c.putAll(refs)
		shown := c.watchAll(t, refs)
		c.view.Cut()
		changed := c.put(refs[3])
		time.Sleep(time.Minute)
		requireNothing(t, shown[3])
		c.view.Mend()
		time.Sleep(6 * time.Second)
		requireVersion(t, changed, shown[3])
		shownAll(t, c, refs, shown)
	})
}
