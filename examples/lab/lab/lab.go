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
	// Flux is all there is: API server, CRDs, controllers and Git server.
	Flux Parts = iota
	// CRDs is the API server with Flux's kinds, and nobody who reconciles them.
	CRDs
	// Bare is the API server alone. It serves no kind of Flux's.
	Bare
)

// Options for [Up]. The zero value starts everything and reports to stderr.
type Options struct {
	Parts    Parts
	Progress io.Writer // nil means os.Stderr
}

// Lab is a running control plane. It is safe for concurrent use; the handles
// of its processes are not, see [Alone].
type Lab struct {
	APIServer           *Process
	Etcd                *Process
	SourceController    *Process // nil without [Flux]
	KustomizeController *Process // nil without [Flux]

	environment *environment
	credentials *credentials
	git         *gitServer // nil without Flux
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
	etcd, apiServer, sourceController, kustomizeController string

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
	programs := []program{etcdProgram, apiServerProgram}
	if options.Parts == Flux {
		programs = append(programs, sourceControllerProgram, kustomizeControllerProgram)
	}
	paths, err := cache.ensure(ctx, programs...)
	if err != nil {
		return nil, err
	}
	x := &executables{etcd: paths[0], apiServer: paths[1]}
	if options.Parts == Flux {
		x.sourceController, x.kustomizeController = paths[2], paths[3]
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
		l, err := up(ctx, options.Parts, executables)
		// A port that was free a moment ago may be somebody else's by now.
		var taken *portInUse
		if errors.As(err, &taken) && attempt < 3 {
			continue
		}
		return l, err
	}
}

func up(ctx context.Context, parts Parts, x *executables) (l *Lab, err error) {
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

	ports, err := freePorts(8)
	if err != nil {
		return l, err
	}
	if l.credentials, err = newCredentials(e.dir); err != nil {
		return l, err
	}
	l.Etcd = newEtcd(e, x.etcd, [2]int(ports[0:2]))
	l.APIServer = newAPIServer(e, x.apiServer, ports[2], ports[0], l.credentials)
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
	l.SourceController, err = newSourceController(e, x.sourceController, l.Kubeconfig(), [3]int(ports[3:6]))
	if err != nil {
		return l, err
	}
	l.KustomizeController = newKustomizeController(e, x.kustomizeController, l.Kubeconfig(), [2]int(ports[6:8]))
	var controllers sync.WaitGroup
	var sourceErr, kustomizeErr error
	controllers.Go(func() { sourceErr = startInTime(ctx, l.SourceController) })
	controllers.Go(func() { kustomizeErr = startInTime(ctx, l.KustomizeController) })
	controllers.Wait()
	return l, errors.Join(sourceErr, kustomizeErr)
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
	for _, p := range []*Process{l.KustomizeController, l.SourceController, l.APIServer, l.Etcd} {
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
