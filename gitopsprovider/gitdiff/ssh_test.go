package gitdiff_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// sshServer runs git-upload-pack for whoever knows the key, or the password.
type sshServer struct {
	address  string
	hostKey  ssh.Signer
	commands []string
	users    []string
	mu       sync.Mutex
	stopped  chan struct{}
	behave   func(channel ssh.Channel) bool // instead of Git, if it says so
}

func newKey(t testing.TB, passphrase string) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	var block *pem.Block
	if passphrase == "" {
		block, err = ssh.MarshalPrivateKey(private, "")
	} else {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	require.NoError(t, err)
	return signer, pem.EncodeToMemory(block)
}

func serveSSH(t testing.TB, root string, key ssh.PublicKey, password string) *sshServer {
	t.Helper()
	hostKey, _ := newKey(t, "")
	s := &sshServer{hostKey: hostKey, stopped: make(chan struct{})}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, got ssh.PublicKey) (*ssh.Permissions, error) {
			if string(got.Marshal()) != string(key.Marshal()) {
				return nil, errors.New("another key")
			}
			return nil, nil
		},
		PasswordCallback: func(_ ssh.ConnMetadata, got []byte) (*ssh.Permissions, error) {
			if password == "" || string(got) != password {
				return nil, errors.New("another password")
			}
			return nil, nil
		},
	}
	config.AddHostKey(hostKey)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.address = listener.Addr().String()
	t.Cleanup(func() {
		_ = listener.Close()
		close(s.stopped)
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn, config, root)
		}
	}()
	return s
}

func (s *sshServer) serve(conn net.Conn, config *ssh.ServerConfig, root string) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	s.mu.Lock()
	s.users = append(s.users, server.User())
	s.mu.Unlock()
	go ssh.DiscardRequests(requests)
	for newChannel := range channels {
		channel, requests, err := newChannel.Accept()
		if err != nil {
			return
		}
		for request := range requests {
			var payload struct{ Command string }
			if request.Type != "exec" || ssh.Unmarshal(request.Payload, &payload) != nil {
				_ = request.Reply(false, nil)
				continue
			}
			_ = request.Reply(true, nil)
			s.mu.Lock()
			s.commands = append(s.commands, payload.Command)
			s.mu.Unlock()
			if s.behave != nil && s.behave(channel) {
				continue
			}
			cmd := exec.CommandContext(context.Background(), "sh", "-c", payload.Command)
			cmd.Dir = root
			cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
			stdin, err := cmd.StdinPipe() // unlike cmd.Stdin, it is not waited for
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(stdin, channel) }()
			status := []byte{0, 0, 0, 0}
			if cmd.Run() != nil {
				status[3] = 1
			}
			_, _ = channel.SendRequest("exit-status", false, status)
			_ = channel.Close()
		}
	}
}

func (s *sshServer) knownHosts() []byte {
	host, port, _ := net.SplitHostPort(s.address)
	return []byte("[" + host + "]:" + port + " " + string(ssh.MarshalAuthorizedKey(s.hostKey.PublicKey())))
}

func TestSSH(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t, "")
	withPassphrase, encrypted := newKey(t, "open s3same")
	_, otherKey := newKey(t, "")
	r := newRepo(t)
	h := &history{}
	twoCommits(h)
	h.into(r)
	root := filepath.Dir(r.dir)
	require.NoError(t, exec.CommandContext(t.Context(), "cp", "-r", r.dir, filepath.Join(root, "it's odd.git")).Run())
	server := serveSSH(t, root, signer.PublicKey(), "p@ss")
	server2 := serveSSH(t, root, withPassphrase.PublicKey(), "")
	good := gitdiff.Credentials{PrivateKey: key, KnownHosts: server.knownHosts()}
	url := "ssh://git@" + server.address + r.dir

	for name, test := range map[string]struct {
		url         string
		credentials gitdiff.Credentials
		want        error
		says        string
	}{
		"a key":                  {url, good, nil, ""},
		"a key with passphrase":  {"ssh://git@" + server2.address + r.dir, gitdiff.Credentials{PrivateKey: encrypted, Passphrase: "open s3same", KnownHosts: server2.knownHosts()}, nil, ""},
		"a password":             {url, gitdiff.Credentials{Password: "p@ss", KnownHosts: server.knownHosts()}, nil, ""},
		"an odd path":            {"ssh://git@" + server.address + root + "/it's%20odd.git", good, nil, ""},
		"another passphrase":     {url, gitdiff.Credentials{PrivateKey: encrypted, Passphrase: "open s3sam", KnownHosts: server.knownHosts()}, gitopsprovider.ErrCredentials, "its passphrase is wrong"},
		"not a key":              {url, gitdiff.Credentials{PrivateKey: []byte("s3cr3t"), KnownHosts: server.knownHosts()}, gitopsprovider.ErrCredentials, "private key cannot be read"},
		"another key":            {url, gitdiff.Credentials{PrivateKey: otherKey, KnownHosts: server.knownHosts()}, gitopsprovider.ErrCredentials, "refuses the credentials"},
		"another password":       {url, gitdiff.Credentials{Password: "s3cr3t", KnownHosts: server.knownHosts()}, gitopsprovider.ErrCredentials, "refuses the credentials"},
		"no known hosts":         {url, gitdiff.Credentials{PrivateKey: key}, gitopsprovider.ErrCredentials, "KnownHosts is needed"},
		"known hosts of another": {url, gitdiff.Credentials{PrivateKey: key, KnownHosts: server2.knownHosts()}, gitopsprovider.ErrCredentials, "do not name " + server.address},
		"another host's key": {url, gitdiff.Credentials{PrivateKey: key, KnownHosts: []byte(strings.Replace(string(server.knownHosts()), string(ssh.MarshalAuthorizedKey(server.hostKey.PublicKey())), string(ssh.MarshalAuthorizedKey(server2.hostKey.PublicKey())), 1))},
			gitopsprovider.ErrCredentials, "another key than is known"},
		"garbage for known hosts": {url, gitdiff.Credentials{PrivateKey: key, KnownHosts: []byte("s3cr3t")}, gitopsprovider.ErrCredentials, "known hosts"},
		"no such repository":      {"ssh://git@" + server.address + root + "/none.git", good, gitopsprovider.ErrRepositoryNotFound, "does not appear to be a git repository"},
		"a command in the path":   {"ssh://git@" + server.address + "/x'%3B%20touch%20" + root + "/pwned%3B%20'", good, gitopsprovider.ErrRepositoryNotFound, "does not appear to be a git repository"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := newDiffer(t, gitdiff.Options{Dir: dir, Credentials: func(context.Context, string) (gitdiff.Credentials, error) { return test.credentials, nil }})
			got, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: test.url, To: r.in(t).rev("main")})
			if test.want != nil {
				assert.ErrorIs(t, err, test.want)
				assert.ErrorContains(t, err, test.says)
				assertNoSecret(t, err, "s3cr3t", "open s3sam", string(otherKey))
			} else if assert.NoError(t, err) {
				assert.Equal(t, []string{"Modified a.yaml"}, summary(got))
			}
			left, err := filepath.Glob(filepath.Join(dir, "gitdiff-v1", "*known*"))
			require.NoError(t, err)
			assert.Empty(t, left)
			assert.NoFileExists(t, filepath.Join(root, "pwned"))
		})
	}
}

