package fake_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
)

// What application-controller 3.2.11 does beside operations.

// automate sets spec.syncPolicy.automated.
func automate(automated fields) func(*unstructured.Unstructured) {
	return set(automated, "spec", "syncPolicy", "automated")
}

func TestStatusSyncSpeaksOfTheTipOfTheBranch(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		one := w.repo.Head("main")
		assert.Equal(w, "Synced", w.field("status", "sync", "status"))
		assert.Equal(w, "Healthy", w.field("status", "health", "status"))
		two := w.push("two", value("two"))
		assert.Equal(w, one, w.field("status", "sync", "revision"), "nobody has looked yet")
		w.after(2 * time.Minute)
		assert.Equal(w, two, w.field("status", "sync", "revision"))
		assert.Equal(w, "OutOfSync", w.field("status", "sync", "status"))
	})
}

func TestAnApplicationThatIsToRefreshIsCompared(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		w.push("two", value("two"))
		w.update(func(app fields) {
			_ = unstructured.SetNestedField(app, "normal", "metadata", "annotations", "argocd.argoproj.io/refresh")
		})
		assert.Equal(w, "OutOfSync", w.field("status", "sync", "status"))
		assert.Empty(w, w.get().GetAnnotations())
	})
}

func TestAutomatedSyncUndoesASyncOfAnOlderCommit(t *testing.T) {
	for name, test := range map[string]struct {
		automated any
		undoes    bool
	}{
		"{}":                             {fields{}, true},
		"enabled: true":                  {fields{"enabled": true}, true},
		"prune: true":                    {fields{"prune": true}, true},
		"enabled: false":                 {fields{"enabled": false}, false},
		"enabled: false, prune, healing": {fields{"enabled": false, "prune": true, "selfHeal": true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				one := w.repo.Head("main")
				w.operate(operation("second", fields{"revision": w.push("two", value("two"))}))
				w.update(func(app fields) {
					_ = unstructured.SetNestedField(app, test.automated, "spec", "syncPolicy", "automated")
				})
				seen := w.timeline()
				w.operate(operation("tok", fields{"revision": one}))
				if !test.undoes {
					w.after(time.Hour)
					assert.Equal(w, "one", w.data("cm"))
					assert.Contains(w, w.app(), "- Succeeded tok sr=one")
					return
				}
				assert.Contains(w, seen(), "- Succeeded tok sr=one hist=3 (successfully synced (all tasks run))", "it did succeed")
				assert.Contains(w, w.app(), "- Succeeded ? sr=two hist=4", "and its record is gone")
				assert.Equal(w, "two", w.data("cm"))
			})
		})
	}
}

func TestAnAutomatedSyncSetsWhatTheSpecSays(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		one := w.push("one", value("one"))
		w.application(automate(fields{"prune": true}),
			set([]any{"CreateNamespace=true"}, "spec", "syncPolicy", "syncOptions"),
			set(fields{"limit": int64(2), "refresh": true}, "spec", "syncPolicy", "retry"))
		assert.Equal(w, fields{
			"initiatedBy": fields{"automated": true},
			"retry":       fields{"limit": int64(2), "refresh": true},
			"sync": fields{
				"revision": one, "prune": true, "syncOptions": []any{"CreateNamespace=true"},
				"source": fields{"repoURL": repositoryURL, "path": ".", "targetRevision": "main"},
			},
		}, w.field("status", "operationState", "operation"))
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestAnAutomatedSyncThatFailedIsNotAttemptedAgain(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.push("one", fake.Files{"cm.yaml": configMap("Bad_Name", "x")})
		w.application(automate(fields{}), set(int64(0), "spec", "syncPolicy", "retry", "limit"))
		assert.Contains(w, w.app(), "- Failed")
		seen := w.timeline()
		w.after(time.Hour)
		for _, line := range seen() {
			assert.NotContains(w, line, "Running")
		}
	})
}

func TestAnAutomatedSyncDoesNotPruneEverything(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.push("one", value("one"))
		w.application(automate(fields{"prune": true}))
		w.repo.Commit(fake.Files{"readme.md": "nothing"})
		w.repo.Remove("cm.yaml")
		w.after(time.Hour)
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestASkippedApplicationIsPassedOver(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.push("one", value("one"))
		w.application(set("true", "metadata", "annotations", "argocd.argoproj.io/skip-reconcile"))
		w.operate(operation("tok", fields{}))
		w.after(time.Hour)
		assert.Equal(w, "op=tok hist=0", w.app())
		assert.Nil(w, w.field("status"))
	})
}

