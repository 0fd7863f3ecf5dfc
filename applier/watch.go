package applier

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchRenewal is how long one watch is kept. It bounds how long a connection that went silent without
// being closed goes unnoticed.
const watchRenewal = 5 * time.Minute

// rereadAfter is how long an open watch may show nothing before the object is read.
const rereadAfter = time.Second

// WatchObject shows one object as it changes, as [Watcher] asks for: a backend's Watch is this call with its resource, in
// the applier's namespace. It needs the verbs get and watch.
//
// An API server begins a watch with what stands, so each costs one request. Where that does not come, because the
// object is not there or the server is a stand-in that does not replay, the object is read after a second. A watch is
// renewed every five minutes.
func WatchObject(ctx context.Context, resource dynamic.ResourceInterface, name string) <-chan *unstructured.Unstructured {
	w := objectWatch{resource: resource, name: name, out: make(chan *unstructured.Unstructured, 1)}
	go w.run(ctx)
	return w.out
}

type objectWatch struct {
	resource dynamic.ResourceInterface
	name     string
	out      chan *unstructured.Unstructured
	// newest is the resourceVersion last shown; a replayed older state is not shown after it.
	newest string
}

func (w *objectWatch) run(ctx context.Context) {
	defer close(w.out)
	restart := restartBackoff()
	for ctx.Err() == nil {
		opened, refused := w.once(ctx)
		if refused {
			return
		}
		if opened {
			restart = restartBackoff()
		}
		sleep(ctx, restart.Step())
	}
}

// restartBackoff spaces attempts to open a watch that failed or ended.
func restartBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
}

// once holds one watch until it ends.
func (w *objectWatch) once(ctx context.Context) (opened, refused bool) {
	ctx, cancel := context.WithTimeout(ctx, watchRenewal)
	defer cancel()
	watcher, err := w.resource.Watch(ctx, metav1.ListOptions{
		FieldSelector:       fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(),
		AllowWatchBookmarks: true,
	})
	if err != nil {
		return false, apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
	}
	defer watcher.Stop()

	reread := time.NewTimer(rereadAfter)
	defer reread.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, false
		case <-reread.C:
			switch w.read(ctx) {
			case AbsenceForbidden:
				return true, true
			case AbsenceUnknown, AbsenceNotServed:
				reread.Reset(rereadAfter)
			}
		case event, ok := <-watcher.ResultChan():
			if !ok || event.Type == watch.Error {
				return true, false
			}
			if w.take(event) {
				reread.Stop()
			}
		}
	}
}

// read shows what stands, if it could be read.
func (w *objectWatch) read(ctx context.Context) Absence {
	object, err := w.resource.Get(ctx, w.name, metav1.GetOptions{})
	absence := AbsenceOf(err)
	switch absence {
	case AbsenceNone:
		w.show(object)
	case AbsenceNotFound:
		w.show(nil)
	}
	return absence
}

// take shows what an event says, if it is of the object.
func (w *objectWatch) take(event watch.Event) bool {
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok || event.Type == watch.Bookmark || object.GetName() != w.name {
		return false
	}
	if event.Type == watch.Deleted {
		object = nil
	}
	w.show(object)
	return true
}

// show replaces what was not received yet.
func (w *objectWatch) show(object *unstructured.Unstructured) {
	if object != nil {
		if Older(object.GetResourceVersion(), w.newest) {
			return
		}
		w.newest = object.GetResourceVersion()
	}
	select {
	case <-w.out:
	default:
	}
	w.out <- object
}

// Older reports whether the resourceVersion a of an object is known to come before its resourceVersion b. It is false for what is
// no resourceVersion.
func Older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
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
