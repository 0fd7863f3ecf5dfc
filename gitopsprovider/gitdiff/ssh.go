package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// sshRemote runs git-upload-pack over SSH, anew for each request. Unlike go-git's
// it reads no file of the user's (~/.ssh/config, known_hosts, the agent), and
// ends when its context does.
type sshRemote struct {
	location    *location
	credentials Credentials
	budget      *budget
	tempDir     string

	conversation *sshConversation // the one that waits for a request, if any
}

// sshConversation is one git-upload-pack that runs.
type sshConversation struct {
	client *ssh.Client
	stdin  io.WriteCloser
	stdout io.Reader
	stderr *head
	adv    *packp.AdvRefs
	stop   func() bool // stops closing the connection when ctx ends
}

func newSSHRemote(l *location, c Credentials, b *budget, tempDir string) *sshRemote {
	return &sshRemote{location: l, credentials: c, budget: b, tempDir: tempDir}
}

func (r *sshRemote) advertised(ctx context.Context) (*packp.AdvRefs, error) {
	if r.conversation == nil {
		c, err := r.start(ctx)
		if err != nil {
			if spent := r.budget.err(); spent != nil {
				err = spent // a connection that was cut for it does not say so
			}
			return nil, ofContext(ctx, err)
		}
		r.conversation = c
	}
	return r.conversation.adv, nil
}

func (r *sshRemote) request(ctx context.Context, body []byte) (io.ReadCloser, error) {
	if _, err := r.advertised(ctx); err != nil {
		return nil, err
	}
	c := r.conversation
	r.conversation = nil // it takes one request
	if _, err := c.stdin.Write(body); err != nil {
		c.close()
		return nil, ofContext(ctx, fmt.Errorf("sending the request: %w", err))
	}
	return c, nil
}

func (r *sshRemote) close() {
	if r.conversation != nil {
		r.conversation.close()
	}
}

// start connects, authenticates, runs git-upload-pack and reads what it says
// first.
func (r *sshRemote) start(ctx context.Context) (*sshConversation, error) {
	address := r.location.host
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "22")
	}
	config, err := r.config(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	sshConn, channels, requests, err := ssh.NewClientConn(&budgetConn{conn, r.budget.reader(conn)}, address, config)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, handshakeError(err)
	}
	c := &sshConversation{client: ssh.NewClient(sshConn, channels, requests), stderr: &head{}, stop: stop}
	if err := c.run(r.location.path); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (r *sshRemote) config(address string) (*ssh.ClientConfig, error) {
	if len(r.credentials.KnownHosts) == 0 {
		return nil, fmt.Errorf("no keys of the SSH server are known: Credentials.KnownHosts is needed for %s: %w", r.location.site(), gitopsprovider.ErrCredentials)
	}
	verify, algorithms, err := hostKeys(r.credentials.KnownHosts, address, r.tempDir)
	if err != nil {
		return nil, err
	}
	user := r.location.user.Username()
	if user == "" {
		user = r.credentials.Username
	}
	if user == "" {
		user = "git"
	}
	config := &ssh.ClientConfig{User: user, HostKeyCallback: verify, HostKeyAlgorithms: algorithms}
	if len(r.credentials.PrivateKey) > 0 {
		signer, err := parseKey(r.credentials)
		if err != nil {
			return nil, err
		}
		config.Auth = append(config.Auth, ssh.PublicKeys(signer))
	}
	if r.credentials.Password != "" {
		config.Auth = append(config.Auth, ssh.Password(r.credentials.Password))
	}
	return config, nil
}

// parseKey reads the private key. What is wrong with it is not said in the
// parser's words, which might quote it.
func parseKey(c Credentials) (ssh.Signer, error) {
	var signer ssh.Signer
	var err error
	if c.Passphrase != "" {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(c.PrivateKey, []byte(c.Passphrase))
	} else {
		signer, err = ssh.ParsePrivateKey(c.PrivateKey)
	}
	if err != nil {
		return nil, fmt.Errorf("the private key cannot be read, or its passphrase is wrong: %w", gitopsprovider.ErrCredentials)
	}
	return signer, nil
}

