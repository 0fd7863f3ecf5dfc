// Command whatchanged shows what Flux and Argo CD apply in a cluster, and why something of it fails.
//
//	whatchanged                              what every applier applies now, and what it applied before
//	whatchanged -since 24h                   the commits of the last day that touched what is applied, and what failed
//	whatchanged -since 24h -diff             and their diffs
//	whatchanged -tree KIND/NAMESPACE/NAME    what an object depends on, and the root causes of what fails
//	whatchanged -status KIND/NAMESPACE/NAME  how an object is doing, with its recent Events
//	whatchanged -trace KIND/NAMESPACE/NAME   what manages an object, up to repository, path and commit
//
// It reads the cluster that kubectl would: -kubeconfig FILE, else KUBECONFIG, else ~/.kube/config, and within a Pod its own; -context NAME
// chooses another context than the current one. -n NAMESPACE shows the appliers that are in a namespace or deploy into it. -o json
// prints the answer as JSON.
//
// A kind that no engine defines is written with its group: Deployment.apps/team-a/web. An object of the cluster as a whole has no
// namespace: Namespace/team-a.
//
// It writes nothing, and needs the verbs get and list alone. What it may not read it says, and shows the rest.
//
// Git repositories are read over HTTP and HTTPS, without a git command. Where one asks for credentials, set WHATCHANGED_GIT_SITE to its
// site, such as https://git.example.com, and WHATCHANGED_GIT_USERNAME and WHATCHANGED_GIT_PASSWORD to what to present there; they are sent
// to that site alone. What was fetched is kept in the user's cache folder. Values of Secrets are hidden in diffs.
//
// The exit status is 0 if everything that was asked for could be read, 1 if not, and 2 for a mistake in the arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	os.Exit(report(os.Stderr, err))
}

// errUsage is a mistake in the arguments.
var errUsage = errors.New("see -help")

// report says what went wrong, and returns the exit status.
func report(out io.Writer, err error) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(out, "whatchanged:", err)
		return 2
	default:
		fmt.Fprintln(out, "whatchanged:", err)
		return 1
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	o, err := parse(args, os.Stderr)
	if err != nil {
		return err
	}
	cluster, views, err := connect(o)
	if err != nil {
		return err
	}
	return show(ctx, out, cluster, views, o)
}

// show prints the answer to the one question that was asked.
func show(ctx context.Context, out io.Writer, cluster string, views gitopsprovider.Provider, o options) error {
	p := printer{out: out, json: o.output == "json"}
	switch {
	case o.tree != "":
		return p.tree(ctx, views, o.object)
	case o.status != "":
		return p.status(ctx, views, o.object)
	case o.trace != "":
		return p.trace(ctx, views, o.object)
	default:
		return p.changes(ctx, cluster, views, o)
	}
}

// options are the command's flags.
type options struct {
	kubeconfig, context, namespace string
	since                          time.Duration
	diff                           bool
	tree, status, trace            string
	output                         string

	// object is what one of tree, status and trace names.
	object gitopsprovider.Workload
}

// parse reads the arguments. Mistakes of spelling, and what -help asks for, are written to usage.
func parse(args []string, usage io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("whatchanged", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "read the cluster that this `file` names")
	flags.StringVar(&o.context, "context", "", "use this context of the kubeconfig, by its `name`")
	flags.StringVar(&o.namespace, "n", "", "show appliers that are in this `namespace` or deploy into it")
	flags.DurationVar(&o.since, "since", 0, "show the commits of this `time`, such as 24h, instead of what is applied now")
	flags.BoolVar(&o.diff, "diff", false, "show the diff of each change")
	flags.StringVar(&o.tree, "tree", "", "show what this `object`, KIND/NAMESPACE/NAME, depends on")
	flags.StringVar(&o.status, "status", "", "show how this `object`, KIND/NAMESPACE/NAME, is doing")
	flags.StringVar(&o.trace, "trace", "", "show what manages this `object`, KIND/NAMESPACE/NAME")
	flags.StringVar(&o.output, "o", "text", "print `text or json`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", err, errUsage)
	}
	objects := o.tree + o.status + o.trace
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.output != "text" && o.output != "json":
		err = fmt.Errorf("-o %q is neither text nor json", o.output)
	case o.since < 0:
		err = errors.New("-since is a length of time back from now, so it cannot be negative")
	case objects == "":
		return o, nil
	case objects != o.tree && objects != o.status && objects != o.trace:
		err = errors.New("-tree, -status and -trace are questions of their own: choose one")
	case o.since != 0 || o.diff || o.namespace != "":
		err = errors.New("-n, -since and -diff are about all appliers: they go with none of -tree, -status and -trace")
	default:
		o.object, err = parseObject(objects)
	}
	if err != nil {
		return o, fmt.Errorf("%w: %w", err, errUsage)
	}
	return o, nil
}

// parseObject reads KIND[.GROUP]/NAMESPACE/NAME, or KIND[.GROUP]/NAME.
func parseObject(text string) (gitopsprovider.Workload, error) {
	parts := strings.Split(text, "/")
	for _, part := range parts {
		if part == "" {
			parts = nil
		}
	}
	if len(parts) != 2 && len(parts) != 3 {
		return gitopsprovider.Workload{}, fmt.Errorf("%q is not KIND/NAMESPACE/NAME", text)
	}
	kind := schema.ParseGroupKind(parts[0])
	w := gitopsprovider.Workload{Group: kind.Group, Kind: kind.Kind, Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		w.Namespace = parts[1]
	}
	return w, nil
}
