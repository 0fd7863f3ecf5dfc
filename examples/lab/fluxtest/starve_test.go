package fluxtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// suspending matches our writes that suspend the Kustomization, resuming those that resume it.
var suspending, resuming = stating("true"), stating("false")

func stating(suspend string) lab.Matcher {
	return func(r lab.Request) bool {
		return toKustomizations(r) && strings.Contains(string(r.Body), `"suspend":`+suspend)
	}
}

// writeStatus changes the status, and with it the resourceVersion, as a reconcile does.
func (s *subject) writeStatus(ctx context.Context, n int) error {
	patch := fmt.Sprintf(`{"status":{"lastAppliedOriginRevision":"write-%d"}}`, n)
	_, err := s.kustomizations().Patch(ctx, s.ref.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "status-writer"}, "status")
	return err
}

func TestAStatusWriteBeforeEachTryDoesNotStarveTheSuspend(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	interfere := func(t *testing.T, a *attempt) {
		writes := 0
		a.faults.On(suspending, 0, lab.Before(func() {
			writes++
			assert.NoError(t, a.writeStatus(t.Context(), writes))
		}))
	}
	t.Run("after an operation", func(t *testing.T) {
		t.Parallel()
		a := held(t, l).attempt(t, heldFlow)
		interfere(t, a)
		a.requireSucceeded(t, a.run(t))
		a.requireForced(t)
	})
	t.Run("by Suspend", func(t *testing.T) {
		t.Parallel()
		a := held(t, l).attempt(t, heldFlow)
		interfere(t, a)
		token, err := a.client.Suspend(t.Context(), a.ref)
		require.NoError(t, err)
		assert.Equal(t, token, requested(a.get(t)))
		a.requireForced(t)
	})
}

// requireForced fails the test unless the suspend was tried five times over what was last read, and then over whatever stands.
func (a *attempt) requireForced(t *testing.T) {
	t.Helper()
	var guarded []bool
	tokens := map[string]bool{}
	for _, r := range a.faults.Requests() {
		if !suspending(r) {
			continue
		}
		body := bodyOf(t, r)
		assert.Equal(t, string(a.before.GetUID()), body.Metadata.UID)
		guarded = append(guarded, body.Metadata.ResourceVersion != "")
		tokens[body.Metadata.Annotations[fluxmeta.ReconcileRequestAnnotation]] = true
		if len(guarded) == 6 {
			break // what follows is guarded, and tried over a state from before that the watch shows late
		}
	}
	assert.Equal(t, []bool{true, true, true, true, true, false}, guarded)
	assert.Len(t, tokens, 1, "each try is the same suspend")
}

func TestAStatusWriterThatNeverRestsDoesNotStarveTheSuspend(t *testing.T) {
	t.Parallel()
	a := held(t, lab.Start(t)).attempt(t, heldFlow)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	// Not before the run has ended: a controller that can never write its conditions leaves Ready Unknown.
	a.faults.On(suspending, 1, lab.Before(func() {
		assert.NoError(t, a.writeStatus(ctx, 0))
		writer.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				if err := a.writeStatus(ctx, n); ctx.Err() == nil {
					assert.NoError(t, err)
				}
			}
		})
	}))

	a.requireSucceeded(t, a.run(t))

	a.requireHeld(t)
}

func TestARequestGivesUpOnAKustomizationThatChangesBeforeEachTry(t *testing.T) {
	t.Parallel()
	a := held(t, lab.Start(t)).attempt(t, heldFlow)
	writes := 0
	a.faults.On(resuming, 0, lab.Before(func() {
		writes++
		assert.NoError(t, a.writeStatus(t.Context(), writes))
	}))

	r := a.run(t)

	assert.ErrorContains(t, r.refused, fmt.Sprintf("Kustomization %s in cluster lab was not asked: it changed at each of 5 tries", a.ref))
	assert.Equal(t, 5, a.faults.Count(resuming))
	assert.Equal(t, 1, a.records)
	a.requireNotStarted(t)
	a.requireHeld(t)
}

func TestASuspendThatWasSentAgainIsRecognizedAsMade(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	t.Run("after an operation", func(t *testing.T) {
		t.Parallel()
		a := held(t, l).attempt(t, heldFlow)
		a.faults.On(suspending, 1, processedThenSentAgain.action)
		r := a.run(t)
		a.requireSucceeded(t, r)
		assert.Equal(t, requested(a.get(t)), r.end.SuspendToken)
		assert.Equal(t, 2, a.faults.Count(suspending), "sent, and sent again by client-go")
	})
	t.Run("by Suspend", func(t *testing.T) {
		t.Parallel()
		a := held(t, l).attempt(t, heldFlow)
		a.faults.On(suspending, 1, processedThenSentAgain.action)
		token, err := a.client.Suspend(t.Context(), a.ref)
		require.NoError(t, err)
		assert.Equal(t, requested(a.get(t)), token)
		assert.Equal(t, 2, a.faults.Count(suspending), "sent, and sent again by client-go")
	})
}
