package lab_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestApplicationSetMakesApplications(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "one")})
	set := l.ApplicationSet(t, ns, "apps", repo, []string{"one", "two"})
	for _, name := range []string{"one", "two"} {
		app := l.WaitFor(t, lab.Applications, ns, name, exists)
		owners := app.GetOwnerReferences()
		require.Len(t, owners, 1)
		assert.Equal(t, set.GetUID(), owners[0].UID)
	}
}

func TestApplicationSetByFoldersOfARepository(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	ns, repo := l.Namespace(t), l.Repository(t)
	repo.Commit(t, lab.Files{"apps/shop/cm.yaml": lab.ConfigMap("cm", "key", "one")})
	folders := []any{map[string]any{"git": map[string]any{
		"repoURL": repo.URL(), "revision": lab.DefaultBranch, "directories": []any{map[string]any{"path": "apps/*"}},
	}}}
	l.ApplicationSet(t, ns, "apps", repo, nil, lab.Set(folders, "spec", "generators"),
		lab.Set("{{.path.basename}}", "spec", "template", "metadata", "name"))
	l.WaitFor(t, lab.Applications, ns, "shop", exists)
}

func exists(object *unstructured.Unstructured) bool { return object != nil }
