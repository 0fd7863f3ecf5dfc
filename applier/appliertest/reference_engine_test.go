package appliertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// engine is the controller of the reference backend's kind, with its Git remote. A Deployer applies spec.commit when it
// is not suspended and spec.token is a new one, or when it was resumed, and handles every token, suspended or not. One apply of an
// object runs at a time.
//
// It keeps what it really applied to itself; status.history says what it reports.
type engine struct {
	api *api

	mu      sync.Mutex
	commits int
	head    string
	broken  map[string]string
	stuck   map[string]chan struct{}
	applied map[string]string
	busy    map[string]bool
}

var deployer = types.NamespacedName{Namespace: "team-a", Name: "shop"}

const (
	repository = "https://git.example.com/acme/shop"
	branch     = "main"
	applyTime  = 10 * time.Millisecond
	passTime   = 2 * time.Millisecond
)

// newEngine starts an engine that ends with the test, with one Deployer.
func newEngine(t testing.TB, synced bool) *engine {
	e := &engine{
		api: newAPI(), broken: make(map[string]string), stuck: make(map[string]chan struct{}),
		applied: make(map[string]string), busy: make(map[string]bool),
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	e.create(sources, types.NamespacedName{Namespace: "team-a", Name: "repo"}, map[string]any{"token": ""})
	e.create(deployers, deployer, map[string]any{
		"repository": repository, "branch": branch, "source": "repo",
		"suspend": !synced, "manager": "somebody", "token": "", "commit": "",
	})
	go e.run(ctx)
	return e
}

func (e *engine) create(resource schema.GroupVersionResource, ref types.NamespacedName, spec map[string]any) {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion("example.com/v1")
	object.SetKind(map[schema.GroupVersionResource]string{deployers: "Deployer", sources: "Source"}[resource])
	object.SetNamespace(ref.Namespace)
	object.SetName(ref.Name)
	if _, err := e.api.Resource(resource).Namespace(ref.Namespace).Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
		panic(err)
	}
}

// run reconciles what changed until ctx ends.
func (e *engine) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.api.changed:
		}
		for _, object := range e.objects() {
			ref := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
			if object.GetKind() == "Source" {
				e.fetch(ref, object)
				continue
			}
			if e.due(object) && e.claim(object) {
				go e.reconcile(ctx, ref, object)
			}
		}
	}
}

func (e *engine) objects() []*unstructured.Unstructured {
	e.api.mu.Lock()
	defer e.api.mu.Unlock()
	var all []*unstructured.Unstructured
	for object := range maps.Values(e.api.objects) {
		all = append(all, object.DeepCopy())
	}
	return all
}

func (e *engine) fetch(ref types.NamespacedName, source *unstructured.Unstructured) {
	token := field(source, "spec", "token")
	if token == field(source, "status", "handled") {
		return
	}
	e.mu.Lock()
	head := e.head
	e.mu.Unlock()
	_ = e.api.edit(sources, ref, func(o *unstructured.Unstructured) {
		o.Object["status"] = map[string]any{"handled": token, "commit": head}
	})
}

// due reports whether there is something to do for a Deployer.
func (e *engine) due(object *unstructured.Unstructured) bool {
	return field(object, "spec", "token") != field(object, "status", "handled") || (!suspended(object) && !flag(object, "status", "resumed")) ||
		(suspended(object) && flag(object, "status", "resumed"))
}

// claim takes an object up, unless it is.
func (e *engine) claim(object *unstructured.Unstructured) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	uid := string(object.GetUID())
	if e.busy[uid] {
		return false
	}
	e.busy[uid] = true
	return true
}

// reconcile is one pass over one Deployer as it was read.
func (e *engine) reconcile(ctx context.Context, ref types.NamespacedName, object *unstructured.Unstructured) {
	pause(ctx, passTime)
	uid, token := object.GetUID(), field(object, "spec", "token")
	var entry map[string]any
	if !suspended(object) && field(object, "spec", "commit") != "" {
		e.status(ref, uid, func(status map[string]any) { status["running"] = token })
		entry = e.apply(ctx, object)
	}
	e.mu.Lock()
	delete(e.busy, string(uid))
	e.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	e.status(ref, uid, func(status map[string]any) {
		delete(status, "running")
		status["handled"], status["resumed"] = token, !suspended(object)
		if entry != nil {
			entry["token"] = token
			history, _ := status["history"].([]any)
			status["history"] = append(history, entry)
		}
	})
}