// Over SSH, Git refuses a commit that no ref names, unless it is told otherwise.
func TestSSHServersRefuseCommitsByTheirHash(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t, "")
	r := newRepo(t)
	h := &history{}
	last := h.commit("main", "root")
	for range 100 {
		last = h.commit("main", "next", last)
		h.text("a.yaml", last)
	}
	h.into(r)
	server := serveSSH(t, filepath.Dir(r.dir), signer.PublicKey(), "")
	d := newDiffer(t, gitdiff.Options{Credentials: func(context.Context, string) (gitdiff.Credentials, error) {
		return gitdiff.Credentials{PrivateKey: key, KnownHosts: server.knownHosts()}, nil
	}})
	got, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: "ssh://git@" + server.address + r.dir, To: r.rev("main~70")})
	require.NoError(t, err)
	assert.Equal(t, []string{"Modified a.yaml"}, summary(got))
	server.mu.Lock()
	defer server.mu.Unlock()
	assert.Equal(t, 3, len(server.commands), "by hash; the branch, 64 commits; and 1024") //nolint:testifylint
	assert.Equal(t, "git-upload-pack '"+r.dir+"'", server.commands[0])
	assert.Equal(t, "git", server.users[0])
}

func TestHostileSSHServers(t *testing.T) {
	t.Parallel()
	signer, key := newKey(t, "")
	for name, test := range map[string]struct {
		behave func(channel ssh.Channel, stopped <-chan struct{})
		limits gitdiff.Limits
		want   error
	}{
		"hangs":   {func(_ ssh.Channel, stopped <-chan struct{}) { <-stopped }, gitdiff.Limits{Time: 300 * time.Millisecond}, gitopsprovider.ErrLimit},
		"garbage": {func(c ssh.Channel, _ <-chan struct{}) { _, _ = io.WriteString(c, "garbage, and more"); _ = c.Close() }, gitdiff.Limits{}, gitopsprovider.ErrServerNotSupported},
		"nothing": {func(c ssh.Channel, _ <-chan struct{}) { _ = c.Close() }, gitdiff.Limits{}, gitopsprovider.ErrServerNotSupported},
		"without end": {func(c ssh.Channel, _ <-chan struct{}) {
			for i := 0; ; i++ {
				if _, err := io.WriteString(c, pktLine(strings.Repeat("1", 40)+" refs/heads/x\n")); err != nil {
					return
				}
			}
		}, gitdiff.Limits{FetchBytes: 1 << 20}, gitopsprovider.ErrLimit},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serveSSH(t, t.TempDir(), signer.PublicKey(), "")
			server.behave = func(channel ssh.Channel) bool {
				test.behave(channel, server.stopped)
				return true
			}
			d := newDiffer(t, gitdiff.Options{Limits: test.limits, Credentials: func(context.Context, string) (gitdiff.Credentials, error) {
				return gitdiff.Credentials{PrivateKey: key, KnownHosts: server.knownHosts()}, nil
			}})
			_, err := d.Diff(t.Context(), gitopsprovider.DiffQuery{Repository: "ssh://git@" + server.address + "/repo.git", To: someCommit})
			assert.ErrorIs(t, err, test.want)
		})
	}
}
