package applier_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// BenchmarkWatching shows Kustomizations by shared watches and by a watch of each, side by side. One operation is the
// time until what stands of all was shown. It reports
//
//	heap-B/object    of the whole process, what the stand-in keeps of its watches included
//	goroutines       of the whole process, beyond those before
//	requests         to the API server until what stands was shown
//	requests/s       at rest
//	lag-ms           from before a write to what is shown of it, the slowest of a hundred
func BenchmarkWatching(b *testing.B) {
	shared := func(ctx context.Context, c *watchedCluster, ref types.NamespacedName) <-chan *unstructured.Unstructured {
		return c.watches.Watch(ctx, ref)
	}
	alone := func(ctx context.Context, c *watchedCluster, ref types.NamespacedName) <-chan *unstructured.Unstructured {
		return applier.WatchObject(ctx, c.view.Resource(kustomizations).Namespace(ref.Namespace), ref.Name)
	}
	b.Run("alone-1000", func(b *testing.B) { benchmarkWatching(b, 1000, alone) }) // more are too much for the stand-in
	b.Run("shared-1000", func(b *testing.B) { benchmarkWatching(b, 1000, shared) })
	b.Run("shared-10000", func(b *testing.B) { benchmarkWatching(b, 10000, shared) })
}

func benchmarkWatching(
	b *testing.B, count int,
	watch func(context.Context, *watchedCluster, types.NamespacedName) <-chan *unstructured.Unstructured,
) {
	c := newWatchedCluster(b, nil)
	refs := objects("a", count)
	c.putAll(refs)
	for b.Loop() {
		b.StopTimer()
		c.view.ResetRequests()
		heap, goroutines := settledHeap()
		ctx, cancel := context.WithCancel(b.Context())
		shown := make([]<-chan *unstructured.Unstructured, count)
		b.StartTimer()
		for i, ref := range refs {
			shown[i] = watch(ctx, c, ref)
		}
		for _, one := range shown {
			require.NotNil(b, <-one)
		}
		b.StopTimer()

		b.ReportMetric(float64(len(c.view.Requests())), "requests")
		c.view.ResetRequests()
		time.Sleep(2 * time.Second)
		b.ReportMetric(float64(len(c.view.Requests()))/2, "requests/s")
		heapNow, goroutinesNow := settledHeap()
		b.ReportMetric(float64(heapNow-heap)/float64(count), "heap-B/object")
		b.ReportMetric(float64(goroutinesNow-goroutines), "goroutines")
		b.ReportMetric(float64(slowestOf100(c, refs, shown))/1e6, "lag-ms")

		cancel()
		for _, one := range shown {
			for range one { // to its end
			}
		}
		b.StartTimer()
	}
}

func slowestOf100(c *watchedCluster, refs []types.NamespacedName, shown []<-chan *unstructured.Unstructured) (slowest time.Duration) {
	for i := 0; i < len(refs); i += len(refs) / 100 {
		began := time.Now()
		c.put(refs[i])
		<-shown[i]
		slowest = max(slowest, time.Since(began))
	}
	return slowest
}

func settledHeap() (heap int64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), runtime.NumGoroutine()
}
