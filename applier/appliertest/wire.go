package appliertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// wire is the way from one client to the cluster. It numbers the requests, keeps them, and does to each what rule says.
type wire struct {
	api dynamic.Interface

	mu      sync.Mutex
	sent    []*request
	rule    func(*request) fault
	watches map[watch.Interface]struct{}
}

// fault is what happens to one request. The zero value lets it pass.
type fault struct {
	// before is done before the request reaches the API server.
	before func(ctx context.Context) error
	// refuse answers the request, which the API server never sees.
	refuse error
	// hang leaves the request unanswered until its context ends or this channel is closed.
	hang <-chan struct{}
	// late leaves the request unanswered and on its way: the API server gets it once what late is given is called.
	late func(arrive func(ctx context.Context) error)
	// lose takes the place of the answer of a request that the API server has processed.
	lose error
	// change changes the object that is answered.
	change func(*unstructured.Unstructured)
}

// request is one request that a client made.
type request struct {
	number          int
	verb            string
	resource        schema.GroupVersionResource
	namespace, name string
	body            string
	// stored says that the API server processed it without an error, and refused what it answered otherwise.
	stored  bool
	refused error
	// over says that nothing more becomes of it.
	over bool
}

func (r *request) String() string {
	return fmt.Sprintf("request %d, %s %s %s/%s", r.number, r.verb, r.resource.Resource, r.namespace, r.name)
}

// writes reports whether the request is one that changes something. An access review is created and changes nothing.
func (r *request) writes() bool {
	switch r.verb {
	case "get", "list", "watch":
		return false
	}
	return !strings.HasSuffix(r.resource.Resource, "accessreviews")
}

// on makes rule decide about every request from now on; nil lets them pass.
func (w *wire) on(rule func(*request) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule = rule
}

// pause lets every request pass from now on, and returns the rule that was.
func (w *wire) pause() func(*request) fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	rule := w.rule
	w.rule = nil
	return rule
}

// requests returns the requests made so far.
func (w *wire) requests() []*request {
	w.mu.Lock()
	defer w.mu.Unlock()
	made := make([]*request, len(w.sent))
	for i, r := range w.sent {
		was := *r
		made[i] = &was
	}
	return made
}

// cut breaks the connections of all watches.
func (w *wire) cut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for watcher := range w.watches {
		watcher.Stop()
	}
	return len(w.watches)
}

// carry sends a request, and returns its answer as the rule wants it.
func (w *wire) carry(ctx context.Context, r request, send sending) (*unstructured.Unstructured, error) {
	w.mu.Lock()
	r.number = len(w.sent) + 1
	w.sent = append(w.sent, &r)
	rule := w.rule
	w.mu.Unlock()
	var f fault
	if rule != nil {
		f = rule(&r)
	}
	switch {
	case f.refuse != nil:
		w.finish(&r, f.refuse)
		return nil, f.refuse
	case f.late != nil:
		f.late(func(ctx context.Context) error {
			_, err := send(ctx)
			w.finish(&r, err)
			return err
		})
		return nil, noAnswer(context.DeadlineExceeded)
	case f.hang != nil:
		w.finish(&r, context.DeadlineExceeded)
		select {
		case <-ctx.Done():
			return nil, noAnswer(ctx.Err())
		case <-f.hang:
			return nil, noAnswer(context.DeadlineExceeded)
		}
	case f.before != nil:
		if err := f.before(ctx); err != nil {
			w.finish(&r, err)
			return nil, err
		}
	}
	object, err := send(ctx)
	w.finish(&r, err)
	if f.lose != nil {
		return nil, f.lose
	}
	if f.change != nil && object != nil {
		object = object.DeepCopy()
		f.change(object)
	}
	return object, err
}

// sending makes a request of the API server.
type sending func(ctx context.Context) (*unstructured.Unstructured, error)

func (w *wire) finish(r *request, refused error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.stored, r.refused, r.over = refused == nil, refused, true
}

// isOver reports whether nothing more becomes of a request, so that what the API server made of it is known.
func (w *wire) isOver(r *request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return r.over
}

// Resource makes wire a dynamic.Interface.
func (w *wire) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	client := w.api.Resource(resource)
	return wireResource{wireObjects: wireObjects{wire: w, resource: resource, api: client}, all: client}
}

type wireResource struct {
	wireObjects
	all dynamic.NamespaceableResourceInterface
}

