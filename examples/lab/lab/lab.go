package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Parts says how much of a control plane [Up] starts.
type Parts int

const (
	// Flux is the API server with all CRDs, Flux's controllers and a Git server.
	Flux Parts = iota
	// CRDs is the API server with the kinds of Flux and of Argo CD, and nobody
	// who reconciles them.
	CRDs
	// Bare is the API server alone. It serves no kind of Flux's or Argo CD's.
	Bare
	// ArgoCD is the API server with all CRDs, Argo CD's application-controller
	// and repo-server, the Redis they need, and a Git server.
	ArgoCD
	// All is Flux and ArgoCD together, and with them the controllers that make
	// objects for others: Flux's helm-controller, and Argo CD's
	// ApplicationSet controller.
	All
)

func (p Parts) flux() bool   { return p == Flux || p == All }
func (p Parts) argoCD() bool { return p == ArgoCD || p == All }

// Options for [Up]. The zero value starts Flux and reports to stderr.
type Options struct {
	Parts    Parts
	Progress io.Writer // nil means os.Stderr
	// AuditPolicy is the YAML of an audit.k8s.io/v1 Policy. The API server then
	// keeps a log, see [Lab.AuditLog]. Empty keeps none.
	AuditPolicy string
}

// Lab is a running control plane. It is safe for concurrent use; the handles
// of its processes are not, see [Alone].
type Lab struct {
	APIServer *Process
	Etcd      *Process

	// Flux's; nil without it.
	SourceController    *Process
	KustomizeController *Process
	HelmController      *Process // only with All

	// Argo CD's; nil without it.
	ApplicationController    *Process
	RepoServer               *Process
	Redis                    *Process
	ApplicationSetController *Process // only with All

	environment *environment
	credentials *credentials
	git         *gitServer // nil without Flux and Argo CD
	dynamic     dynamic.Interface
}

// Build builds the programs that Up needs and that the cache does not have.
// Up does so too.
func Build(ctx context.Context, options Options) error {
	_, err := prepare(ctx, options)
	return err
}

// executables are the paths of what one control plane runs.
type executables struct {
	etcd, apiServer, sourceController, kustomizeController, helmController, argoCD, redis string

	crds []string // folders
}

