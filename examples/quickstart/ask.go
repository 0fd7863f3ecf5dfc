package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// An engine is an applier that is asked, and the client that asks it.
type engine struct {
	name   string
	client applier.Client
	kind   string // of the applier
	ref    types.NamespacedName
}

// ask asks all engines for a commit at the same time, and prints each step of their operations as it happens. It returns how each ended.
func ask(ctx context.Context, out io.Writer, engines []engine, a applier.Ask) []error {
	begin := time.Now()
	var lines sync.Mutex
	ends := make([]error, len(engines))
	var asking sync.WaitGroup
	for i, e := range engines {
		asking.Go(func() {
			ends[i] = e.ask(ctx, a, func(state, message string) {
				lines.Lock()
				defer lines.Unlock()
				fmt.Fprintf(out, "  +%6.3fs  %-7s  %-10s %s\n", time.Since(begin).Seconds(), e.name, state, message)
			})
		})
	}
	asking.Wait()
	return ends
}

func (e engine) ask(ctx context.Context, a applier.Ask, step func(state, message string)) error {
	step("Asked", fmt.Sprintf("%s of %s", applier.DescribeCommit(a.Commit), e.ref))
	end, err := applier.Apply(ctx, e.client, e.ref, a, func(p applier.Progress) {
		message := p.Message
		if p.Reason != "" {
			message = p.Reason + ": " + message
		}
		step(string(p.State), message)
	})
	if err != nil {
		return err
	}
	applied := "Applied " + end.AppliedRevision + "."
	if holder, ok := applier.AsHolder(e.client); ok {
		suspension, err := holder.Suspension(ctx, e.ref)
		if err != nil {
			return err
		}
		applied += fmt.Sprintf(" Suspended again: %t.", suspension.Held && suspension.Handled)
	}
	step("", applied)
	return nil
}
