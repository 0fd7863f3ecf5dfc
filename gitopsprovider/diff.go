package gitopsprovider

import (
	"context"
	"errors"
	"time"
)

// A Differ reads Git repositories: what differs between two commits, and which
// commits touched a folder. Package gitdiff has one. A host may write its own,
// over the API of its hosting service for example.
//
// Provider calls it, from several goroutines at once. What it returns is the
// caller's. It ends soon after ctx does, with an error that wraps ctx.Err().
//
// Its errors hold no user info and no credential, and wrap one of
// [ErrInvalidQuery], [ErrCommitNotFound], [ErrNotCommit],
// [ErrRepositoryNotFound], [ErrCredentials], [ErrRepositoryNotAllowed],
// [ErrServerNotSupported] and [ErrLimit] where one applies. Any other error,
// such as that of a connection, may pass if the caller asks again later.
type Differ interface {
	// Diff returns what differs between two commits of a repository within a
	// folder. If two different commits are the same there, it returns what the
	// newest commit that touched the folder, at or before To, changed in it,
	// and says so in Diff.NewestTouching. It is no error that nothing differs:
	// the Note says what that establishes.
	Diff(ctx context.Context, q DiffQuery) (Diff, error)

	// History returns the commits that touched a folder, newest first,
	// beginning at a commit and following its parents.
	History(ctx context.Context, q HistoryQuery) (History, error)
}

// Why a Differ has no answer; test with errors.Is.
var (
	// ErrInvalidQuery is a query that no repository could answer: an address
	// that is none of a Git repository, a commit that is no full hash, a path
	// that leaves the repository.
	ErrInvalidQuery = errors.New("not a valid query")

	// ErrCommitNotFound is a commit that the repository was asked for, by its
	// hash and by its branches, and does not have. It may have been removed by
	// a forced push, or belong to another repository.
	ErrCommitNotFound = errors.New("commit not found in the repository")

	// ErrNotCommit is the hash of an object that is no commit and no tag of
	// one: a tag of a file, for example.
	ErrNotCommit = errors.New("not a commit")

	// ErrRepositoryNotFound is a repository that the server does not have, or
	// says that it does not have to those who may not read it.
	ErrRepositoryNotFound = errors.New("repository not found, or not shown with these credentials")

	// ErrCredentials is a server that asks for credentials where there are
	// none, or refuses those it was sent.
	ErrCredentials = errors.New("credentials refused")

	// ErrRepositoryNotAllowed is a repository that the Differ was not allowed
	// to read, such as a local path.
	ErrRepositoryNotAllowed = errors.New("repository not allowed")

	// ErrServerNotSupported is a server, or a repository, that speaks a form
	// of Git the Differ does not, such as objects named by SHA-256.
	ErrServerNotSupported = errors.New("server or repository not supported")

	// ErrLimit is an answer larger or slower than the Differ accepts.
	ErrLimit = errors.New("limit exceeded")
)

// DiffQuery names what is to be compared. Repository and To are required.
type DiffQuery struct {
	// Repository is the address, as a GitRepository or an Application spells
	// it: an HTTPS or SSH URL, or the scp-like user@host:path.
	Repository string

	// Path is a folder, or a file, from the root of the repository. Only it
	// and what lies below it are compared: apps/shop covers apps/shop/x.yaml
	// and not apps/shop-db. A leading "/" or "./" and a trailing "/" are
	// ignored. Empty or "." is the whole repository.
	Path string

	// From is the commit before the change, as the full hash of a commit or
	// an annotated tag. Empty means the first parent of To, or the empty tree
	// if To is a root commit.
	From string

	// To is the commit after the change, as the full hash of a commit or an
	// annotated tag.
	To string

	// Branch is a branch that To lies on, if the caller knows one, short or
	// as refs/heads/…. It helps with servers that do not give out commits by
	// their hash. Empty is fine.
	Branch string
}

// Diff is what differs between two commits within a folder.
type Diff struct {
	// Repository is the address that was asked for, without user info.
	Repository string `json:"repository"`

	// Path is the folder that was asked for, cleaned. Empty is the whole
	// repository.
	Path string `json:"path,omitempty"`

	// From and To are the two commits compared, tags peeled. From is empty if
	// that is the empty tree. If NewestTouching is set, they are another pair
	// than was asked for.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`

	// Commit is To.
	Commit Commit `json:"commit,omitzero"`

	// Files are the files that differ, in the order of their paths.
	Files []FileDiff `json:"files,omitempty"`

	// NewestTouching says that the commits asked for do not differ in the
	// path, and that this is instead what the newest commit that touched it,
	// at or before the To that was asked for, changed there.
	NewestTouching bool `json:"newestTouching,omitempty"`

	// Cut says that the diff is larger than the Differ's limits and is not
	// whole: files are missing, or patches are (see FileDiff.Cut).
	Cut bool `json:"cut,omitempty"`

	// Note says for people what the caller might miss: why the diff is empty,
	// or cut, or of another pair of commits than was asked for. Empty if there
	// is nothing to say.
	Note string `json:"note,omitempty"`
}

