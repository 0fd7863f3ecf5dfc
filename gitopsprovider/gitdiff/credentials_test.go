package gitdiff_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

const someCommit = "1eabc9a41ca088515cab83f1cce49eb43e84b67f"

// assertNoSecret looks for a secret, in every form it could take, in an error and
// in all that it wraps.
func assertNoSecret(t *testing.T, err error, secrets ...string) {
	t.Helper()
	require.Error(t, err)
	var look func(err error)
	look = func(err error) {
		if err == nil {
			return
		}
		text := strings.ToLower(fmt.Sprintf("%v %+v %#v %q", err, err, err, err))
		for _, s := range secrets {
			for _, form := range []string{
				s, url.QueryEscape(s), url.PathEscape(s), fmt.Sprintf("%q", s)[1 : len(s)+1],
				base64.StdEncoding.EncodeToString([]byte(s)), strings.ReplaceAll(s, "%", "%25"),
			} {
				assert.NotContains(t, text, strings.ToLower(strings.TrimRight(form, "=")), "%T", err)
			}
		}
		switch w := err.(type) { //nolint:errorlint // that is the test
		case interface{ Unwrap() error }:
			look(w.Unwrap())
		case interface{ Unwrap() []error }:
			for _, e := range w.Unwrap() {
				look(e)
			}
		}
	}
	look(err)
}

func TestNoErrorHoldsACredential(t *testing.T) {
	t.Parallel()
	echo := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user, password, _ := r.BasicAuth()
			w.Header().Set("X-Echo", r.Header.Get("Authorization"))
			w.Header().Set("Location", fmt.Sprintf("http://%s@elsewhere.invalid/%s/%s", url.UserPassword(user, password), url.PathEscape(password), r.Header.Get("Authorization")))
			w.WriteHeader(status)
			_, _ = io.WriteString(w, password)
		})
	}
	inGit := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		advertise(w, pktLine(fmt.Sprintf("ERR no %s %s %s %s for %s", password, url.QueryEscape(password), url.PathEscape(password), r.Header.Get("Authorization"), user)))
	})
	asType := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		w.Header().Set("Content-Type", password)
	})
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	breaks := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for name, handler := range map[string]http.Handler{
		"unauthorized": echo(401), "forbidden": echo(403), "not found": echo(404), "redirect": echo(302), "an error": echo(500),
		"in Git's words": inGit, "as a content type": asType, "time is up": hangs, "the connection breaks": breaks, "no such host": nil,
	} {
		for _, secret := range []string{"s3cr3t-tok", "p@ss/w:rd?#%", "tok%40en", "TÖKEN \" '"} {
			t.Run(name+" "+secret, func(t *testing.T) {
				t.Parallel()
				base := "http://git.invalid/acme/shop.git"
				if handler != nil {
					server := httptest.NewServer(handler)
					t.Cleanup(server.Close)
					base = server.URL + "/acme/shop.git"
				}
				withSecret := func(user *url.Userinfo) string { return strings.Replace(base, "://", "://"+user.String()+"@", 1) }
				given := func(c gitdiff.Credentials) gitdiff.Options {
					return gitdiff.Options{Credentials: func(context.Context, string) (gitdiff.Credentials, error) { return c, nil }}
				}
				for address, o := range map[string]gitdiff.Options{
					withSecret(url.UserPassword("bot", secret)): {},
					withSecret(url.User(secret)):                {},
					base:                                        given(gitdiff.Credentials{Username: "bot", Password: secret}),
					base + "/":                                  given(gitdiff.Credentials{BearerToken: secret}),
				} {
					o.Limits.Time = 100 * time.Millisecond
					if handler == nil || name == "time is up" {
						o.Limits.Time = 50 * time.Millisecond
					} else {
						o.Limits.Time = 0
					}
					d := newDiffer(t, o)
					_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: address, To: someCommit})
					assertNoSecret(t, err, secret, "bot:"+secret)
					assert.ErrorContains(t, err, strings.TrimPrefix(strings.TrimSuffix(base, "/acme/shop.git"), "http://"))
					assert.ErrorContains(t, err, "/acme/shop.git")
					_, err = d.History(t.Context(), gitopsprovider.HistoryQuery{Repository: address, Revision: someCommit})
					assertNoSecret(t, err, secret)
				}
			})
		}
	}
	// A malformed address may hold one as well.
	for _, address := range []string{"https://bot:s3cr3t-tok@git.invalid:x/acme", "https://bot:s3cr3t-tok@", "ftp://bot:s3cr3t-tok@git.invalid/a", "https://s3cr3t-tok@git.invalid/a?b", "https://git.invalid/a?token=s3cr3t-tok"} {
		_, err := newDiffer(t, gitdiff.Options{}).Diff(t.Context(), gitopsprovider.DiffQuery{Repository: address, To: someCommit})
		assertNoSecret(t, err, "s3cr3t-tok")
		assert.ErrorIs(t, err, gitopsprovider.ErrInvalidQuery)
	}
}

