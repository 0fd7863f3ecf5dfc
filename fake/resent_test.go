package fake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// sentTwice makes client-go send a view's first write twice: the first answer leaves open whether it was made, and asks to send
// it again. The second is forbidden, as by an API server that has just started.
func sentTwice(view *fake.View, verb string, resource schema.GroupVersionResource, meanwhile func()) {
	view.Inject(fake.Fault{
		Verb: verb, Resource: resource.Resource, Nth: 1, Err: apierrors.NewServerTimeout(resource.GroupResource(), verb, 1),
		Before: func(fake.Request) {
			if meanwhile != nil {
				meanwhile()
			}
		},
	})
	view.Inject(fake.Fault{Verb: verb, Resource: resource.Resource, Nth: 2, Err: apierrors.NewForbidden(resource.GroupResource(), "app", nil)})
}

func TestAWriteThatWasSentAgainAndRefusedMayHaveBeenMadeTheFirstTime(t *testing.T) {
	t.Parallel()
	for _, live := range []bool{false, true} {
		for name, test := range map[string]struct {
			meanwhile func(*attempt)
			// refused is where the first can neither have been made nor be on its way.
			refused bool
		}{
			"it may be on its way": {},
			"it was made":          {meanwhile: (*attempt).landedFirst},
			"it was made, and somebody stamped over it": {meanwhile: func(a *attempt) {
				a.landedFirst()
				a.stamp(kustomizations, "somebody's")
				time.Sleep(time.Second)
			}},
			"it was made and ran, and the Kustomization was deleted": {meanwhile: func(a *attempt) {
				a.landedFirst()
				a.delete(kustomizations)
				time.Sleep(time.Second)
			}},
			"it was made, and the Kustomization was replaced": {meanwhile: func(a *attempt) {
				a.landedFirst()
				a.delete(kustomizations)
				time.Sleep(time.Second)
				a.kustomization()
			}},
			"the Kustomization changed, and it can no longer be made": {
				meanwhile: func(a *attempt) { a.patch(kustomizations, "app", `{"metadata":{"labels":{"a":"b"}}}`) }, refused: true,
			},
		} {
			t.Run(map[bool]string{false: "held, ", true: "live, "}[live]+name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					f := flow{live: live}
					f.prepared(w)
					a := w.attempt(f, 1)
					w.after(time.Minute)
					meanwhile := func() {}
					if test.meanwhile != nil {
						meanwhile = func() { test.meanwhile(a) }
					}
					sentTwice(a.view, "patch", kustomizations, meanwhile)
					started, err := a.client.Request(w.Context(), app, a.ask)
					if test.refused {
						assert.Equal(w, applier.ReasonForbidden, applier.VerdictReason(err))
						assert.Zero(w, started)
						return
					}
					require.NoError(w, err)
					assert.Equal(w, a.ask.Token, started.Token)
					if name != "it was made" {
						assert.ErrorIs(w, started.Unconfirmed, applier.ErrUnconfirmed)
						assert.ErrorContains(w, started.Unconfirmed, "Kustomization team-a/app in cluster prod")
					}
				})
			})
		}
	}
}

// landedFirst makes the write of the attempt, and lets it run.
func (a *attempt) landedFirst() {
	if a.flow.live {
		a.stamp(kustomizations, a.ask.Token)
	} else {
		a.apply("host", map[string]any{"suspend": false}, a.ask.Token)
	}
	time.Sleep(time.Second)
	assert.Equal(a, a.value, a.data("cm"))
}

func TestAnUpdateThatWasSentAgainAndRefusedMayHaveBeenMadeTheFirstTime(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*argoWorld)
		refused   bool
	}{
		"it may be on its way": {},
		"the Application was deleted": {meanwhile: func(w *argoWorld) {
			w.delete()
		}},
		"the Application was replaced": {meanwhile: func(w *argoWorld) {
			w.delete()
			w.application()
		}},
		"the Application changed, and it can no longer be made": {
			meanwhile: func(w *argoWorld) {
				w.update(func(app fields) { app["metadata"].(fields)["labels"] = fields{"a": "b"} })
			}, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				ask := w.ask(w.push("two", value("two")))
				view := w.cluster.As("host", nil)
				meanwhile := func() {}
				if test.meanwhile != nil {
					meanwhile = func() { test.meanwhile(w) }
				}
				sentTwice(view, "update", applications, meanwhile)
				started, err := w.through(view).Request(w.Context(), argoApp, ask)
				if test.refused {
					assert.Equal(w, applier.ReasonForbidden, applier.VerdictReason(err))
					assert.Zero(w, started)
					return
				}
				require.NoError(w, err)
				assert.Equal(w, ask.Token, started.Token)
				assert.ErrorIs(w, started.Unconfirmed, applier.ErrUnconfirmed)
				assert.ErrorContains(w, started.Unconfirmed, "Application team-a/app in cluster prod")
			})
		})
	}
}
