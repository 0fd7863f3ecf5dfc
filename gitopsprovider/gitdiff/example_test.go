package gitdiff_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// What the newest commit changed in a folder. A real host names an HTTPS or SSH
// address, and needs no AllowLocal.
func ExampleDiffer_Diff() {
	repository, commit := exampleRepository()
	defer os.RemoveAll(repository)

	differ, err := gitdiff.New(gitdiff.Options{Dir: os.TempDir(), AllowLocal: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	diff, err := differ.Diff(context.Background(), gitopsprovider.DiffQuery{Repository: repository, Path: "apps/shop", To: commit})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(diff.Commit.Subject)
	for _, file := range diff.Files {
		fmt.Println(file.Status, file.Path)
		fmt.Print(file.Patch)
	}
	// Output:
	// shop: another password
	// Modified apps/shop/secret.yaml
	// diff --git a/apps/shop/secret.yaml b/apps/shop/secret.yaml
	// --- a/apps/shop/secret.yaml
	// +++ b/apps/shop/secret.yaml
	// @@ -3,4 +3,4 @@
	//    name: db
	//  stringData:
	//    user: '***'
	// -  password: '***(before)'
	// +  password: '***(after)'
}

// The commits that touched a folder, newest first.
func ExampleDiffer_History() {
	repository, commit := exampleRepository()
	defer os.RemoveAll(repository)

	differ, err := gitdiff.New(gitdiff.Options{Dir: os.TempDir(), AllowLocal: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	history, err := differ.History(context.Background(), gitopsprovider.HistoryQuery{Repository: repository, Path: "apps/shop", Revision: commit})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range history.Commits {
		fmt.Println(c.When.UTC().Format("15:04"), c.Author, c.Subject)
	}
	// Output:
	// 12:01 Ada <ada@example.com> shop: another password
	// 12:00 Ada <ada@example.com> shop: a database
}

// Errors are told apart with errors.Is.
func ExampleNew() {
	differ, err := gitdiff.New(gitdiff.Options{Dir: os.TempDir()})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = differ.Diff(context.Background(), gitopsprovider.DiffQuery{Repository: "/srv/git/shop", To: "main"})
	switch {
	case errors.Is(err, gitopsprovider.ErrRepositoryNotAllowed):
		fmt.Println(err)
	case errors.Is(err, gitopsprovider.ErrCommitNotFound):
		fmt.Println("was it removed by a forced push?")
	}
	// Output: repository /srv/git/shop: a local path is read only with Options.AllowLocal: repository not allowed
}

// exampleRepository makes a repository of two commits.
func exampleRepository() (dir, commit string) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	out, err := exec.CommandContext(context.Background(), "sh", "-ec", `
		cd "$0"
		export HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.com
		export GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.com
		git init --quiet
		mkdir -p apps/shop
		commit() {
			printf 'kind: Secret\nmetadata:\n  name: db\nstringData:\n  user: shop\n  password: %s\n' "$1" > apps/shop/secret.yaml
			git add .
			GIT_COMMITTER_DATE="2026-01-05T$3Z" git commit --quiet -m "shop: $2"
		}
		commit hunter2 "a database" 12:00:00
		commit hunter3 "another password" 12:01:00
		git rev-parse HEAD`, dir).Output()
	if err != nil {
		panic(err)
	}
	return dir, string(out[:40])
}
