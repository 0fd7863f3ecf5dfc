package fake_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/fake"
)

// A suspend that got no answer may still be on its way, also where nothing of it is to be seen. Another one that is answered
// keeps it from being made after the release.
func TestASuspendThatIsOnItsWayDoesNotLandAfterAReleaseThatASuspendPrecedes(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.applied()
		dying, view := w.newClient()
		view.Inject(fake.Fault{
			Verb: "patch", Resource: "kustomizations", Nth: 1,
			Before: func(fake.Request) { time.Sleep(30 * time.Second) }, After: func(fake.Request) { view.Cut() },
		})
		landed := make(chan struct{})
		go func() {
			defer close(landed)
			_, _ = dying.Suspend(w.Context(), app)
		}()
		w.after(10 * time.Second)

		next, _ := w.newClient()
		_, err := next.Suspend(w.Context(), app)
		require.NoError(w, err)
		keeper, err := next.Release(w.Context(), app)
		require.NoError(w, err)
		assert.Empty(w, keeper)

		<-landed
		w.after(time.Minute)
		stands, err := next.Suspension(w.Context(), app)
		require.NoError(w, err)
		assert.False(w, stands.Suspended, "%+v", stands)
		assert.Contains(w, w.ks("app"), "Ready=True")
	})
}
