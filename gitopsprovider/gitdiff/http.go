package gitdiff

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const infoRefs = "/info/refs"

// httpRemote speaks Git's smart HTTP protocol. go-git's own client hides the
// abilities that transport.UnsupportedCapabilities lists, for the whole process,
// and cannot read the answer of a server that insists on multi_ack.
type httpRemote struct {
	client      *http.Client
	base        *url.URL // without user info, ever: net/http prints it in errors
	credentials Credentials
	budget      *budget
	adv         *packp.AdvRefs
}

func newHTTPRemote(l *location, c Credentials, b *budget, rt http.RoundTripper) *httpRemote {
	r := &httpRemote{base: l.url, credentials: c, budget: b}
	r.client = &http.Client{Transport: rt, CheckRedirect: r.checkRedirect}
	return r
}

// errRedirect is a redirect that is not followed.
var errRedirect = errors.New("redirect refused")

// checkRedirect follows a redirect of the first request to the same host, where
// servers say that a repository was renamed, or that they prefer HTTPS. net/http
// carries the Authorization header there. Any other host gets nothing: it is not
// what was asked for, and may be inside of a network that the asker is not.
func (r *httpRemote) checkRedirect(req *http.Request, via []*http.Request) error {
	from, to := via[0].URL, req.URL
	switch {
	case via[0].Method != http.MethodGet:
		return fmt.Errorf("the server redirects a request for objects: %w: %w", errRedirect, gitopsprovider.ErrServerNotSupported)
	case len(via) > 5:
		return fmt.Errorf("the server redirects too often: %w: %w", errRedirect, gitopsprovider.ErrServerNotSupported)
	case !sameServer(from, to):
		return fmt.Errorf("the server redirects to %s://%s, which is not followed: name that address: %w: %w", to.Scheme, to.Host, errRedirect, gitopsprovider.ErrRepositoryNotAllowed)
	case !strings.HasSuffix(to.Path, infoRefs):
		return fmt.Errorf("the server redirects to something else than a repository, perhaps to a login: %w: %w", errRedirect, gitopsprovider.ErrCredentials)
	}
	to.User = nil
	req.Header.Del("Referer")
	// Not taken from the response: a RoundTripper may have asked somebody else.
	r.base = &url.URL{Scheme: to.Scheme, Host: to.Host, Path: strings.TrimSuffix(to.Path, infoRefs), RawPath: strings.TrimSuffix(to.RawPath, infoRefs)}
	return nil
}

// sameServer reports whether two URLs are of one origin, or the second is the
// first one's over HTTPS.
func sameServer(from, to *url.URL) bool {
	if !strings.EqualFold(from.Hostname(), to.Hostname()) {
		return false
	}
	if from.Scheme == to.Scheme {
		return port(from) == port(to)
	}
	return from.Scheme == "http" && to.Scheme == "https" && port(from) == "80" && port(to) == "443"
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

func (r *httpRemote) advertised(ctx context.Context) (*packp.AdvRefs, error) {
	if r.adv != nil {
		return r.adv, nil
	}
	response, err := r.do(ctx, http.MethodGet, infoRefs, url.Values{"service": {uploadPack}}, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Content-Type"); got != "application/x-"+uploadPack+"-advertisement" {
		return nil, fmt.Errorf("the answer is not in Git's smart protocol, but of the type %s: %w", said(got), gitopsprovider.ErrServerNotSupported)
	}
	adv, err := readAdvertised(r.budget.reader(response.Body))
	if err != nil {
		return nil, err
	}
	r.adv = adv
	return adv, nil
}

func (r *httpRemote) request(ctx context.Context, body []byte) (io.ReadCloser, error) {
	response, err := r.do(ctx, http.MethodPost, "/"+uploadPack, nil, body) //nolint:bodyclose // the caller closes it
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r.budget.reader(response.Body), response.Body}, nil
}

func (r *httpRemote) close() {}

// do sends a request and returns its answer, if that is 200.
func (r *httpRemote) do(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	u := *r.base
	u.Path += path
	if u.RawPath != "" {
		u.RawPath += path
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address makes no request")
	}
	req.Header.Set("User-Agent", capability.DefaultAgent())
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-"+uploadPack+"-request")
		req.Header.Set("Accept", "application/x-"+uploadPack+"-result")
	}
	switch c := r.credentials; {
	case c.BearerToken != "":
		req.Header.Set("Authorization", "Bearer "+c.BearerToken)
	case c.Username != "" || c.Password != "":
		req.SetBasicAuth(c.Username, c.Password)
	}
	response, err := r.client.Do(req)
	if err != nil {
		var inURL *url.Error
		if errors.As(err, &inURL) && errors.Is(err, errRedirect) {
			err = inURL.Err // the URL is the server's choice
		}
		return nil, ofContext(ctx, err)
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, r.statusError(response)
	}
	return response, nil
}

func (r *httpRemote) statusError(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		if r.credentials.isZero() {
			return fmt.Errorf("the server asks for credentials (%d), and there are none: %w", response.StatusCode, gitopsprovider.ErrCredentials)
		}
		return fmt.Errorf("the server refuses the credentials (%d): %w", response.StatusCode, gitopsprovider.ErrCredentials)
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("the server answers %d: %w", response.StatusCode, gitopsprovider.ErrRepositoryNotFound)
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusUnsupportedMediaType:
		return fmt.Errorf("the server answers %d to a request in Git's protocol: %w", response.StatusCode, gitopsprovider.ErrServerNotSupported)
	}
	return fmt.Errorf("the server answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
}
