package fake

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// DefaultBranch is the branch that Commit writes to.
const DefaultBranch = "main"

// Files are the contents of files by their slash-separated paths.
type Files map[string]string

// A Remote holds Git repositories by their address, in memory. It is the remote of the simulated controllers, and the Differ of a
// host's views. It is safe for concurrent use.
type Remote struct {
	mu           sync.Mutex
	repositories map[string]*Repository
}

// NewRemote returns a remote without repositories.
func NewRemote() *Remote {
	return &Remote{repositories: map[string]*Repository{}}
}

// Repository returns the repository at an address, and makes it, without a commit, when it is asked for the first time.
// All spellings of an address that gitref.SameRepository holds to be the same lead to one repository.
func (r *Remote) Repository(url string) *Repository {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := repositoryKey(url)
	if found, ok := r.repositories[key]; ok {
		return found
	}
	made := &Repository{url: url, branches: map[string]string{}, tags: map[string]string{}, commits: map[string]gitCommit{}}
	r.repositories[key] = made
	return made
}

// Remove takes the repository at an address away, as if it had been deleted on the server.
func (r *Remote) Remove(url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.repositories, repositoryKey(url))
}

// find returns the repository at an address, if there is one.
func (r *Remote) find(url string) (*Repository, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.repositories[repositoryKey(url)]
	return found, ok
}

func repositoryKey(url string) string {
	if key, err := gitref.Normalize(url); err == nil {
		return key
	}
	return url
}

// A Repository is a Git repository of a [Remote]. It starts without a commit. Its hashes depend on nothing but its
// address and what was done to it before, so a test gets the same ones each time; no two commits have the same. It is safe
// for concurrent use.
type Repository struct {
	url string

	mu       sync.Mutex
	sha256   bool
	made     int
	branches map[string]string
	tags     map[string]string
	commits  map[string]gitCommit
}

// A gitCommit is what one commit holds. It does not change.
type gitCommit struct {
	number  int
	subject string
	parent  string // empty for the first of a history
	when    time.Time
	files   Files
}

// URL is the address that the repository was made with.
func (r *Repository) URL() string { return r.url }

// UseSHA256 makes the commits to come have hashes of 64 digits instead of 40.
func (r *Repository) UseSHA256() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sha256 = true
}

// Commit changes files on main and returns the new commit. See CommitTo.
func (r *Repository) Commit(files Files) string { return r.CommitTo(DefaultBranch, files) }

// CommitTo writes the files on top of what the branch holds, as one new commit, and returns its hash. Files that are
// not named stay as they are, and no files at all makes an empty commit. A branch that does not exist starts from nothing.
func (r *Repository) CommitTo(branch string, files Files) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent := r.branches[branch]
	held := maps.Clone(r.commits[parent].files)
	if held == nil {
		held = Files{}
	}
	maps.Copy(held, files)
	return r.commit(branch, parent, held)
}

// Remove deletes files from main by a new commit and returns its hash.
func (r *Repository) Remove(paths ...string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	parent := r.branches[DefaultBranch]
	held := maps.Clone(r.commits[parent].files)
	for _, path := range paths {
		delete(held, path)
	}
	return r.commit(DefaultBranch, parent, held)
}

// ForcePush replaces the branch by a history of one commit that holds the files and nothing else, and returns its hash. The
// commits that the branch held before stay known by their hashes.
func (r *Repository) ForcePush(branch string, files Files) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commit(branch, "", maps.Clone(files))
}

// DeleteBranch removes a branch. Its commits stay known by their hashes.
func (r *Repository) DeleteBranch(branch string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.branches, branch)
}

// SetBranch points a branch at a commit of the repository, such as an earlier one, and creates it where needed. It panics
// for a commit that the repository does not have.
func (r *Repository) SetBranch(branch, commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustHave(commit)
	r.branches[branch] = commit
}

// Tag makes a tag of a commit of the repository. It panics for a commit that the repository does not have.
func (r *Repository) Tag(tag, commit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mustHave(commit)
	r.tags[tag] = commit
}

// Head returns the commit at the tip of a branch, and "" when there is no such branch.
func (r *Repository) Head(branch string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.branches[branch]
}

// Files returns what a commit holds, and nil for a commit that the repository does not have.
func (r *Repository) Files(commit string) Files {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.commits[commit].files)
}

func (r *Repository) mustHave(commit string) {
	if _, ok := r.commits[commit]; !ok {
		panic(fmt.Sprintf("fake: repository %s has no commit %q", r.url, commit))
	}
}

// commit adds a commit and points the branch at it. The lock is held.
func (r *Repository) commit(branch, parent string, files Files) string {
	r.made++
	sum := sha1.New()
	if r.sha256 {
		sum = sha256.New()
	}
	fmt.Fprintf(sum, "%s %d %s %s\n", repositoryKey(r.url), r.made, branch, parent)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%q %q\n", path, files[path])
	}
	made := hex.EncodeToString(sum.Sum(nil))
	r.commits[made] = gitCommit{
		number: r.made, subject: fmt.Sprintf("Change %d of %s", r.made, branch), parent: parent, when: time.Now().Truncate(time.Second), files: files,
	}
	r.branches[branch] = made
	return made
}
