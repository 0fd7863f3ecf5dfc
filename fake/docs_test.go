package fake_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// The tests of a host that docs/testing.md shows. The host's own code is deploy, in client_example_test.go.

const pushed = "1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6"

func TestDeployWithAScriptedClient(t *testing.T) {
	t.Parallel()
	client := &fake.Client{Answers: []fake.Answer{{}, fake.Fails("BuildFailed", "no kustomization.yaml")}}
	assert.Equal(t, "deployed main@sha1:"+pushed, deploy(t.Context(), client, pushed))
	assert.Equal(t, "failed: no kustomization.yaml", deploy(t.Context(), client, pushed))
	assert.Equal(t, pushed, client.Asks()[0].Ask.Commit)
}

func TestDeployOnASimulatedFlux(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
		defer cluster.Stop()
		simulated := fake.StartFlux(cluster, fake.FluxOptions{})
		repository := simulated.Remote().Repository("https://git.example.com/acme/shop")
		_, err := cluster.Resource(gitRepositories).Namespace("team-a").Create(t.Context(), fake.NewGitRepository("team-a", "shop", repository.URL()), metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = cluster.Resource(kustomizations).Namespace("team-a").Create(t.Context(), fake.NewKustomization("team-a", "shop", "shop"), metav1.CreateOptions{})
		require.NoError(t, err)
		client, err := flux.New("prod", cluster, flux.Options{FieldManager: "acme-deployer"})
		require.NoError(t, err)
		_, err = client.Suspend(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "shop"})
		require.NoError(t, err)

		commit := repository.Commit(fake.Files{"shop.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}, data: {open: always}}"})
		assert.Equal(t, "deployed main@sha1:"+commit, deploy(t.Context(), client, commit))
		shop, err := cluster.Resource(configMaps).Namespace("team-a").Get(t.Context(), "shop", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"open": "always"}, shop.Object["data"])

		simulated.Inject(fake.StepFault{Step: fake.BuildStep, Message: "no such base"})
		assert.Contains(t, deploy(t.Context(), client, repository.Commit(fake.Files{})), "no such base")
	})
}

// The code of the documents is code that runs: a block says which file it is from, in docs/testing.md each.
func TestDocumentedCodeIsTested(t *testing.T) {
	t.Parallel()
	for page, all := range map[string]bool{"testing.md": true, "embedding.md": false} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page))
		require.NoError(t, err)
		blocks := regexp.MustCompile("(?ms)^```go\n// ([a-z_/]+\\.go)\n(.*?)^```").FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, page)
		if all {
			require.Len(t, blocks, strings.Count(string(text), "```go"), "a block of %s does not say where it is from", page)
		}
		for _, block := range blocks {
			source, err := os.ReadFile(filepath.Join("..", block[1]))
			require.NoError(t, err)
			assert.Contains(t, flat(string(source)), flat(block[2]), "%s: %s", page, block[1])
		}
	}
}

// flat is code without its indentation.
func flat(code string) string {
	return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(code, "")
}
