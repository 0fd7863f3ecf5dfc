package fake_test

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// deploy is a host's own code: it asks for a commit that was pushed and says how it went.
func deploy(ctx context.Context, client applier.Client, commit string) string {
	app := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	end, err := applier.Apply(ctx, client, app, applier.Ask{
		Want:   applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Commit: commit,
	}, nil)
	switch {
	case errors.Is(err, applier.ErrFailed):
		return "failed: " + end.Message
	case err != nil:
		return err.Error()
	default:
		return "deployed " + end.AppliedRevision
	}
}

// A commit was pushed, its apply is asked for, and the outcome is shown: once as it should be, and once with
// an applier that fails.
func ExampleClient() {
	client := &fake.Client{Answers: []fake.Answer{{}, fake.Fails("BuildFailed", "apps/shop: no kustomization.yaml")}}

	fmt.Println(deploy(context.Background(), client, "1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6"))
	fmt.Println(deploy(context.Background(), client, "2a3b4c5d6e7f8091a2b3c4d5e6f708192a3b4c5d"))
	for _, asked := range client.Asks() {
		fmt.Println("asked", asked.Ref, "for", asked.Ask.Commit[:12], "outcome", asked.Started.Outcome)
	}
	// Output:
	// deployed main@sha1:1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6
	// failed: apps/shop: no kustomization.yaml
	// asked team-a/shop for 1f0e1d2c3b4a outcome Resumed
	// asked team-a/shop for 2a3b4c5d6e7f outcome Resumed
}

// A host's reaction to each refusal is tested by scripting the refusal.
func ExampleClient_refused() {
	client := &fake.Client{Verdict: applier.Verdict{
		Reason:  applier.ReasonApplierNotFound,
		Message: "Kustomization team-a/shop in cluster prod does not exist: create it",
	}}
	_, err := client.Request(context.Background(), types.NamespacedName{Namespace: "team-a", Name: "shop"}, applier.Ask{
		Want:  applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Token: applier.NewToken(),
	})
	fmt.Println(applier.VerdictReason(err), applier.IsPermanent(err))
	// Output: ApplierNotFound true
}
