package gitref_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

func TestParseRevision(t *testing.T) {
	t.Parallel()
	const (
		sha1Digest   = "sha1:" + sha1Commit
		sha256Digest = "sha256:" + sha256Commit
	)
	for name, test := range map[string]struct {
		revision string
		want     gitref.Revision
	}{
		"a branch":                {"main@" + sha1Digest, gitref.Revision{Ref: "main", Digest: sha1Digest, Commit: sha1Commit}},
		"a full ref":              {"refs/heads/main@" + sha1Digest, gitref.Revision{Ref: "refs/heads/main", Digest: sha1Digest, Commit: sha1Commit}},
		"a tag":                   {"v1.0.0@" + sha1Digest, gitref.Revision{Ref: "v1.0.0", Digest: sha1Digest, Commit: sha1Commit}},
		"a full tag":              {"refs/tags/v1@" + sha1Digest, gitref.Revision{Ref: "refs/tags/v1", Digest: sha1Digest, Commit: sha1Commit}},
		"a branch with / and @":   {"feat/x@y@" + sha1Digest, gitref.Revision{Ref: "feat/x@y", Digest: sha1Digest, Commit: sha1Commit}},
		"a branch like a hash":    {sha1Commit + "@" + sha1Digest, gitref.Revision{Ref: sha1Commit, Digest: sha1Digest, Commit: sha1Commit}},
		"a pinned commit":         {sha1Digest, gitref.Revision{Digest: sha1Digest, Commit: sha1Commit}},
		"a SHA-256 repository":    {"main@" + sha256Digest, gitref.Revision{Ref: "main", Digest: sha256Digest, Commit: sha256Commit}},
		"a pinned SHA-256 commit": {sha256Digest, gitref.Revision{Digest: sha256Digest, Commit: sha256Commit}},
		"a bare commit":           {sha1Commit, gitref.Revision{Commit: sha1Commit}},
		"a bare SHA-256 commit":   {sha256Commit, gitref.Revision{Commit: sha256Commit}},

		"the old form":                    {"main/" + sha1Commit, gitref.Revision{Ref: "main", Commit: sha1Commit}},
		"the old form of a deeper branch": {"feat/x/" + sha1Commit, gitref.Revision{Ref: "feat/x", Commit: sha1Commit}},
		"the old form of a pinned commit": {"HEAD/" + sha1Commit, gitref.Revision{Ref: "HEAD", Commit: sha1Commit}},

		"an OCI artifact looks like a SHA-256 commit": {"latest@" + sha256Digest, gitref.Revision{Ref: "latest", Digest: sha256Digest, Commit: sha256Commit}},
		"a digest by an algorithm that Git lacks":     {"latest@sha512:" + sha1Commit, gitref.Revision{Ref: "latest", Digest: "sha512:" + sha1Commit}},
		"a hash too long for its algorithm":           {"main@sha1:" + sha256Commit, gitref.Revision{Ref: "main", Digest: "sha1:" + sha256Commit}},
		"a hash too short for its algorithm":          {"main@sha256:" + sha1Commit, gitref.Revision{Ref: "main", Digest: "sha256:" + sha1Commit}},
		"a short hash with its algorithm":             {"main@sha1:c408ce6b", gitref.Revision{Ref: "main", Digest: "sha1:c408ce6b"}},

		"nothing":                             {"", gitref.Revision{}},
		"a branch without a hash":             {"main", gitref.Revision{Ref: "main"}},
		"a word that looks like hex":          {"deadbeef", gitref.Revision{Ref: "deadbeef"}},
		"a short hash in the old form":        {"main/c408ce6b", gitref.Revision{Ref: "main/c408ce6b"}},
		"an upper-case hash":                  {"main@sha1:" + strings.ToUpper(sha1Commit), gitref.Revision{Ref: "main@sha1:" + strings.ToUpper(sha1Commit)}},
		"a full ref that ends like a hash":    {"refs/heads/" + sha1Commit, gitref.Revision{Ref: "refs/heads/" + sha1Commit}},
		"a hash after @ without an algorithm": {"main@" + sha1Commit, gitref.Revision{Ref: "main@" + sha1Commit}},
		"no ref before the @":                 {"@" + sha1Digest, gitref.Revision{Ref: "@" + sha1Digest}},
		"no branch before the slash":          {"/" + sha1Commit, gitref.Revision{Ref: "/" + sha1Commit}},
		"no hash after the colon":             {"main@sha1:", gitref.Revision{Ref: "main@sha1:"}},
		"a chart version":                     {"6.5.4", gitref.Revision{Ref: "6.5.4"}},
		"two colons":                          {"main@x:sha1:" + sha1Commit, gitref.Revision{Ref: "main@x:sha1:" + sha1Commit}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, gitref.ParseRevision(test.revision))
			assert.Equal(t, test.want.Commit, gitref.CommitOf(test.revision))
		})
	}
}

func FuzzCommitOfIsACommitOrEmpty(f *testing.F) {
	f.Add("main@sha1:" + sha1Commit)
	f.Add("feat/x@y@sha256:" + sha256Commit)
	f.Add("main/" + sha1Commit)
	f.Add("refs/heads/" + sha1Commit)
	f.Add("sha1:" + sha1Commit)
	f.Add("@:")
	f.Fuzz(func(t *testing.T, revision string) {
		commit := gitref.CommitOf(revision)
		if commit == "" {
			return
		}
		if !gitref.IsCommit(commit) {
			t.Errorf("CommitOf(%q) = %q, which is no commit", revision, commit)
		}
		if !strings.HasSuffix(revision, commit) {
			t.Errorf("CommitOf(%q) = %q, which is not its end", revision, commit)
		}
	})
}

// FuzzParseRevisionLosesNothing puts a parsed revision together again.
func FuzzParseRevisionLosesNothing(f *testing.F) {
	f.Add("main@sha1:" + sha1Commit)
	f.Add("main/" + sha1Commit)
	f.Add("latest@sha512:00")
	f.Add("@sha1:00")
	f.Fuzz(func(t *testing.T, revision string) {
		r := gitref.ParseRevision(revision)
		hash, separator := r.Commit, "/"
		if r.Digest != "" {
			hash, separator = r.Digest, "@"
		}
		if r.Ref == "" || hash == "" {
			separator = ""
		}
		if got := r.Ref + separator + hash; got != revision {
			t.Errorf("ParseRevision(%q) = %+v, which makes %q", revision, r, got)
		}
	})
}