// apply applies the commit, and returns what is reported of it.
func (e *engine) apply(ctx context.Context, object *unstructured.Unstructured) map[string]any {
	commit := field(object, "spec", "commit")
	e.mu.Lock()
	stuck, message := e.stuck[commit], e.broken[commit]
	e.mu.Unlock()
	timer := time.NewTimer(applyTime)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	if stuck != nil {
		select {
		case <-ctx.Done():
		case <-stuck:
		}
	}
	if message != "" {
		return map[string]any{"commit": commit, "failed": message}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.applied[object.GetName()] = commit
	return map[string]any{"commit": commit}
}

func (e *engine) status(ref types.NamespacedName, uid types.UID, change func(map[string]any)) {
	_ = e.api.edit(deployers, ref, func(o *unstructured.Unstructured) {
		status, _ := o.Object["status"].(map[string]any)
		if status == nil {
			status = make(map[string]any)
		}
		if o.GetUID() == uid {
			change(status)
		}
		o.Object["status"] = status
	})
}

func (e *engine) push() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.commits++
	e.head = strings.Repeat("0", 36) + fmt.Sprintf("%04x", e.commits)
	return e.head
}

// somebody edits the Deployer under test; one that is gone makes no difference.
func (e *engine) somebody(change func(spec map[string]any)) error {
	err := e.api.edit(deployers, deployer, func(o *unstructured.Unstructured) { change(o.Object["spec"].(map[string]any)) })
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// harness returns the harness of the reference backend with a mutation in its client, if any.
func referenceHarness(synced bool, mutation mutation) Harness {
	h := Harness{
		New:  func(t testing.TB) *Applier { return referenceApplier(newEngine(t, synced), synced, mutation) },
		Wrap: synctest.Test,
	}
	if synced {
		h.Lacks = []Capability{Holder}
	}
	return h
}

func referenceApplier(e *engine, synced bool, mutation mutation) *Applier {
	return &Applier{
		Cluster: "prod", Ref: deployer,
		Want: applier.Binding{Repository: repository, Branch: branch},
		NewClient: func(api dynamic.Interface) (applier.Client, error) {
			return newReference(api, synced, mutation), nil
		},
		Push: func(context.Context) (string, error) { return e.push(), nil },
		Applied: func(context.Context) (string, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.applied[deployer.Name], nil
		},
		API: e.api, Resource: deployers,
		PushBroken: func(context.Context) (string, string, error) {
			commit := e.push()
			e.mu.Lock()
			defer e.mu.Unlock()
			e.broken[commit] = "shop: no kustomization.yaml"
			return commit, "no kustomization.yaml", nil
		},
		PushStuck: func(context.Context) (string, func(context.Context) error, error) {
			commit := e.push()
			return commit, e.jam(commit), nil
		},
		Retarget: func(context.Context) error {
			return e.somebody(func(spec map[string]any) {
				spec["repository"], spec["source"] = "https://git.example.com/acme/other", "other"
			})
		},
		ForeignOperation: func(ctx context.Context) (func(context.Context) error, error) {
			commit := e.push()
			release := e.jam(commit)
			err := e.somebody(func(spec map[string]any) {
				spec["suspend"], spec["manager"], spec["token"], spec["commit"] = false, "somebody", applier.NewToken(), commit
			})
			pause(ctx, applyTime)
			return release, err
		},
		Hands: []Hand{
			{Name: "suspend", Act: func(context.Context) error {
				return e.somebody(func(spec map[string]any) {
					if spec["suspend"] != true {
						spec["suspend"], spec["manager"] = true, "somebody"
					}
				})
			}, Undo: func(context.Context) error {
				return e.somebody(func(spec map[string]any) { spec["suspend"] = !synced })
			}},
			{Name: "resume", Act: func(context.Context) error {
				return e.somebody(func(spec map[string]any) { spec["suspend"], spec["manager"] = false, "somebody" })
			}},
			{Name: "stamp", Act: func(context.Context) error {
				return e.somebody(func(spec map[string]any) { spec["token"] = "foreign-" + applier.NewToken() })
			}},
		},
	}
}

// jam makes the apply of commit wait for the function it returns.
func (e *engine) jam(commit string) func(context.Context) error {
	gate := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stuck[commit] = gate
	return func(context.Context) error {
		select {
		case <-gate:
			return errors.New("released twice")
		default:
			close(gate)
			return nil
		}
	}
}

func field(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}

func flag(object *unstructured.Unstructured, path ...string) bool {
	value, _, _ := unstructured.NestedBool(object.Object, path...)
	return value
}

func suspended(object *unstructured.Unstructured) bool { return flag(object, "spec", "suspend") }
