package fake_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// BenchmarkInFlight has a dispatcher follow many operations on resumed Kustomizations that no controller handles, by
// watching and by polling every 2 s, and reports what each costs while nothing changes:
//
//	heap-B/op-in-flight  of the whole process, the stand-in's own watches included
//	goroutines           of the whole process, beyond those before
//	requests/s           to the API server, at rest
//
// and what it takes from a Kustomization's status write to the report of it, with all of them in flight.
func BenchmarkInFlight(b *testing.B) {
	for _, count := range []int{1000, 10000} {
		for _, how := range []string{"watched", "polled"} {
			b.Run(fmt.Sprint(how, "-", count), func(b *testing.B) {
				for range b.N {
					benchmarkInFlight(b, count, how == "polled")
				}
			})
		}
	}
}

func benchmarkInFlight(b *testing.B, count int, polled bool) {
	b.StopTimer()
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	for i := range count {
		createResumed(b, cluster, i)
	}
	host := newFluxHost(cluster, polled)
	ctx, cancel := context.WithCancel(b.Context())
	wait := host.Start(ctx)
	heap, goroutines := settled()

	b.StartTimer()
	var known atomic.Int64
	moved := make(chan time.Time, count)
	for i := range count {
		trigger := applier.TriggerRef{Namespace: "team-a", Name: fmt.Sprint("trigger-", i)}
		host.Dispatcher.RequestApply(ctx, applier.ApplyRequest{Trigger: trigger, Recovered: resumedOperation(i), Report: func(r applier.Report) {
			switch {
			case r.Operation.Progress.State == applier.StateSettling:
				moved <- time.Now()
			case r.Operation.Progress.Message != "":
				known.Add(1)
			}
		}})
	}
	for known.Load() < int64(count) {
		time.Sleep(time.Millisecond)
	}
	b.StopTimer()

	before := len(cluster.Requests())
	began := time.Now()
	time.Sleep(4 * time.Second)
	rest := float64(len(cluster.Requests())-before) / time.Since(began).Seconds()
	heapNow, goroutinesNow := settled()
	b.ReportMetric(float64(heapNow-heap)/float64(count), "heap-B/op-in-flight")
	b.ReportMetric(float64(goroutinesNow-goroutines), "goroutines")
	b.ReportMetric(rest, "requests/s")

	var lags []time.Duration
	for i := 0; i < count; i += count / 100 {
		wrote := handle(b, cluster, i)
		lags = append(lags, (<-moved).Sub(wrote))
	}
	slices.Sort(lags)
	b.ReportMetric(float64(lags[len(lags)/2])/1e6, "lag-p50-ms")
	b.ReportMetric(float64(lags[len(lags)*99/100])/1e6, "lag-p99-ms")
	cancel()
	require.NoError(b, wait())
	b.StartTimer()
}

// newFluxHost is a host with the backend of package flux, which may hide that it can watch.
func newFluxHost(cluster *fake.Cluster, polled bool) *fake.Host {
	backend := flux.Backend(flux.Options{FieldManager: "acme"})
	if polled {
		watching := backend.New
		backend.New = func(name string, client dynamic.Interface) (applier.Client, error) {
			inner, err := watching(name, client)
			return struct{ applier.Client }{inner}, err
		}
	}
	clients := func(context.Context, string) (dynamic.Interface, error) { return cluster, nil }
	host := fake.NewHost(new(fake.Store), clients, backend)
	host.Dispatcher.UnresolvedAfter = time.Hour
	return host
}

func settled() (heap uint64, goroutines int) {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc, runtime.NumGoroutine()
}

func benchName(i int) string  { return fmt.Sprintf("app-%05d", i) }
func benchToken(i int) string { return fmt.Sprintf("2026-01-02T15:04:05.000000006Z-%016x", i) }

const benchCommit = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"

// createResumed creates a Kustomization that stands resumed with its operation's token.
func createResumed(b *testing.B, cluster *fake.Cluster, i int) {
	b.Helper()
	ks := fake.NewKustomization("team-a", benchName(i), "shop")
	ks.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": benchToken(i)})
	require.NoError(b, unstructured.SetNestedField(ks.Object, false, "spec", "suspend"))
	_, err := cluster.Resource(kustomizations).Namespace("team-a").Create(b.Context(), ks, metav1.CreateOptions{FieldManager: "acme"})
	require.NoError(b, err)
}

func resumedOperation(i int) *applier.Operation {
	return &applier.Operation{
		Applier: applier.ApplierRef{
			Cluster: "prod", Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization", Namespace: "team-a", Name: benchName(i),
		},
		Started: applier.Started{
			Outcome: applier.OutcomeResumed, Token: benchToken(i), Commit: benchCommit, RequestedAt: metav1.NowMicro(),
		},
		Progress: applier.Progress{State: applier.StateRequested},
	}
}

// handle writes the status of a Kustomization that has handled its token, and returns when.
func handle(b *testing.B, cluster *fake.Cluster, i int) time.Time {
	b.Helper()
	resource := cluster.Resource(kustomizations).Namespace("team-a")
	ks, err := resource.Get(b.Context(), benchName(i), metav1.GetOptions{})
	require.NoError(b, err)
	ks.Object["status"] = map[string]any{
		"lastHandledReconcileAt": benchToken(i),
		"lastAppliedRevision":    "main@sha1:" + benchCommit,
		"observedGeneration":     ks.GetGeneration(),
		"conditions": []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: main@sha1:" + benchCommit,
			"lastTransitionTime": "2026-01-02T15:04:06Z", "observedGeneration": ks.GetGeneration(),
		}},
	}
	wrote := time.Now()
	_, err = resource.UpdateStatus(b.Context(), ks, metav1.UpdateOptions{})
	require.NoError(b, err)
	return wrote
}
