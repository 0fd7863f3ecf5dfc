package gitdiff

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// location says where a repository is served, and how to ask for it.
type location struct {
	address string // as it was asked for; it may hold a secret

	scheme string        // https, http, ssh or file
	user   *url.Userinfo // of the address; nil if it names none
	host   string        // with its port, if it names one
	path   string        // decoded, as the server is asked for it
	url    *url.URL      // of HTTP, without user info
	name   string        // as gitref.Normalize says
}

// parseLocation reads an address. Its errors hold none of its user info.
func parseLocation(address string, allowLocal bool) (*location, error) {
	name, err := gitref.Normalize(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gitopsprovider.ErrInvalidQuery, err)
	}
	l := &location{address: address, name: name}
	if err := l.parse(); err != nil {
		return nil, err
	}
	switch l.scheme {
	case "https", "http":
	case "ssh":
		// git-upload-pack would take it for an option.
		if strings.HasPrefix(l.path, "-") {
			return nil, fmt.Errorf("its path begins with a dash: %w", gitopsprovider.ErrInvalidQuery)
		}
	case "file":
		if !allowLocal {
			return nil, fmt.Errorf("a local path is read only with Options.AllowLocal: %w", gitopsprovider.ErrRepositoryNotAllowed)
		}
	default:
		return nil, fmt.Errorf("the scheme %s is not read, only https, http and ssh are: %w", l.scheme, gitopsprovider.ErrRepositoryNotAllowed)
	}
	return l, nil
}

func (l *location) parse() error {
	if !strings.Contains(l.address, "://") {
		if strings.HasPrefix(l.address, "/") {
			l.scheme, l.path = "file", filepath.Clean(l.address)
			return nil
		}
		return l.parseSCP()
	}
	u, err := url.Parse(l.address)
	if err != nil { // gitref.Normalize took it
		return fmt.Errorf("it is not a valid URL: %w", gitopsprovider.ErrInvalidQuery)
	}
	l.scheme, l.user, l.host, l.path = u.Scheme, u.User, strings.ToLower(u.Host), u.Path
	switch l.scheme {
	case "file":
		l.path = filepath.Clean(u.Path)
	case "ssh":
		// As Git does: /~user/ is the home of a user.
		if strings.HasPrefix(l.path, "/~") {
			l.path = l.path[1:]
		}
	default:
		l.url = &url.URL{Scheme: u.Scheme, Host: l.host, Path: strings.TrimRight(u.Path, "/"), RawPath: strings.TrimRight(u.RawPath, "/")}
	}
	return nil
}

func (l *location) parseSCP() error {
	at := strings.LastIndexByte(l.address, '@')
	if at >= 0 {
		l.user = url.User(l.address[:at])
	}
	rest := l.address[at+1:]
	host, path, ok := strings.Cut(rest, ":")
	if strings.HasPrefix(rest, "[") {
		host, path, ok = strings.Cut(rest, "]:")
		host += "]"
	}
	if !ok {
		return gitopsprovider.ErrInvalidQuery
	}
	l.scheme, l.host, l.path = "ssh", strings.ToLower(host), path
	return nil
}

// site is what Options.Credentials is asked for.
func (l *location) site() string {
	host, port, err := net.SplitHostPort(l.host)
	if err != nil {
		return l.scheme + "://" + l.host
	}
	if port == "" || port == map[string]string{"https": "443", "http": "80", "ssh": "22"}[l.scheme] {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return l.scheme + "://" + host
	}
	return l.scheme + "://" + l.host
}

// key names the folder of the cache. It is a hash, so that no address names
// anything outside of it. Names that gitref takes for one repository but that a
// bare SSH server does not, such as those below two users' homes, differ in it.
func (l *location) key() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00%s\x00", l.name, l.scheme)
	if l.scheme == "ssh" {
		fmt.Fprintf(sum, "%s\x00%s", l.user.Username(), l.path)
	}
	return hex.EncodeToString(sum.Sum(nil)[:20])
}
