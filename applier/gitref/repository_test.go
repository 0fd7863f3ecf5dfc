package gitref_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Every group is one repository in several spellings, and no two groups are
// the same repository.
var repositories = []struct {
	name      string
	key       string
	spellings []string
}{
	{"a hosted repository", "https://git.example.com/acme/shop", []string{
		"https://git.example.com/acme/shop",
		"https://git.example.com/acme/shop.git",
		"https://git.example.com/acme/shop/",
		"https://git.example.com/acme/shop.git/",
		"https://git.example.com/acme/shop.git///",
		"https://git.example.com//acme//shop",
		"https://git.example.com/acme/./x/../shop",
		"https://git.example.com/acme/%73hop",
		"https://git.example.com/acme/shop%2Egit",
		"https://GIT.Example.COM/acme/shop",
		"HTTPS://git.example.com/acme/shop",
		"https://git.example.com:443/acme/shop",
		"https://git.example.com:0443/acme/shop",
		"https://git.example.com:/acme/shop",
		"https://token@git.example.com/acme/shop",
		"https://user:password@git.example.com/acme/shop.git",
		"http://git.example.com/acme/shop",
		"http://git.example.com:80/acme/shop",
		"git://git.example.com/acme/shop.git",
		"git://git.example.com:9418/acme/shop.git",
		"ssh://git@git.example.com/acme/shop.git",
		"ssh://git.example.com/acme/shop",
		"ssh://git@git.example.com:22/acme/shop.git",
		"git@git.example.com:acme/shop.git",
		"git@git.example.com:/acme/shop.git",
		"git@GIT.example.com:acme/shop",
		"git.example.com:acme/shop",
	}},
	{"another case of its path", "https://git.example.com/Acme/shop", []string{
		"https://git.example.com/Acme/shop",
		"git@git.example.com:Acme/shop.git",
	}},
	{"another path", "https://git.example.com/acme/shop2", []string{"https://git.example.com/acme/shop2.git"}},
	{"the path above", "https://git.example.com/acme", []string{"https://git.example.com/acme"}},
	{"another host", "https://git.example.org/acme/shop", []string{"https://git.example.org/acme/shop"}},
	{"an escaped slash", "https://git.example.com/acme%2Fshop", []string{
		"https://git.example.com/acme%2Fshop",
		"https://git.example.com/acme%2fshop.git",
	}},

	{"https on a port", "https://git.example.com:8443/acme/shop", []string{
		"https://git.example.com:8443/acme/shop",
		"https://user@git.example.com:8443/acme/shop.git/",
	}},
	{"http on that port", "http://git.example.com:8443/acme/shop", []string{"http://git.example.com:8443/acme/shop"}},
	{"ssh on that port", "ssh://git.example.com:8443/acme/shop", []string{"ssh://git@git.example.com:8443/acme/shop"}},
	{"https on the port of http", "https://git.example.com:80/acme/shop", []string{"https://git.example.com:80/acme/shop"}},
	{"ssh on the port of https", "ssh://git.example.com:443/acme/shop", []string{"ssh://git@git.example.com:443/acme/shop"}},

	{"numbers are a path after a user", "https://git.example.com/2222/acme/shop", []string{
		"git@git.example.com:2222/acme/shop.git",
		"https://git.example.com/2222/acme/shop",
	}},
	{"a home directory", "https://git.example.com/~alice/shop", []string{
		"ssh://git.example.com/~alice/shop.git",
		"git@git.example.com:~alice/shop",
	}},
	{"a space in the path", "https://git.example.com/acme/my%20shop", []string{
		"https://git.example.com/acme/my%20shop",
		"git@git.example.com:acme/my shop.git",
	}},
	{"a percent sign in the path", "https://git.example.com/acme/my%2520shop", []string{
		"https://git.example.com/acme/my%2520shop",
		"git@git.example.com:acme/my%20shop.git",
	}},

	{"an IPv6 host", "https://[2001:db8::1]/acme/shop", []string{
		"https://[2001:db8::1]/acme/shop",
		"https://[2001:DB8:0:0::1]:443/acme/shop",
		"ssh://git@[2001:db8::1]:22/acme/shop.git",
		"git@[2001:db8::1]:acme/shop.git",
	}},
	{"an IPv6 host on a port", "http://[::1]:3000/acme/shop", []string{"http://[::1]:3000/acme/shop.git"}},
	{"an IPv4 host on a port", "http://127.0.0.1:3000/acme/shop", []string{"http://127.0.0.1:3000/acme/shop.git"}},

	{"a local repository", "file:///srv/git/shop", []string{
		"/srv/git/shop",
		"/srv/git/shop.git/",
		"/srv/git/shop/.git",
		"file:///srv/git/shop.git",
		"file://localhost/srv/git/shop.git",
	}},
	{"a host called like the first part of a local path", "https://srv/git/shop", []string{"https://srv/git/shop"}},
}

