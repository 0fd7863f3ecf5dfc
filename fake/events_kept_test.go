package fake

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestTheNewestEventsAreKept(t *testing.T) {
	t.Parallel()
	cluster := NewCluster(Options{Namespaces: []string{"team"}})
	t.Cleanup(cluster.Stop)
	about := NewKustomization("team", "app", "app")
	const dropped = 3
	for i := range keptEvents + dropped {
		event := cluster.events.newEvent(kustomizeManager, about, corev1.EventTypeNormal, "Progressing", fmt.Sprint(i))
		require.NotNil(t, cluster.events.create(event))
	}
	list, err := cluster.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, keptEvents)
	assert.Equal(t, fmt.Sprint(dropped), list.Items[0].Object["message"])
}

func BenchmarkEvent(b *testing.B) {
	cluster := NewCluster(Options{Namespaces: []string{"team"}})
	defer cluster.Stop()
	about := NewKustomization("team", "app", "app")
	for b.Loop() {
		cluster.events.create(cluster.events.newEvent(kustomizeManager, about, corev1.EventTypeNormal, "Progressing", "ConfigMap/team/app created"))
	}
}
