package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/fake"
)

const requestedAt = "reconcile.fluxcd.io/requestedAt"

func requested(token string) func(*unstructured.Unstructured) {
	return set(map[string]any{requestedAt: token}, "metadata", "annotations")
}

func TestASuspendedKustomizationHandlesATokenAndDoesNothingElse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		given func(w *world)
		token func(w *world)
		want  []string
	}{
		{
			name:  "ready, suspended with the token",
			given: func(w *world) { w.applied() },
			token: func(w *world) { w.hold(true, "hold") },
			want: []string{
				"gen=2 og=1 Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=2 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
			},
		},
		{
			name: "ready, suspended before",
			given: func(w *world) {
				w.applied()
				w.patch(kustomizations, "app", `{"spec":{"suspend":true}}`)
				synctest.Wait()
			},
			token: func(w *world) { w.stamp(kustomizations, "hold") },
			want: []string{
				"gen=2 og=2 Ready=True/ReconciliationSucceeded@1 att=one app=one",
				"gen=2 og=2 handled=hold Ready=True/ReconciliationSucceeded@1 att=one app=one",
			},
		},
		{
			name: "failed, suspended with the token",
			given: func(w *world) {
				w.push("one", fake.Files{"cm.yaml": broken})
				w.source()
				synctest.Wait()
				w.kustomization()
				synctest.Wait()
			},
			token: func(w *world) { w.hold(true, "hold") },
			want: []string{
				"gen=2 og=-1 Ready=False/BuildFailed@1 Reconciling=True/ProgressingWithRetry@1 (Building manifests) att=one",
				"gen=2 og=-1 Ready=False/BuildFailed@1 Reconciling=True/ProgressingWithRetry@2 (Building manifests) att=one",
				"gen=2 og=-1 handled=hold Ready=False/BuildFailed@1 Reconciling=True/ProgressingWithRetry@2 (Building manifests) att=one",
			},
		},
		{
			name: "never reconciled",
			given: func(w *world) {
				w.kustomization(set(true, "spec", "suspend"))
				synctest.Wait()
			},
			token: func(w *world) { w.stamp(kustomizations, "hold") },
			want:  []string{"gen=1 og=-1", "gen=1 og=-1 handled=hold"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				test.given(w)
				seen := w.watch(kustomizations, "app")
				seen()
				test.token(w)
				assert.Equal(w, test.want, seen())
			})
		})
	}
}

func TestANewKustomizationHandlesItsTokenBeforeItApplies(t *testing.T) {
	t.Parallel()
	inWorldOf(t, fake.FluxOptions{FirstReconcileDelay: 750 * time.Millisecond}, func(w *world) {
		w.push("one", value("one"))
		w.source()
		w.after(time.Second)
		w.kustomization(requested("birth"))
		synctest.Wait()
		assert.Equal(w, "gen=1 og=-1 handled=birth", w.ks("app"))
		assert.Empty(w, w.data("cm"))
		w.after(750 * time.Millisecond)
		assert.Equal(w, "gen=1 og=1 handled=birth Ready=True/ReconciliationSucceeded@1 att=one app=one", w.ks("app"))
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAHealthCheckLastsAtLeastHalfAMinuteAndHoldsTokensBack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set(true, "spec", "wait"), set("15s", "spec", "timeout"), set("10s", "spec", "retryInterval"))
		w.hold(true, "hold")
		synctest.Wait()
		w.push("two", fake.Files{"other.yaml": configMap("other", "two")})
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: time.Hour})
		w.hold(false, "go")
		w.after(2 * time.Second)
		w.hold(true, "susp")
		w.after(27 * time.Second)
		assert.Contains(w, w.ks("app"), "handled=hold Ready=Unknown/Progressing", "the suspend cancels nothing")
		seen := w.watch(kustomizations, "app")
		seen()
		w.after(time.Second)
		assert.Equal(w, []string{
			"gen=4 og=2 handled=hold Ready=False/HealthCheckFailed@4 Reconciling=True/ProgressingWithRetry@4 (Running health checks) Healthy=False/HealthCheckFailed@4 att=two app=one",
			"gen=4 og=2 handled=go Ready=False/HealthCheckFailed@4 Reconciling=True/ProgressingWithRetry@4 (Running health checks) Healthy=False/HealthCheckFailed@4 att=two app=one",
			"gen=4 og=2 handled=susp Ready=False/HealthCheckFailed@4 Reconciling=True/ProgressingWithRetry@4 (Running health checks) Healthy=False/HealthCheckFailed@4 att=two app=one",
		}, seen())
		assert.Equal(w, "health check failed after 30s: timeout waiting for: [ConfigMap/team-a/cm status: 'InProgress', ConfigMap/team-a/other status: 'InProgress']",
			w.message(kustomizations, "app"))
		assert.Equal(w, "two", w.data("other"), "what failed its health check is applied all the same")
	})
}

