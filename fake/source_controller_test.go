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

func TestTheRevisionOfAnArtifactIsSpelledAsTheRefIs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		ref  map[string]any
		want func(first, second string) string
	}{
		{"branch", map[string]any{"branch": "main"}, func(_, second string) string { return "main@sha1:" + second }},
		{"full name of a branch", map[string]any{"name": "refs/heads/main"}, func(_, second string) string { return "refs/heads/main@sha1:" + second }},
		{"full name of a tag", map[string]any{"name": "refs/tags/v1.0.0"}, func(first, _ string) string { return "refs/tags/v1.0.0@sha1:" + first }},
		{"tag", map[string]any{"tag": "v1.0.0"}, func(first, _ string) string { return "v1.0.0@sha1:" + first }},
		{"versions", map[string]any{"semver": ">=1.0.0"}, func(_, second string) string { return "v1.1.0@sha1:" + second }},
		{"versions below", map[string]any{"semver": "~1.0.0"}, func(first, _ string) string { return "v1.0.0@sha1:" + first }},
		{"versions between", map[string]any{"semver": ">=1.0.0 <1.1.0"}, func(first, _ string) string { return "v1.0.0@sha1:" + first }},
		{"any version", map[string]any{"semver": "*"}, func(_, second string) string { return "v1.1.0@sha1:" + second }},
		{"commit", map[string]any{"commit": "<first>"}, func(first, _ string) string { return "sha1:" + first }},
		{"commit on a branch", map[string]any{"commit": "<first>", "branch": "main"}, func(first, _ string) string { return "main@sha1:" + first }},
		{"nothing, which is master", nil, func(_, second string) string { return "master@sha1:" + second }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				first := w.push("one", value("one"))
				second := w.push("two", value("two"))
				w.repo.Tag("v1.0.0", first)
				w.repo.Tag("v1.1.0", second)
				w.repo.Tag("nightly", second)
				w.repo.SetBranch("master", second)
				if test.ref["commit"] != nil {
					test.ref["commit"] = first
				}
				w.source(func(u *unstructured.Unstructured) {
					unstructured.RemoveNestedField(u.Object, "spec", "ref")
					if test.ref != nil {
						set(test.ref, "spec", "ref")(u)
					}
				})
				synctest.Wait()
				revision, _, _ := unstructured.NestedString(w.get(gitRepositories, "app").Object, "status", "artifact", "revision")
				assert.Equal(w, test.want(first, second), revision)
			})
		})
	}
}

func TestARefThatLeadsNowhereFails(t *testing.T) {
	t.Parallel()
	const missing = "1111111111111111111111111111111111111111"
	tests := []struct {
		name, want string
		ref        map[string]any
	}{
		{"branch", `unable to clone 'https://git.example.com/acme/shop': couldn't find remote ref "refs/heads/gone"`, map[string]any{"branch": "gone"}},
		{"no ref and no master", `unable to clone 'https://git.example.com/acme/shop': couldn't find remote ref "refs/heads/master"`, map[string]any{}},
		{"tag", `unable to clone 'https://git.example.com/acme/shop': couldn't find remote ref "refs/tags/gone"`, map[string]any{"tag": "gone"}},
		{"full name", "unable to resolve ref 'refs/heads/gone' to a specific commit", map[string]any{"name": "refs/heads/gone"}},
		{"commit", "unable to resolve commit object for '" + missing + "': object not found", map[string]any{"commit": missing}},
		{"versions", "no match found for semver: >=9.0.0", map[string]any{"semver": ">=9.0.0"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.push("one", value("one"))
				w.source(set(test.ref, "spec", "ref"), set(map[string]any{"reconcile.fluxcd.io/requestedAt": "birth"}, "metadata", "annotations"))
				synctest.Wait()
				assert.Equal(w, "gen=1 og=-1 handled=birth Ready=False/GitOperationFailed@1 Reconciling=True/ProgressingWithRetry@1", w.gr())
				assert.Equal(w, "failed to checkout and determine revision: "+test.want, w.message(gitRepositories, "app"))
			})
		})
	}
}

func TestAFetchIsSeenTo(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		given func(w *world)
		want  []string
	}{
		{
			name: "find nothing new",
			want: []string{
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 art=one",
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 Reconciling=True/Progressing@1 art=one",
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 art=one",
				"gen=1 og=1 handled=fetch Ready=True/Succeeded@1 art=one",
			},
		},
		{
			name:  "find a new commit",
			given: func(w *world) { w.push("two", value("two")) },
			want: []string{
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 art=one",
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 Reconciling=True/Progressing@1 art=one",
				"gen=1 og=1 handled=before Ready=Unknown/Progressing@1 Reconciling=True/Progressing@1 ArtifactOutdated=True/NewRevision@1 art=one",
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 art=one",
				"gen=1 og=1 handled=fetch Ready=True/Succeeded@1 art=two",
			},
		},
		{
			name:  "fail, and keep the artifact",
			given: func(w *world) { w.repo.DeleteBranch("main") },
			want: []string{
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 art=one",
				"gen=1 og=1 handled=before Ready=True/Succeeded@1 Reconciling=True/Progressing@1 art=one",
				"gen=1 og=1 handled=before Ready=False/GitOperationFailed@1 Reconciling=True/ProgressingWithRetry@1 art=one",
				"gen=1 og=1 handled=fetch Ready=False/GitOperationFailed@1 Reconciling=True/ProgressingWithRetry@1 art=one",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.push("one", value("one"))
				w.source(set(map[string]any{"reconcile.fluxcd.io/requestedAt": "before"}, "metadata", "annotations"))
				synctest.Wait()
				if test.given != nil {
					test.given(w)
				}
				seen := w.watch(gitRepositories, "app")
				seen()
				w.stamp(gitRepositories, "fetch")
				assert.Equal(w, test.want, seen())
			})
		})
	}
}

