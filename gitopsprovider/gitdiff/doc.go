// Package gitdiff reads Git repositories for package gitopsprovider: what a
// commit changed in a folder, and which commits touched it. It needs no git
// command and no clone.
//
//	differ, err := gitdiff.New(gitdiff.Options{
//		Dir: "/var/cache/my-bot",
//		Credentials: func(ctx context.Context, site string) (gitdiff.Credentials, error) {
//			if site == "https://git.example.com" {
//				return gitdiff.Credentials{Username: "bot", Password: token}, nil
//			}
//			return gitdiff.Credentials{}, nil
//		},
//	})
//	diff, err := differ.Diff(ctx, gitopsprovider.DiffQuery{
//		Repository: "https://git.example.com/acme/shop",
//		Path:       "apps/shop",
//		To:         "1eabc9a41ca088515cab83f1cce49eb43e84b67f",
//	})
//
// # What is fetched
//
// A [Differ] asks for commits by their hash, without their history: one or two
// for a diff. Where the server can leave files out (uploadpack.allowFilter), it
// asks for the trees alone, and then for the files that differ. A history, or a
// search for the commit that touched a folder last, is fetched in steps of 32,
// 256, 2048 and more commits, and ends as soon as it is known.
//
// A server that does not give out a commit by its hash is asked for the branch
// that the query names, then for its default branch, each in steps, and in the
// end for all branches and tags. So [gitopsprovider.ErrCommitNotFound] means that
// no branch and no tag leads to the commit.
//
// It speaks version 0 of Git's protocol over HTTP, HTTPS and SSH, to servers with
// SHA-1 objects. Plain HTTP carries credentials for whoever listens; whether a
// site http://… gets any is for Options.Credentials to say. A redirect is followed
// to the same host alone.
//
// # The cache
//
// What was fetched is kept in bare repositories below Options.Dir, one for each
// address, and used by all calls, Differs and processes that share the folder.
// They take file locks: a network file system without working flock will not do.
// Readers never wait for a fetch, and a second caller who needs what is being
// fetched waits for it. A repository that cannot be read is fetched anew. After a
// fetch, those used longest ago are deleted while there are too many, or too many
// bytes; what is in use stays.
//
// A commit that is in the cache is shown without asking the server again, and so
// without asking whether the caller may still read it. Do not share a Differ, or
// its folder, between callers who may not see the same repositories.
//
// # Limits
//
// [Limits] bound the time of a call, the bytes it receives and unpacks, and the
// size of its answer. What is received is measured before it is unpacked, so that
// a small answer cannot become a large one. A call that meets a bound on what it
// receives fails with [gitopsprovider.ErrLimit]; one whose answer is too long is
// cut, and says so.
//
// # Diffs
//
// Diffs have the form of git diff --full-index, with two differences: no line is
// repeated after @@, and similarity is measured by lines. A file is renamed if it
// moved unchanged, or if at least half of it is the same; the latter is searched
// for among at most 200 deleted and 200 added files. Submodules are entries of
// mode 160000 and are never fetched. Attributes (.gitattributes) are not read.
//
// # Secrets
//
// The values of Kubernetes Secrets are replaced by masks, in lines of context as
// well, unless Options.ShowSecrets is set:
//
//	 stringData:
//	   user: '***'
//	-  password: '***(before)'
//	+  password: '***(after)'
//
// A Secret is a mapping whose kind is Secret, wherever in a YAML or JSON file it
// is: in a document of its own, in a List, in other objects, or in a string such
// as an annotation. Its data and stringData are hidden, and so are the literals of
// Kustomize's secretGenerator and SecretGenerator, and its inline patches whose
// target is a Secret. The document is shown in a form of its own, without comments
// and the layout it was written in. Each value of six bytes or more is
// hidden in the rest of the file too, as it is and in base64. A document that seems
// to hold a Secret and cannot be read, such as a template, is left out. The hashes
// of such a file are left out as well, since a short value could be found by trying
// all of them.
//
// Nothing else is hidden: a password in a ConfigMap, in a HelmRelease's values, or
// in the message of a commit is shown.
package gitdiff
