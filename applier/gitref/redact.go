package gitref

import (
	"regexp"
	"strings"
)

const (
	redacted  = "redacted"
	escapedAt = "%40"
)

var (
	schemePrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
	urlInText    = regexp.MustCompile("[A-Za-z][A-Za-z0-9+.-]*://[^\\s'\"`<>]+")
)

// Redact returns an address without what may be a secret, for use in messages:
// its user info is dropped, and a query or fragment reads "redacted".
// Everything else stays as it is written.
//
// It works on text, so that a malformed address is as safe as a valid one: a
// password may hold an '@', a '/' or a '?' that should have been escaped.
// Where such an address cannot be told from one with an '@' in its path or
// query, it hides too much rather than too little.
func Redact(address string) string {
	scheme := schemePrefix.FindString(address)
	rest := address[len(scheme):]

	// User info ends at the last '@', or at one that was escaped by mistake.
	start := strings.LastIndexByte(rest, '@') + 1
	if escaped := strings.LastIndex(rest, escapedAt); escaped >= start {
		start = escaped + len(escapedAt)
	}
	dropped, rest := rest[:start], rest[start:]
	if strings.ContainsAny(dropped, "?#") {
		return scheme + redacted // what follows may be the end of a query
	}
	if query := strings.IndexAny(rest, "?#"); query >= 0 {
		rest = rest[:query+1] + redacted
	}
	if strings.Contains(dropped, "/") || strings.HasSuffix(dropped, escapedAt) {
		return scheme + redacted + "@" + rest // what follows may be no host
	}
	return scheme + rest
}

// RedactText returns a text, such as the message of a controller, with each
// URL in it redacted as [Redact] does. A URL ends at white space or a quote. An
// address without a scheme is not recognised.
func RedactText(text string) string {
	return urlInText.ReplaceAllStringFunc(text, Redact)
}