func TestSpellingsOfOneRepositoryAreTheSame(t *testing.T) {
	t.Parallel()
	for _, repository := range repositories {
		t.Run(repository.name, func(t *testing.T) {
			t.Parallel()
			for _, spelling := range repository.spellings {
				got, err := gitref.Normalize(spelling)
				require.NoError(t, err)
				assert.Equal(t, repository.key, got, spelling)
				assert.True(t, gitref.SameRepository(repository.spellings[0], spelling), spelling)
			}
		})
	}
}

func TestDifferentRepositoriesAreNotTheSame(t *testing.T) {
	t.Parallel()
	for i, a := range repositories {
		for _, b := range repositories[i+1:] {
			for _, spelling := range b.spellings {
				assert.False(t, gitref.SameRepository(a.spellings[0], spelling), "%s, %s", a.spellings[0], spelling)
				assert.False(t, gitref.SameRepository(spelling, a.spellings[0]), "%s, %s", spelling, a.spellings[0])
			}
		}
	}
}

func TestWhatIsNotTheAddressOfARepositoryEqualsOnlyItself(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		address, other, reason string
	}{
		"nothing":                      {"", "/", "it is neither a URL, nor host:path, nor an absolute path"},
		"an image":                     {"reg.example.com:5000/shop", "https://reg.example.com:5000/shop", "host:port/name is the address of an image; put a scheme before it"},
		"a host and a port":            {"reg.example.com:5000", "reg.example.com:5000/", "host:port/name is the address of an image; put a scheme before it"},
		"an image with a tag":          {"ghcr.io/acme/shop:v1", "ghcr.io/acme/shop:v1.git", "it is neither a URL, nor host:path, nor an absolute path"},
		"an OCI address":               {"oci://ghcr.io/acme/shop", "oci://ghcr.io/acme/shop/", "its scheme is none of https, http, ssh, git and file"},
		"no scheme":                    {"git.example.com/acme/shop", "https://git.example.com/acme/shop", "it is neither a URL, nor host:path, nor an absolute path"},
		"a relative path":              {"./shop", "./shop.git", "it is neither a URL, nor host:path, nor an absolute path"},
		"no path":                      {"https://git.example.com", "https://git.example.com/", "it has no path"},
		"nothing but the suffix":       {"https://git.example.com/.git", "https://git.example.com", "it has no path"},
		"no host":                      {"https:///acme/shop", "https:///acme/shop.git", "it has no host"},
		"a query":                      {"https://git.example.com/acme/shop?ref=main", "https://git.example.com/acme/shop", "it has a query or a fragment"},
		"an empty query":               {"https://git.example.com/acme/shop?", "https://git.example.com/acme/shop", "it has a query or a fragment"},
		"a fragment":                   {"https://git.example.com/acme/shop#main", "https://git.example.com/acme/shop", "it has a query or a fragment"},
		"an @ in the path":             {"https://git.example.com/acme/shop@v1", "https://git.example.com/acme/shop@v1.git", "its path holds an '@'"},
		"an escaped @ in the path":     {"https://git.example.com/acme/shop%40v1", "https://git.example.com/acme/shop@v1", "its path holds an '@'"},
		"a password before host:path":  {"user:password@git.example.com:acme/shop", "git@git.example.com:acme/shop", "its '@' does not end a user's name"},
		"an @ after host:path":         {"git@git.example.com:acme/shop@v1", "git.example.com:acme/shop@v1", "its '@' does not end a user's name"},
		"a password that is no port":   {"https://user:pass/word@git.example.com/acme", "https://git.example.com/acme", "it is not a valid URL"},
		"a bad escape":                 {"https://git.example.com/acme%zz", "https://git.example.com/acme%zz.git", "it is not a valid URL"},
		"a line break":                 {"https://git.example.com/acme\n", "https://git.example.com/acme", "it is not a valid URL"},
		"a port out of range":          {"https://git.example.com:65536/acme", "https://git.example.com:65536/acme/", "its port is out of range"},
		"a host of other letters":      {"https://größe.example.com/acme", "https://größe.example.com/acme/", "its host holds more than ASCII letters, digits, '.', '-' and '_'"},
		"a host with a space":          {"git@my host:acme", "git@my host:acme.git", "its host holds more than ASCII letters, digits, '.', '-' and '_'"},
		"an IPv6 host with a zone":     {"ssh://[fe80::1%25eth0]/acme", "ssh://[fe80::1%25eth0]/acme.git", "its host is not an IPv6 address without a zone"},
		"an IPv6 host out of brackets": {"::1:acme/shop", "[::1]:acme/shop", "it has no host"},
		"brackets around a port":       {"[git.example.com:22]:acme/shop", "ssh://git.example.com/acme/shop", "its host is not an IPv6 address without a zone"},
		"a file on another host":       {"file://nas/srv/shop", "file:///srv/shop", "a file URL names no host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := gitref.Normalize(test.address)
			require.ErrorContains(t, err, "is not the address of a Git repository: "+test.reason)
			assert.True(t, gitref.SameRepository(test.address, test.address))
			assert.False(t, gitref.SameRepository(test.address, test.other))
			assert.False(t, gitref.SameRepository(test.other, test.address))
		})
	}
}

