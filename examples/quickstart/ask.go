package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// ask asks for a commit and prints each step of the operation as it happens.
func ask(ctx context.Context, out io.Writer, client applier.Client, ref types.NamespacedName, a applier.Ask) error {
	begin := time.Now()
	step := func(state, message string) {
		fmt.Fprintf(out, "  +%6.3fs  %-10s %s\n", time.Since(begin).Seconds(), state, message)
	}
	step("Asked", fmt.Sprintf("%s of %s", applier.DescribeCommit(a.Commit), ref))
	end, err := applier.Apply(ctx, client, ref, a, func(p applier.Progress) {
		message := p.Message
		if p.Reason != "" {
			message = p.Reason + ": " + message
		}
		step(string(p.State), message)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Applied %s.", end.AppliedRevision)
	if holder, ok := applier.AsHolder(client); ok {
		suspension, err := holder.Suspension(ctx, ref)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, " Suspended again: %t.", suspension.Held && suspension.Handled)
	}
	fmt.Fprintln(out)
	return nil
}
