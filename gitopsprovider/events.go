package gitopsprovider

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// The two APIs for Events. An API server shows each Event in both, but an identity may be allowed one of them alone.
var (
	coreEvents = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	newEvents  = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// keptEvent is an Event, and what it takes to tell whether it is about an object and has been seen already.
type keptEvent struct {
	Event
	uid   string
	about corev1.ObjectReference
}

// Events lists the Events of an object from both APIs, in the order of their time. One API that can be read is enough.
// URLs in their messages have no user info.
func (r *ClusterReader) Events(ctx context.Context, o Object) ([]Event, error) {
	old, err := r.eventsFrom(ctx, coreEvents, "involvedObject", o, fromCore)
	more, errMore := r.eventsFrom(ctx, newEvents, "regarding", o, fromNew)
	if err != nil && errMore != nil {
		return nil, err
	}
	return ordered(append(old, more...)), nil
}

func (r *ClusterReader) eventsFrom(
	ctx context.Context, resource schema.GroupVersionResource, object string, o Object, parse func(map[string]any) (keptEvent, error),
) ([]keptEvent, error) {
	// An Event of an object of the whole cluster is in the namespace default.
	namespace := cmp.Or(o.Namespace, metav1.NamespaceDefault)
	options := metav1.ListOptions{FieldSelector: fields.AndSelectors(
		fields.OneTermEqualSelector(object+".name", o.Name), fields.OneTermEqualSelector(object+".kind", o.Kind)).String()}
	var kept []keptEvent
	var malformed error
	err := eachOf(ctx, r.client.Resource(resource).Namespace(namespace), options, func(u *unstructured.Unstructured) {
		event, err := parse(u.Object)
		switch {
		case err != nil:
			malformed = err
		case event.isAbout(o):
			kept = append(kept, event)
		}
	})
	return kept, cmp.Or(err, malformed)
}

// isAbout checks what the field selector asks for as well: not every server of Events applies it.
func (e keptEvent) isAbout(o Object) bool {
	return e.about.Kind == o.Kind && e.about.Name == o.Name && e.about.Namespace == o.Namespace &&
		e.about.GroupVersionKind().Group == o.Group && (o.UID == "" || e.about.UID == "" || string(e.about.UID) == o.UID)
}

func fromCore(fields map[string]any) (keptEvent, error) {
	var event corev1.Event
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &event); err != nil {
		return keptEvent{}, err
	}
	kept := keptEvent{uid: string(event.UID), about: event.InvolvedObject, Event: Event{
		Time:    latest(event.EventTime.Time, event.LastTimestamp.Time, event.FirstTimestamp.Time, event.CreationTimestamp.Time),
		Warning: event.Type == corev1.EventTypeWarning,
		Reason:  event.Reason, Message: gitref.RedactText(event.Message),
		From:  cmp.Or(event.ReportingController, event.Source.Component),
		Count: int64(event.Count),
	}}
	if series := event.Series; series != nil {
		kept.seenAgain(series.LastObservedTime.Time, series.Count)
	}
	return kept, nil
}

func fromNew(fields map[string]any) (keptEvent, error) {
	var event eventsv1.Event
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &event); err != nil {
		return keptEvent{}, err
	}
	kept := keptEvent{uid: string(event.UID), about: event.Regarding, Event: Event{
		Time: latest(event.EventTime.Time, event.DeprecatedLastTimestamp.Time, event.DeprecatedFirstTimestamp.Time,
			event.CreationTimestamp.Time),
		Warning: event.Type == corev1.EventTypeWarning,
		Reason:  event.Reason, Message: gitref.RedactText(event.Note),
		From:  cmp.Or(event.ReportingController, event.DeprecatedSource.Component),
		Count: int64(event.DeprecatedCount),
	}}
	if series := event.Series; series != nil {
		kept.seenAgain(series.LastObservedTime.Time, series.Count)
	}
	return kept, nil
}

// seenAgain notes what a series says.
func (e *keptEvent) seenAgain(last time.Time, count int32) {
	e.Time = latest(last, e.Time)
	e.Count = max(e.Count, int64(count))
}

// latest returns the latest of the times of an Event, any of which may be missing.
func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// ordered sorts events by their time, and keeps one of those that both APIs showed.
func ordered(kept []keptEvent) []Event {
	seen := map[string]bool{}
	var events []Event
	for _, event := range kept {
		if event.uid != "" && seen[event.uid] {
			continue
		}
		seen[event.uid] = true
		events = append(events, event.Event)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events
}
