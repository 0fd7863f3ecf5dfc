package applier_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

var shop = types.NamespacedName{Namespace: "team-a", Name: "shop"}

// What a host does with each answer of Apply. Any client does, here one that a test scripts: its first apply fails, the second
// is cut off, and the third succeeds.
func ExampleApply() {
	ctx := context.Background()
	client := &fake.Client{Answers: []fake.Answer{
		fake.Fails("BuildFailed", "no kustomization.yaml"), fake.Fails(applier.ReasonInterrupted, "the controller was stopped"), {},
	}}
	ask := applier.Ask{
		Want:   applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Commit: "1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6",
	}
	for range 3 {
		end, err := applier.Apply(ctx, client, shop, ask, nil)
		switch {
		case err == nil:
			fmt.Println("applied", end.AppliedRevision)
		case errors.Is(err, applier.ErrStale):
			fmt.Println("decide again")
		case errors.Is(err, applier.ErrBusy):
			fmt.Println("another operation is in progress")
		case errors.Is(err, applier.ErrAppliedOther):
			fmt.Println("applied instead", end.AppliedRevision)
		case errors.Is(err, applier.ErrFailed) && end.AskAgain():
			fmt.Println("nothing is known of the commit, ask again:", end.Reason)
		case errors.Is(err, applier.ErrFailed):
			fmt.Println("the commit fails:", end.Reason, end.Message)
		case applier.IsPermanent(err):
			fmt.Println("mend the configuration:", applier.VerdictReason(err), err)
		default:
			fmt.Println("try again later:", err)
		}
	}
	// Output:
	// the commit fails: BuildFailed no kustomization.yaml
	// nothing is known of the commit, ask again: Interrupted
	// applied main@sha1:1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6
}

// A host records each operation before it starts, dies, and follows what it recorded when it runs again.
func ExampleFollower_Follow() {
	ctx := context.Background()
	client := &fake.Client{}
	var record []byte

	_, err := client.Request(ctx, shop, applier.Ask{
		Want:   applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Commit: "1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6",
		Token:  applier.NewToken(),
		Record: func(_ context.Context, s applier.Started) (err error) {
			record, err = json.Marshal(s) // kept with the applier's name
			return err
		},
	})
	if err != nil {
		fmt.Println(err)
	}

	// In the next process:
	var started applier.Started
	if err := json.Unmarshal(record, &started); err != nil {
		fmt.Println(err)
	}
	end, err := applier.Follower{}.Follow(ctx, client, shop, &started, nil)
	fmt.Println(started.Recovered, end.State, end.AppliedRevision, err)
	// Output:
	// true Succeeded main@sha1:1f0e1d2c3b4a59687786958493a2b1c0d9e8f7a6 <nil>
}
