package gitopsprovider_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// sightings are what a watch has shown.
type sightings struct {
	mu   sync.Mutex
	seen []string
}

func (s *sightings) show(sighting gitopsprovider.Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := string(sighting.Answer)
	if !sighting.Object.IsZero() {
		line += " " + sighting.Object.Name + " " + sighting.Object.Ready.State.String()
	}
	s.seen = append(s.seen, line)
}

// take returns what was shown since the last take, in the order of names.
func (s *sightings) take() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := append([]string{}, s.seen...)
	s.seen = nil
	slices.Sort(taken)
	return taken
}

// inBubble runs a test of a watch of Apps through a view of a cluster.
func inBubble(t *testing.T, allowed func(authorizationv1.ResourceAttributes) bool, test func(*testing.T, *fake.Cluster, *fake.View, *sightings)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t)
		view := c.As("watcher", allowed)
		seen := &sightings{}
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		put(t, c, "ns", "a", ", status: {state: Ready}")
		watching.Go(func() { reader(view).Watch(ctx, appInBeta, seen.show) })
		test(t, c, view, seen)
		cancel()
		watching.Wait()
		put(t, c, "ns", "after", "")
		assert.Empty(t, seen.take(), "nothing is shown after the end")
	})
}

func TestAWatchShowsWhatStandsAndWhatChanges(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *fake.Cluster, _ *fake.View, seen *sightings) {
		assert.Equal(t, []string{"Found a Ready"}, seen.take())
		put(t, c, "ns", "a", ", status: {state: Failing}")
		put(t, c, "other", "b", ", status: {state: Ready}")
		assert.Equal(t, []string{"Found a Failing", "Found b Ready"}, seen.take())
		require.NoError(t, c.Resource(apps).Namespace("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		assert.Equal(t, []string{"Absent a Unknown"}, seen.take())
	})
}

func TestAWatchIsOpenedAnewAndShowsOnlyWhatChangedMeanwhile(t *testing.T) {
	for name, breaks := range map[string]func(*fake.Cluster){
		"a watch that ended": func(c *fake.Cluster) { c.EndWatches(schema.GroupResource{}) },
		"a history that was dropped": func(c *fake.Cluster) {
			c.EndWatches(schema.GroupResource{})
			c.Compact(schema.GroupResource{})
		},
		"a kind that was not served for a while": func(c *fake.Cluster) {
			c.Unserve(apps.GroupResource())
			time.Sleep(time.Second)
			c.Serve(apps.GroupResource())
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, c *fake.Cluster, _ *fake.View, seen *sightings) {
				put(t, c, "ns", "b", "")
				put(t, c, "ns", "c", "")
				assert.Equal(t, []string{"Found a Ready", "Found b Unknown", "Found c Unknown"}, seen.take())
				breaks(c)
				put(t, c, "ns", "a", ", status: {state: Failing}")
				require.NoError(t, c.Resource(apps).Namespace("ns").Delete(t.Context(), "b", metav1.DeleteOptions{}))
				time.Sleep(2 * time.Minute)
				got := slices.DeleteFunc(seen.take(), func(line string) bool { return line == "NotServed" || line == "Found" })
				assert.Equal(t, []string{"Absent b Unknown", "Found a Failing"}, got)
			})
		})
	}
}

func TestAWatchSaysThatItMayNotWatchAndTriesAgain(t *testing.T) {
	var allowed atomic.Bool
	rule := func(authorizationv1.ResourceAttributes) bool { return allowed.Load() }
	inBubble(t, rule, func(t *testing.T, _ *fake.Cluster, _ *fake.View, seen *sightings) {
		assert.Equal(t, []string{"Forbidden"}, seen.take())
		time.Sleep(10 * time.Minute)
		assert.Empty(t, seen.take(), "once is enough")
		allowed.Store(true)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"Found", "Found a Ready"}, seen.take())
	})
}

func TestAListAloneIsNoWatch(t *testing.T) {
	rule := func(a authorizationv1.ResourceAttributes) bool { return a.Verb != "watch" }
	inBubble(t, rule, func(t *testing.T, _ *fake.Cluster, _ *fake.View, seen *sightings) {
		time.Sleep(10 * time.Minute)
		assert.Equal(t, []string{"Forbidden", "Found a Ready"}, seen.take(), "what stands is shown all the same")
	})
}

