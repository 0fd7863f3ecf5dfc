package gitref

import "strings"

const (
	sha1Len   = 40
	sha256Len = 64
	shortLen  = 12
)

// IsCommit reports whether s is a full commit hash: 40 or 64 characters of
// lower-case hex.
func IsCommit(s string) bool {
	return (len(s) == sha1Len || len(s) == sha256Len) && isHex(s)
}

// Short returns the first 12 characters of a commit, for use in messages.
// What is not a commit is returned as it is.
func Short(commit string) string {
	if !IsCommit(commit) {
		return commit
	}
	return commit[:shortLen]
}

// isHex reports whether s is made of lower-case hex digits. The empty string is.
func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}
