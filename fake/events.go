package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/gitops-applier/gitops-applier/fake/internal/apiserver"
)

// keptEvents is how many Events of simulated controllers a cluster keeps. A real API server keeps them for an hour.
const keptEvents = 2000

// An eventLog writes Events into a cluster. It goes past views and their faults: what a test counts and strikes are the
// requests of its own.
type eventLog struct {
	cluster *Cluster

	mu     sync.Mutex
	latest int64
	kept   []types.NamespacedName
}

// instant is a time in nanoseconds that no other Event has. In a bubble time stands still.
func (l *eventLog) instant() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = max(l.latest+1, time.Now().UnixNano())
	return l.latest
}

// newEvent is an Event about an object, as a component makes one.
func (l *eventLog) newEvent(component string, about *unstructured.Unstructured, kind, reason, message string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: about.GetNamespace(), Name: fmt.Sprintf("%s.%x", about.GetName(), l.instant())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Namespace: about.GetNamespace(), Name: about.GetName(),
			UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
		},
		Source:         corev1.EventSource{Component: component},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Type: kind, Reason: reason, Message: message,
	}
}

// create writes a new Event. It is nil where the server refused it, as it does in a namespace that is being deleted.
func (l *eventLog) create(event *corev1.Event) *corev1.Event {
	body, err := json.Marshal(event)
	if err != nil {
		return nil
	}
	written := l.send(&apiserver.Request{
		Verb: "create", Namespace: event.Namespace, ContentType: "application/json", UserAgent: event.Source.Component, Body: body,
	})
	if written != nil {
		l.keep(types.NamespacedName{Namespace: written.Namespace, Name: written.Name})
	}
	return written
}

// patch changes an Event that was written before. It is nil where there is none any more.
func (l *eventLog) patch(event *corev1.Event, patch []byte) *corev1.Event {
	return l.send(&apiserver.Request{
		Verb: "patch", Namespace: event.Namespace, Name: event.Name, ContentType: string(types.StrategicMergePatchType),
		UserAgent: event.Source.Component, Body: patch,
	})
}

// keep drops the oldest Event once there are too many.
func (l *eventLog) keep(written types.NamespacedName) {
	l.mu.Lock()
	l.kept = append(l.kept, written)
	var oldest types.NamespacedName
	if len(l.kept) > keptEvents {
		oldest, l.kept = l.kept[0], l.kept[1:]
	}
	l.mu.Unlock()
	if oldest.Name != "" {
		l.send(&apiserver.Request{Verb: "delete", Namespace: oldest.Namespace, Name: oldest.Name})
	}
}

func (l *eventLog) send(r *apiserver.Request) *corev1.Event {
	if l.cluster.stopped.Load() {
		return nil
	}
	r.Version, r.Resource, r.Query = "v1", "events", url.Values{}
	response := l.cluster.server.Serve(context.Background(), r)
	if response.Code >= http.StatusMultipleChoices {
		return nil
	}
	written := &corev1.Event{}
	if json.Unmarshal(response.Body, written) != nil {
		return nil
	}
	return written
}

// A recorder writes the Events of one of Flux's controllers, as client-go's recorder does for it: what is repeated is counted, what
// is similar is combined, and of an object that says too much the rest is dropped.
type recorder struct {
	log        *eventLog
	component  string
	correlator *record.EventCorrelator
	timed      atomic.Int64
}

func newRecorder(log *eventLog, component string) *recorder {
	return &recorder{log: log, component: component, correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{})}
}

// took is how long something took. No two take the same, although time may stand still: Events that differ in nothing else would be
// counted as one.
func (r *recorder) took(began time.Time) time.Duration {
	return time.Since(began) + time.Duration(r.timed.Add(1))
}

// eventAnnotations is what an object's annotations begin with that its Events take over.
const eventAnnotations = "event.toolkit.fluxcd.io/"

// event writes an Event, unless the controller is being stopped. Unlike with the real recorder, it is there once event returns.
func (r *recorder) event(ctx context.Context, about *unstructured.Unstructured, annotations map[string]string, kind, reason, message string) {
	if ctx.Err() != nil {
		return
	}
	event := r.log.newEvent(r.component, about, kind, reason, message)
	event.ReportingController = r.component
	event.Annotations = annotations
	for key, value := range about.GetAnnotations() {
		if strings.HasPrefix(key, eventAnnotations) {
			metav1.SetMetaDataAnnotation(&event.ObjectMeta, key, value)
		}
	}
	result, err := r.correlator.EventCorrelate(event)
	if err != nil || result.Skip {
		return
	}
	var written *corev1.Event
	if result.Event.Count > 1 {
		written = r.log.patch(result.Event, result.Patch)
	}
	if written == nil {
		result.Event.ResourceVersion = ""
		written = r.log.create(result.Event)
	}
	if written != nil {
		r.correlator.UpdateState(written)
	}
}
