// Command lab runs a real Kubernetes control plane with the real controllers of
// Flux and Argo CD on this machine. See the package lab beside it for its use in
// tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// command is one of the program's subcommands.
type command struct {
	name  string
	about string
	run   func(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) error
}

var commands = []command{
	{"up", "build what is missing, start everything, and stop it on Ctrl-C", up},
	{"build", "build what is missing and end; go test does it too, but has a timeout", build},
	{"bench", "measure operations beside what the controllers take themselves", measure},
	{"conformance", "run the conformance suite in memory and here, and list both side by side", conformance},
	{"schemas", "write the OpenAPI schemas that the API server publishes", schemas},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return fmt.Errorf("no command given")
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		usage(out)
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, out, flag.NewFlagSet("lab "+c.name, flag.ContinueOnError), args[1:])
		}
	}
	usage(os.Stderr)
	return fmt.Errorf("there is no command %q", args[0])
}

func usage(to io.Writer) {
	fmt.Fprint(to, "Usage: go -C examples/lab run . COMMAND [-h]\n\n")
	for _, c := range commands {
		fmt.Fprintf(to, "  %-11s %s\n", c.name, c.about)
	}
	fmt.Fprintln(to)
}

// parse reads the flags of a command that takes no arguments.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", flags.Name(), flags.Args())
	}
	return nil
}
