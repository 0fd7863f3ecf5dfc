package fake_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/fake"
)

func TestARunThatIsCutOffNeverReportsItsToken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set(true, "spec", "wait"))
		w.hold(true, "hold")
		synctest.Wait()
		remove := w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: time.Minute})
		w.hold(false, "go")
		w.after(2 * time.Second)
		seen := w.watch(kustomizations, "app")
		seen()
		w.flux.Kustomize.Stop()
		assert.Empty(w, seen(), "no status is written")
		w.hold(true, "susp")
		w.after(time.Second)
		remove()
		w.flux.Kustomize.Start()
		w.after(3 * time.Minute)
		assert.Equal(w,
			"gen=4 og=2 handled=susp Ready=Unknown/Progressing@3 Reconciling=True/Progressing@3 (Running health checks) Healthy=Unknown/Progressing@3 att=one app=one",
			w.ks("app"))
		w.hold(false, "repair")
		synctest.Wait()
		assert.Equal(w, "gen=5 og=5 handled=repair Ready=True/ReconciliationSucceeded@5 Healthy=True/Succeeded@5 att=one app=one", w.ks("app"))
	})
}

func TestAControllerCanBeStoppedFromWithinAStep(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.push("two", value("two"))
		w.flux.Inject(fake.StepFault{Step: fake.BuildStep, Nth: 1, Do: w.flux.Kustomize.Stop})
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.False(w, w.flux.Kustomize.Running())
		assert.Contains(w, w.ks("app"), "Ready=Unknown/Progressing")
		assert.Equal(w, "one", w.data("cm"))
		w.flux.Start()
		synctest.Wait()
		assert.Equal(w, "two", w.data("cm"), "a controller that starts reconciles everything")
	})
}

func TestAnArtifactIsAskedForAsLongAsSourceControllerIsDown(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.flux.Source.Stop()
		w.hold(false, "go")
		w.after(time.Second)
		w.hold(true, "susp")
		w.after(213 * time.Second)
		assert.Contains(w, w.ks("app"), "Ready=Unknown/Progressing")
		w.after(time.Second)
		assert.Contains(w, w.ks("app"), "handled=susp Ready=False/ArtifactFailed")
		assert.Contains(w, w.message(kustomizations, "app"), "giving up after 10 attempt(s)")

		w.hold(false, "go again")
		w.after(4 * time.Second)
		w.flux.Source.Start()
		w.after(time.Second)
		assert.Contains(w, w.ks("app"), "handled=go again Ready=True")
	})
}

func TestATokenStampedWhileTheControllerIsDownIsHandledOnceItIsUp(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.flux.Kustomize.Stop()
		w.stamp(kustomizations, "go")
		w.after(time.Minute)
		assert.NotContains(w, w.ks("app"), "handled")
		w.flux.Kustomize.Start()
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "handled=go Ready=True")
	})
}

func TestTheControllersAreNoConcernOfTheUsersFaultsAndRecord(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.cluster.ResetRequests()
		w.cluster.Inject(fake.Fault{Err: assert.AnError})
		w.push("two", value("two"))
		w.after(2 * time.Hour)
		assert.Empty(w, w.cluster.Requests())
		assert.Equal(w, "two", func() string {
			other := *w
			other.cluster = &fake.Cluster{View: w.cluster.As("other", nil)}
			return other.data("cm")
		}())
	})
}

func TestWatchesThatEndAreOpenedAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		seen := w.watch(kustomizations, "app")
		w.cluster.EndWatches(kustomizations.GroupResource())
		w.cluster.EndWatches(gitRepositories.GroupResource())
		w.push("two", value("two"))
		w.stamp(gitRepositories, "fetch")
		w.after(time.Second)
		assert.Equal(w, "two", w.data("cm"))
		assert.Len(w, seen(), 1, "a watch of the test's ended as well")
	})
}

func TestStopLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 3 {
		cluster := fake.NewCluster(fake.Options{})
		flux := fake.StartFlux(cluster, fake.FluxOptions{})
		flux.Stop()
		flux.Start()
		cluster.Stop()
		cluster.Stop()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}
