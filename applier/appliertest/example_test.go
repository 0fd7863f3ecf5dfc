package appliertest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/appliertest"
	"github.com/gitops-applier/gitops-applier/fake"
)

// The smallest harness that there can be: of a backend without a cluster, the scripted Client of package fake. One
// for a real backend sets API and what follows it as well, and passes the api that NewClient gets to the backend.
var harness = appliertest.Harness{
	New:  newApplier,
	Wrap: synctest.Test,
	Lacks: []appliertest.Capability{
		appliertest.Holder, appliertest.Prefetcher, appliertest.API, appliertest.PushBroken,
		appliertest.PushStuck, appliertest.Retarget, appliertest.ForeignOperation, appliertest.Hands,
	},
}

func newApplier(testing.TB) *appliertest.Applier {
	shop := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	want := applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"}
	client := &fake.Client{
		Appliers: []types.NamespacedName{shop},
		Source:   applier.Source{URL: want.Repository, Revision: want.Branch},
	}
	pushed := 0
	return &appliertest.Applier{
		Cluster: "fake", Ref: shop, Want: want,
		NewClient: func(dynamic.Interface) (applier.Client, error) { return client, nil },
		Push: func(context.Context) (string, error) {
			pushed++
			return fmt.Sprintf("%040x", pushed), nil
		},
		// A real harness looks at what the commit put into the cluster.
		Applied: func(context.Context) (commit string, err error) {
			for _, asked := range client.Asks() {
				if asked.Started.Token != "" {
					commit = asked.Ask.Commit
				}
			}
			return commit, nil
		},
	}
}

func ExampleRun() {
	var t *testing.T // of func TestContract(t *testing.T)
	appliertest.Run(t, harness)
}
