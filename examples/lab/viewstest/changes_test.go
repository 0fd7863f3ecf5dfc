package viewstest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// lastHour is a window that holds all that a test does.
func lastHour() gitopsprovider.TimeWindow {
	return gitopsprovider.TimeWindow{Since: time.Now().Add(-time.Hour)}
}

func TestChangesOfAKustomization(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "one"), "README.md": "1"})
	w.source()
	w.kustomization("app", "app")
	w.wait(lab.Kustomizations, "app", lab.Applied(first))
	views := w.views()
	assert.Empty(t, w.theChange(views, "Kustomization", "app").FromRev, "nothing was applied before")

	second := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "two")})
	w.fetch()
	w.wait(lab.Kustomizations, "app", lab.Applied(second))
	change := w.theChange(views, "Kustomization", "app")
	assert.Equal(t, flux.Engine, change.Engine)
	assert.Equal(t, w.repo.URL(), change.Source.URL)
	assert.Equal(t, "app", change.Path)
	assert.Equal(t, w.ns, change.TargetNamespace)
	assert.Equal(t, []string{first, second}, []string{change.FromCommit, change.ToCommit})
	assert.WithinDuration(t, time.Now(), change.DeployedAt, time.Minute)
	assert.Equal(t, gitopsprovider.StateReady, change.Ready.State)

	// A commit elsewhere is applied as well, and changes nothing of the path.
	third := w.commit(lab.Files{"README.md": "2", "app-2/cm.yaml": "nobody applies this\n"})
	w.fetch()
	w.wait(lab.Kustomizations, "app", lab.Applied(third))
	change = w.theChange(views, "Kustomization", "app")
	assert.Equal(t, []string{first, third}, []string{change.FromCommit, change.ToCommit})
	diff, err := views.Diff(t.Context(), change)
	require.NoError(t, err)
	require.Len(t, diff.Files, 1, "the diff is that of the path")
	w.golden("kustomization.diff", diff.Files[0].Patch)

	landed := w.changes(views, lastHour(), "Kustomization", "app")
	require.Equal(t, []string{second, first}, commitsOf(landed))
	assert.Equal(t, "Change 2 of main", landed[0].Commit.Subject)
	assert.True(t, landed[0].Current)
	require.Len(t, landed[0].Notes, 1)
	assert.Contains(t, landed[0].Notes[0], "by the dates, it was deployed with main@sha1:"+third, "what did not touch the path is the revision of its content")
	assert.Empty(t, w.changes(views, gitopsprovider.TimeWindow{Since: time.Now().Add(time.Minute)}, "Kustomization", "app"))

	failed := w.commit(lab.Files{"app/cm.yaml": "kind: [\n"})
	w.fetch()
	w.wait(lab.Kustomizations, "app", lab.Failed("BuildFailed"))
	change = w.theChange(views, "Kustomization", "app")
	assert.Equal(t, third, change.ToCommit, "what is applied, not what was attempted")
	assert.Equal(t, []string{"main@sha1:" + failed + " was attempted since, and failed"}, change.Notes)

	w.repo.SetBranch(t, lab.DefaultBranch, first)
	w.fetch()
	w.wait(lab.Kustomizations, "app", lab.Applied(first))
	change = w.theChange(views, "Kustomization", "app")
	assert.Equal(t, []string{third, first}, []string{change.FromCommit, change.ToCommit}, "a rollback")
	assert.Zero(t, change.DeployedAt, "Flux keeps when the content was first applied")
	assert.WithinDuration(t, time.Now(), change.DeployedAfter, time.Minute)
	landed = w.changes(views, lastHour(), "Kustomization", "app")
	require.Equal(t, []string{first, third, first}, commitsOf(landed), "the rollback, what was rolled back, and the commit of the window")
	assert.Equal(t, []bool{true, false, false}, currentOf(landed))
	assert.Equal(t, third, landed[0].FromCommit)
	assert.Equal(t, change.DeployedAfter, landed[0].DeployedAfter)
	assert.False(t, landed[1].DeployedAt.IsZero())
	assert.Len(t, landed[1].Notes, 1, "Flux forgot when the first was deployed")
	assert.Equal(t, "Change 1 of main", landed[2].Commit.Subject)
	assert.Zero(t, landed[2].DeployedAfter)
}