func prepare(ctx context.Context, options Options) (*executables, error) {
	progress := options.Progress
	if progress == nil {
		progress = os.Stderr
	}
	cache, err := openCache(ctx, progress)
	if err != nil {
		return nil, err
	}
	x := &executables{}
	programs := []program{etcdProgram, apiServerProgram}
	into := []*string{&x.etcd, &x.apiServer}
	if options.Parts.flux() {
		programs = append(programs, sourceControllerProgram, kustomizeControllerProgram)
		into = append(into, &x.sourceController, &x.kustomizeController)
	}
	if options.Parts.argoCD() {
		if x.redis, err = findRedis(ctx, progress); err != nil {
			return nil, err
		}
		programs = append(programs, argoCDProgram)
		into = append(into, &x.argoCD)
	}
	if options.Parts == All {
		programs = append(programs, helmControllerProgram)
		into = append(into, &x.helmController)
	}
	paths, err := cache.ensure(ctx, programs...)
	if err != nil {
		return nil, err
	}
	for i, path := range paths {
		*into[i] = path
	}
	if options.Parts != Bare {
		if x.crds, err = cache.crds(ctx); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Up builds what is missing, starts a control plane and returns once it
// serves. The caller ends it with Stop. Cancelling ctx afterwards changes
// nothing.
func Up(ctx context.Context, options Options) (*Lab, error) {
	executables, err := prepare(ctx, options)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		l, err := up(ctx, options, executables)
		// A port that was free a moment ago may be somebody else's by now.
		var taken *portInUse
		if errors.As(err, &taken) && attempt < 3 {
			continue
		}
		return l, err
	}
}

func up(ctx context.Context, options Options, x *executables) (l *Lab, err error) {
	parts := options.Parts
	e, err := newEnvironment()
	if err != nil {
		return nil, err
	}
	l = &Lab{environment: e}
	defer func() {
		if err != nil {
			l.Stop()
			l = nil
		}
	}()

	ports, err := freePorts(17)
	if err != nil {
		return l, err
	}
	if l.credentials, err = newCredentials(e.dir); err != nil {
		return l, err
	}
	l.Etcd = newEtcd(e, x.etcd, [2]int(ports[0:2]))
	l.APIServer = newAPIServer(e, x.apiServer, ports[2], ports[0], l.credentials)
	if options.AuditPolicy != "" {
		if err := l.audit(options.AuditPolicy); err != nil {
			return l, err
		}
	}
	if err := l.credentials.writeKubeconfig(l.Kubeconfig(), ports[2]); err != nil {
		return l, err
	}
	if l.dynamic, err = dynamic.NewForConfig(l.RESTConfig()); err != nil {
		return l, err
	}
	for _, p := range []*Process{l.Etcd, l.APIServer} {
		if err := startInTime(ctx, p); err != nil {
			return l, err
		}
	}
	if parts == Bare {
		return l, nil
	}
	if err := installCRDs(ctx, l.RESTConfig(), x.crds); err != nil {
		return l, err
	}
	if parts == CRDs {
		return l, nil
	}

	if l.git, err = newGitServer(filepath.Join(e.dir, "git")); err != nil {
		return l, err
	}
	if parts.flux() {
		l.SourceController, err = newSourceController(e, x.sourceController, l.Kubeconfig(), [3]int(ports[3:6]))
		if err != nil {
			return l, err
		}
		l.KustomizeController = newKustomizeController(e, x.kustomizeController, l.Kubeconfig(), [2]int(ports[6:8]))
	}
	if parts.argoCD() {
		if err := l.addArgoCD(ctx, x, [4]int(ports[8:12])); err != nil {
			return l, err
		}
	}
	if parts == All {
		l.HelmController = newHelmController(e, x.helmController, l.Kubeconfig(), [2]int(ports[12:14]))
		l.ApplicationSetController = newApplicationSetController(e, x.argoCD, l.Kubeconfig(), l.RepoServer.ports[0], [3]int(ports[14:17]))
	}
	return l, l.startControllers(ctx)
}

// startControllers starts what works for the objects in the API server, all at
// the same time.
func (l *Lab) startControllers(ctx context.Context) error {
	controllers := l.controllers()
	errs := make([]error, len(controllers))
	var starts sync.WaitGroup
	for i, p := range controllers {
		starts.Go(func() { errs[i] = startInTime(ctx, p) })
	}
	starts.Wait()
	return errors.Join(errs...)
}

func startInTime(ctx context.Context, p *Process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return p.start(ctx)
}

// Stop ends every process and removes all state.
func (l *Lab) Stop() error {
	var errs []error
	// Nothing of it is needed again, so no process gets to finish its work.
	for _, p := range l.processes() {
		errs = append(errs, p.end(syscall.SIGKILL))
	}
	if l.git != nil {
		errs = append(errs, l.git.close())
	}
	errs = append(errs, l.environment.remove())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop the lab: %w", err)
	}
	return nil
}

// processes lists what runs, those that depend on others first.
func (l *Lab) processes() []*Process {
	var all []*Process
	for _, p := range append(l.controllers(), l.Redis, l.APIServer, l.Etcd) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// controllers lists what works for the objects in the API server.
func (l *Lab) controllers() []*Process {
	var all []*Process
	for _, p := range []*Process{
		l.ApplicationSetController, l.ApplicationController, l.RepoServer,
		l.HelmController, l.KustomizeController, l.SourceController,
	} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// RESTConfig returns a new configuration that reaches the API server as
// its administrator, without a rate limit of the client's.
func (l *Lab) RESTConfig() *rest.Config {
	return l.credentials.config(l.APIServer.ports[0], l.credentials.admin)
}

// Dynamic returns the administrator's client.
func (l *Lab) Dynamic() dynamic.Interface { return l.dynamic }

// Kubeconfig is the path of a file with the administrator's access.
func (l *Lab) Kubeconfig() string { return filepath.Join(l.environment.dir, "kubeconfig") }

// Logs is the folder with what the processes print, one file for each.
func (l *Lab) Logs() string { return l.environment.logs() }
