package gitref_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

const (
	sha1Commit   = "1eabc9a41ca088515cab83f1cce49eb43e84b67f"
	sha256Commit = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
)

func TestIsCommit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		s    string
		want bool
	}{
		"a full SHA-1 hash":                 {sha1Commit, true},
		"a full SHA-256 hash":               {sha256Commit, true},
		"nothing":                           {"", false},
		"a short hash":                      {"c408ce6b", false},
		"a branch that looks like hex":      {"deadbeef", false},
		"upper case":                        {strings.ToUpper(sha1Commit), false},
		"one digit missing":                 {sha1Commit[1:], false},
		"one digit too many":                {sha1Commit + "0", false},
		"a letter that is no hex digit":     {"g" + sha1Commit[1:], false},
		"a trailing space":                  {sha1Commit[1:] + " ", false},
		"an expression of the right length": {sha1Commit[2:] + "~1", false},
		"a length between the two":          {sha256Commit[:56], false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, gitref.IsCommit(test.s))
		})
	}
}

func TestShortAbbreviatesCommitsOnly(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "1eabc9a41ca0", gitref.Short(sha1Commit))
	assert.Equal(t, "6e340b9cffb3", gitref.Short(sha256Commit))
	assert.Equal(t, "release-2026-10-01", gitref.Short("release-2026-10-01"))
	assert.Empty(t, gitref.Short(""))
}
