package fake_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestOneRepositoryHasManyAddresses(t *testing.T) {
	t.Parallel()
	remote := fake.NewRemote()
	repository := remote.Repository("https://git.example.com/acme/shop")
	assert.Same(t, repository, remote.Repository("ssh://git@git.example.com/acme/shop.git"))
	assert.NotSame(t, repository, remote.Repository("https://git.example.com/acme/other"))
	assert.Equal(t, "https://git.example.com/acme/shop", repository.URL())
	remote.Remove("git@git.example.com:acme/shop")
	assert.NotSame(t, repository, remote.Repository("https://git.example.com/acme/shop"))
}

func TestACommitKeepsTheFilesThatItDoesNotName(t *testing.T) {
	t.Parallel()
	r := fake.NewRemote().Repository("https://git.example.com/acme/shop")
	assert.Empty(t, r.Head("main"))
	first := r.Commit(fake.Files{"a": "1", "b": "1"})
	second := r.Commit(fake.Files{"b": "2"})
	third := r.Remove("a")
	assert.Equal(t, fake.Files{"a": "1", "b": "1"}, r.Files(first))
	assert.Equal(t, fake.Files{"a": "1", "b": "2"}, r.Files(second))
	assert.Equal(t, fake.Files{"b": "2"}, r.Files(third))
	assert.Equal(t, third, r.Head("main"))
	assert.Nil(t, r.Files("unknown"))

	other := r.CommitTo("other", fake.Files{"c": "3"})
	assert.Equal(t, fake.Files{"c": "3"}, r.Files(other), "a new branch starts from nothing")
	pushed := r.ForcePush("main", fake.Files{"d": "4"})
	assert.Equal(t, fake.Files{"d": "4"}, r.Files(pushed))
	assert.NotNil(t, r.Files(third), "what a branch no longer holds is still there")
	r.SetBranch("main", first)
	assert.Equal(t, first, r.Head("main"))
	r.DeleteBranch("main")
	assert.Empty(t, r.Head("main"))
	assert.Panics(t, func() { r.SetBranch("main", "unknown") })
	assert.Panics(t, func() { r.Tag("v1.0.0", "unknown") })
}

func TestHashesAreTheSameEachTimeAndNeverTwice(t *testing.T) {
	t.Parallel()
	history := func() []string {
		r := fake.NewRemote().Repository("https://git.example.com/acme/shop")
		hashes := []string{r.Commit(nil), r.Commit(nil), r.ForcePush("main", nil)}
		r.UseSHA256()
		return append(hashes, r.Commit(nil))
	}
	first := history()
	assert.Equal(t, first, history())
	for i, hash := range first {
		assert.True(t, gitref.IsCommit(hash))
		assert.NotContains(t, first[:i], hash)
	}
	assert.Len(t, first[0], 40)
	assert.Len(t, first[3], 64)
}
