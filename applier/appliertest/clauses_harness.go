package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

var harnessClauses = []clause{
	{
		group: "Harness", name: "is complete",
		text:  "the harness sets what is required, and what is missing is named in Lacks",
		check: harnessIsComplete,
	},
}

func harnessIsComplete(ctx context.Context, e *env) error {
	a := e.harness.New(e.t)
	switch {
	case a == nil:
		return errors.New("Harness.New returned nil")
	case a.Cluster == "" || a.Ref.Name == "" || a.Want.Repository == "" || a.Want.Branch == "":
		return errors.New("set Applier.Cluster, Ref and Want")
	case a.NewClient == nil || a.Push == nil || a.Applied == nil:
		return errors.New("set Applier.NewClient, Push and Applied")
	case a.API != nil && a.Resource.Resource == "":
		return errors.New("set Applier.Resource with API")
	}
	p, err := a.process()
	if err != nil {
		return err
	}
	var wrong []error
	for _, capability := range capabilities {
		switch has, named := a.can(p.client, capability), slices.Contains(e.harness.Lacks, capability); {
		case !has && !named:
			wrong = append(wrong, fmt.Errorf("%s is missing: provide it, or name it in Harness.Lacks", capability))
		case has && named:
			wrong = append(wrong, fmt.Errorf("%s is there: do not name it in Harness.Lacks", capability))
		}
	}
	commit, err := a.Push(ctx)
	if err == nil && !gitref.IsCommit(commit) {
		err = fmt.Errorf("Push returned %q, which is no full hash", commit)
	}
	return errors.Join(append(wrong, err)...)
}
