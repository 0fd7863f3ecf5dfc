package fake

import (
	"context"
	"errors"
	"io"
)

// ErrCut is what the requests of a view fail with, wrapped by the client, after Cut.
var ErrCut = errors.New("fake: the client was cut off from the cluster")

// Cut ends the view's open watches and lets no further request through, as if the client's process had died or its
// network was gone. A request that is being processed is processed, but its answer is lost. Called from a Fault's
// Before or After it strikes just there.
func (v *View) Cut() {
	v.mu.Lock()
	v.cut = true
	var open []*openWatch
	for w := range v.watches {
		open = append(open, w)
	}
	v.mu.Unlock()
	for _, w := range open {
		w.cancel(ErrCut)
	}
}

// Mend undoes Cut. The watches that it ended stay ended.
func (v *View) Mend() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut = false
}

func (v *View) isCut() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.cut
}

// An openWatch is the body of a watch that Cut can end.
type openWatch struct {
	io.ReadCloser
	view   *View
	cancel context.CancelCauseFunc
}

func (v *View) open(ctx context.Context) (context.Context, *openWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &openWatch{view: v, cancel: cancel}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.watches[w] = struct{}{}
	return ctx, w
}

func (w *openWatch) Close() error {
	w.close()
	return w.ReadCloser.Close()
}

// close lets the view forget the watch. Nil has nothing to forget.
func (w *openWatch) close() {
	if w == nil {
		return
	}
	w.view.mu.Lock()
	delete(w.view.watches, w)
	w.view.mu.Unlock()
	w.cancel(nil)
}