func TestNormalizeErrorsHoldNoSecret(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"https://user:s3cret@git.example.com",
		"https://user:s3cret@git.example.com:port/acme",
		"https://user:s3cret/x@git.example.com/acme",
		"https://user:s3cret%@git.example.com/acme",
		"https://git.example.com/acme?token=s3cret",
		"https://s3cret%40git.example.com/acme",
		"user:s3cret@git.example.com:acme/shop",
		"oci://s3cret@ghcr.io/acme",
		"s3cret@git.example.com/acme",
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			_, err := gitref.Normalize(address)
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

var fuzzAddresses = []string{
	"https://git.example.com/acme/shop.git", "git@git.example.com:acme/shop.git", "ssh://git@[::1]:22/~/x",
	"/srv/git/...git", "file:///a/.git/", "reg.example.com:5000/shop", "https://h/a%2Fb@c", "http://h:080/%2e%2e/x.git.git",
	"https://u:p@h:99999/x", "[h:22]:p", "", ":", "@", "://", "%",
}

func FuzzNormalizeIsIdempotentAndPublic(f *testing.F) {
	for _, a := range fuzzAddresses {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, address string) {
		key, err := gitref.Normalize(address)
		if err != nil {
			return
		}
		if again, err := gitref.Normalize(key); err != nil || again != key {
			t.Errorf("Normalize(%q) = %q, but that normalizes to %q, %v", address, key, again, err)
		}
		if public := gitref.Redact(key); public != key {
			t.Errorf("Normalize(%q) = %q, which is redacted to %q", address, key, public)
		}
		for _, spelling := range []string{key + "/", key + ".git", key + ".git/"} {
			if !gitref.SameRepository(address, spelling) {
				t.Errorf("%q and %q are not the same repository", address, spelling)
			}
		}
	})
}

func FuzzSameRepositoryIsAnEquivalence(f *testing.F) {
	for i := range len(fuzzAddresses) - 2 {
		f.Add(fuzzAddresses[i], fuzzAddresses[i+1], fuzzAddresses[i+2])
	}
	for _, repository := range repositories {
		same := repository.spellings
		for i := range same {
			f.Add(same[0], same[i], same[(i+1)%len(same)])
		}
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if !gitref.SameRepository(a, a) {
			t.Errorf("%q is not the same as itself", a)
		}
		ab, bc, ac := gitref.SameRepository(a, b), gitref.SameRepository(b, c), gitref.SameRepository(a, c)
		if ab != gitref.SameRepository(b, a) {
			t.Errorf("%q and %q are the same in one direction only", a, b)
		}
		if ab && bc && !ac || ab && ac && !bc || ac && bc && !ab {
			t.Errorf("of %q, %q and %q, only two pairs are the same", a, b, c)
		}
	})
}
