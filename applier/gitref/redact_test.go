package gitref_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ address, want string }{
		"nothing to hide":          {"https://Git.example.com:443/acme/shop.git/", "https://Git.example.com:443/acme/shop.git/"},
		"a user":                   {"ssh://git@git.example.com:22/acme/shop.git", "ssh://git.example.com:22/acme/shop.git"},
		"a user and a password":    {"https://user:s3cret@git.example.com/acme/shop", "https://git.example.com/acme/shop"},
		"a token":                  {"https://s3cret@git.example.com/acme/shop", "https://git.example.com/acme/shop"},
		"an escaped password":      {"https://user:s3%2Fcr%40et@git.example.com/acme/shop", "https://git.example.com/acme/shop"},
		"an unescaped @":           {"https://user:s3@cret@git.example.com/acme", "https://git.example.com/acme"},
		"a bad escape":             {"https://user:s3cret%zz@git.example.com/acme", "https://git.example.com/acme"},
		"a bad port":               {"https://user:s3cret@git.example.com:port/acme", "https://git.example.com:port/acme"},
		"a line break":             {"https://user:s3cret@git.example.com/acme\n", "https://git.example.com/acme\n"},
		"a query":                  {"https://git.example.com/acme?token=s3cret", "https://git.example.com/acme?redacted"},
		"a fragment":               {"https://git.example.com/acme#s3cret", "https://git.example.com/acme#redacted"},
		"a password and a query":   {"https://user:s3cret@git.example.com/acme?token=s3cret", "https://git.example.com/acme?redacted"},
		"host:path":                {"git@git.example.com:acme/shop.git", "git.example.com:acme/shop.git"},
		"a password in host:path":  {"user:s3cret@git.example.com:acme/shop", "git.example.com:acme/shop"},
		"no scheme":                {"user:s3cret@git.example.com/acme", "git.example.com/acme"},
		"no slashes after scheme":  {"https:user:s3cret@git.example.com/acme", "git.example.com/acme"},
		"no scheme but slashes":    {"//user:s3cret@git.example.com/acme", "redacted@git.example.com/acme"},
		"a local path":             {"/srv/git/shop.git", "/srv/git/shop.git"},
		"an image":                 {"reg.example.com:5000/shop", "reg.example.com:5000/shop"},
		"nothing":                  {"", ""},
		"an unescaped /":           {"https://user:s3/cret@git.example.com/acme", "https://redacted@git.example.com/acme"},
		"digits before one":        {"https://user:12/s3cret@git.example.com/acme", "https://redacted@git.example.com/acme"},
		"an unescaped ?":           {"https://user:s3?cret@git.example.com/acme", "https://redacted"},
		"an unescaped #":           {"https://user:s3#cret@git.example.com/acme", "https://redacted"},
		"an @ in the path":         {"https://git.example.com/acme/shop@v1", "https://redacted@v1"},
		"an @ in the query":        {"https://git.example.com/acme?mail=a@b&token=s3cret", "https://redacted"},
		"an @ escaped by mistake":  {"https://s3cret%40git.example.com/acme", "https://redacted@git.example.com/acme"},
		"everything escaped":       {"https%3A%2F%2Fuser%3As3cret%40git.example.com", "redacted@git.example.com"},
		"a scheme in the password": {"user:s3://cret@git.example.com:acme", "redacted@git.example.com:acme"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, gitref.Redact(test.address))
		})
	}
}

func TestRedactTextRedactsEachURLInAText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                  "",
		"no URL: a@b, c://": "no URL: a@b, c://",
		"unable to list remote for 'http://bot:s3cret@127.0.0.1:1/shop.git': refused":        "unable to list remote for 'http://127.0.0.1:1/shop.git': refused",
		`Get "https://s3cret@git.example.com/shop/info/refs?service=git-upload-pack": EOF`:   `Get "https://git.example.com/shop/info/refs?redacted": EOF`,
		"https://a:s3cret@one.example.com and ssh://git:s3cret@two.example.com:22/x, failed": "https://one.example.com and ssh://two.example.com:22/x, failed",
		"see https://fluxcd.io/docs (ask team@example.com)":                                  "see https://fluxcd.io/docs (ask team@example.com)",
	} {
		assert.Equal(t, want, gitref.RedactText(text))
	}
}

// secret is what fuzzed passwords hold, and no fuzzed part of an address does.
const secret = "\x00s3cret\x00"

// FuzzRedactDropsUserInfo writes a password around the secret into an address
// in every way that people do, escaped and raw.
func FuzzRedactDropsUserInfo(f *testing.F) {
	f.Add("https://", "user", "", "", "git.example.com/acme")
	f.Add("ssh://", "git", "a/", "?b", "[::1]:22/x@y")
	f.Add("", "user", "@", "#%40", "git.example.com:acme/shop?token=a@b")
	f.Add("file://", "", "%", "://", "%40")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, rest string) {
		if strings.Contains(scheme+user+before+after+rest, secret) {
			return
		}
		if !strings.HasSuffix(scheme, "://") || strings.ContainsAny(scheme[:len(scheme)-3], "/:@?#") {
			scheme = ""
		}
		password := before + secret + after
		for _, info := range []string{
			password,
			user + ":" + password,
			url.UserPassword(user, password).String(),
			url.QueryEscape(user) + ":" + url.QueryEscape(password),
		} {
			address := scheme + info + "@" + rest
			got := gitref.Redact(address)
			if strings.Contains(got, secret) || strings.Contains(got, "s3cret") && !strings.Contains(scheme+rest, "s3cret") {
				t.Errorf("Redact(%q) = %q", address, got)
			}
		}
	})
}

// FuzzRedactDropsQuery does the same for a token in the query.
func FuzzRedactDropsQuery(f *testing.F) {
	f.Add("https://git.example.com/acme", "token=", "")
	f.Add("https://user@git.example.com/acme", "mail=a@b&token=", "%40#@")
	f.Add("git@git.example.com:acme", "", "?")
	f.Fuzz(func(t *testing.T, address, before, after string) {
		if strings.Contains(address+before+after, secret) {
			return
		}
		for _, separator := range []string{"?", "#"} {
			full := address + separator + before + secret + after
			if got := gitref.Redact(full); strings.Contains(got, secret) {
				t.Errorf("Redact(%q) = %q", full, got)
			}
		}
	})
}