// FileStatus says what happened to a file. Its values are the words themselves,
// for use in text and JSON.
type FileStatus string

// The statuses of a FileDiff. The zero value is none of them.
const (
	FileAdded    FileStatus = "Added"
	FileModified FileStatus = "Modified" // its content, or its mode, or both
	FileDeleted  FileStatus = "Deleted"
	FileRenamed  FileStatus = "Renamed" // and perhaps modified

	// FileTypeChanged is a path that turned from one kind of entry into
	// another: a file, a symbolic link, a submodule.
	FileTypeChanged FileStatus = "TypeChanged"
)

// FileMode is the mode of a path in Git's own octal spelling. Empty where there
// is no file.
type FileMode string

// All the modes of a FileDiff.
const (
	ModeRegular    FileMode = "100644"
	ModeExecutable FileMode = "100755"
	ModeSymlink    FileMode = "120000" // the content is the target
	ModeSubmodule  FileMode = "160000" // the blob is a commit of another repository
)

// FileDiff is what differs in one file.
type FileDiff struct {
	// Path is the file's path from the root of the repository, after the
	// change; before it, if it was deleted. The bytes are Git's, unquoted, and
	// may be no valid UTF-8.
	Path string `json:"path"`

	// OldPath is the path before the change if it was another: the file was
	// renamed.
	OldPath string `json:"oldPath,omitempty"`

	Status FileStatus `json:"status"`

	// OldMode and NewMode are empty where the file did not exist.
	OldMode FileMode `json:"oldMode,omitempty"`
	NewMode FileMode `json:"newMode,omitempty"`

	// OldBlob and NewBlob are the full hashes of the contents, for a submodule
	// of its commit. Empty where the file did not exist, and if SecretsHidden is
	// set: a short value could be found by trying which one gives the hash.
	OldBlob string `json:"oldBlob,omitempty"`
	NewBlob string `json:"newBlob,omitempty"`

	// Binary says that a side holds a NUL byte near its beginning, which is
	// how Git tells, and that the patch says only that they differ.
	Binary bool `json:"binary,omitempty"`

	// Cut says that the file, or the diff before it, is too large, and that
	// there is no patch, or only its beginning in whole hunks.
	Cut bool `json:"cut,omitempty"`

	// SecretsHidden says that values of Kubernetes Secrets were replaced by
	// masks, so that the patch does not apply. It has no hunks if the sides
	// differ in nothing but comments and layout.
	SecretsHidden bool `json:"secretsHidden,omitempty"`

	// Patch is the change in the form of git diff --full-index, with its header
	// lines. It applies with git apply, unless Binary, Cut or SecretsHidden is
	// set. It is UTF-8 only if the file is.
	Patch string `json:"patch"`
}

// HistoryQuery names the commits to list. Repository and Revision are required.
type HistoryQuery struct {
	Repository string // as in DiffQuery
	Path       string // as in DiffQuery

	// Revision is the full hash of the commit, or annotated tag, to begin at.
	Revision string

	// Since and Until bound the listed commits by their committer date,
	// inclusive. Zero is no bound. Committer dates are set by whoever made the
	// commit; they are trusted as far as Git itself trusts them: the walk ends
	// after a few commits in a row that are older than Since.
	Since, Until time.Time

	// Limit is the largest number of commits to list. Zero is as many as the
	// Differ's own bounds allow.
	Limit int

	Branch string // as in DiffQuery, of Revision
}

// History is the commits of a revision that touched a folder.
//
// A commit touched the folder if the folder differs from what each of its
// parents has there; a merge that took the folder as it was from one side did
// not, and only that side is followed further. This is how git log simplifies
// the history of a path.
type History struct {
	// Commits are the commits found, in the order of git log: newest first by
	// their committer dates, each after one of its children at least.
	Commits []Commit `json:"commits"`

	// Cut says that there may be more commits than are listed.
	Cut bool `json:"cut,omitempty"`

	// Note says for people why the list is empty or cut. Empty if there is
	// nothing to say.
	Note string `json:"note,omitempty"`
}

// Commit describes one commit.
type Commit struct {
	// Hash is the full hash, in lower-case hex.
	Hash string `json:"hash"`

	// Parents are the full hashes of its parents, the first one first.
	Parents []string `json:"parents,omitempty"`

	// Subject is the first line of its message.
	Subject string `json:"subject"`

	// Author is who wrote the change, as "Name <email>".
	Author string `json:"author"`

	// When is the committer date: when the commit was made in this form.
	When time.Time `json:"when,omitzero"`
}
