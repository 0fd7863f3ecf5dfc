package flux

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The order is that of fluxcd/pkg/git v0.52.0: a commit wins over a name, a name over tags, tags over a branch.
func TestAGitRepositoryFollowsABranchOrSaysWhatPinsIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ref    gitRepositoryRef
		branch string
		pinned string
	}{
		"a branch":                         {ref: gitRepositoryRef{branch: "main"}, branch: "main"},
		"a branch with slashes":            {ref: gitRepositoryRef{branch: "release/v1@x"}, branch: "release/v1@x"},
		"a full name":                      {ref: gitRepositoryRef{name: "refs/heads/release/v1"}, branch: "release/v1"},
		"a full name over a branch":        {ref: gitRepositoryRef{name: "refs/heads/main", branch: "other"}, branch: "main"},
		"nothing, which is master":         {branch: "master"},
		"a name of a tag":                  {ref: gitRepositoryRef{name: "refs/tags/v1", branch: "main"}, pinned: "spec.ref.name is refs/tags/v1, which does not start with refs/heads/"},
		"a short name, which Flux refuses": {ref: gitRepositoryRef{name: "main"}, pinned: "spec.ref.name is main, which"},
		"a name of no branch":              {ref: gitRepositoryRef{name: "refs/heads/"}, pinned: "spec.ref.name is refs/heads/, which"},
		"a name of a pull request":         {ref: gitRepositoryRef{name: "refs/pull/1/head"}, pinned: "spec.ref.name is refs/pull/1/head, which"},
		"a tag over a branch":              {ref: gitRepositoryRef{tag: "v1", branch: "main"}, pinned: "spec.ref.tag pins it to tag v1"},
		"versions over a branch":           {ref: gitRepositoryRef{semver: "1.*", branch: "main"}, pinned: "spec.ref.semver follows tags (1.*)"},
		"a commit on a branch":             {ref: gitRepositoryRef{commit: commitA, branch: "main"}, pinned: "spec.ref.commit pins it to " + commitA},
		"a commit over a name":             {ref: gitRepositoryRef{commit: commitA, name: "refs/heads/main"}, pinned: "spec.ref.commit pins it to"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			branch, err := test.ref.followed()
			assert.Equal(t, test.branch, branch)
			if test.pinned == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.pinned)
			}
		})
	}
}

func TestAGitRepositoryHoldsTheCommitOfItsArtifact(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("d", 64)
	for revision, commit := range map[string]string{
		"main@sha1:" + commitA: commitA, "refs/heads/main@sha1:" + commitA: commitA, "feat/x@y@sha1:" + commitA: commitA,
		"sha1:" + commitA: commitA, "main/" + commitA: commitA, commitA: commitA, "main@sha256:" + long: long, "v1@sha1:" + commitA: commitA,
	} {
		assert.True(t, gitRepository{artifact: revision}.holds(commit), revision)
		assert.False(t, gitRepository{artifact: revision}.holds(commitB), revision)
		assert.False(t, gitRepository{artifact: revision}.holds(""), revision)
	}
	for _, revision := range []string{"", "main", "main@sha1:", "main@sha1:abc", "main@sha1:" + commitA + "0", "main@md5:" + commitA} {
		assert.False(t, gitRepository{artifact: revision}.holds(commitA), revision)
		assert.False(t, gitRepository{artifact: revision}.holds(""), revision)
	}
}

func TestAFetchIsOverOnceItsTokenIsHandledAndReadyIsKnown(t *testing.T) {
	t.Parallel()
	ready := condition{status: "True"}
	old := gitRepository{object: object{requested: "old", handled: "old", ready: ready}, artifact: "main@sha1:" + commitA}
	for name, test := range map[string]struct {
		now  gitRepository
		over bool
	}{
		"not handled":                {now: gitRepository{object: object{requested: "t", handled: "old", ready: ready}, artifact: "a"}},
		"handled":                    {now: gitRepository{object: object{requested: "t", handled: "t", ready: ready}, artifact: "a"}, over: true},
		"handled, and failed":        {now: gitRepository{object: object{requested: "t", handled: "t", ready: condition{status: "False"}}}, over: true},
		"handled by the first pass":  {now: gitRepository{object: object{requested: "t", handled: "t"}}},
		"handled, and still at work": {now: gitRepository{object: object{requested: "t", handled: "t", ready: condition{status: "Unknown"}}, artifact: "a"}},
		"stamped over, and handled":  {now: gitRepository{object: object{requested: "f", handled: "f", ready: ready}, artifact: "a"}, over: true},
		"stamped over, not handled":  {now: gitRepository{object: object{requested: "f", handled: "old", ready: ready}, artifact: "a"}},
		"the annotation was removed": {now: gitRepository{object: object{handled: "old", ready: ready}, artifact: "a"}},
		"the old one put back":       {now: gitRepository{object: object{requested: "old", handled: "old", ready: ready}, artifact: "a"}},
	} {
		assert.Equal(t, test.over, test.now.fetched("t", old), name)
	}
}

func TestAMessageOfSourceControllerIsReadWithoutTheUserInfoOfItsAddress(t *testing.T) {
	t.Parallel()
	repository, err := parseGitRepository(fromJSON(t, `{"spec": {"url": "https://bot:s3 cr3t@git.example.com/shop"}, "status": {"conditions": [
		{"type": "Ready", "status": "False", "message": "unable to clone 'https://bot:s3 cr3t@git.example.com/shop': Get \"https://bot:s3cr3t@git.example.com/shop\""}]}}`))
	require.NoError(t, err)
	assert.Equal(t, `unable to clone 'https://git.example.com/shop': Get "https://git.example.com/shop"`, repository.ready.message)
}
