package gitdiff_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

func TestLocalRepositoriesAreReadInPlace(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	generate(30).into(r)
	clone := filepath.Join(t.TempDir(), "clone")
	require.NoError(t, exec.CommandContext(t.Context(), "git", "clone", "-q", r.dir, clone).Run())
	shallow := filepath.Join(t.TempDir(), "shallow")
	require.NoError(t, exec.CommandContext(t.Context(), "git", "clone", "-q", "--bare", "--depth=3", "file://"+r.dir, shallow).Run())
	borrows := filepath.Join(t.TempDir(), "borrows")
	require.NoError(t, exec.CommandContext(t.Context(), "git", "clone", "-q", "--bare", "--shared", r.dir, borrows).Run())

	dir := t.TempDir()
	d := newDiffer(t, gitdiff.Options{Dir: dir, AllowLocal: true})
	want, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: r.dir, To: r.rev("main")})
	require.NoError(t, err)
	require.NotEmpty(t, want.Files)
	for _, address := range []string{"file://" + r.dir, r.dir[:len(r.dir)-len(".git")], clone, "file://" + clone, shallow, borrows} {
		got, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: address, To: r.rev("main")})
		require.NoError(t, err, address)
		got.Repository = want.Repository
		assert.Equal(t, want, got, address)
	}

	history, err := d.History(t.Context(), gitopsprovider.HistoryQuery{Repository: shallow, Revision: r.rev("main")})
	require.NoError(t, err)
	assert.True(t, history.Cut)
	assert.Contains(t, history.Note, "the local repository is shallow")

	boundary := (&repo{t, shallow}).git("rev-list", "--max-parents=0", "main")
	_, err = d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: shallow, To: boundary[:40]})
	assert.ErrorIs(t, err, gitopsprovider.ErrCommitNotFound)
	assert.ErrorContains(t, err, "shallow")
	_, err = d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: r.dir, To: someCommit})
	assert.ErrorIs(t, err, gitopsprovider.ErrCommitNotFound)
	_, err = d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: t.TempDir(), To: someCommit})
	assert.ErrorIs(t, err, gitopsprovider.ErrRepositoryNotFound)
	assert.Empty(t, cachedRepos(t, dir))
}
