package applier

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchRenewal is how long one watch is kept. It bounds how long a connection that went silent without
// being closed goes unnoticed.
const watchRenewal = 5 * time.Minute

// rereadAfter is how long a watch may show nothing before the object is read.
const rereadAfter = time.Second

// readTimeout bounds such a read, behind which events would wait.
const readTimeout = 10 * time.Second

// steadyAfter is how long a watch has to last for the next to be opened without delay.
const steadyAfter = 5 * time.Second

// refusalLasts is how long a watch that was open before, or a read, has to be refused until that is believed. An API server that has
// just started may refuse everything for a moment, before it has read who may do what, while a watch stays open at another.
const refusalLasts = 10 * time.Second

// WatchObject shows one object as it changes, as [Watcher] asks for. It needs the verbs get and watch on the object.
//
// An API server begins a watch with what stands, so each costs one request. Where that does not come, because the
// object is not there, the server is a stand-in that does not replay, or the watch does not open, the object is read
// after a second, and every second until the watch is open. A watch is renewed every five minutes.
//
// The channel is closed at once where the watch is refused and was never open. A watch that was open has to be refused for ten seconds,
// and so has a read: a server that has just started may refuse everything for a moment.
//
// It is for a single object. A backend's Watch is one of many, and built on [ObjectWatches].
func WatchObject(ctx context.Context, resource dynamic.ResourceInterface, name string) <-chan *unstructured.Unstructured {
	shown := newSight()
	go func() {
		defer shown.close()
		(&objectWatch{resource: resource, name: name, sight: shown}).run(ctx)
	}()
	return shown.out
}

// objectWatch is the watch of one object, for one sight of it.
type objectWatch struct {
	resource dynamic.ResourceInterface
	name     string
	sight    *sight
	// worked is whether a watch of the object was ever open.
	worked bool
	// unopened and unread are for how long the watch and its reads are refused.
	unopened, unread refusal
}

// run watches until ctx ends, or until it is believed that the API server refuses the watch, or the reads that it needs.
func (w *objectWatch) run(ctx context.Context) (refused bool) {
	restart := restartBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		if w.once(ctx) {
			return ctx.Err() == nil
		}
		if time.Since(began) >= steadyAfter {
			restart = restartBackoff()
		}
		sleep(ctx, restart.Step())
	}
	return false
}

// refusal is the time since which something is refused whenever it is tried; zero is not refused.
type refusal struct{ since time.Time }

// believed takes what became of an attempt, and returns whether to give it up: at once for what never worked.
func (r *refusal) believed(refused, worked bool) bool {
	switch {
	case !refused:
		r.since = time.Time{}
		return false
	case r.since.IsZero():
		r.since = time.Now()
	}
	return !worked || time.Since(r.since) >= refusalLasts
}

// restartBackoff spaces attempts to open a watch that failed or ended.
func restartBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
}

// once opens one watch and holds it until it ends. It returns whether to open no other.
func (w *objectWatch) once(ctx context.Context) (refused bool) {
	ctx, cancel := context.WithTimeout(ctx, watchRenewal)
	defer cancel()
	opening := w.open(ctx)
	var events <-chan watch.Event
	shown := false
	reread := time.NewTimer(rereadAfter)
	defer reread.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case opened := <-opening:
			if opened.err != nil {
				return w.notOpened(ctx, opened.err)
			}
			defer opened.watcher.Stop()
			events = opened.watcher.ResultChan()
			w.worked, w.unopened = true, refusal{}
		case <-reread.C:
			switch answered, refused := w.read(ctx); {
			case refused:
				return true
			case events == nil, !answered:
				reread.Reset(rereadAfter)
			default:
				shown = true
			}
		case event, ok := <-events:
			if !ok || event.Type == watch.Error {
				if !shown {
					_, refused = w.read(ctx)
				}
				return refused
			}
			if w.take(event) {
				shown, w.unread = true, refusal{}
				reread.Stop()
			}
		}
	}
}

// openedWatch is what became of opening a watch.
type openedWatch struct {
	watcher watch.Interface
	err     error
}

// open opens a watch, which can take as long as client-go tries again.
func (w *objectWatch) open(ctx context.Context) <-chan openedWatch {
	opening := make(chan openedWatch)
	go func() {
		watcher, err := w.resource.Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(),
		})
		select {
		case opening <- openedWatch{watcher, err}:
		case <-ctx.Done():
			if err == nil {
				watcher.Stop()
			}
		}
	}()
	return opening
}

// isRefusal reports whether a watch will not open when it is tried again either.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// notOpened takes why a watch did not open, reads the object instead, and returns whether to open no other.
func (w *objectWatch) notOpened(ctx context.Context, err error) (refused bool) {
	if isRefusal(err) {
		return w.unopened.believed(true, w.worked)
	}
	w.unopened = refusal{}
	_, refused = w.read(ctx)
	return refused
}

// read shows what stands, if that could be read. It also returns whether to believe that it may not be.
func (w *objectWatch) read(ctx context.Context) (answered, refused bool) {
	absence, _ := readSight(ctx, w.resource, w.name, w.sight)
	answered = absence == AbsenceNone || absence == AbsenceNotFound
	return answered, w.unread.believed(absence == AbsenceForbidden, true)
}

// take shows what an event says, if it is of the object.
func (w *objectWatch) take(event watch.Event) bool {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Bookmark || object.GetName() != w.name {
		return false
	}
	w.sight.changed(event.Type, object)
	return true
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
