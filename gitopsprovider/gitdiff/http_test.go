package gitdiff_test

import (
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// gitServer serves repositories by Git's own http-backend, and counts.
type gitServer struct {
	url      string
	requests atomic.Int64
	received atomic.Int64 // by the client
}

// serve serves the folder that a repository is in. Each wrapper sees the requests
// before Git does.
func serve(t testing.TB, r *repo, wrappers ...func(http.Handler) http.Handler) *gitServer {
	t.Helper()
	s := &gitServer{}
	handler := backend(t, filepath.Dir(r.dir))
	for _, wrap := range wrappers {
		handler = wrap(handler)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.requests.Add(1)
		handler.ServeHTTP(&countingWriter{w, &s.received}, req)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/" + filepath.Base(r.dir)
	return s
}

func backend(t testing.TB, root string) http.Handler {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	require.NoError(t, err, "the tests need git")
	path := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	_, err = os.Stat(path)
	require.NoError(t, err, "the tests need git-http-backend")
	return &cgi.Handler{
		Path:   path,
		Stderr: io.Discard,
		Env:    []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"},
	}
}

type countingWriter struct {
	http.ResponseWriter
	bytes *atomic.Int64
}

func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.bytes.Add(int64(n))
	return n, err
}

// Flush implements http.Flusher.
func (w *countingWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// blockPosts tells that a first request for objects came, and lets it pass once
// released.
func blockPosts(blocked chan<- struct{}, release <-chan struct{}) func(http.Handler) http.Handler {
	var once sync.Once
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				once.Do(func() { close(blocked) })
				<-release
			}
			next.ServeHTTP(w, r)
		})
	}
}
