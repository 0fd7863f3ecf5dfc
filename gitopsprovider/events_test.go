package gitopsprovider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var (
	events    = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	newEvents = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// coreEvent is an Event of App ns/shop in the core API, with the fields given besides.
func coreEvent(name, fields string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Event, metadata: {namespace: ns, name: %s, uid: %s}, reason: %s, message: m, type: Warning,
  source: {component: controller}, involvedObject: {apiVersion: %s/v1, kind: App, namespace: ns, name: shop}%s}`, name, name, name, group, fields)
}

func newEvent(name, fields string) string {
	return fmt.Sprintf(`{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: ns, name: %s, uid: %s}, reason: %s, note: m, type: Normal,
  action: Reconcile, reportingController: controller, reportingInstance: pod, regarding: {apiVersion: %s/v1, kind: App, namespace: ns, name: shop}%s}`, name, name, name, group, fields)
}

// eventsOf reads Events that were written as YAML, from a double that keeps the two APIs apart and applies no field selector.
func eventsOf(t *testing.T, object gitopsprovider.Object, texts ...string) []gitopsprovider.Event {
	t.Helper()
	var objects []runtime.Object
	for _, text := range texts {
		objects = append(objects, fromYAML(t, text))
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		events: "EventList", newEvents: "EventList",
	}, objects...)
	got, err := reader(client).Events(t.Context(), object)
	require.NoError(t, err)
	return got
}

func reasons(events []gitopsprovider.Event) string {
	var out []string
	for _, event := range events {
		out = append(out, event.Reason)
	}
	return strings.Join(out, " ")
}

var theShop = gitopsprovider.Object{Workload: workload("App", "ns/shop")}

// The time of an Event is the latest that it has, whichever field holds it.
func TestEventsAreInTheOrderOfTheirTime(t *testing.T) {
	t.Parallel()
	got := eventsOf(t, theShop,
		coreEvent("e5", `, lastTimestamp: "2026-05-04T10:05:00Z", firstTimestamp: "2026-05-04T09:00:00Z"`),
		coreEvent("e1", `, eventTime: "2026-05-04T10:01:00.000000Z", lastTimestamp: null, firstTimestamp: null`),
		coreEvent("e3", `, eventTime: "2026-05-04T09:00:00.000000Z", series: {count: 7, lastObservedTime: "2026-05-04T10:03:00.000000Z"}`),
		coreEvent("e2", `, firstTimestamp: "2026-05-04T10:02:00Z"`),
		strings.Replace(coreEvent("e4", ""), "uid: e4", `uid: e4, creationTimestamp: "2026-05-04T10:04:00Z"`, 1),
		newEvent("e6", `, eventTime: "2026-05-04T09:00:00.000000Z", series: {count: 3, lastObservedTime: "2026-05-04T10:06:00.000000Z"}`),
		newEvent("e7", `, deprecatedLastTimestamp: "2026-05-04T10:07:00Z", deprecatedCount: 2`),
		coreEvent("e0", ""),
	)
	assert.Equal(t, "e0 e1 e2 e3 e4 e5 e6 e7", reasons(got), "one without any time is the oldest")
	assert.Equal(t, at("10:03"), got[3].Time.UTC())
	assert.Equal(t, gitopsprovider.Event{Time: got[5].Time, Warning: true, Reason: "e5", Message: "m", From: "controller"}, got[5])
	assert.Equal(t, int64(7), got[3].Count)
	assert.Equal(t, gitopsprovider.Event{Time: got[7].Time, Reason: "e7", Message: "m", From: "controller", Count: 2}, got[7])
}

// A controller quotes the address that it could not clone, with the token in it.
func TestEventsHoldNoUserInfo(t *testing.T) {
	t.Parallel()
	const message = "unable to clone 'https://bot:s3cr3t%40tok@git.example.com/acme/shop.git': authentication required"
	got := eventsOf(t, theShop,
		strings.Replace(coreEvent("e1", ""), "message: m", `message: "`+message+`"`, 1),
		strings.Replace(newEvent("e2", ""), "note: m", `note: "`+message+`"`, 1))
	require.Len(t, got, 2)
	for _, event := range got {
		assert.Equal(t, "unable to clone 'https://git.example.com/acme/shop.git': authentication required", event.Message)
	}
}

func TestEventsOfOneTimeKeepTheirOrder(t *testing.T) {
	t.Parallel()
	var texts []string
	for i := range 20 {
		texts = append(texts, coreEvent(fmt.Sprintf("e%02d", i), `, lastTimestamp: "2026-05-04T10:05:00Z"`))
	}
	first := reasons(eventsOf(t, theShop, texts...))
	for range 5 {
		assert.Equal(t, first, reasons(eventsOf(t, theShop, texts...)))
	}
}

func TestEventsAreOfTheObjectAlone(t *testing.T) {
	t.Parallel()
	others := 0
	like := func(old, replacement string) string {
		others++
		return strings.Replace(coreEvent(fmt.Sprintf("other%d", others), ""), old, replacement, 1)
	}
	object := theShop
	object.UID = "u1"
	assert.Equal(t, "anonymous mine", reasons(eventsOf(t, object,
		strings.Replace(coreEvent("mine", ""), "name: shop", "name: shop, uid: u1", 1),
		coreEvent("anonymous", ""),
		strings.Replace(coreEvent("earlier", ""), "name: shop", "name: shop, uid: u0", 1),
		like("name: shop", "name: shop-db"), like("kind: App", "kind: Repo"), like("namespace: ns, name: shop", "namespace: other, name: shop"),
		like("apiVersion: "+group, "apiVersion: example.com"),
	)))
}

// An API server shows one Event in both APIs.
func TestAnEventOfBothAPIsIsOne(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	_, err := c.Resource(events).Namespace("ns").Create(t.Context(), fromYAML(t, coreEvent("one", `, lastTimestamp: "2026-05-04T10:05:00Z"`)), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Resource(events).Namespace("ns").Create(t.Context(),
		fromYAML(t, strings.Replace(coreEvent("other", ""), "name: shop", "name: shop-db", 1)), metav1.CreateOptions{})
	require.NoError(t, err)
	got, err := reader(c).Events(t.Context(), theShop)
	require.NoError(t, err)
	assert.Equal(t, "one", reasons(got))
}

func TestOneOfTheTwoAPIsIsEnough(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	_, err := c.Resource(events).Namespace("ns").Create(t.Context(), fromYAML(t, coreEvent("one", "")), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, allowed := range []string{"", "events.k8s.io"} {
		view := c.As("reader", func(a authorizationv1.ResourceAttributes) bool { return a.Group == allowed })
		got, err := reader(view).Events(t.Context(), theShop)
		require.NoError(t, err)
		assert.Equal(t, "one", reasons(got), "allowed in group %q", allowed)
	}
	_, err = reader(c.As("nobody", func(authorizationv1.ResourceAttributes) bool { return false })).Events(t.Context(), theShop)
	assert.Equal(t, gitopsprovider.AnswerForbidden, gitopsprovider.AnswerOf(err))
}

func TestEventsOfAnObjectOfTheWholeCluster(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{})
	t.Cleanup(c.Stop)
	_, err := c.Resource(events).Namespace("default").Create(t.Context(), fromYAML(t,
		`{apiVersion: v1, kind: Event, metadata: {namespace: default, name: e}, reason: Created, involvedObject: {apiVersion: v1, kind: Namespace, name: ns}}`), metav1.CreateOptions{})
	require.NoError(t, err)
	got, err := reader(c).Events(t.Context(), gitopsprovider.Object{Workload: gitopsprovider.Workload{Kind: "Namespace", Name: "ns"}})
	require.NoError(t, err)
	assert.Equal(t, "Created", reasons(got))
}