// A long message is cut, but not in the middle of a credential.
func TestALongMessageIsCutWithoutACredential(t *testing.T) {
	t.Parallel()
	token := strings.Repeat("s3cr3t-", 100)
	for _, before := range []int{0, 150, 450, 700, 900, 990, 3000} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			advertise(w, pktLine("ERR "+strings.Repeat("x", before)+password+" http://x/?"+password+"@"+strings.Repeat("x", 3000)))
		}))
		t.Cleanup(server.Close)
		_, err := newDiffer(t, gitdiff.Options{Credentials: func(context.Context, string) (gitdiff.Credentials, error) {
			return gitdiff.Credentials{Username: "bot", Password: token}, nil
		}}).Diff(t.Context(), gitopsprovider.DiffQuery{Repository: server.URL + "/acme/shop", To: someCommit})
		assertNoSecret(t, err, "s3cr3t")
		assert.Less(t, len(err.Error()), 1200)
	}
}

func TestADiffHoldsNoCredential(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScenario(t, gitdiff.Options{Dir: dir}, twoCommits)
	s.server.url = strings.Replace(s.server.url, "://", "://bot:s3cr3t-tok@", 1)
	d := s.mustDiff("", "main", "")
	assert.NotContains(t, fmt.Sprintf("%+v", d), "s3cr3t-tok")
	assert.Equal(t, strings.Replace(s.server.url, "bot:s3cr3t-tok@", "", 1), d.Repository)
	for _, path := range cachedRepos(t, dir) {
		found, err := (&repo{t, path}).try("", nil, "grep", "--no-index", "-l", "-a", "s3cr3t-tok", ".")
		assert.Error(t, err, found) // git grep found nothing
	}
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", gitdiff.Credentials{Password: "s3cr3t-tok"}, gitdiff.Credentials{Password: "s3cr3t-tok"}, gitdiff.Credentials{Password: "s3cr3t-tok"}), "s3cr3t-tok")
}

// protected asks for credentials.
func protected(authorization string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != authorization {
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestCredentialsArePresented(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		authorization string
		credentials   gitdiff.Credentials
		userInfo      string
		want          error
		says          string
	}{
		"basic":                        {basic("bot", "p@ss"), gitdiff.Credentials{Username: "bot", Password: "p@ss"}, "", nil, ""},
		"a password alone":             {basic("", "p@ss"), gitdiff.Credentials{Password: "p@ss"}, "", nil, ""},
		"bearer":                       {"Bearer tok", gitdiff.Credentials{BearerToken: "tok"}, "", nil, ""},
		"of the address":               {basic("bot", "p@ss"), gitdiff.Credentials{}, "bot:p%40ss@", nil, ""},
		"a token in the address":       {basic("tok", ""), gitdiff.Credentials{}, "tok@", nil, ""},
		"ours before those of address": {basic("bot", "p@ss"), gitdiff.Credentials{Username: "bot", Password: "p@ss"}, "old:old@", nil, ""},
		"none":                         {basic("bot", "p@ss"), gitdiff.Credentials{}, "", gitopsprovider.ErrCredentials, "asks for credentials (401), and there are none"},
		"wrong ones":                   {basic("bot", "p@ss"), gitdiff.Credentials{Username: "bot", Password: "x"}, "", gitopsprovider.ErrCredentials, "refuses the credentials (401)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sites []string
			s := newScenario(t, gitdiff.Options{Credentials: func(_ context.Context, site string) (gitdiff.Credentials, error) {
				sites = append(sites, site)
				return test.credentials, nil
			}}, twoCommits)
			s.server = serve(t, s.repo, protected(test.authorization))
			site := s.server.url[:strings.LastIndex(s.server.url, "/")]
			s.server.url = strings.Replace(s.server.url, "://", "://"+test.userInfo, 1)
			d, err := s.diff("", "main", "")
			assert.Equal(t, []string{site}, sites)
			if test.want != nil {
				assert.ErrorIs(t, err, test.want)
				assert.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Len(t, d.Files, 1)
		})
	}
}

func TestAnErrorOfTheCredentialsEndsTheCall(t *testing.T) {
	t.Parallel()
	d := newDiffer(t, gitdiff.Options{Credentials: func(context.Context, string) (gitdiff.Credentials, error) {
		return gitdiff.Credentials{}, errors.New("no Secret team-a/git")
	}})
	_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: "https://git.invalid/acme/shop", To: someCommit})
	assert.EqualError(t, err, "repository https://git.invalid/acme/shop: getting the credentials of https://git.invalid: no Secret team-a/git")
}

