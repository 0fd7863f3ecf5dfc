package applier_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

func TestAnEventSaysWhenItIsNotKnownWhetherTheRequestReachedTheApplier(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{{Unconfirmed: errLost}}
		w.start()
		w.request(w.decided())
		require.NotEmpty(w, w.events)
		assert.Contains(w, w.events[0], "may have been asked to apply commit aaaaaaaaaaaa")
	})
}

func TestARunOfFailedRequestsIsToldOnceTargetsAreKnown(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.store.Inject(fake.StoreFault{Method: "Trigger", Nth: 1, Err: errAway})
		away := fake.Answer{Refuse: errAway}
		w.client.Answers = []fake.Answer{away, away}
		w.start()
		for range 3 {
			w.request(w.decided())
		}
		assert.Equal(w, []string{"ApplyRequestFailed"}, w.eventReasons())
	})
}

func TestAFailedApplyIsToldOnceItsTargetsCanBeRead(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		fails := fake.Fails("BuildFailed", "no such base")
		w.client.Answers = []fake.Answer{fails, fails, fails}
		w.start()
		// The first two reads of the target are for the request, and the third is for the Event.
		w.store.Inject(fake.StoreFault{Method: "Target", Nth: 3, Err: errAway})
		for range 3 {
			w.request(w.decided())
		}
		assert.Equal(w, []string{"ApplyRequested", "ApplyRequested", "ApplyFailed", "ApplyRequested"}, w.eventReasons())
	})
}

func TestATargetThatIsGoneEndsNoRunOfFailures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer     fake.Answer
		once, then []string
	}{
		"of requests": {fake.Answer{Refuse: errAway}, []string{"ApplyRequestFailed"}, nil},
		"of applies":  {fake.Fails("BuildFailed", "no such base"), []string{"ApplyRequested", "ApplyFailed"}, []string{"ApplyRequested"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inDispatchWorld(t, func(w *dispatchWorld) {
				gone := w.putTarget("gone").Ref
				w.store.DeleteTarget(gone)
				w.client.Answers = []fake.Answer{tc.answer}
				w.start()
				w.request(w.decided())
				require.Equal(w, tc.once, w.eventReasons())
				req := w.decided()
				req.Targets = []applier.TargetRef{gone}
				w.request(req)
				w.request(w.decided())
				assert.Equal(w, slices.Concat(tc.once, tc.then), w.eventReasons())
			})
		})
	}
}

func TestARunOfFailuresIsOverOnceNoneHasFailedForADay(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.client.Answers = []fake.Answer{{Refuse: errAway}}
		w.start()
		for _, pause := range []time.Duration{day, day + 2*time.Minute, 0} {
			w.request(w.decided())
			time.Sleep(pause)
		}
		assert.Equal(w, []string{"ApplyRequestFailed", "ApplyRequestFailed"}, w.eventReasons())
	})
}

func TestEachTargetIsToldUnlessItIsGone(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		other := w.putTarget("other")
		w.client.Answers = []fake.Answer{fake.Hangs()}
		w.start()
		req := w.decided()
		req.Targets = append(req.Targets, other.Ref)
		w.request(req)
		require.Equal(w, []string{"ApplyRequested", "ApplyRequested"}, w.eventReasons())
		w.store.DeleteTarget(w.target)
		w.client.Report(shopApp.NamespacedName(), applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: "no such base"})
		synctest.Wait()
		require.Len(w, w.events, 3)
		assert.Contains(w, w.events[0], "ApplyRequested shop: ")
		assert.Contains(w, w.events[1], "ApplyRequested other: ")
		assert.Equal(w, "Warning ApplyFailed other: BuildFailed: no such base", w.events[2])
	})
}

func TestAnAbandonedOperationThatFailsIsTold(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		w.hang()
		w.abandon()
		synctest.Wait()
		w.client.Report(shopApp.NamespacedName(), applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: "no such base"})
		synctest.Wait()
		assert.Equal(w, []string{"Requested", "Running"}, w.reported())
		assert.Equal(w, []string{"ApplyRequested", "ApplyFailed"}, w.eventReasons())
	})
}

func TestARunOfFailedRequestsIsOverOnceTheApplierNeededNone(t *testing.T) {
	t.Parallel()
	inDispatchWorld(t, func(w *dispatchWorld) {
		away := fake.Answer{Refuse: errAway}
		w.client.Answers = []fake.Answer{away, {Outcome: applier.OutcomeCurrent}, away}
		w.start()
		for range 3 {
			w.request(w.decided())
		}
		assert.Equal(w, []string{"ApplyRequestFailed", "ApplyRequestFailed"}, w.eventReasons())
	})
}