func TestAnAppliedSpecIsObservedEvenIfItNeverWas(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set(true, "spec", "wait"))
		w.hold(true, "hold")
		synctest.Wait()
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: 10 * time.Second})
		w.hold(false, "go")
		w.after(time.Second)
		seen := w.watch(kustomizations, "app")
		seen()
		w.hold(true, "susp")
		w.after(10 * time.Second)
		states := seen()
		require.Len(w, states, 5)
		assert.Contains(w, states[2], "gen=4 og=2 handled=hold Ready=True/ReconciliationSucceeded@4", "from a run of generation 3")
		assert.Contains(w, states[3], "gen=4 og=3 handled=go Ready=True/ReconciliationSucceeded@4")
		assert.Contains(w, states[4], "gen=4 og=4 handled=susp Ready=True/ReconciliationSucceeded@4")
	})
}

func TestATokenStampedDuringARunWaitsForARunOfItsOwn(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set(true, "spec", "wait"))
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: time.Minute})
		w.stamp(kustomizations, "ours")
		w.after(time.Second)
		w.stamp(kustomizations, "lost")
		w.after(time.Second)
		w.stamp(kustomizations, "theirs")
		w.after(time.Minute)
		assert.Contains(w, w.ks("app"), "handled=ours Ready=Unknown/Progressing", "the next run began at once")
		w.after(time.Minute)
		assert.Contains(w, w.ks("app"), "handled=theirs Ready=True")
	})
}

func TestANewRevisionDuringARunIsAppliedAlthoughASuspendCameInBetween(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set(true, "spec", "wait"))
		w.hold(true, "hold")
		synctest.Wait()
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: 10 * time.Second})
		w.hold(false, "go")
		w.after(time.Second)
		w.push("two", value("two"))
		w.stamp(gitRepositories, "fetch")
		w.after(10 * time.Second)
		w.hold(true, "susp")
		w.after(10 * time.Second)
		assert.Contains(w, w.ks("app"), "handled=susp Ready=True/ReconciliationSucceeded@4")
		assert.Contains(w, w.ks("app"), "app=two")
	})
}

func TestFourWorkersMakeAnIdleKustomizationWait(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: 25 * time.Second})
		for _, name := range []string{"a", "b", "c", "d"} {
			w.create(kustomizations, fake.NewKustomization(team, name, "app"), set(true, "spec", "wait"))
		}
		w.after(time.Second)
		w.hold(true, "hold")
		w.after(23 * time.Second)
		assert.NotContains(w, w.ks("app"), "handled")
		w.after(time.Second)
		assert.Contains(w, w.ks("app"), "handled=hold")
	})
}

func TestARunThatFailedIsTriedAgainAtTheRetryInterval(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set("10s", "spec", "retryInterval"))
		w.flux.Inject(fake.StepFault{Step: fake.ApplyStep, Nth: 1, Message: "no"})
		w.flux.Inject(fake.StepFault{Step: fake.ApplyStep, Nth: 2, Message: "no again"})
		w.stamp(kustomizations, "go")
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "og=1 handled=go Ready=False/ReconciliationFailed@1 Reconciling=True/ProgressingWithRetry@1")
		seen := w.watch(kustomizations, "app")
		seen()
		w.after(10 * time.Second)
		assert.NotEmpty(w, seen(), "Ready is rewritten by each retry")
		assert.Equal(w, "no again\n", w.message(kustomizations, "app"))
		w.after(10 * time.Second)
		assert.Contains(w, w.ks("app"), "handled=go Ready=True")
	})
}

func TestASuspendEndsRetries(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set("10s", "spec", "retryInterval"))
		w.flux.Inject(fake.StepFault{Step: fake.BuildStep, Message: "no"})
		w.stamp(kustomizations, "go")
		synctest.Wait()
		w.hold(true, "susp")
		synctest.Wait()
		seen := w.watch(kustomizations, "app")
		seen()
		w.after(4 * time.Minute)
		assert.Empty(w, seen())
	})
}