func TestChangesOfAHelmRelease(t *testing.T) {
	w := inLab(t)
	first := w.release("app")
	views := w.views()
	assert.Equal(t, first, w.theChange(views, "HelmRelease", "app").ToCommit)

	second := w.chart("app", "two")
	w.fetch()
	w.wait(lab.HelmReleases, "app", lab.Released(second))
	change := w.theChange(views, "HelmRelease", "app")
	assert.Equal(t, w.repo.URL(), change.Source.URL)
	assert.Equal(t, "charts/app", change.Path)
	assert.Equal(t, []string{"0.1.0+" + first[:12], "0.1.0+" + second[:12]}, []string{change.FromRev, change.ToRev})
	assert.Equal(t, second, change.ToCommit, "known from the chart")
	assert.WithinDuration(t, time.Now(), change.DeployedAt, time.Minute)

	diff, err := views.Diff(t.Context(), change)
	require.NoError(t, err)
	require.Len(t, diff.Files, 1)
	w.golden("helmrelease.diff", diff.Files[0].Patch)
	assert.Equal(t, []string{second, first}, commitsOf(w.changes(views, lastHour(), "HelmRelease", "app")))
}

func TestChangesOfAnApplication(t *testing.T) {
	w := inLab(t)
	first := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	w.application("app", "app")
	views := w.views()
	assert.Empty(t, w.changes(views, gitopsprovider.TimeWindow{}, "Application", "app"), "nothing was synced")
	w.synced("app", first)

	w.commit(lab.Files{"README.md": "2"})
	third := w.commit(lab.Files{"app/cm.yaml": lab.ConfigMap("cm", "key", "two")})
	w.synced("app", third)
	change := w.theChange(views, "Application", "app")
	assert.Equal(t, w.repo.URL(), change.Source.URL)
	assert.Equal(t, "app", change.Path)
	assert.Equal(t, []string{first, third}, []string{change.FromCommit, change.ToCommit})
	assert.Equal(t, gitopsprovider.StateReady, change.Ready.State)
	assert.WithinDuration(t, time.Now(), change.DeployedAt, time.Minute)
	diff, err := views.Diff(t.Context(), change)
	require.NoError(t, err)
	require.Len(t, diff.Files, 1)
	w.golden("application.diff", diff.Files[0].Patch)
	assert.Equal(t, []string{third, first}, commitsOf(w.changes(views, lastHour(), "Application", "app")))

	w.synced("app", first)
	change = w.theChange(views, "Application", "app")
	assert.Equal(t, []string{third, first}, []string{change.FromCommit, change.ToCommit}, "a rollback")
	landed := w.changes(views, lastHour(), "Application", "app")
	require.Equal(t, []string{first, third, first}, commitsOf(landed), "the rollback, what was rolled back, and the commit of the window")
	assert.Equal(t, []bool{true, false, false}, currentOf(landed))
	assert.Equal(t, []string{third, first, ""}, []string{landed[0].FromCommit, landed[1].FromCommit, landed[2].FromCommit})
	assert.Equal(t, change.DeployedAt, landed[0].DeployedAt)
	assert.False(t, landed[2].DeployedAt.After(landed[1].DeployedAt), "the commit tells its first sync")
}

func TestChangesOfAnApplicationOfSeveralSources(t *testing.T) {
	w := inLab(t)
	other := w.lab.Repository(t)
	first := w.commit(lab.Files{"one/cm.yaml": lab.ConfigMap("one", "key", "1")})
	second := other.Commit(t, lab.Files{"two/cm.yaml": lab.ConfigMap("two", "key", "1")})
	source := func(url, path string) any {
		return map[string]any{"repoURL": url, "path": path, "targetRevision": lab.DefaultBranch}
	}
	application := lab.NewApplication(w.ns, "app", w.repo.URL())
	spec := application.Object["spec"].(map[string]any)
	delete(spec, "source")
	spec["sources"] = []any{source(w.repo.URL(), "one"), source(other.URL(), "two")}
	spec["syncPolicy"] = map[string]any{"automated": map[string]any{}}
	w.lab.Create(t, lab.Applications, application)
	w.wait(lab.Applications, "app", compared)

	views := w.views()
	changes := w.changes(views, gitopsprovider.TimeWindow{}, "Application", "app")
	require.Len(t, changes, 2)
	assert.ElementsMatch(t, []string{first, second}, commitsOf(changes))
	for _, change := range changes {
		want := map[string]string{w.repo.URL(): "one", other.URL(): "two"}
		assert.Equal(t, want[change.Source.URL], change.Path)
	}

	third := other.Commit(t, lab.Files{"two/cm.yaml": lab.ConfigMap("two", "key", "2")})
	w.annotate(lab.Applications, "app", "argocd.argoproj.io/refresh", "normal")
	w.wait(lab.ConfigMaps, "two", lab.Condition(hasValue("2")))
	w.wait(lab.Applications, "app", compared)
	for _, change := range w.changes(views, gitopsprovider.TimeWindow{}, "Application", "app") {
		if change.Source.URL == other.URL() {
			assert.Equal(t, []string{second, third}, []string{change.FromCommit, change.ToCommit})
		} else {
			assert.Equal(t, first, change.ToCommit)
		}
		diff, err := views.Diff(t.Context(), change)
		require.NoError(t, err)
		assert.Len(t, diff.Files, 1)
	}
}