func TestAKindThatIsNotServedIsSaidAndTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewCluster(fake.Options{Namespaces: []string{"ns"}})
		defer c.Stop()
		seen := &sightings{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go reader(c).Watch(ctx, appInBeta, seen.show)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, []string{"NotServed"}, seen.take())
		assert.Less(t, len(c.Requests()), 80, "quietly")
		define(t, c)
		put(t, c, "ns", "a", "")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"Found", "Found a Unknown"}, seen.take())
	})
}

func TestAnAPIServerThatDoesNotAnswerIsSaidOnceItHasLasted(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, c *fake.Cluster, view *fake.View, seen *sightings) {
		seen.take()
		recover := view.Inject(fake.Fault{Err: errSilent})
		c.EndWatches(schema.GroupResource{})
		time.Sleep(10 * time.Second)
		assert.Empty(t, seen.take(), "a moment is no news")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, []string{"Unknown"}, seen.take())
		recover()
		put(t, c, "ns", "a", ", status: {state: Failing}")
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"Found", "Found a Failing"}, seen.take())
	})
}

func TestAWatchIsQuietWhileNothingChanges(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, _ *fake.Cluster, view *fake.View, seen *sightings) {
		seen.take()
		opening := len(view.Requests())
		assert.LessOrEqual(t, opening, 5, "two for each version that is not served, and one watch: %v", view.Requests())
		view.ResetRequests()
		time.Sleep(30 * time.Minute)
		assert.LessOrEqual(t, len(view.Requests()), 6, "a renewal every five to ten minutes")
		assert.Empty(t, seen.take())
	})
}

const stoodIn = "{apiVersion: delivery.example.com/v2, kind: App, metadata: {namespace: ns, name: a, uid: u, resourceVersion: '%s'}, status: {state: %s}}"

// A simple fake begins a watch at the time it is opened, so that what came after the list would be lost.
func TestAStandInThatDoesNotReplayLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			apps: "AppList", apps.GroupResource().WithVersion("v1"): "AppList", apps.GroupResource().WithVersion("v2"): "AppList",
		}, fromYAML(t, fmt.Sprintf(stoodIn, "1", "Ready")))
		changed := false
		client.PrependWatchReactor("apps", func(action clienttesting.Action) (bool, watch.Interface, error) {
			if !changed {
				changed = true
				change(t, client, "2", "Failing")
			}
			watcher, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
			return true, watcher, err
		})
		seen := &sightings{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go reader(client).Watch(ctx, appInBeta, seen.show)
		time.Sleep(time.Second)
		assert.Equal(t, []string{"Found a Failing", "Found a Ready"}, seen.take())
		change(t, client, "3", "Ready")
		assert.Equal(t, []string{"Found a Ready"}, seen.take())
	})
}

func change(t *testing.T, client *dynamicfake.FakeDynamicClient, version, state string) {
	t.Helper()
	u := fromYAML(t, fmt.Sprintf(stoodIn, version, state))
	require.NoError(t, client.Tracker().Update(apps.GroupResource().WithVersion("v2"), u, "ns"))
}

// The whole of it: failures of a cluster whose API server goes away for a while.
func TestFailuresAreReportedThroughAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := cluster(t)
		view := c.As("watcher", nil)
		put(t, c, "ns", "old", ", status: {state: Failing, message: x}")
		ctx, cancel := context.WithCancel(t.Context())
		events, err := views(t, gitopsprovider.NoDiffer{}, reader(view)).WatchFailures(ctx, gitopsprovider.FailureOptions{})
		require.NoError(t, err)
		w := &watched{t: t, events: events}
		assert.Equal(t, []string{"Failed App ns/old, standing"}, w.reports())

		recover := view.Inject(fake.Fault{Err: errors.New("connection refused")})
		c.EndWatches(schema.GroupResource{})
		time.Sleep(5 * time.Minute)
		put(t, c, "ns", "new", ", status: {state: Failing}")
		assert.Equal(t, []string{"Unwatched App "}, w.reports())
		recover()
		time.Sleep(2 * time.Minute)
		assert.ElementsMatch(t, []string{"Watched App ", "Failed App ns/new, standing"}, w.reports(), "the old one is no news")
		cancel()
	})
}
