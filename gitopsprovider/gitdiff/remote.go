package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const uploadPack = "git-upload-pack"

// remote speaks to git-upload-pack of one repository. One call uses it, from one
// goroutine.
type remote interface {
	// advertised returns the refs and the abilities of the server.
	advertised(ctx context.Context) (*packp.AdvRefs, error)

	// request sends one request, and returns what the server answers, which the
	// caller closes.
	request(ctx context.Context, body []byte) (io.ReadCloser, error)

	// close ends the connection.
	close()
}

// connect returns the remote of a location, without reaching for it yet, and the
// secrets that no error may hold.
func (d *Differ) connect(ctx context.Context, l *location, b *budget) (remote, []string, error) {
	credentials, err := d.credentials(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	secrets := credentials.secrets(l)
	if l.scheme == "ssh" {
		return newSSHRemote(l, credentials, b, d.cache.dir), secrets, nil
	}
	return newHTTPRemote(l, credentials, b, d.roundTripper), secrets, nil
}

// credentials are the host's for the site, or else those of the address.
func (d *Differ) credentials(ctx context.Context, l *location) (Credentials, error) {
	var c Credentials
	if d.options.Credentials != nil {
		var err error
		if c, err = d.options.Credentials(ctx, l.site()); err != nil {
			return Credentials{}, fmt.Errorf("getting the credentials of %s: %w", l.site(), err)
		}
	}
	password, hasPassword := l.user.Password()
	if c.isZero() && (hasPassword || l.scheme != "ssh") {
		c.Username, c.Password = l.user.Username(), password
	}
	return c, nil
}

// secrets lists what no error may hold, the longest first.
func (c Credentials) secrets(l *location) []string {
	var list []string
	add := func(username, password string) {
		if password != "" {
			list = append(list, username+":"+password, password)
		} else if l.scheme != "ssh" && username != "" {
			list = append(list, username+":", username) // a token
		}
	}
	add(c.Username, c.Password)
	if password, _ := l.user.Password(); l.user != nil {
		add(l.user.Username(), password)
	}
	for _, secret := range []string{c.BearerToken, c.Passphrase, strings.TrimSpace(string(c.PrivateKey))} {
		if secret != "" {
			list = append(list, secret)
		}
	}
	return list
}

// budget is how many bytes a call may still receive. The connections of a call
// share it.
type budget struct {
	left atomic.Int64
	all  int64
}

func newBudget(bytes int64) *budget {
	b := &budget{all: bytes}
	b.left.Store(bytes)
	return b
}

// err says that the budget is spent, if it is. Not every connection passes on
// the error of a read.
func (b *budget) err() error {
	if b.left.Load() > 0 {
		return nil
	}
	return fmt.Errorf("the server sent more than %d bytes: %w", b.all, gitopsprovider.ErrLimit)
}

// reader counts what is read against the budget.
func (b *budget) reader(r io.Reader) io.Reader { return &budgetReader{r, b} }

type budgetReader struct {
	r io.Reader
	b *budget
}

func (r *budgetReader) Read(p []byte) (int, error) {
	if err := r.b.err(); err != nil {
		return 0, err
	}
	if left := r.b.left.Load(); int64(len(p)) > left {
		p = p[:left]
	}
	n, err := r.r.Read(p)
	r.b.left.Add(-int64(n))
	return n, err
}

// mostRefBytes bounds the list of refs, which is kept in memory.
const mostRefBytes = 64 << 20

// readAdvertised decodes what a server says first.
func readAdvertised(r io.Reader) (*packp.AdvRefs, error) {
	adv := packp.NewAdvRefs()
	err := adv.Decode(newBudget(mostRefBytes).reader(r))
	var line *pktline.ErrorLine
	var unexpected *packp.ErrUnexpectedData
	switch {
	case err == nil:
		return adv, nil
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return packp.NewAdvRefs(), nil // a repository without a commit
	case errors.As(err, &line):
		return nil, refusal(line.Text)
	case errors.Is(err, gitopsprovider.ErrLimit):
		return nil, err
	case errors.As(err, &unexpected), errors.Is(err, pktline.ErrInvalidPktLen), errors.Is(err, packp.ErrEmptyInput):
		return nil, fmt.Errorf("the answer is not in Git's protocol: %w", gitopsprovider.ErrServerNotSupported)
	default:
		return nil, fmt.Errorf("reading what the server has: %w", err)
	}
}

// refusal is the error of a server that refuses to serve a repository, in its
// own words.
func refusal(words string) error {
	lower := strings.ToLower(words)
	for _, hint := range []string{"not found", "no such repo", "does not exist", "not a git repository", "not appear to be a git repository", "could not be found"} {
		if strings.Contains(lower, hint) {
			return fmt.Errorf("the server says %s: %w", said(words), gitopsprovider.ErrRepositoryNotFound)
		}
	}
	for _, hint := range []string{"access denied", "permission", "unauthorized", "authentication", "not authorized", "forbidden"} {
		if strings.Contains(lower, hint) {
			return fmt.Errorf("the server says %s: %w", said(words), gitopsprovider.ErrCredentials)
		}
	}
	return fmt.Errorf("the server says %s", said(words))
}
