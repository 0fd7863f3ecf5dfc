package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// trouble is what happens to one request.
type trouble struct {
	name  string
	fault fake.Fault
	// writes is trouble that makes a difference to writes alone.
	writes bool
}

var troubles = []trouble{
	{name: "finds no server", fault: fake.Fault{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}},
	{name: "fails in the server", fault: fake.Fault{Err: apierrors.NewInternalError(errors.New("leader changed"))}, writes: true},
	{name: "meets a conflict", fault: fake.Fault{Err: apierrors.NewConflict(kustomizations.GroupResource(), "app", errors.New("it changed"))}, writes: true},
	{name: "loses its answer", fault: fake.Fault{Lost: io.ErrUnexpectedEOF}, writes: true},
}

// concerns reports whether a request is to get into this trouble.
func (t trouble) concerns(r fake.Request) bool { return !t.writes || isWrite(r) }

// at is the trouble of the n-th request.
func (t trouble) at(n int) fake.Fault {
	fault := t.fault
	fault.Nth = n
	return fault
}

func isWrite(r fake.Request) bool { return r.Verb == "patch" }

// Whatever happens to any one request of an ask, the ask ends as if nothing had happened, or has not started; and
// the Kustomization is left as it is to be.
func TestOneRequestInTroubleHarmsNoAsk(t *testing.T) {
	t.Parallel()
	for _, f := range flows {
		for _, trouble := range troubles {
			t.Run(f.name+", "+trouble.name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					f.prepared(w)
					for i, request := range w.undisturbed(f) {
						if !trouble.concerns(request) {
							continue
						}
						a := w.attempt(f, i+1)
						fault, landed := trouble.at(i+1), false
						fault.After = func(fake.Request) { landed = a.asked() }
						a.view.Inject(fault)
						r := a.run(w.Context())
						require.NoError(w, r.err, "%v", request)
						if r.refused != nil {
							a.notStarted()
						} else {
							a.ended(r.end, !landed)
						}
						if w.Failed() {
							w.Fatalf("in trouble: %v", request)
						}
					}
				})
			})
		}
	}
}

// asked reports whether the Kustomization carries the token of the ask.
func (a *attempt) asked() bool {
	return a.get(kustomizations, "app").GetAnnotations()[requestedAt] == a.ask.Token
}

// death is how a process dies at a request.
type death struct {
	name string
	// processed is a request that the API server carried out. For one that writes nothing, that is the same as to
	// die before the next.
	processed bool
}

var deaths = []death{{"before it is sent", false}, {"after it was processed", true}}

var errDied = errors.New("the process died")

// strike makes the process of view die at its n-th request, and never send another one.
func (d death) strike(view *fake.View, n int, die func()) {
	fault := fake.Fault{Nth: n, Err: errDied, Before: func(fake.Request) { die() }}
	if d.processed {
		fault = fake.Fault{Nth: n, Lost: errDied, After: func(fake.Request) { die() }}
	}
	view.Inject(fault)
	view.Inject(fake.Fault{Err: errDied, Match: func(r fake.Request) bool { return r.Index > n }})
}

// Wherever a process dies, the next one follows what is recorded to the right end; and where nothing is recorded, nothing
// was started.
func TestAnotherProcessTakesOverWhereverOneDies(t *testing.T) {
	t.Parallel()
	for _, f := range flows {
		for _, d := range deaths {
			for _, kept := range []bool{true, false} {
				if !kept && f.name != "held" {
					continue // whoever takes over asks for the same whatever the flow
				}
				t.Run(fmt.Sprintf("%s, %s, suspend token kept %t", f.name, d.name, kept), func(t *testing.T) {
					t.Parallel()
					inWorld(t, func(w *world) {
						f.prepared(w)
						for i, request := range w.undisturbed(f) {
							if d.processed && !isWrite(request) {
								continue
							}
							a := w.attempt(f, i+1)
							if a.die(d, i+1) {
								a.takenOver(kept)
							}
							if w.Failed() {
								w.Fatalf("died at: %v", request)
							}
						}
					})
				})
			}
		}
	}
}

// die runs the attempt in a process that dies at its n-th request. It returns false if it needed fewer.
func (a *attempt) die(d death, n int) bool {
	a.Helper()
	ctx, cancel := context.WithCancelCause(a.Context())
	defer cancel(nil)
	d.strike(a.view, n, func() { cancel(errDied) })
	r := a.run(ctx)
	if ctx.Err() == nil {
		require.NoError(a, errors.Join(r.refused, r.err))
		a.ended(r.end, false)
		return false
	}
	require.Error(a, errors.Join(r.refused, r.err), "the process lived on")
	return true
}

// takenOver lets another process follow what is recorded.
func (a *attempt) takenOver(suspendToken bool) {
	a.Helper()
	if a.recorded == nil {
		synctest.Wait()
		a.notStarted()
		return
	}
	recovered := a.recovered(suspendToken)
	// A live stamp that was not made leaves no trace, and may still be on its way until the host gives up waiting.
	recovered.Overdue = a.flow.live && !a.asked()
	end, err := applier.Follower{}.Follow(a.Context(), a.observer, app, &recovered, nil)
	require.NoError(a, err)
	a.ended(end, true)
}

// What Suspend and Release could not do for one request in trouble is done by calling them again.
func TestSuspendAndReleaseAreSafeToRepeat(t *testing.T) {
	t.Parallel()
	operations := map[string]struct {
		// undo brings the Kustomization back to where the operation begins.
		undo, do  func(ctx context.Context, c *flux.Client) error
		suspended bool
	}{
		"suspend": {undo: releaseApp, do: suspendApp, suspended: true},
		"release": {undo: suspendApp, do: releaseApp},
	}
	for name, o := range operations {
		for _, trouble := range troubles {
			t.Run(name+", "+trouble.name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					w.applied()
					undisturbed := func() []fake.Request {
						client, view := w.newClient()
						require.NoError(w, o.do(w.Context(), client))
						return view.Requests()
					}
					prepare := func() {
						client, _ := w.newClient()
						require.NoError(w, o.undo(w.Context(), client))
						synctest.Wait()
					}
					prepare()
					for i, request := range undisturbed() {
						if !trouble.concerns(request) {
							continue
						}
						prepare()
						client, view := w.newClient()
						view.Inject(trouble.at(i + 1))
						if err := o.do(w.Context(), client); err != nil {
							require.NoError(w, o.do(w.Context(), client), "again")
						}
						w.after(time.Second)
						suspension, err := client.Suspension(w.Context(), app)
						require.NoError(w, err)
						assert.Equal(w, o.suspended, suspension.Held, "%v", request)
						assert.Equal(w, o.suspended, suspension.Suspended, "%v", request)
						assert.Contains(w, w.ks("app"), "Ready=True")
					}
				})
			})
		}
	}
}

func suspendApp(ctx context.Context, c *flux.Client) error {
	_, err := c.Suspend(ctx, app)
	return err
}

func releaseApp(ctx context.Context, c *flux.Client) error {
	_, err := c.Release(ctx, app)
	return err
}
