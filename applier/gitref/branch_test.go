package gitref_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

func TestBranchReturnsTheShortName(t *testing.T) {
	t.Parallel()
	for revision, want := range map[string]string{
		"main":                   "main",
		"refs/heads/main":        "main",
		"feat/x":                 "feat/x",
		"refs/heads/feat/x":      "feat/x",
		"feat/x@y":               "feat/x@y",
		"deadbeef":               "deadbeef",
		"c408ce6b":               "c408ce6b",
		"v1.0.0":                 "v1.0.0",
		"10.x":                   "10.x",
		"heads/main":             "heads/main",
		"größe":                  "größe",
		"Main":                   "Main",
		"head":                   "head",
		"fix/" + sha1Commit:      "fix/" + sha1Commit,
		"refs/heads/" + "1.2-rc": "1.2-rc",
	} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			got, err := gitref.Branch(revision)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
}

func TestBranchSaysWhyARevisionNamesNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		revision string
		want     error
	}{
		"empty":                    {"", gitref.ErrDefaultBranch},
		"HEAD":                     {"HEAD", gitref.ErrDefaultBranch},
		"a commit":                 {sha1Commit, gitref.ErrPinned},
		"a SHA-256 commit":         {sha256Commit, gitref.ErrPinned},
		"an upper-case hash":       {strings.ToUpper(sha1Commit), gitref.ErrPinned},
		"a branch like a commit":   {"refs/heads/" + sha1Commit, gitref.ErrPinned},
		"a tag":                    {"refs/tags/v1", gitref.ErrTag},
		"a pull request":           {"refs/pull/7/head", gitref.ErrNotBranch},
		"a remote branch":          {"refs/remotes/origin/main", gitref.ErrNotBranch},
		"heads without a name":     {"refs/heads/", gitref.ErrNotBranch},
		"a ref inside heads":       {"refs/heads/refs/heads/main", gitref.ErrNotBranch},
		"a branch called HEAD":     {"refs/heads/HEAD", gitref.ErrNotBranch},
		"a version range":          {"1.*", gitref.ErrNotBranch},
		"a caret range":            {"^1.2", gitref.ErrNotBranch},
		"a range with a space":     {">=1.0.0 <2.0.0", gitref.ErrNotBranch},
		"any version":              {"*", gitref.ErrNotBranch},
		"an expression":            {"main~1", gitref.ErrNotBranch},
		"a reflog entry":           {"main@{1}", gitref.ErrNotBranch},
		"Git's short form of HEAD": {"@", gitref.ErrNotBranch},
		"what a source reports":    {"main@sha1:" + sha1Commit, gitref.ErrNotBranch},
		"a space around the name":  {" main", gitref.ErrNotBranch},
		"a line break":             {"main\n", gitref.ErrNotBranch},
		"a command-line option":    {"--upload-pack=x", gitref.ErrNotBranch},
		"two dots":                 {"a..b", gitref.ErrNotBranch},
		"a trailing dot":           {"main.", gitref.ErrNotBranch},
		"a lock file":              {"main.lock", gitref.ErrNotBranch},
		"a hidden part":            {"feat/.x", gitref.ErrNotBranch},
		"an empty part":            {"feat//x", gitref.ErrNotBranch},
		"a leading slash":          {"/main", gitref.ErrNotBranch},
		"a trailing slash":         {"main/", gitref.ErrNotBranch},
		"a backslash":              {`feat\x`, gitref.ErrNotBranch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := gitref.Branch(test.revision)
			require.ErrorIs(t, err, test.want)
			assert.Empty(t, got)
		})
	}
}

func TestBranchErrorsSayWhatMendsThem(t *testing.T) {
	t.Parallel()
	for revision, want := range map[string]string{
		"":             `revision "" follows the repository's default branch, which nobody named: name the branch`,
		"HEAD":         `revision "HEAD" follows the repository's default branch, which nobody named: name the branch`,
		sha1Commit:     `revision "` + sha1Commit + `" is a commit, which never moves: name a branch`,
		"refs/tags/v1": `revision "refs/tags/v1" is a tag: name a branch`,
		"1.*":          `revision "1.*" is not the name of a branch`,
	} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			_, err := gitref.Branch(revision)
			assert.EqualError(t, err, want)
		})
	}
}

func TestSameBranch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a, b string
		want bool
	}{
		"short and full name":             {"main", "refs/heads/main", true},
		"identical":                       {"feat/x", "feat/x", true},
		"another branch":                  {"main", "master", false},
		"another case":                    {"main", "Main", false},
		"the last part only":              {"feat/main", "main", false},
		"a tag of the same name":          {"refs/tags/main", "main", false},
		"HEAD may be another branch":      {"HEAD", "HEAD", false},
		"nothing names no branch":         {"", "", false},
		"a commit names no branch":        {sha1Commit, sha1Commit, false},
		"a range may be another version":  {"1.*", "1.*", false},
		"the default branch has no name":  {"", "main", false},
		"two full names of the one":       {"refs/heads/a/b", "refs/heads/a/b", true},
		"a branch under refs of its name": {"refs/heads/refs/heads/main", "main", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, gitref.SameBranch(test.a, test.b))
			assert.Equal(t, test.want, gitref.SameBranch(test.b, test.a))
		})
	}
}

func FuzzBranchNameNamesItself(f *testing.F) {
	for _, seed := range []string{"main", "refs/heads/main", "refs/heads/HEAD", "refs/heads/refs/heads/x", "1.*", "@", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, revision string) {
		name, err := gitref.Branch(revision)
		if err != nil {
			if gitref.SameBranch(revision, revision) {
				t.Errorf("%q names no branch, yet is the same as one", revision)
			}
			return
		}
		for _, spelling := range []string{name, "refs/heads/" + name} {
			if again, err := gitref.Branch(spelling); err != nil || again != name {
				t.Errorf("Branch(%q) = %q, but Branch(%q) = %q, %v", revision, name, spelling, again, err)
			}
			if !gitref.SameBranch(revision, spelling) {
				t.Errorf("%q and %q are not the same branch", revision, spelling)
			}
		}
	})
}