func TestTheSiteOfARepository(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://git.example.com/acme/shop":          "https://git.example.com",
		"https://bot:tok@GIT.example.com:443/a":      "https://git.example.com",
		"https://git.example.com:8443/acme/shop":     "https://git.example.com:8443",
		"http://git.example.com/acme/shop":           "http://git.example.com",
		"https://git.example.com.evil.com/acme/shop": "https://git.example.com.evil.com",
		"ssh://git@git.example.com:2222/acme/shop":   "ssh://git.example.com:2222",
		"ssh://git@git.example.com:22/acme/shop":     "ssh://git.example.com",
		"git@Git.example.com:acme/shop.git":          "ssh://git.example.com",
		"https://[2001:DB8::1]/acme/shop":            "https://[2001:db8::1]",
		"https://[2001:db8::1]:443/acme/shop":        "https://[2001:db8::1]",
	} {
		var got string
		d := newDiffer(t, gitdiff.Options{Credentials: func(_ context.Context, site string) (gitdiff.Credentials, error) {
			got = site
			return gitdiff.Credentials{}, errors.New("that is all")
		}})
		_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: address, To: someCommit})
		assert.ErrorContains(t, err, "that is all")
		assert.Equal(t, want, got, address)
	}
}

// Wherever a server redirects to, and whatever it looks like, nothing but the
// site itself is shown the credentials.
func TestCredentialsStayWithTheirSite(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	h := &history{}
	twoCommits(h)
	h.into(r)
	var mu sync.Mutex
	seen := map[string][]string{} // by host: the Authorization headers
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		seen[req.Host] = append(seen[req.Host], req.Header.Get("Authorization"))
		mu.Unlock()
		from, to, ok := strings.Cut(req.URL.Path, "/to/")
		if from != "" || !ok {
			backend(t, r.dir[:strings.LastIndex(r.dir, "/")]).ServeHTTP(w, req)
			return
		}
		target, _ := url.PathUnescape(to)
		target = strings.TrimSuffix(strings.TrimSuffix(target, "/info/refs"), "/git-upload-pack")
		suffix := "/info/refs?service=git-upload-pack"
		if strings.HasSuffix(req.URL.Path, "/git-upload-pack") {
			suffix = "/git-upload-pack"
		}
		http.Redirect(w, req, strings.NewReplacer("|", "/", "~", "@", "!", "#").Replace(target)+suffix, http.StatusFound)
	})
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	// All names are this server, so that it sees what each of them is sent.
	transport := &everyHostIs{address: strings.TrimPrefix(server.URL, "http://")}
	var asked []string
	d := newDiffer(t, gitdiff.Options{
		RoundTripper: transport,
		Credentials: func(_ context.Context, site string) (gitdiff.Credentials, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, site)
			if site == "http://git.example.com" {
				return gitdiff.Credentials{Username: "bot", Password: "s3cr3t-tok"}, nil
			}
			return gitdiff.Credentials{}, nil
		},
	})
	to := func(target string) string {
		return "http://git.example.com/to/" + strings.NewReplacer("/", "|", "@", "~", "#", "!").Replace(target)
	}
	diff := func(address string) error {
		_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: address, To: r.rev("main")})
		return err
	}
	require.NoError(t, diff("http://git.example.com/repo.git"))
	assert.NotEmpty(t, seen["git.example.com"])
	for _, authorization := range seen["git.example.com"] {
		assert.Equal(t, basic("bot", "s3cr3t-tok"), authorization)
	}
	// A repository that was renamed.
	require.NoError(t, diff(to("/repo.git")))

	for _, host := range []string{
		"evil.example.com", "sub.git.example.com", "git.example.com.evil.com", "xgit.example.com", "git.example.com:" + port,
		"git.example.com:8080", "git.example.com@evil.com", "evil.com#git.example.com", "127.0.0.1:" + port,
	} {
		err := diff(to("http://" + host + "/repo.git"))
		assert.ErrorIs(t, err, gitopsprovider.ErrRepositoryNotAllowed, host)
		assertNoSecret(t, err, "s3cr3t-tok")
	}
	assert.ErrorContains(t, diff(to("http://evil.example.com/repo.git")), "the server redirects to http://evil.example.com, which is not followed: name that address")
	for _, host := range []string{"sub.git.example.com", "git.example.com.evil.com", "xgit.example.com", "git.example.com:8080"} {
		require.NoError(t, diff("http://"+host+"/repo.git"))
	}
	mu.Lock()
	defer mu.Unlock()
	for host, headers := range seen {
		if host == "git.example.com" {
			continue
		}
		for _, authorization := range headers {
			assert.Empty(t, authorization, host)
		}
	}
	assert.NotContains(t, seen, "evil.example.com", "it was not even asked")
}

