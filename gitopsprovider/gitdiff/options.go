package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Options says where a [Differ] keeps what it fetched and what it may do. Only
// Dir is required.
type Options struct {
	// Dir is the folder of the cache. The Differ makes it, and a folder
	// gitdiff-v1 in it that only this user may enter, and writes nowhere else.
	// Several Differs and several processes of one user, on one machine, may
	// share it. What it holds can be deleted while nothing uses it.
	Dir string

	// Credentials returns what to present to a site: the scheme, host and, if
	// it is not the default one, port of a repository, such as
	// https://git.example.com or ssh://git.example.com:2222, with the host in
	// lower case. The credentials are sent to that site alone, wherever it
	// redirects to.
	//
	// Compare the whole site: a suffix of it may be somebody else's. Nil, and
	// zero Credentials, mean none; then the user info of the repository's
	// address is used, if it has any. An error ends the call; it is passed on
	// by its text alone, so keep secrets out of it.
	//
	// It is called from several goroutines at once, at least once for every
	// call of the Differ that needs the network.
	Credentials func(ctx context.Context, site string) (Credentials, error)

	// RoundTripper carries out HTTP requests, which is where to trust the
	// certificates of a private authority. It must not follow redirects. Nil
	// is a transport of the Differ's own, with the settings of
	// http.DefaultTransport, which uses the proxy that the environment names.
	RoundTripper http.RoundTripper

	// AllowLocal lets file:// and absolute paths be read. They are read in
	// place, and whatever the process may read can then be named by whoever
	// names the repository.
	AllowLocal bool

	// ShowSecrets leaves the values of Kubernetes Secrets in the patches.
	ShowSecrets bool

	// Limits bound what one call takes and what the cache holds.
	Limits Limits
}

// Credentials are what a site is shown. Their fields are those of a Secret that
// a GitRepository refers to.
type Credentials struct {
	Username string // "username": HTTP, and SSH where the address names no user
	Password string // "password": HTTP, and SSH

	BearerToken string // "bearerToken": HTTP, instead of a user and a password

	PrivateKey []byte // "identity": SSH, in PEM form
	Passphrase string // of PrivateKey, if it has one
	KnownHosts []byte // "known_hosts": SSH, required there
}

func (c Credentials) isZero() bool {
	return c.Username == "" && c.Password == "" && c.BearerToken == "" && len(c.PrivateKey) == 0 && len(c.KnownHosts) == 0
}

// String keeps credentials out of logs.
func (c Credentials) String() string { return "Credentials(hidden)" }

// GoString keeps credentials out of logs.
func (c Credentials) GoString() string { return c.String() }

// Limits bound the work of one call, against servers and repositories that are
// hostile or merely large. Zero means the default of each.
type Limits struct {
	// Time is how long one call may take. The default is 2 minutes.
	Time time.Duration

	// FetchBytes is how much one call may receive. The default is 512 MiB.
	FetchBytes int64

	// ObjectBytes is the size of the largest object that a server may send,
	// unpacked. A fetch may unpack to 64 times as much in all, of which up to 8
	// times as much may be in memory at once. The default is 128 MiB.
	ObjectBytes int64

	// Commits is how many commits the history is searched for. The default is
	// 10,000.
	Commits int

	// Files is how many files a Diff lists. The default is 3,000.
	Files int

	// FileBytes is the size of the largest file whose patch is shown. The
	// default is 1 MiB.
	FileBytes int64

	// PatchBytes is how long all patches of a Diff may be together. The
	// default is 4 MiB.
	PatchBytes int64

	// CacheRepositories and CacheBytes are what the cache holds between calls;
	// those used longest ago are deleted first. The defaults are 64 and 4 GiB.
	CacheRepositories int
	CacheBytes        int64
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.Time, 2*time.Minute)
	orDefault(&l.FetchBytes, 512<<20)
	orDefault(&l.ObjectBytes, 128<<20)
	orDefault(&l.Commits, 10_000)
	orDefault(&l.Files, 3_000)
	orDefault(&l.FileBytes, 1<<20)
	orDefault(&l.PatchBytes, 4<<20)
	orDefault(&l.CacheRepositories, 64)
	orDefault(&l.CacheBytes, 4<<30)
	return l
}

func orDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (o Options) validate() error {
	if o.Dir == "" {
		return errors.New("gitdiff: Options.Dir is empty: name the folder of the cache")
	}
	l := o.Limits
	for _, limit := range []struct {
		name  string
		value int64
	}{
		{"Time", int64(l.Time)}, {"FetchBytes", l.FetchBytes}, {"ObjectBytes", l.ObjectBytes}, {"Commits", int64(l.Commits)},
		{"Files", int64(l.Files)}, {"FileBytes", l.FileBytes}, {"PatchBytes", l.PatchBytes},
		{"CacheRepositories", int64(l.CacheRepositories)}, {"CacheBytes", l.CacheBytes},
	} {
		if limit.value < 0 {
			return fmt.Errorf("gitdiff: Options.Limits.%s is negative: zero is its default", limit.name)
		}
	}
	return nil
}
