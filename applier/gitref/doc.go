// Package gitref says how Git repositories, branches and revisions are named,
// and when two names mean the same thing.
//
// Controllers, people and scripts spell one thing in many ways. This package
// compares what is meant and never guesses: a name that does not clearly say
// what it means is refused, with an error that says what would mend it, or is
// equal to its identical spelling only. It uses the standard library alone,
// reads no repository and no network, and keeps no state, so every function
// is safe for concurrent use.
//
// # Commits
//
// A commit is a full hash in lower-case hex: 40 characters (SHA-1) or 64
// (SHA-256). [IsCommit] accepts nothing else. A short hash is not a commit,
// since it may become ambiguous, and neither is a branch named deadbeef.
// [Short] abbreviates a commit for a message.
//
// # Revisions
//
// A Flux source reports what it fetched as a revision, whose spelling depends
// on the spec and on the version of Flux that wrote it:
//
//	main@sha1:<hash>              a branch, a tag or a semver range
//	refs/heads/main@sha1:<hash>   spec.ref.name
//	sha1:<hash>                   spec.ref.commit without a branch
//	main@sha256:<hash>            a repository with SHA-256 objects
//	main/<hash>, HEAD/<hash>      Flux before 0.40
//	<hash>                        a bare commit, as Argo CD reports it
//
// [ParseRevision] takes them apart, and [CommitOf] returns only the commit.
// Two revisions are of one commit if CommitOf says so; the revisions themselves
// differ as soon as one names the branch and the other does not.
//
// A revision does not say what kind of source it is from. The digest of an OCI
// artifact, latest@sha256:<64 hex>, is spelled like a commit of a SHA-256
// repository. Only the caller knows the kind, so call CommitOf for a
// GitRepository or an Application only; for any other source, use
// [Revision.Digest].
//
// # Branches
//
// main and refs/heads/main name the branch main. [Branch] returns the name, or
// an error that says why a revision names no branch: it follows the default
// branch ([ErrDefaultBranch]), it is a commit ([ErrPinned]) or a tag
// ([ErrTag]), or it is nothing a branch can be called ([ErrNotBranch]).
// A bare name that Git allows is taken for a branch, although v1.0.0 may be a
// tag. Argo CD reads 10.x and >=1.0.0 as ranges of versions if a tag matches
// them, and as a branch or tag of that name otherwise (v3.2.11,
// util/git/client.go, util/versions/tags.go); they are branch names here.
//
// # Repositories
//
// [SameRepository] compares addresses by host and path. These are one
// repository:
//
//	https://git.example.com/acme/shop
//	https://git.example.com/acme/shop.git/
//	https://token@GIT.example.com:443/acme/shop
//	ssh://git@git.example.com/acme/shop.git
//	git@git.example.com:acme/shop.git
//
// The transport (https, http, ssh, git) does not matter while it uses its
// default port: one host that serves two different repositories at one path,
// by transport, is not something that people set up. With a port of its own,
// scheme and port both count, because nothing says that the server behind it
// is the same one. The path counts, with its case.
//
// [Normalize] returns the form that is compared, to be used as the key of an
// index. It is a name, not an address to fetch from.
//
// # Messages
//
// An address may carry a password or a token. [Redact] removes it, and is meant
// for every message that prints an address, a malformed one above all.
package gitref
