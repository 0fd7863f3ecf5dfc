package applier_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var shopRepository = types.NamespacedName{Namespace: "flux-system", Name: "shop"}

// prefetching is a Client that is a Prefetcher.
type prefetching struct {
	applier.Client
	prefetch func(ctx context.Context, ref, checked types.NamespacedName, commit string) error
}

func (prefetching) Consumers(context.Context, types.NamespacedName) ([]fluxmeta.NamespacedObjectKindReference, error) {
	return nil, nil
}

func (p prefetching) Prefetch(ctx context.Context, ref, checked types.NamespacedName, commit string) error {
	return p.prefetch(ctx, ref, checked, commit)
}

func TestASourceIsPrefetchedWhereNothingElseWouldApplyIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(w *dispatchWorld)
		want    int
	}{
		"its trigger says that it may be": {func(*dispatchWorld) {}, 1},
		"its trigger does not say so": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Source.Prefetch = false })
		}, 0},
		"its trigger does not know it": {func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Status.Source = nil }) }, 0},
		"its trigger is being deleted": {func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Deleting = true }) }, 0},
		"its trigger has an open operation": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = operationAt("t1", applier.StateRunning) })
		}, 0},
		"its trigger's operation has ended": {func(w *dispatchWorld) {
			w.changeTrigger(func(t *applier.Trigger) { t.Status.Operation = operationAt("t1", applier.StateFailed) })
		}, 1},
		"another on the source has one open": {func(w *dispatchWorld) {
			w.store.PutTrigger(applier.Trigger{
				Ref: applier.TriggerRef{Namespace: "team-b", Name: "other"}, Applier: applier.ApplierRef{Cluster: "prod", Kind: "Kustomization", Name: "other"},
				Status: applier.TriggerStatus{
					Source:    &applier.TriggerSource{Source: applier.Source{GitRepository: shopRepository}},
					Operation: operationAt("t1", applier.StateRunning),
				},
			})
		}, 0},
		"one of that name in another cluster has one open": {func(w *dispatchWorld) {
			w.store.PutTrigger(applier.Trigger{
				Ref: applier.TriggerRef{Namespace: "team-b", Name: "other"}, Applier: applier.ApplierRef{Cluster: "test", Kind: "Kustomization", Name: "other"},
				Status: applier.TriggerStatus{
					Source:    &applier.TriggerSource{Source: applier.Source{GitRepository: shopRepository}},
					Operation: operationAt("t1", applier.StateRunning),
				},
			})
		}, 1},
		"its trigger cannot be read":           {func(w *dispatchWorld) { w.store.Inject(fake.StoreFault{Method: "Trigger", Err: errAway}) }, 0},
		"who shares the source cannot be read": {func(w *dispatchWorld) { w.store.Inject(fake.StoreFault{Method: "Triggers", Err: errAway}) }, 0},
		"its trigger is gone":                  {func(w *dispatchWorld) { w.store.DeleteTrigger(w.trigger) }, 0},
		"the dispatcher stopped":               {func(w *dispatchWorld) { w.stop() }, 0},
		"the backend cannot do it":             {func(w *dispatchWorld) { w.wrapped = w.client }, 0},
		"the cluster is not known":             {func(w *dispatchWorld) { w.changeTrigger(func(t *applier.Trigger) { t.Applier.Cluster = "test" }) }, 0},
		"it is asked for in a bulk": {func(w *dispatchWorld) {
			w.dispatcher.PrefetchSource(applier.PrefetchRequest{Trigger: w.trigger, Commit: commitA})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				asked := 0
				w.wrapped = prefetching{w.client, func(_ context.Context, ref, checked types.NamespacedName, commit string) error {
					asked++
					assert.Equal(w, shopApp.NamespacedName(), ref)
					assert.Equal(w, shopRepository, checked)
					assert.Equal(w, commitA, commit)
					return applier.ErrNotPrefetched
				}}
				w.changeTrigger(func(t *applier.Trigger) {
					t.Status.Source = &applier.TriggerSource{Source: applier.Source{GitRepository: shopRepository}, Prefetch: true}
				})
				w.start()
				tc.prepare(w)
				w.dispatcher.PrefetchSource(applier.PrefetchRequest{Trigger: w.trigger, Commit: commitA})
				synctest.Wait()
				assert.Equal(w, tc.want, asked)
				assert.Empty(w, w.reported())
				assert.Empty(w, w.events)
			})
		})
	}
}

func TestAPrefetchReturnsAtOnceAndIsBounded(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		var ended time.Time
		w.wrapped = prefetching{w.client, func(ctx context.Context, _, _ types.NamespacedName, _ string) error {
			<-ctx.Done()
			ended = time.Now()
			return ctx.Err()
		}}
		w.changeTrigger(func(t *applier.Trigger) {
			t.Status.Source = &applier.TriggerSource{Source: applier.Source{GitRepository: shopRepository}, Prefetch: true}
		})
		w.start()
		began := time.Now()
		w.dispatcher.PrefetchSource(applier.PrefetchRequest{Trigger: w.trigger, Commit: commitA})
		assert.Zero(w, time.Since(began))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(w, applier.DefaultAttemptTimeout, ended.Sub(began))
	})
}
