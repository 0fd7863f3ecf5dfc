package fake_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// The write that starts the operation never arrives, and the API server is away for about as long as it might have.
func TestALiveApplyThatNeverBeganEndsSoonAfterTheAPIServerIsBack(t *testing.T) {
	t.Parallel()
	for away := 85 * time.Second; away < 110*time.Second; away += 1300 * time.Millisecond {
		for _, poll := range []time.Duration{applier.DefaultPollInterval, time.Minute} {
			t.Run(fmt.Sprintf("away for %v, polled every %v", away, poll), func(t *testing.T) {
				t.Parallel()
				inWorld(t, func(w *world) {
					f := flow{live: true}
					f.prepared(w)
					a := w.attempt(f, 1)
					a.view.Inject(fake.Fault{Verb: "patch", Resource: kustomizations.Resource, Err: io.ErrUnexpectedEOF, Before: func(fake.Request) { a.view.Cut() }})
					time.AfterFunc(away, a.view.Mend)
					began := time.Now()
					end, err := applier.Follower{PollInterval: poll}.Apply(w.Context(), a.client, app, a.ask, nil)
					require.ErrorIs(w, err, applier.ErrFailed)
					assert.Equal(w, applier.ReasonNotRun, end.Reason)
					assert.Less(w, time.Since(began), 4*time.Minute)
				})
			})
		}
	}
}

// The connection is not closed either, and every other request is answered.
func TestASuspendThatGetsNoAnswerIsSentAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		f := flow{}
		f.prepared(w)
		a := w.attempt(f, 1)
		a.view.Inject(fake.Fault{Verb: "patch", Resource: kustomizations.Resource, Nth: 2, Delay: 24 * time.Hour}) // The first one resumes.
		began := time.Now()
		_, err := applier.Apply(w.Context(), a.client, app, a.ask, nil)
		require.NoError(w, err)
		assert.Less(w, time.Since(began), 2*time.Minute)
	})
}
