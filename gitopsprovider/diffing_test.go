package gitopsprovider_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func TestADiffIsThatOfTheChange(t *testing.T) {
	t.Parallel()
	differ := &repository{diff: gitopsprovider.Diff{To: commitB}}
	change := gitopsprovider.Change{
		Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: shopURL, Branch: "main"}, Path: "apps",
		FromRev: "main@sha1:" + commitA, FromCommit: commitA, ToCommit: commitB,
	}
	diff, err := views(t, differ, newMemory()).Diff(t.Context(), change)
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.Diff{To: commitB}, diff)
	assert.Equal(t, []gitopsprovider.DiffQuery{{Repository: shopURL, Path: "apps", From: commitA, To: commitB, Branch: "main"}}, differ.diffs)
}

func TestADiffThatCannotBeSaysWhy(t *testing.T) {
	t.Parallel()
	digest := "latest@sha256:" + strings.Repeat("1", 64)
	for want, change := range map[string]gitopsprovider.Change{
		"the source is no Git repository (OCI), so there is no diff": {
			Source: gitopsprovider.Source{Type: gitopsprovider.SourceOCI, URL: "oci://registry.example.com/shop"}, ToRev: digest,
		},
		"the source is no Git repository (OCI), so there is no diff; it says that it was made from " + shopURL + " at no revision": {
			Source: gitopsprovider.Source{Type: gitopsprovider.SourceOCI, Origin: gitopsprovider.Origin{URL: shopURL}}, ToRev: digest,
		},
		"where the content comes from is not known, so there is nothing to compare": {ToRev: "1.2.3"},
		"1.2.2 names no commit, so there is nothing to compare":                     {Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit}, ToRev: "1.2.2"},
	} {
		differ := &repository{}
		diff, err := views(t, differ, newMemory()).Diff(t.Context(), change)
		require.NoError(t, err)
		assert.Equal(t, want, diff.Note)
		assert.Empty(t, diff.Files)
		assert.Equal(t, change.Source.URL, diff.Repository)
		assert.Empty(t, differ.diffs)
	}
}

func TestADiffFromAnUnknownCommitSaysSo(t *testing.T) {
	t.Parallel()
	differ := &repository{diff: gitopsprovider.Diff{Note: "cut"}}
	diff, err := views(t, differ, newMemory()).Diff(t.Context(), gitopsprovider.Change{
		Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit}, FromRev: "1.2.2", ToRev: "1.2.3", ToCommit: commitB,
	})
	require.NoError(t, err)
	assert.Equal(t, "cut; the commit of 1.2.2, which was applied before, is not known: this is what "+commitB+" itself changed", diff.Note)
}

func TestADiffFailsAsItsDifferDoes(t *testing.T) {
	t.Parallel()
	_, err := views(t, &repository{err: gitopsprovider.ErrCommitNotFound}, newMemory()).Diff(t.Context(), gitopsprovider.Change{
		Workload: workload("App", "ns/a"), Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit}, ToCommit: commitB,
	})
	require.ErrorIs(t, err, gitopsprovider.ErrCommitNotFound)
	require.ErrorContains(t, err, "the diff of App ns/a in cluster test")
	_, err = views(t, gitopsprovider.NoDiffer{}, newMemory()).Diff(t.Context(), gitopsprovider.Change{
		Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit}, ToCommit: commitB,
	})
	require.ErrorIs(t, err, gitopsprovider.ErrNoDiffer)
}
