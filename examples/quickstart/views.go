package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// look shows what the views say of each engine's applier: the change that is applied, its diff, and what it depends on.
func look(ctx context.Context, out io.Writer, views gitopsprovider.Provider, engines []engine) error {
	shown := map[string]bool{} // patches: both engines apply the same commit
	for _, e := range engines {
		if err := lookAt(ctx, out, views, e, shown); err != nil {
			return err
		}
	}
	return nil
}

func lookAt(ctx context.Context, out io.Writer, views gitopsprovider.Provider, e engine, shown map[string]bool) error {
	list, err := views.Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Kind: e.kind, Namespace: e.ref.Namespace})
	if err != nil {
		return err
	}
	if err := list.Err(); err != nil {
		fmt.Fprintf(out, "\n%v\n", err)
	}
	for _, change := range list.Changes {
		if change.Workload.Namespace == e.ref.Namespace && change.Workload.Name == e.ref.Name {
			showChange(ctx, out, views, change, shown)
		}
	}
	tree, err := views.DependencyTree(ctx, gitopsprovider.Workload{Kind: e.kind, Namespace: e.ref.Namespace, Name: e.ref.Name})
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	indent(out, tree.Text())
	return nil
}

func showChange(ctx context.Context, out io.Writer, views gitopsprovider.Provider, change gitopsprovider.Change, shown map[string]bool) {
	before := "nothing that its history knows"
	if change.FromCommit != "" {
		before = gitref.Short(change.FromCommit)
	}
	fmt.Fprintf(out, "\n%s applies %s; before it, %s:\n", change.Workload, gitref.Short(change.ToCommit), before)
	diff, err := views.Diff(ctx, change)
	switch {
	case err != nil:
		indent(out, "No diff: "+err.Error()) // what was pushed by git with its own credentials may be private
	case diff.Note != "":
		indent(out, diff.Note)
	}
	for _, file := range diff.Files {
		if shown[file.Patch] {
			indent(out, "the same change of "+file.Path)
		} else {
			indent(out, file.Patch)
		}
		shown[file.Patch] = true
	}
}

func indent(out io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(out, "  %s\n", strings.TrimRight(line, "\r\n"))
	}
}
