package gitref

import "strings"

// Revision is a revision taken apart, as [ParseRevision] returns it.
type Revision struct {
	// Ref is what the source followed: "main", "refs/heads/main" or "v1.0.0".
	// It is empty if the revision names a hash alone, and the whole revision
	// if that holds no hash (the version of a Helm chart, say).
	Ref string

	// Digest is the hash with its algorithm, "sha1:<hex>" or "sha256:<hex>",
	// as the revision spells it. It is empty if the revision names no
	// algorithm. For a source that is not a Git repository, it identifies the
	// artifact.
	Digest string

	// Commit is the full hash of a commit, or empty. It means something only
	// for a Git repository: the digest of an OCI artifact or a bucket looks
	// the same as the commit of a SHA-256 repository.
	Commit string
}

// ParseRevision takes apart a revision in any form that Flux writes or wrote,
// or a bare commit; the package documentation lists them. It never fails:
// what holds no hash is a Ref alone.
func ParseRevision(revision string) Revision {
	if IsCommit(revision) {
		return Revision{Commit: revision}
	}
	if r, ok := parseDigest(revision); ok {
		return r
	}
	if r, ok := parseOld(revision); ok {
		return r
	}
	return Revision{Ref: revision}
}

// CommitOf returns the commit of a revision of a Git repository, or "" if it
// names none. The result is empty or satisfies [IsCommit].
//
// Do not call it for another kind of source: see [Revision].
func CommitOf(revision string) string {
	return ParseRevision(revision).Commit
}

// parseDigest reads [<ref>@]<algorithm>:<hex>. A ref may hold an '@', but never
// a ':'.
func parseDigest(revision string) (Revision, bool) {
	at := strings.LastIndexByte(revision, '@')
	digest := revision[at+1:]
	algorithm, hash, ok := strings.Cut(digest, ":")
	if !ok || at == 0 || algorithm == "" || hash == "" || !isHex(hash) {
		return Revision{}, false
	}
	r := Revision{Ref: revision[:max(at, 0)], Digest: digest}
	if algorithm == "sha1" && len(hash) == sha1Len || algorithm == "sha256" && len(hash) == sha256Len {
		r.Commit = hash
	}
	return r, true
}

// parseOld reads <branch or tag>/<hash>, which Flux wrote before it knew
// spec.ref.name. A full ref whose last part looks like a hash is therefore not
// of this form.
func parseOld(revision string) (Revision, bool) {
	slash := strings.LastIndexByte(revision, '/')
	if slash <= 0 || strings.HasPrefix(revision, "refs/") || !IsCommit(revision[slash+1:]) {
		return Revision{}, false
	}
	return Revision{Ref: revision[:slash], Commit: revision[slash+1:]}, true
}