// Namespace narrows the requests to a namespace.
func (r wireResource) Namespace(namespace string) dynamic.ResourceInterface {
	objects := r.wireObjects
	objects.namespace, objects.api = namespace, r.all.Namespace(namespace)
	return objects
}

// wireObjects carries the requests for the objects of one resource. It copies what is written, which may be sent late.
type wireObjects struct {
	wire      *wire
	resource  schema.GroupVersionResource
	namespace string
	api       dynamic.ResourceInterface
}

func (o wireObjects) carry(ctx context.Context, verb, name string, body any, send sending) (*unstructured.Unstructured, error) {
	r := request{verb: verb, resource: o.resource, namespace: o.namespace, name: name}
	switch body := body.(type) {
	case []byte:
		r.body = string(body)
	case *unstructured.Unstructured:
		// A client that updates sends the status along, which the API server or the controller keeps.
		if encoded, err := json.Marshal(intent(body)); err == nil {
			r.body = string(encoded)
		}
	}
	return o.wire.carry(ctx, r, send)
}

// Create carries a create.
func (o wireObjects) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error) {
	object = object.DeepCopy()
	return o.carry(ctx, "create", object.GetName(), object, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.Create(ctx, object, options, sub...)
	})
}

// Update carries an update.
func (o wireObjects) Update(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions, sub ...string) (*unstructured.Unstructured, error) {
	object = object.DeepCopy()
	return o.carry(ctx, "update", object.GetName(), object, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.Update(ctx, object, options, sub...)
	})
}

// UpdateStatus carries an update of the status.
func (o wireObjects) UpdateStatus(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	object = object.DeepCopy()
	return o.carry(ctx, "update", object.GetName(), object, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.UpdateStatus(ctx, object, options)
	})
}

// Delete carries a delete.
func (o wireObjects) Delete(ctx context.Context, name string, options metav1.DeleteOptions, sub ...string) error {
	_, err := o.carry(ctx, "delete", name, nil, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return nil, o.api.Delete(ctx, name, options, sub...)
	})
	return err
}

// DeleteCollection carries a delete of many.
func (o wireObjects) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error {
	_, err := o.carry(ctx, "deletecollection", "", nil, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return nil, o.api.DeleteCollection(ctx, options, list)
	})
	return err
}

// Get carries a get.
func (o wireObjects) Get(ctx context.Context, name string, options metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	return o.carry(ctx, "get", name, nil, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.Get(ctx, name, options, sub...)
	})
}

// List carries a list.
func (o wireObjects) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	var list *unstructured.UnstructuredList
	_, err := o.carry(ctx, "list", "", nil, func(ctx context.Context) (*unstructured.Unstructured, error) {
		var err error
		list, err = o.api.List(ctx, options)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Patch carries a patch.
func (o wireObjects) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	return o.carry(ctx, "patch", name, data, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.Patch(ctx, name, kind, data, options, sub...)
	})
}

// Apply carries an apply.
func (o wireObjects) Apply(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, sub ...string) (*unstructured.Unstructured, error) {
	object = object.DeepCopy()
	return o.carry(ctx, "apply", name, object, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.Apply(ctx, name, object, options, sub...)
	})
}

// ApplyStatus carries an apply of the status.
func (o wireObjects) ApplyStatus(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	return o.carry(ctx, "apply", name, object, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return o.api.ApplyStatus(ctx, name, object, options)
	})
}

// Watch carries the opening of a watch.
func (o wireObjects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	var opened watch.Interface
	_, err := o.carry(ctx, "watch", "", nil, func(ctx context.Context) (*unstructured.Unstructured, error) {
		var err error
		opened, err = o.api.Watch(ctx, options)
		return nil, err
	})
	if err != nil {
		if opened != nil {
			opened.Stop()
		}
		return nil, err
	}
	o.wire.mu.Lock()
	defer o.wire.mu.Unlock()
	if o.wire.watches == nil {
		o.wire.watches = make(map[watch.Interface]struct{})
	}
	o.wire.watches[opened] = struct{}{}
	return wireWatch{Interface: opened, wire: o.wire}, nil
}

// wireWatch forgets a watch once its client stops it.
type wireWatch struct {
	watch.Interface
	wire *wire
}

// Stop ends the watch.
func (w wireWatch) Stop() {
	w.wire.mu.Lock()
	delete(w.wire.watches, w.Interface)
	w.wire.mu.Unlock()
	w.Interface.Stop()
}
