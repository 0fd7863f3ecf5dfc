package gitopsprovider

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// blindAfter is how long no answer has to come before a watch says that it sees nothing.
	blindAfter = 30 * time.Second
	// steadyAfter is how long a watch has to last for the next to be opened without delay.
	steadyAfter = 5 * time.Second
	// refusedRetry is how long a watch waits that is refused, or whose kind is not served.
	refusedRetry = time.Minute
)

// Watch shows the objects of a kind in the whole cluster, by client-go's Reflector. It needs the verbs list and
// watch.
func (r *ClusterReader) Watch(ctx context.Context, kind Kind, show func(Sighting)) {
	w := &kindWatch{reader: r, kind: kind, show: show, answer: AnswerFound, versions: map[string]seenObject{}}
	ctx = logr.NewContext(ctx, logr.Discard())
	backoff := watchBackoff()
	for ctx.Err() == nil {
		began := time.Now()
		err := r.inVersion(kind, func(resource dynamic.NamespaceableResourceInterface) error { return w.once(ctx, resource) })
		if err != nil {
			w.became(ctx, err)
		}
		switch answer := AnswerOf(err); {
		case answer == AnswerForbidden || answer == AnswerNotServed:
			sleep(ctx, refusedRetry)
		case err == nil && time.Since(began) >= steadyAfter:
			backoff = watchBackoff()
		default:
			sleep(ctx, backoff.Step())
		}
	}
}

func watchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 30 * time.Second}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kindWatch is the store of a Reflector, and the way it reaches the API server. The Reflector uses it from one
// goroutine at a time.
type kindWatch struct {
	reader *ClusterReader
	kind   Kind
	show   func(Sighting)
	// answer is what was last shown of the watch itself, lostSince when it began to fail.
	answer    Answer
	lostSince time.Time
	// versions are the objects shown, by UID.
	versions map[string]seenObject
}

// seenObject is an object that was shown, and in which version.
type seenObject struct {
	Object          Object
	resourceVersion string
}

var _ cache.ReflectorStore = (*kindWatch)(nil)

// once lists and watches until the watch ends.
func (w *kindWatch) once(ctx context.Context, resource dynamic.ResourceInterface) error {
	listed := false
	lists := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := resource.List(ctx, options)
			if listed = err == nil; !listed {
				w.reached(ctx, err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			watcher, err := resource.Watch(ctx, options)
			w.reached(ctx, err)
			if err == nil && listed {
				// An API server goes on from the list; a stand-in may begin with the watch, and lose what came between.
				listed = false
				w.reread(ctx, resource)
			}
			return watcher, err
		},
	}
	watcher := cache.ToListWatcherWithWatchListSemantics(lists, w.reader.client)
	reflector := cache.NewReflectorWithOptions(watcher, &unstructured.Unstructured{}, w, cache.ReflectorOptions{Name: w.kind.Resource})
	return reflector.ListAndWatchWithContext(ctx)
}

// reread shows what has changed since it was shown.
func (w *kindWatch) reread(ctx context.Context, resource dynamic.ResourceInterface) {
	var objects []any
	err := eachOf(ctx, resource, metav1.ListOptions{}, func(u *unstructured.Unstructured) { objects = append(objects, u) })
	if err == nil {
		_ = w.Replace(objects, "")
	}
}

// reached notes what became of one request, other than that this version is not served: another may be.
func (w *kindWatch) reached(ctx context.Context, err error) {
	if AnswerOf(err) != AnswerNotServed {
		w.became(ctx, err)
	}
}

// became shows that the kind cannot be watched, or can be again. No answer is shown only once it has lasted.
func (w *kindWatch) became(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	answer := AnswerOf(err)
	if answer == AnswerAbsent {
		answer = AnswerUnknown
	}
	switch {
	case answer != AnswerUnknown:
		w.lostSince = time.Time{}
	case w.lostSince.IsZero():
		w.lostSince = time.Now()
		return
	case time.Since(w.lostSince) < blindAfter:
		return
	}
	if answer != w.answer {
		w.answer = answer
		w.show(Sighting{Answer: answer, Err: err})
	}
}

// Add shows an object that is new.
func (w *kindWatch) Add(object any) error { return w.Update(object) }

// Update shows an object that has changed.
func (w *kindWatch) Update(object any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	uid, version := string(u.GetUID()), u.GetResourceVersion()
	if seen, known := w.versions[uid]; known && seen.resourceVersion == version {
		return nil
	}
	described := w.reader.describe(w.kind, true, u)
	w.versions[uid] = seenObject{Object{Workload: described.Workload, Engine: described.Engine, UID: uid}, version}
	w.show(Sighting{Answer: AnswerFound, Object: described})
	return nil
}

// Delete shows that an object is gone.
func (w *kindWatch) Delete(object any) error {
	if u, ok := object.(*unstructured.Unstructured); ok {
		w.forget(string(u.GetUID()))
	}
	return nil
}

func (w *kindWatch) forget(uid string) {
	if seen, known := w.versions[uid]; known {
		delete(w.versions, uid)
		w.show(Sighting{Answer: AnswerAbsent, Object: seen.Object})
	}
}

// Replace shows what differs from what was shown.
func (w *kindWatch) Replace(objects []any, _ string) error {
	stand := map[string]bool{}
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok {
			stand[string(u.GetUID())] = true
			_ = w.Update(u)
		}
	}
	for uid := range w.versions {
		if !stand[uid] {
			w.forget(uid)
		}
	}
	return nil
}

// Resync does nothing: what stands was shown.
func (w *kindWatch) Resync() error { return nil }
