package main

import (
	"context"
	"errors"
	"flag"
	"io"

	"github.com/gitops-applier/gitops-applier/examples/lab/bench"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func measure(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) (err error) {
	rounds := flags.Int("n", 20, "how many `rounds`")
	if err := parse(flags, args); err != nil {
		return err
	}
	l, err := lab.Up(ctx, lab.Options{Parts: lab.All})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	return bench.Run(ctx, l, out, *rounds)
}
