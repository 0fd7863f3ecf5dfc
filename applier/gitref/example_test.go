package gitref_test

import (
	"errors"
	"fmt"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

func ExampleCommitOf() {
	for _, revision := range []string{
		"main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f",
		"refs/heads/main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f",
		"feat/x@y@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f",
		"main/1eabc9a41ca088515cab83f1cce49eb43e84b67f",
		"main@sha1:1eabc9a4",
	} {
		fmt.Printf("%q\n", gitref.Short(gitref.CommitOf(revision)))
	}
	// Output:
	// "1eabc9a41ca0"
	// "1eabc9a41ca0"
	// "1eabc9a41ca0"
	// "1eabc9a41ca0"
	// ""
}

// Only the caller knows that a revision is from an OCIRepository, and uses its
// digest.
func ExampleParseRevision() {
	r := gitref.ParseRevision("latest@sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d")
	fmt.Println(r.Ref)
	fmt.Println(r.Digest)
	// Output:
	// latest
	// sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d
}

func ExampleBranch() {
	for _, revision := range []string{"main", "refs/heads/main", "HEAD", "refs/tags/v1.0.0", "1.*"} {
		name, err := gitref.Branch(revision)
		switch {
		case errors.Is(err, gitref.ErrDefaultBranch):
			fmt.Println("not specific enough:", err)
		case err != nil:
			fmt.Println("refused:", err)
		default:
			fmt.Println("branch", name)
		}
	}
	// Output:
	// branch main
	// branch main
	// not specific enough: revision "HEAD" follows the repository's default branch, which nobody named: name the branch
	// refused: revision "refs/tags/v1.0.0" is a tag: name a branch
	// refused: revision "1.*" is not the name of a branch
}

func ExampleSameRepository() {
	const url = "https://git.example.com/acme/shop"
	for _, other := range []string{
		"git@git.example.com:acme/shop.git",
		"https://git.example.com/acme/Shop",
		"https://git.example.com:8443/acme/shop",
	} {
		fmt.Println(gitref.SameRepository(url, other), other)
	}
	// Output:
	// true git@git.example.com:acme/shop.git
	// false https://git.example.com/acme/Shop
	// false https://git.example.com:8443/acme/shop
}

// An index of objects by their repository has one key for every spelling.
func ExampleNormalize() {
	for _, address := range []string{"ssh://git@Git.example.com/acme/shop.git", "reg.example.com:5000/shop"} {
		key, err := gitref.Normalize(address)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(key)
	}
	// Output:
	// https://git.example.com/acme/shop
	// "reg.example.com:5000/shop" is not the address of a Git repository: host:port/name is the address of an image; put a scheme before it
}

func ExampleRedact() {
	fmt.Println(gitref.Redact("https://bot:s3cret@git.example.com/acme/shop?token=s3cret"))
	// Output: https://git.example.com/acme/shop?redacted
}