// hostKeys returns what verifies the key of a server, and the kinds of keys that
// are known of it. A server that has several sends one of the kinds it is asked
// for, so only those are asked for.
func hostKeys(known []byte, address, tempDir string) (ssh.HostKeyCallback, []string, error) {
	file, err := os.CreateTemp(tempDir, "removed-known-hosts-") // knownhosts reads files alone
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(known)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, nil, err
	}
	verify, err := knownhosts.New(file.Name())
	if err != nil {
		return nil, nil, fmt.Errorf("the known hosts cannot be read: %w", gitopsprovider.ErrCredentials)
	}
	var mismatch *knownhosts.KeyError
	var algorithms []string
	if errors.As(verify(address, &net.TCPAddr{IP: net.IPv4zero}, noKey{}), &mismatch) {
		for _, k := range mismatch.Want {
			if k.Key.Type() == ssh.KeyAlgoRSA { // as a name of a signature, that is SHA-1
				algorithms = append(algorithms, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256)
				continue
			}
			algorithms = append(algorithms, k.Key.Type())
		}
	}
	if len(algorithms) == 0 {
		return nil, nil, fmt.Errorf("the known hosts do not name %s: %w", address, gitopsprovider.ErrCredentials)
	}
	return verify, algorithms, nil
}

// noKey is a key that no server has.
type noKey struct{}

func (noKey) Type() string                        { return "none" }
func (noKey) Marshal() []byte                     { return nil }
func (noKey) Verify([]byte, *ssh.Signature) error { return errors.New("not a key") }

func handshakeError(err error) error {
	var mismatch *knownhosts.KeyError
	switch {
	case errors.As(err, &mismatch):
		return fmt.Errorf("the SSH server shows another key than is known of it: %w", gitopsprovider.ErrCredentials)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("the SSH server refuses the credentials: %w", gitopsprovider.ErrCredentials)
	}
	return fmt.Errorf("connecting by SSH: %w", err)
}

func (c *sshConversation) run(path string) error {
	session, err := c.client.NewSession()
	if err != nil {
		return fmt.Errorf("opening an SSH session: %w", err)
	}
	session.Stderr = c.stderr
	if c.stdin, err = session.StdinPipe(); err != nil {
		return err
	}
	if c.stdout, err = session.StdoutPipe(); err != nil {
		return err
	}
	if err := session.Start(uploadPack + " " + shellQuote(path)); err != nil {
		return fmt.Errorf("the SSH server does not run %s: %w: %w", uploadPack, err, gitopsprovider.ErrServerNotSupported)
	}
	if c.adv, err = readAdvertised(c.stdout); err != nil {
		waitForWords(session)
		if words := c.stderr.String(); words != "" && !errors.Is(err, gitopsprovider.ErrLimit) {
			return refusal(words)
		}
	}
	return err
}

// waitForWords lets a command that failed say why.
func waitForWords(session *ssh.Session) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = session.Wait() // it ends with the connection at the latest
	}()
	select {
	case <-ended:
	case <-time.After(time.Second):
	}
}

func (c *sshConversation) Read(p []byte) (int, error) { return c.stdout.Read(p) }

func (c *sshConversation) Close() error {
	c.close()
	return nil
}

func (c *sshConversation) close() {
	c.stop()
	_ = c.client.Close()
}

// shellQuote writes a word for the shell at the other end.
func shellQuote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// budgetConn counts what a connection receives.
type budgetConn struct {
	net.Conn
	r io.Reader
}

func (c *budgetConn) Read(p []byte) (int, error) { return c.r.Read(p) }

// head keeps the beginning of what is written to it.
type head struct {
	mu   sync.Mutex
	text []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), 1024-len(h.text))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
