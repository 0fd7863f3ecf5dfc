package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watchTimeout ends a watch that set no timeout. The real server takes a random time from 30 to 60 minutes.
const watchTimeout = 45 * time.Minute

// A watcher is one watch. Whatever happens is put into its queue, which has no bound, so that a write never waits for
// a reader; the reader of its stream takes it out.
type watcher struct {
	server    *Server
	store     *store
	version   *version
	query     *query
	namespace string
	timeout   time.Time

	// The server's lock guards these two.
	queue []func() ([]byte, error)
	ended bool

	// wake has room for one signal: that there is something in the queue, or that the watch ended.
	wake chan struct{}
}

func (s *Server) watch(ctx context.Context, r *Request, v *version) (*Response, error) {
	q, err := r.query(v)
	if err != nil {
		return nil, err
	}
	timeout := watchTimeout
	if seconds := q.options.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timeout = time.Duration(*seconds) * time.Second
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{
		server: s, store: s.stores[v.kind.store()], version: v, query: q, namespace: v.namespaceOf(r),
		timeout: time.Now().Add(timeout),
		wake:    make(chan struct{}, 1),
	}
	if err := w.start(); err != nil {
		return nil, err
	}
	response := jsonResponse(http.StatusOK, nil)
	response.Stream = &stream{watcher: w, ctx: ctx, timer: time.NewTimer(timeout)}
	return response, nil
}

// start fills the queue with what the watcher has to see first: the objects as they are, or the changes since the
// revision it goes on from.
func (w *watcher) start() error {
	options := w.query.options
	from, err := parseRevision(options.ResourceVersion)
	if err != nil {
		return err
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	switch {
	case initial:
		if _, err := w.server.notOlderThan(options.ResourceVersion); err != nil {
			w.pushError(err)
			return nil
		}
		for _, e := range w.store.current(w.namespace) {
			if w.query.matches(e) {
				w.push(watch.Added, e)
			}
		}
		if options.AllowWatchBookmarks {
			w.pushBookmark(w.server.revision, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	case from == 0:
		// No initial events and no revision: from now on.
	case from < w.store.compacted:
		w.pushError(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, w.store.compacted)))
		return nil
	default:
		for _, change := range w.store.since(from) {
			w.add(change)
		}
	}
	w.store.watchers[w] = struct{}{}
	return nil
}

func parseRevision(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	revision, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, invalidRevision(text, err)
	}
	return revision, nil
}

// add puts a change into the queue, as far as the watcher selects it. What comes to match its selectors is added for
// it, what no longer does is deleted.
func (w *watcher) add(change *event) {
	if w.namespace != "" && change.object.meta().GetNamespace() != w.namespace {
		return
	}
	is := change.kind != watch.Deleted && w.query.matches(change.object)
	was := change.old != nil && w.query.matches(change.old)
	switch {
	case is && was:
		w.push(watch.Modified, change.object)
	case is:
		w.push(watch.Added, change.object)
	case was && change.kind == watch.Deleted:
		w.push(watch.Deleted, change.object)
	case was:
		w.push(watch.Deleted, change.old.at(change.revision))
	}
}

func (w *watcher) push(kind watch.EventType, e *entry) {
	w.enqueue(func() ([]byte, error) {
		object, err := e.json(w.version)
		return frame(kind, object, err)
	})
}

// bookmark tells the watcher how far the server is, if it wants to know.
func (w *watcher) bookmark(revision uint64) {
	if w.query.options.AllowWatchBookmarks {
		w.pushBookmark(revision, nil)
	}
}

func (w *watcher) pushBookmark(revision uint64, annotations map[string]string) {
	meta := map[string]any{"resourceVersion": strconv.FormatUint(revision, 10)}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	w.enqueue(func() ([]byte, error) {
		object, err := json.Marshal(map[string]any{
			"apiVersion": w.version.apiVersion(), "kind": w.version.kind.names.Kind, "metadata": meta,
		})
		return frame(watch.Bookmark, object, err)
	})
}

// pushError is what a watch gets that cannot start: one error, then the end.
func (w *watcher) pushError(err error) {
	w.enqueue(func() ([]byte, error) {
		object, err := json.Marshal(errorStatus(err))
		return frame(watch.Error, object, err)
	})
	w.ended = true
}

func frame(kind watch.EventType, object []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, object), nil
}

func (w *watcher) enqueue(event func() ([]byte, error)) {
	w.queue = append(w.queue, event)
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (st *store) endWatches() {
	for w := range st.watchers {
		w.ended = true
		delete(st.watchers, w)
		w.signal()
	}
}

// next takes one event out of the queue. It reports whether there was one, and whether more can come.
func (w *watcher) next() (data []byte, found, open bool, err error) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if len(w.queue) == 0 {
		return nil, false, !w.ended, nil
	}
	event := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	data, err = event()
	return data, true, true, err
}

func (w *watcher) stop() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.ended = true
	w.queue = nil
	delete(w.store.watchers, w)
	w.signal()
}

// A stream is a watch as the body of an HTTP response.
type stream struct {
	watcher *watcher
	ctx     context.Context
	timer   *time.Timer
	rest    bytes.Buffer
}

var _ io.ReadCloser = (*stream)(nil)

func (b *stream) Read(p []byte) (int, error) {
	for b.rest.Len() == 0 {
		data, found, open, err := b.watcher.next()
		switch {
		case err != nil:
			return 0, err
		case found:
			b.rest.Write(data)
		case !open:
			return 0, io.EOF
		default:
			if err := b.wait(); err != nil {
				return 0, err
			}
		}
	}
	return b.rest.Read(p)
}

// wait blocks until the queue may have something, or the watch is over.
func (b *stream) wait() error {
	select {
	case <-b.watcher.wake:
		return nil
	case <-b.timer.C:
		return io.EOF
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

func (b *stream) Close() error {
	b.timer.Stop()
	b.watcher.stop()
	return nil
}