func TestADeletedApplicationIsGoneAtOnceWithoutAFinalizer(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		require.NoError(w, w.applications().Delete(w.Context(), "app", metav1.DeleteOptions{}))
		synctest.Wait()
		_, err := w.applications().Get(w.Context(), "app", metav1.GetOptions{})
		assert.True(w, apierrors.IsNotFound(err))
		assert.Equal(w, "one", w.data("cm"))
	})
}

func TestADeletionWithTheFinalizerWaitsForTheOperation(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set([]any{"resources-finalizer.argocd.argoproj.io"}, "metadata", "finalizers"))
		two := w.push("two", fake.Files{"cm.yaml": configMap("cm", "two"), "hook.yaml": hook})
		w.operate(operation("tok", fields{"revision": two}))
		require.NoError(w, w.applications().Delete(w.Context(), "app", metav1.DeleteOptions{}))
		w.after(time.Hour)
		assert.Contains(w, w.app(), "op=tok Running tok")
		assert.Equal(w, "one", w.data("cm"))
		seen := w.timeline()
		w.endHook()
		assert.Contains(w, seen(), "- Succeeded tok sr=two hist=2 (successfully synced (all tasks run))", "the operation completes after the deletion")
		_, err := w.applications().Get(w.Context(), "app", metav1.GetOptions{})
		assert.True(w, apierrors.IsNotFound(err))
		assert.Empty(w, w.data("cm"))
	})
}

func TestAnOperationOfAnApplicationThatIsBeingDeletedIsCarriedOut(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced(set([]any{"example.com/keep"}, "metadata", "finalizers"))
		require.NoError(w, w.applications().Delete(w.Context(), "app", metav1.DeleteOptions{}))
		w.operate(operation("tok", fields{"revision": w.push("two", value("two"))}))
		assert.Contains(w, w.app(), "- Succeeded tok sr=two")
		assert.Equal(w, "two", w.data("cm"))
	})
}

func TestOneRemoteServesBothEngines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewCluster(fake.Options{Namespaces: []string{team, "team-b"}})
		defer cluster.Stop()
		remote := fake.NewRemote()
		w := &argoWorld{T: t, cluster: cluster, argo: fake.StartArgoCD(cluster, fake.ArgoCDOptions{Remote: remote}), repo: remote.Repository(repositoryURL)}
		flux := &world{T: t, cluster: cluster, flux: fake.StartFlux(cluster, fake.FluxOptions{Remote: remote}), repo: w.repo, called: map[string]string{}}
		commit := w.repo.Commit(value("one"))
		w.called = map[string]string{commit: "one"}
		w.application(set("team-b", "spec", "destination", "namespace"))
		w.operate(operation("tok", fields{"revision": commit}))
		flux.source()
		synctest.Wait()
		flux.kustomization()
		synctest.Wait()
		assert.Contains(t, w.app(), "- Succeeded tok sr=one")
		assert.Equal(t, "one", w.data("cm"), "by Flux")
		_, err := cluster.Resource(configMaps).Namespace("team-b").Get(t.Context(), "cm", metav1.GetOptions{})
		assert.NoError(t, err, "by Argo CD")
	})
}

func TestArgoCDIsNoConcernOfTheUsersFaultsAndRecord(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		app := w.get()
		w.cluster.ResetRequests()
		w.cluster.Inject(fake.Fault{Err: assert.AnError})
		w.push("two", value("two"))
		w.after(time.Hour)
		assert.Empty(w, w.cluster.Requests())
		other := w.cluster.As("other", nil)
		_, err := other.Resource(applications).Namespace(team).Patch(w.Context(), app.GetName(), types.MergePatchType, []byte(`{"operation":{"sync":{}}}`), metav1.PatchOptions{})
		require.NoError(w, err)
		synctest.Wait()
		now, err := other.Resource(applications).Namespace(team).Get(w.Context(), "app", metav1.GetOptions{})
		require.NoError(w, err)
		assert.Contains(w, w.show(now), "- Succeeded")
	})
}
