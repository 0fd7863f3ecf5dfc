package fake_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// What others do to a Kustomization while its health is waited for, half a minute long, and how the operation ends.
func TestAnAskEndsAsItShouldUnderOtherHands(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		hand     func(w *world)
		state    applier.State
		reason   string
		released bool
	}{
		{
			name:  "flux reconcile stamps over the token",
			hand:  func(w *world) { w.stamp(kustomizations, "theirs") },
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded",
		},
		{
			name:  "flux suspend comes first",
			hand:  func(w *world) { w.patch(kustomizations, "app", `{"spec":{"suspend":true}}`) },
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded",
		},
		{
			name: "a newer commit is fetched",
			hand: func(w *world) {
				w.push("newer", value("newer"))
				w.stamp(gitRepositories, "newer")
			},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther,
		},
		{
			name:  "a parent applies spec.suspend",
			hand:  func(w *world) { w.apply("parent", map[string]any{"suspend": false}, "parent") },
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded", released: true,
		},
		{
			name:  "somebody deletes it",
			hand:  func(w *world) { w.delete(kustomizations) },
			state: applier.StateFailed, reason: applier.ReasonDeleting, released: true,
		},
		{
			name:  "the controller is stopped and starts again",
			hand:  func(w *world) { w.flux.Kustomize.Stop(); w.after(time.Minute); w.flux.Kustomize.Start() },
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				f := flow{slow: true}
				f.prepared(w)
				a := w.attempt(f, 1)
				w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Delay: 20 * time.Second})
				// The suspend takes its time, as on a network: what the controller has queued begins before it.
				a.view.Inject(fake.Fault{Verb: "patch", Resource: kustomizations.Resource, Nth: 2, Delay: time.Millisecond})
				time.AfterFunc(10*time.Second, func() { test.hand(w) })
				r := a.run(w.Context())
				require.NoError(w, r.refused)
				require.NoError(w, r.err)
				assert.Equal(w, test.state, r.end.State, "%+v", r.end)
				assert.Equal(w, test.reason, r.end.Reason)
				w.after(time.Hour)
				if !test.released {
					a.left()
				}
			})
		})
	}
}

func TestARunThatNobodyWaitsForEndsInterruptedWhenItIsCutOff(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		f := flow{slow: true, overdue: true}
		f.prepared(w)
		a := w.attempt(f, 1)
		w.flux.Inject(fake.StepFault{Step: fake.HealthStep, Nth: 1, Delay: time.Hour})
		time.AfterFunc(5*time.Second, w.flux.Kustomize.Stop)
		time.AfterFunc(10*time.Second, w.flux.Kustomize.Start)
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		started, err := a.client.Request(ctx, app, a.ask)
		require.NoError(w, err)
		w.after(time.Second)
		started.Overdue = true
		end, err := applier.Follower{}.Follow(ctx, a.client, app, &started, nil)
		require.NoError(w, err)
		assert.Equal(w, applier.StateFailed, end.State)
		assert.Equal(w, applier.ReasonInterrupted, end.Reason)
		a.left()
		assert.Equal(w, a.value, w.data("cm"), "what it applied is there all the same")
	})
}
