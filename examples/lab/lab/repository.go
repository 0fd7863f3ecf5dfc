package lab

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Files are the contents of files by their slash-separated paths.
type Files map[string]string

// Repository is a bare Git repository that the lab serves over HTTP. It belongs
// to the test that made it. Its default branch is main, and it starts without a
// commit. It is safe for concurrent use.
type Repository struct {
	server *gitServer
	dir    string
	url    string

	mu      sync.Mutex
	commits int
}

// DefaultBranch is the branch that HEAD of a new repository names.
const DefaultBranch = "main"

// ObjectFormat is how a repository names its objects.
type ObjectFormat string

// The object formats of Git.
const (
	SHA1   ObjectFormat = "sha1"
	SHA256 ObjectFormat = "sha256"
)

var repositories atomic.Int64

// Repository makes an empty repository whose name no other has.
func (l *Lab) Repository(t testing.TB) *Repository {
	t.Helper()
	return l.RepositoryOf(t, SHA1)
}

// RepositoryOf makes an empty repository with the given object format.
func (l *Lab) RepositoryOf(t testing.TB, format ObjectFormat) *Repository {
	t.Helper()
	if l.git == nil {
		t.Fatal("this control plane has no Git server; ask for one with lab.Start")
	}
	name := fmt.Sprintf("%s-%d", slug(t.Name(), 60), repositories.Add(1))
	r, err := l.git.create(context.WithoutCancel(t.Context()), name, format)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(r.dir) })
	return r
}

// NewRepository makes an empty repository of that name. It stays until the lab
// stops.
func (l *Lab) NewRepository(ctx context.Context, name string) (*Repository, error) {
	return l.git.create(ctx, name, SHA1)
}

func (s *gitServer) create(ctx context.Context, name string, format ObjectFormat) (*Repository, error) {
	dir := filepath.Join(s.dir, name+".git")
	_, err := s.run(ctx, s.dir, nil, "init", "--quiet", "--bare",
		"--initial-branch="+DefaultBranch, "--object-format="+string(format), dir)
	if err != nil {
		return nil, err
	}
	settings := [][2]string{
		{"http.receivepack", "true"}, // anybody may push
		{"uploadpack.allowAnySHA1InWant", "true"},
		{"uploadpack.allowFilter", "true"},
		{"gc.auto", "0"},
	}
	for _, setting := range settings {
		if _, err := s.run(ctx, dir, nil, "config", setting[0], setting[1]); err != nil {
			return nil, err
		}
	}
	return &Repository{server: s, dir: dir, url: s.url + "/" + name + ".git"}, nil
}

// URL is the address for clone, fetch and push.
func (r *Repository) URL() string { return r.url }

// Commit changes files on main and returns the new commit. See CommitTo.
func (r *Repository) Commit(t testing.TB, files Files) string {
	t.Helper()
	return r.CommitTo(t, DefaultBranch, files)
}

// CommitTo writes the given files on top of what the branch holds, as one new
// commit, and returns its hash. Files that are not named stay as they are, and
// no files at all makes an empty commit. A branch that does not exist starts
// from nothing. Two commits never have the same hash.
func (r *Repository) CommitTo(t testing.TB, branch string, files Files) string {
	t.Helper()
	return r.must(t)(r.commit(t.Context(), change{branch: branch, write: files}))
}

// Remove deletes files from main by a new commit and returns its hash.
func (r *Repository) Remove(t testing.TB, paths ...string) string {
	t.Helper()
	return r.must(t)(r.commit(t.Context(), change{branch: DefaultBranch, remove: paths}))
}

// ForcePush replaces the branch by a history of one commit that holds the
// given files and nothing else, and returns its hash.
func (r *Repository) ForcePush(t testing.TB, branch string, files Files) string {
	t.Helper()
	return r.must(t)(r.commit(t.Context(), change{branch: branch, write: files, orphan: true}))
}

// Write commits files to main, for programs. See CommitTo.
func (r *Repository) Write(ctx context.Context, files Files) (string, error) {
	return r.commit(ctx, change{branch: DefaultBranch, write: files})
}

// Head returns the commit at the tip of a branch, and "" when there is no such
// branch.
func (r *Repository) Head(t testing.TB, branch string) string {
	t.Helper()
	return r.must(t)(r.head(t.Context(), branch))
}

// DeleteBranch removes a branch.
func (r *Repository) DeleteBranch(t testing.TB, branch string) {
	t.Helper()
	r.git(t, "update-ref", "-d", "refs/heads/"+branch)
}

// SetBranch points a branch at a commit, such as an earlier one, and creates
// it where needed.
func (r *Repository) SetBranch(t testing.TB, branch, commit string) {
	t.Helper()
	r.git(t, "update-ref", "refs/heads/"+branch, commit)
}

// Tag makes a lightweight tag.
func (r *Repository) Tag(t testing.TB, tag, commit string) {
	t.Helper()
	r.git(t, "update-ref", "refs/tags/"+tag, commit)
}

func (r *Repository) git(t testing.TB, args ...string) {
	t.Helper()
	r.must(t)(r.server.run(t.Context(), r.dir, nil, args...))
}

func (r *Repository) must(t testing.TB) func(string, error) string {
	return func(value string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (r *Repository) head(ctx context.Context, branch string) (string, error) {
	return r.server.run(ctx, r.dir, nil, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

// change is one commit to be made.
type change struct {
	branch string
	write  Files
	remove []string
	orphan bool // no parent and no files but those written
}

// commit makes a commit by git fast-import, which needs neither a work tree nor
// more than one process.
func (r *Repository) commit(ctx context.Context, c change) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent, err := r.head(ctx, c.branch)
	if err != nil {
		return "", err
	}
	r.commits++
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/%s\nmark :1\n", c.branch)
	fmt.Fprintf(&in, "committer lab <lab@localhost> %d +0000\n", time.Now().Unix())
	// The number keeps the hashes of equal commits of one second apart.
	data(&in, fmt.Sprintf("Change %d of %s\n", r.commits, c.branch))
	switch {
	case c.orphan:
		// Without from a commit to an existing branch continues it only in the
		// import that made it; here it starts anew.
		fmt.Fprintln(&in, "deleteall")
	case parent != "":
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	for _, path := range c.remove {
		fmt.Fprintf(&in, "D %s\n", path)
	}
	for _, path := range slices.Sorted(maps.Keys(c.write)) {
		fmt.Fprintf(&in, "M 100644 inline %s\n", path)
		data(&in, c.write[path])
	}
	fmt.Fprint(&in, "\nget-mark :1\n")
	return r.server.run(ctx, r.dir, &in, "fast-import", "--quiet", "--force", "--date-format=raw")
}

func data(to *bytes.Buffer, content string) {
	fmt.Fprintf(to, "data %d\n%s\n", len(content), content)
}

// Fetch brings all commits of another repository into this one, without
// changing a branch.
func (r *Repository) Fetch(t testing.TB, from *Repository) {
	t.Helper()
	r.git(t, "fetch", "--quiet", from.dir, "+refs/heads/*:refs/fetched/*")
}