func TestANewGitRepositoryHandlesItsTokenBeforeItFetches(t *testing.T) {
	t.Parallel()
	inWorldOf(t, fake.FluxOptions{FirstReconcileDelay: 750 * time.Millisecond}, func(w *world) {
		w.push("one", value("one"))
		seen := w.watch(gitRepositories, "app")
		w.source(set(map[string]any{"reconcile.fluxcd.io/requestedAt": "birth"}, "metadata", "annotations"))
		assert.Equal(w, []string{"ADDED gen=1 og=-1", "gen=1 og=-1", "gen=1 og=-1 handled=birth"}, seen())
		w.after(750 * time.Millisecond)
		states := seen()
		require.Greater(w, len(states), 2)
		assert.Equal(w, []string{
			"gen=1 og=-1 handled=birth Ready=True/Succeeded@1",
			"gen=1 og=1 handled=birth Ready=True/Succeeded@1 art=one",
		}, states[len(states)-2:], "ready with no artifact")
	})
}

func TestASuspendedGitRepositoryHandlesATokenWithoutAFetch(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.source()
		synctest.Wait()
		w.push("two", value("two"))
		w.patch(gitRepositories, "app", `{"spec":{"suspend":true}}`)
		synctest.Wait() // or the first of two reconciles may meet a conflict, and is made again later
		w.stamp(gitRepositories, "fetch")
		synctest.Wait()
		assert.Equal(w, "gen=2 og=2 handled=fetch Ready=True/Succeeded@2 art=one", w.gr())

		w.patch(gitRepositories, "app", `{"spec":{"suspend":null}}`)
		synctest.Wait()
		assert.Contains(w, w.gr(), "art=two", "resumed without a token")
	})
}

func TestACommitIsFetchedAtTheInterval(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.source(set("10m", "spec", "interval"))
		synctest.Wait()
		w.push("two", value("two"))
		w.after(10*time.Minute - time.Second)
		assert.Contains(w, w.gr(), "art=one")
		w.after(time.Second)
		assert.Contains(w, w.gr(), "art=two")
	})
}

func TestAFetchThatFailsIsTriedAgainWithBackoff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.source()
		synctest.Wait()
		began := time.Now()
		var tried []time.Duration
		remove := w.flux.Inject(fake.StepFault{Step: fake.FetchStep, Message: "it is down", Do: func() { tried = append(tried, time.Since(began)) }})
		w.stamp(gitRepositories, "fetch")
		w.after(6 * time.Second)
		assert.Equal(w, []time.Duration{0, 750 * time.Millisecond, 2250 * time.Millisecond, 5250 * time.Millisecond}, tried)
		assert.Equal(w, "failed to checkout and determine revision: it is down", w.message(gitRepositories, "app"))
		remove()
		w.after(6 * time.Second)
		assert.Equal(w, "gen=1 og=1 handled=fetch Ready=True/Succeeded@1 art=one", w.gr())
	})
}

func TestAnotherURLWithTheSameCommitLeavesTheRevision(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.source()
		synctest.Wait()
		seen := w.watch(gitRepositories, "app")
		seen()
		w.patch(gitRepositories, "app", `{"spec":{"url":"ssh://git@git.example.com/acme/shop.git"}}`)
		assert.Equal(w, []string{
			"gen=2 og=1 Ready=True/Succeeded@1 art=one",
			"gen=2 og=1 Ready=True/Succeeded@1 Reconciling=True/Progressing@2 art=one",
			"gen=2 og=1 Ready=True/Succeeded@2 art=one",
			"gen=2 og=2 Ready=True/Succeeded@2 art=one",
		}, seen())

		w.patch(gitRepositories, "app", `{"spec":{"url":"https://git.example.com/acme/gone"}}`)
		synctest.Wait()
		assert.Equal(w, "gen=3 og=2 Ready=False/GitOperationFailed@3 Reconciling=True/ProgressingWithRetry@3 art=one", w.gr())
	})
}

func TestADeletedGitRepositoryGoesWithItsArtifact(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.push("one", value("one"))
		w.source()
		synctest.Wait()
		seen := w.watch(gitRepositories, "app")
		seen()
		w.delete(gitRepositories)
		states := seen()
		assert.Contains(w, states[len(states)-1], "DELETED")
	})
}
