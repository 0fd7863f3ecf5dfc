package dispatchertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// disruption is something that happens to the control plane or to the host while operations are in flight.
type disruption struct {
	name string
	do   func(t *testing.T, r *run)
}

// downtime is how long a process is down.
const downtime = 2 * time.Second

var disruptions = []disruption{
	{"kustomize-controller is stopped", func(t *testing.T, r *run) { restart(t, r, r.lab.KustomizeController.Stop, r.lab.KustomizeController) }},
	{"the host is killed", func(t *testing.T, r *run) { r.takeOver(t, r.host.kill) }},
	{"the API server is stopped", func(t *testing.T, r *run) { restart(t, r, r.stopAPIServer, r.lab.APIServer) }},
	{"application-controller is killed", func(t *testing.T, r *run) {
		restart(t, r, r.lab.ApplicationController.Kill, r.lab.ApplicationController)
	}},
	{"source-controller is stopped", func(t *testing.T, r *run) { restart(t, r, r.lab.SourceController.Stop, r.lab.SourceController) }},
	{"the host is killed while the API server is down", func(t *testing.T, r *run) {
		r.stopAPIServer(t)
		r.takeOver(t, r.host.kill)
		restart(t, r, r.stopAPIServer, r.lab.APIServer)
	}},
	{"kustomize-controller is killed, and then the host", func(t *testing.T, r *run) {
		r.lab.KustomizeController.Kill(t)
		r.takeOver(t, r.host.kill)
		restart(t, r, r.lab.KustomizeController.Kill, r.lab.KustomizeController)
	}},
	{"the host is stopped", func(t *testing.T, r *run) { r.takeOver(t, r.host.stop) }},
	{"source-controller is killed", func(t *testing.T, r *run) { restart(t, r, r.lab.SourceController.Kill, r.lab.SourceController) }},
	{"application-controller is stopped", func(t *testing.T, r *run) {
		restart(t, r, r.lab.ApplicationController.Stop, r.lab.ApplicationController)
	}},
}

// stopAPIServer stops the API server and takes note of when.
func (r *run) stopAPIServer(t testing.TB) {
	r.stops = append(r.stops, time.Now())
	r.lab.APIServer.Stop(t)
}

// restart ends a process, and starts it after a while. It starts whatever else gave up without it.
func restart(t *testing.T, r *run, end func(testing.TB), process *lab.Process) {
	t.Helper()
	end(t)
	sleep(t.Context(), downtime)
	process.Start(t)
	for _, p := range r.processes() {
		p.Start(t)
	}
}

// processes are those that have to run.
func (r *run) processes() []*lab.Process {
	return []*lab.Process{
		r.lab.APIServer, r.lab.SourceController, r.lab.KustomizeController, r.lab.RepoServer, r.lab.ApplicationController,
	}
}

// takeOver ends the host and starts another.
func (r *run) takeOver(t *testing.T, end func()) {
	t.Helper()
	end()
	r.hosts++
	r.host = r.startHost(t, fmt.Sprintf("host-%d", r.hosts))
}

// alice annotates one applier after another, until ctx ends, and returns the annotation that each was given last, where that
// is known.
func (w *world) alice(ctx context.Context) map[string]string {
	annotated := make(map[string]string)
	for n := 0; ctx.Err() == nil; n++ {
		s := w.subjects[(n*7)%len(w.subjects)]
		value := fmt.Sprint("note-", n)
		for w.annotate(context.WithoutCancel(ctx), s.resource(), s.name, value) != nil {
			if sleep(ctx, pauseAfterFailure); ctx.Err() != nil {
				delete(annotated, s.name)
				return annotated
			}
		}
		annotated[s.name] = value
		sleep(ctx, pauseAfterFailure)
	}
	return annotated
}
