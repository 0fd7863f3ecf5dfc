package lab_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestStoppedControllerTakesUpItsWorkOnceStarted(t *testing.T) {
	t.Parallel()
	l := lab.Alone(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	commit := repo.Commit(t, lab.Chart("app", "0.1.0", lab.Files{"cm.yaml": template}))

	l.HelmController.Stop(t)
	l.ApplicationSetController.Kill(t)
	l.GitRepository(t, ns, "source", repo)
	l.HelmRelease(t, ns, "app", "source", "app")
	l.ApplicationSet(t, ns, "apps", repo, []string{"one"})
	l.WaitFor(t, lab.GitRepositories, ns, "source", lab.Ready)
	assert.NotContains(t, l.Get(t, lab.HelmReleases, ns, "app").Object["status"], "history")

	l.HelmController.Start(t)
	l.ApplicationSetController.Start(t)
	l.WaitFor(t, lab.HelmReleases, ns, "app", lab.Released(commit))
	l.WaitFor(t, lab.Applications, ns, "one", exists)
}
