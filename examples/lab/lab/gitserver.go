package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// gitServer serves the bare repositories of one folder over HTTP, for reading
// and for pushing, by git's own http-backend.
type gitServer struct {
	git    string // path of the executable
	dir    string
	url    string
	server *http.Server
}

func newGitServer(dir string) (*gitServer, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return nil, fmt.Errorf("the lab serves repositories with git, and finds none; "+
			"install git 2.29 or later (Debian: apt-get install git) and put it on PATH: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &gitServer{git: git, dir: dir}
	if err := s.checkBackend(); err != nil {
		return nil, err
	}
	// The port stays ours for as long as the listener, so any will do.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the lab's Git server cannot listen on 127.0.0.1: %w", err)
	}
	s.url = "http://" + listener.Addr().String()
	s.server = &http.Server{Handler: &cgi.Handler{
		Path: git,
		Args: []string{"http-backend"},
		Env: append(gitSettings(dir),
			"GIT_PROJECT_ROOT="+dir,
			"GIT_HTTP_EXPORT_ALL=1",
		),
		Stderr: io.Discard,
	}}
	go s.server.Serve(listener)
	return s, nil
}

// checkBackend finds out at the start what would be a 500 at the first fetch.
func (s *gitServer) checkBackend() error {
	out, err := exec.Command(s.git, "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("run %s --exec-path: %w", s.git, err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		return fmt.Errorf("the lab serves repositories with git http-backend, and this git has none; "+
			"install the whole of git: %w", err)
	}
	return nil
}

func (s *gitServer) close() error { return s.server.Close() }

// gitSettings keep the user's and the machine's Git configuration out.
func gitSettings(home string) []string {
	return []string{
		"HOME=" + home,
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=lab", "GIT_AUTHOR_EMAIL=lab@localhost",
		"GIT_COMMITTER_NAME=lab", "GIT_COMMITTER_EMAIL=lab@localhost",
	}
}

// run runs git on a repository and returns what it printed, without the final
// newline.
func (s *gitServer) run(ctx context.Context, repository string, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.git, args...)
	cmd.Dir = repository
	cmd.Env = append(gitSettings(s.dir), "PATH="+os.Getenv("PATH"))
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), filepath.Base(repository), err,
			strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