type everyHostIs struct{ address string }

func (e *everyHostIs) RoundTrip(req *http.Request) (*http.Response, error) {
	clone := req.Clone(req.Context())
	clone.Host = req.URL.Host
	clone.URL.Host = e.address
	clone.URL.Scheme = "http"
	return http.DefaultTransport.RoundTrip(clone)
}

func TestOddRedirectsAreRefused(t *testing.T) {
	t.Parallel()
	redirect := func(target string) func(http.Handler) http.Handler {
		return always(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target, http.StatusFound) })
	}
	for name, test := range map[string]struct {
		wrapper func(http.Handler) http.Handler
		want    error
	}{
		"to a login":       {redirect("/login"), gitopsprovider.ErrCredentials},
		"to itself":        {always(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.String(), http.StatusFound) }), gitopsprovider.ErrServerNotSupported},
		"to a file":        {redirect("file:///etc/info/refs"), gitopsprovider.ErrRepositoryNotAllowed},
		"to an odd scheme": {redirect("gopher://x/info/refs"), gitopsprovider.ErrRepositoryNotAllowed},
		"of a request for objects": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
					return
				}
				next.ServeHTTP(w, r)
			})
		}, gitopsprovider.ErrServerNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, gitdiff.Options{}, twoCommits)
			s.server = serve(t, s.repo, test.wrapper)
			_, err := s.diff("", "main", "")
			assert.ErrorIs(t, err, test.want)
		})
	}
}

// Azure DevOps answers 400 to clients that do not ask for multi_ack.
func TestAServerMayInsistOnMultiAck(t *testing.T) {
	t.Parallel()
	for _, ability := range []string{"multi_ack", "multi_ack_detailed"} {
		t.Run(ability, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := newScenario(t, gitdiff.Options{Dir: dir}, func(h *history) {
				last := h.commit("main", "root")
				for i := range 100 {
					last = h.commit("main", "next", last)
					h.text("a.yaml", fmt.Sprint(i))
				}
			})
			s.server = serve(t, s.repo, insist(ability))
			assert.Len(t, s.mustDiff("", "main~50", "").Files, 1)
			assert.Len(t, s.mustDiff("", "main", "").Files, 1, "a second fetch, which says what is here")
			h, err := s.differ.History(t.Context(), gitopsprovider.HistoryQuery{Repository: s.server.url, Revision: s.rev("main")})
			require.NoError(t, err)
			assert.Equal(t, 100, len(h.Commits)) //nolint:testifylint // Len prints them all
		})
	}
	t.Run("of a kind that we do not know", func(t *testing.T) {
		t.Parallel()
		s := newScenario(t, gitdiff.Options{}, twoCommits)
		s.server = serve(t, s.repo, insist("multi_ack_v9"))
		_, err := s.diff("", "main", "")
		assert.ErrorIs(t, err, gitopsprovider.ErrServerNotSupported)
	})
}

// go-git keeps what every client of the process announces, and speaks, in global
// variables.
func TestNothingOfTheProcessIsChanged(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []capability.Capability{capability.MultiACK, capability.MultiACKDetailed, capability.ThinPack}, transport.UnsupportedCapabilities)
	assert.Same(t, githttp.DefaultClient, client.Protocols["https"])
	assert.Same(t, githttp.DefaultClient, client.Protocols["http"])
	assert.Equal(t, 5, len(client.Protocols)) //nolint:testifylint // Len prints them all
}

// insist answers 400 to a request that does not ask for an ability, the only one
// of its kind that the server announces.
func insist(ability string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				recorder := httptest.NewRecorder()
				next.ServeHTTP(recorder, r)
				// Of the same length, so that the line's length stays right.
				body := recorder.Body.String()
				if ability == "multi_ack" {
					body = strings.Replace(body, " multi_ack_detailed", " multi_xxx_detailed", 1)
				}
				advertise(w, body)
				return
			}
			body, _ := io.ReadAll(r.Body)
			line, _, _ := strings.Cut(string(body), "\n")
			if !strings.Contains(line+" ", " "+ability+" ") {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			next.ServeHTTP(w, r)
		})
	}
}