func TestAKustomizationIsReconciledAtItsIntervalAndOnDrift(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied(set("10m", "spec", "interval"))
		w.patch(configMaps, "cm", `{"data":{"key":"drift"}}`)
		w.after(10*time.Minute - time.Second)
		assert.Equal(w, "drift", w.data("cm"))
		w.after(time.Second)
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAnAnnotationThatIsRemovedTriggersNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.stamp(kustomizations, "go")
		synctest.Wait()
		seen := w.watch(kustomizations, "app")
		seen()
		w.patch(kustomizations, "app", `{"metadata":{"annotations":null}}`)
		assert.Len(w, seen(), 1, "the patch alone")
		assert.Contains(w, w.ks("app"), "handled=go")
	})
}

func TestDependents(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		w.create(kustomizations, fake.NewKustomization(team, "late", "app"),
			set([]any{map[string]any{"name": "app"}}, "spec", "dependsOn"), set("./", "spec", "path"))
		synctest.Wait()
		require.Contains(w, w.ks("late"), "Ready=True")

		w.hold(true, "hold")
		synctest.Wait()
		w.push("two", value("two"))
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.Contains(w, w.ks("late"), "Ready=False/DependencyNotReady@1")
		assert.Equal(w, "dependency 'team-a/app' revision is not up to date", w.message(kustomizations, "late"))
		seen := w.watch(kustomizations, "late")
		seen()
		w.after(29 * time.Second)
		assert.Empty(w, seen())

		w.hold(false, "release")
		synctest.Wait()
		assert.Empty(w, seen(), "the dependent is not told")
		w.after(time.Second)
		assert.Contains(w, w.ks("late"), "Ready=True/ReconciliationSucceeded@1 att=two app=two")
	})
}

func TestAnArtifactThatAppearsIsAppliedAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.source()
		w.kustomization()
		synctest.Wait()
		assert.Equal(w, "gen=1 og=-1 Ready=False/ArtifactFailed@1", w.ks("app"))
		assert.Equal(w, "Source artifact not found, retrying in 30s", w.message(kustomizations, "app"))
		w.push("one", value("one"))
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "Ready=True")
	})
}

func TestASourceInAnotherNamespace(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.create(gitRepositories, fake.NewGitRepository("team-b", "shared", repositoryURL))
		synctest.Wait()
		w.kustomization(set(map[string]any{"kind": "GitRepository", "name": "shared", "namespace": "team-b"}, "spec", "sourceRef"))
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "Ready=True")
		w.patch(kustomizations, "app", `{"spec":{"sourceRef":{"namespace":null}}}`)
		synctest.Wait()
		assert.Contains(w, w.ks("app"), "Ready=False/ArtifactFailed@2")
		assert.Equal(w, `gitrepositories.source.toolkit.fluxcd.io "shared" not found`, w.message(kustomizations, "app"))
	})
}

func TestAKustomizationWithoutASpecFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.create(kustomizations, object(w, "{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: app, namespace: team-a}}"))
		synctest.Wait()
		assert.Equal(w, "gen=1 og=-1 Ready=False/ArtifactFailed@1", w.ks("app"))
		assert.Equal(w, "source `` kind '' not supported", w.message(kustomizations, "app"))
	})
}

func TestTheHistoryCountsRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		for _, token := range []string{"a", "b", "c"} {
			w.hold(true, "hold-"+token)
			synctest.Wait()
			w.hold(false, "go-"+token)
			synctest.Wait()
		}
		history, _, _ := unstructured.NestedSlice(w.get(kustomizations, "app").Object, "status", "history")
		require.Len(w, history, 1)
		first := history[0].(map[string]any)
		assert.EqualValues(w, 4, first["totalReconciliations"], "suspended passes do not count")
		assert.Equal(w, "ReconciliationSucceeded", first["lastReconciledStatus"])

		w.push("two", value("two"))
		w.flux.FailNext(fake.ApplyStep, "no")
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		history, _, _ = unstructured.NestedSlice(w.get(kustomizations, "app").Object, "status", "history")
		require.Len(w, history, 2)
		assert.Equal(w, "ReconciliationFailed", history[0].(map[string]any)["lastReconciledStatus"])
	})
}
