package gitdiff

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// errBroken is a cached repository that cannot be read, or lacks an object that
// it must have. It is rebuilt once.
var errBroken = errors.New("what is here of it is not whole")

// failure is the error of a call: its text is free of credentials, and it wraps
// nothing but values without any, since callers print whole chains.
type failure struct {
	text string
	is   []error
}

func (f *failure) Error() string   { return f.text }
func (f *failure) Unwrap() []error { return f.is }

// passedOn are the errors that a caller may test for.
var passedOn = []error{
	gitopsprovider.ErrInvalidQuery,
	gitopsprovider.ErrCommitNotFound,
	gitopsprovider.ErrNotCommit,
	gitopsprovider.ErrRepositoryNotFound,
	gitopsprovider.ErrCredentials,
	gitopsprovider.ErrRepositoryNotAllowed,
	gitopsprovider.ErrServerNotSupported,
	gitopsprovider.ErrLimit,
	context.Canceled,
	context.DeadlineExceeded,
}

// mostText is how long the text of an error may be.
const mostText = 1000

// failed turns an error into what the caller gets. Secrets are removed before
// anything else could cut one in two.
func failed(address string, err error, secrets []string) error {
	text := gitref.RedactText(scrub(err.Error(), secrets))
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	f := &failure{text: fmt.Sprintf("repository %s: %s", gitref.Redact(address), text)}
	for _, sentinel := range passedOn {
		if errors.Is(err, sentinel) {
			f.is = append(f.is, sentinel)
		}
	}
	return f
}

// ofContext returns why ctx ended, if it did, and err otherwise: what a
// cancelled connection returns says little.
func ofContext(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// scrub removes secrets from a text that may hold something a server said,
// which may be what it was sent.
func scrub(text string, secrets []string) string {
	for _, secret := range secrets {
		for _, form := range spellings(secret) {
			text = replaceFold(text, form, "***")
		}
	}
	return text
}

// spellings returns the forms in which a secret may come back.
func spellings(secret string) []string {
	everyByte := &strings.Builder{}
	for i := range len(secret) {
		fmt.Fprintf(everyByte, "%%%02X", secret[i])
	}
	forms := []string{
		secret,
		url.PathEscape(secret),
		url.QueryEscape(secret),
		url.UserPassword("", secret).String()[1:],
		everyByte.String(),
		strings.Trim(fmt.Sprintf("%q", secret), `"`),
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		forms = append(forms, strings.TrimRight(encoding.EncodeToString([]byte(secret)), "="))
	}
	return forms
}

// replaceFold replaces old whatever the case of its letters, since the digits of
// a percent-encoding have one.
func replaceFold(text, old, replacement string) string {
	if old == "" {
		return text
	}
	var b strings.Builder
	for {
		i := indexFold(text, old)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		b.WriteString(replacement)
		text = text[i+len(old):]
	}
}

// indexFold is strings.Index for ASCII letters of either case.
func indexFold(text, old string) int {
	for i := 0; i+len(old) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(old)], old) {
			return i
		}
	}
	return -1
}

// said quotes what a server said.
func said(words string) string { return fmt.Sprintf("%q", strings.TrimSpace(words)) }
