// Command quickstart shows the main job: it holds a Flux Kustomization, pushes a commit, asks for it to be applied,
// and prints each step of the operation until it has ended and the Kustomization is suspended again. Then it shows what the
// commit changed, and what the Kustomization depends on.
//
//	quickstart    (on an embedded cluster)
//	quickstart -kubeconfig FILE [-kustomization NAMESPACE/NAME] [-application NAMESPACE/NAME]
//	    [-broken | -commit HASH] [-release]
//
// Without a flag it runs on an embedded cluster with a simulated Flux and a simulated Argo CD, and shows a commit that
// both apply and one that fails with both.
//
// With -kubeconfig it runs on a real cluster. It pushes with the git command, as whoever runs it, to the repository
// that the Kustomization applies. With -broken it pushes a manifest that cannot be built, to show how a failure ends;
// the next run without it repairs that. With -commit it pushes nothing and asks for a commit that is there. With
// -application an Application is asked for the same commit at the same time. The Kustomization stays held afterwards;
// -release hands it back.
//
// The exit status is 0 if the commit was applied, and 1 otherwise; on the embedded cluster, if all went as shown.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

// fieldManager is the name under which this program holds Kustomizations.
const fieldManager = "gitops-applier-quickstart"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	kubeconfig    string
	kustomization types.NamespacedName
	application   types.NamespacedName // empty for none
	commit        string
	broken        bool
	release       bool
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.kubeconfig == "" {
		return runEmbedded(ctx, os.Stdout, o)
	}
	return runOnCluster(ctx, os.Stdout, o)
}

func parse(args []string) (options, error) {
	var o options
	var kustomization, application string
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "run on the cluster that this `file` names instead of the embedded one")
	flags.StringVar(&kustomization, "kustomization", "demo/app", "the Kustomization to ask, as `namespace/name`")
	flags.StringVar(&application, "application", "", "ask this Application, `namespace/name`, for the same commit")
	flags.StringVar(&o.commit, "commit", "", "ask for this `hash` instead of pushing a commit")
	flags.BoolVar(&o.broken, "broken", false, "push a manifest that cannot be built")
	flags.BoolVar(&o.release, "release", false, "hand the Kustomization back to Flux afterwards")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	if o.kustomization, err = parseName("kustomization", kustomization); err != nil {
		return o, err
	}
	if application != "" {
		if o.application, err = parseName("application", application); err != nil {
			return o, err
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.kubeconfig == "" && (application != "" || o.commit != "" || o.broken || o.release):
		return o, errors.New("this needs -kubeconfig: go -C examples/lab run . up brings up a cluster and prints its file")
	case o.broken && o.commit != "":
		return o, errors.New("-broken pushes a commit and -commit does not: choose one")
	}
	return o, nil
}

func parseName(flag, text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return types.NamespacedName{}, fmt.Errorf("-%s %q is not namespace/name", flag, text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
