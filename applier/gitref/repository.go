package gitref

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// defaultPorts holds the transports that Git speaks over a network.
var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22", "git": "9418"}

// SameRepository reports whether two addresses name one repository, as
// [Normalize] understands them. An address that Normalize refuses is the same
// as its identical spelling only. The relation is an equivalence: reflexive,
// symmetric and transitive.
func SameRepository(a, b string) bool {
	if a == b {
		return true
	}
	keyA, errA := Normalize(a)
	keyB, errB := Normalize(b)
	return errA == nil && errB == nil && keyA == keyB
}

// Normalize returns the name under which a repository is compared: equal for
// two addresses exactly if both name one repository. It is itself an address
// that normalizes to itself, and holds no user info. Use it as a key, not to
// fetch from: it says https://host/path for every transport on its default
// port, scheme://host:port/path for any other port, and file:///path for a
// local one.
//
// It reads URLs (https, http, ssh, git, file; git+ssh and others are refused),
// scp-like addresses ([user@]host:path) and absolute local paths, and ignores
//
//   - user info,
//   - the case of scheme and host, and the spelling of an IP address,
//   - a trailing .git,
//   - leading, trailing and doubled slashes, "." and "..",
//   - percent-encoding that changes nothing (%41 is A, but %2F is not a slash).
//
// So host:path and ssh://host/path are the same, as on every hosting service;
// on a bare SSH server, the first starts at the user's home and the second at
// the root.
//
// It refuses, with an error that holds the redacted address,
//
//   - relative paths, and host:5000/name without a user, which is the address
//     of an image in a registry,
//   - a query or a fragment, and an '@' in the path, which could be the end of
//     a password that was not escaped,
//   - anything without a host or a path, with a host in non-ASCII letters (write
//     its xn-- form), or that is no URL at all.
func Normalize(address string) (string, error) {
	site, segments, err := split(address)
	if err == nil {
		var p string
		if p, err = joinPath(segments); err == nil {
			return site + p, nil
		}
	}
	return "", fmt.Errorf("%q is not the address of a Git repository: %w", Redact(address), err)
}

// split divides an address into where the repository is served, such as
// https://git.example.com, and the decoded segments of its path. Its errors
// hold nothing of the address, which may be a secret.
func split(address string) (site string, segments []string, err error) {
	if strings.Contains(address, "://") {
		return splitURL(address)
	}
	if strings.HasPrefix(address, "/") {
		return "file://", strings.Split(address, "/"), nil
	}
	return splitSCP(address)
}

func splitURL(address string) (site string, segments []string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", nil, errors.New("it is not a valid URL")
	}
	if strings.ContainsAny(address, "?#") {
		return "", nil, errors.New("it has a query or a fragment")
	}
	if site, err = siteOf(u.Scheme, u.Hostname(), u.Port()); err != nil {
		return "", nil, err
	}
	// EscapedPath keeps %2F apart from the slashes between segments.
	segments = strings.Split(u.EscapedPath(), "/")
	for i, s := range segments {
		if segments[i], err = url.PathUnescape(s); err != nil {
			return "", nil, errors.New("its path is not validly escaped")
		}
	}
	return site, segments, nil
}

// splitSCP reads [user@]host:path. As in Git, nothing in it is
// percent-encoded, and what follows the colon is never a port.
func splitSCP(address string) (site string, segments []string, err error) {
	at := strings.LastIndexByte(address, '@')
	if strings.ContainsAny(address[:at+1], ":/") {
		return "", nil, errors.New("its '@' does not end a user's name")
	}
	host, p, ok := strings.Cut(address[at+1:], ":")
	if bracketed, isIPv6 := strings.CutPrefix(address[at+1:], "["); isIPv6 {
		host, p, ok = strings.Cut(bracketed, "]:")
	}
	if !ok || strings.Contains(host, "/") {
		return "", nil, errors.New("it is neither a URL, nor host:path, nor an absolute path")
	}
	segments = strings.Split(p, "/")
	if at < 0 && segments[0] != "" && strings.Trim(segments[0], "0123456789") == "" {
		return "", nil, errors.New("host:port/name is the address of an image; put a scheme before it")
	}
	site, err = siteOf("ssh", host, "")
	return site, segments, err
}

// siteOf returns the part of a name that comes before the path.
func siteOf(scheme, host, port string) (string, error) {
	if scheme == "file" {
		if port != "" || host != "" && host != "localhost" {
			return "", errors.New("a file URL names no host")
		}
		return "file://", nil
	}
	defaultPort, ok := defaultPorts[scheme]
	if !ok {
		return "", errors.New("its scheme is none of https, http, ssh, git and file")
	}
	host, err := normalizeHost(host)
	if err != nil {
		return "", err
	}
	if port == "" {
		port = defaultPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", errors.New("its port is out of range")
	}
	if port = strconv.FormatUint(n, 10); port == defaultPort {
		return "https://" + host, nil
	}
	return scheme + "://" + host + ":" + port, nil
}

// normalizeHost returns a host name in lower case, and an IP address in its
// canonical form, in brackets if it needs them.
func normalizeHost(host string) (string, error) {
	host = strings.ToLower(host)
	if host == "" {
		return "", errors.New("it has no host")
	}
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		if err != nil || addr.Zone() != "" {
			return "", errors.New("its host is not an IPv6 address without a zone")
		}
		return "[" + addr.String() + "]", nil
	}
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return "", errors.New("its host holds more than ASCII letters, digits, '.', '-' and '_'")
	}
	return host, nil
}

// joinPath returns the path in its one spelling.
func joinPath(segments []string) (string, error) {
	escaped := make([]string, len(segments))
	for i, s := range segments {
		escaped[i] = url.PathEscape(s)
	}
	p := path.Clean("/" + strings.Join(escaped, "/"))
	for strings.HasSuffix(p, ".git") {
		p = path.Clean(strings.TrimSuffix(p, ".git"))
	}
	if p == "/" {
		return "", errors.New("it has no path")
	}
	if strings.Contains(p, "@") {
		return "", errors.New("its path holds an '@'")
	}
	return p, nil
}
