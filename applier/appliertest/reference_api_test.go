package appliertest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var (
	deployers = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "deployers"}
	sources   = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "sources"}
)

// api is just enough of an API server for the reference backend: create, get, list, update with optimistic
// concurrency, delete and watch.
type api struct {
	mu       sync.Mutex
	objects  map[string]*unstructured.Unstructured
	version  int
	watchers []*apiWatch
	changed  chan struct{}
}

// apiTime is how long a request travels. Within it the engine comes as far as it can, so that which of the two is first
// does not hang on the scheduler. No multiple of it is one of the engine's times.
const apiTime = 997 * time.Microsecond

func travel(ctx context.Context) error {
	pause(ctx, apiTime)
	return ctx.Err()
}

func newAPI() *api {
	return &api{objects: make(map[string]*unstructured.Unstructured), changed: make(chan struct{}, 1)}
}

func (a *api) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return &apiResource{api: a, resource: resource}
}

type apiResource struct {
	dynamic.NamespaceableResourceInterface // what is not here, nobody calls
	api                                    *api
	resource                               schema.GroupVersionResource
	namespace                              string
}

func (r *apiResource) Namespace(namespace string) dynamic.ResourceInterface {
	return &apiResource{api: r.api, resource: r.resource, namespace: namespace}
}

func (r *apiResource) key(name string) string {
	return r.resource.Resource + "/" + r.namespace + "/" + name
}

func (r *apiResource) find(name string) (*unstructured.Unstructured, error) {
	object := r.api.objects[r.key(name)]
	if object == nil {
		return nil, apierrors.NewNotFound(r.resource.GroupResource(), name)
	}
	return object, nil
}

// store keeps an object and tells it to the watchers. The lock is held.
func (r *apiResource) store(object *unstructured.Unstructured, event watch.EventType) {
	r.api.version++
	object.SetResourceVersion(strconv.Itoa(r.api.version))
	key := r.key(object.GetName())
	if event == watch.Deleted {
		delete(r.api.objects, key)
	} else {
		r.api.objects[key] = object
	}
	for _, w := range r.api.watchers {
		if w.key == key {
			w.send(watch.Event{Type: event, Object: object.DeepCopy()})
		}
	}
	select {
	case r.api.changed <- struct{}{}:
	default:
	}
}

func (r *apiResource) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := travel(ctx); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	object, err := r.find(name)
	if err != nil {
		return nil, err
	}
	return object.DeepCopy(), nil
}

func (r *apiResource) List(ctx context.Context, _ metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := travel(ctx); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	list := &unstructured.UnstructuredList{}
	for key, object := range r.api.objects {
		if strings.HasPrefix(key, r.resource.Resource+"/") {
			list.Items = append(list.Items, *object.DeepCopy())
		}
	}
	return list, nil
}

func (r *apiResource) Create(ctx context.Context, object *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := travel(ctx); err != nil {
		return nil, err
	}
	made := object.DeepCopy()
	if strings.HasSuffix(r.resource.Resource, "accessreviews") {
		made.Object["status"] = map[string]any{"allowed": true}
		return made, nil
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	if _, err := r.find(object.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(r.resource.GroupResource(), object.GetName())
	}
	made.SetUID(types.UID(fmt.Sprintf("uid-%d", r.api.version+1)))
	r.store(made, watch.Added)
	return made.DeepCopy(), nil
}

func (r *apiResource) Update(ctx context.Context, object *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	if err := travel(ctx); err != nil {
		return nil, err
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	stored, err := r.find(object.GetName())
	if err != nil {
		return nil, err
	}
	if version := object.GetResourceVersion(); version != "" && version != stored.GetResourceVersion() {
		return nil, conflict(&request{resource: r.resource, name: object.GetName()})
	}
	made := object.DeepCopy()
	made.SetUID(stored.GetUID())
	r.store(made, watch.Modified)
	return made.DeepCopy(), nil
}

func (r *apiResource) Delete(_ context.Context, name string, _ metav1.DeleteOptions, _ ...string) error {
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	object, err := r.find(name)
	if err == nil {
		r.store(object.DeepCopy(), watch.Deleted)
	}
	return err
}

func (r *apiResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := travel(ctx); err != nil {
		return nil, err
	}
	name, ok := strings.CutPrefix(options.FieldSelector, "metadata.name=")
	if !ok {
		return nil, apierrors.NewGenericServerResponse(http.StatusBadRequest, "watch", r.resource.GroupResource(), "", "no name", 0, false)
	}
	r.api.mu.Lock()
	defer r.api.mu.Unlock()
	w := &apiWatch{api: r.api, key: r.key(name), events: make(chan watch.Event, 1000)}
	if object, err := r.find(name); err == nil {
		w.send(watch.Event{Type: watch.Added, Object: object.DeepCopy()})
	}
	r.api.watchers = append(r.api.watchers, w)
	return w, nil
}

// apiWatch is one open watch.
type apiWatch struct {
	api     *api
	key     string
	events  chan watch.Event
	stopped bool
}

func (w *apiWatch) send(event watch.Event) {
	if !w.stopped {
		w.events <- event
	}
}

func (w *apiWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *apiWatch) Stop() {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	if !w.stopped {
		w.stopped = true
		close(w.events)
		w.api.watchers = slices.DeleteFunc(w.api.watchers, func(other *apiWatch) bool { return other == w })
	}
}

// edit changes an object as somebody else does, over whatever stands.
func (a *api) edit(resource schema.GroupVersionResource, ref types.NamespacedName, change func(*unstructured.Unstructured)) error {
	r := &apiResource{api: a, resource: resource, namespace: ref.Namespace}
	a.mu.Lock()
	defer a.mu.Unlock()
	object, err := r.find(ref.Name)
	if err != nil {
		return err
	}
	object = object.DeepCopy()
	change(object)
	r.store(object, watch.Modified)
	return nil
}
