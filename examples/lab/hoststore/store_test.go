package hoststore_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/appliertest"
	"github.com/gitops-applier/gitops-applier/examples/lab/hoststore"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

// The store keeps its contract on a real API server.
func TestStoreOnTheLab(t *testing.T) {
	t.Parallel()
	l := lab.StartBare(t)
	install(t, l.Dynamic())
	appliertest.RunStore(t, appliertest.StoreHarness{
		New: func(t testing.TB) *appliertest.Records {
			transports := make(map[applier.Store]*lab.Transport)
			var mu sync.Mutex
			on := func(s applier.Store, match lab.Matcher, n int, do lab.Action) {
				mu.Lock()
				defer mu.Unlock()
				transports[s].On(match, n, do)
			}
			update := lab.To("update", hoststore.Triggers.Resource)
			host := &host{client: l.Dynamic()}
			return host.records([2]string{l.Namespace(t), l.Namespace(t)}, appliertest.Records{
				NewStore: func() (applier.Store, error) {
					transport, config := lab.NewTransport(), l.RESTConfig()
					config.Wrap(transport.Wrap)
					client, err := dynamic.NewForConfig(config)
					if err != nil {
						return nil, err
					}
					mu.Lock()
					defer mu.Unlock()
					store := hoststore.New(client)
					transports[store] = transport
					return store, nil
				},
				Lose: func(s applier.Store) { on(s, update, 1, lab.LoseResponse()) },
				Drop: func(s applier.Store) { on(s, update, 1, lab.Fail(nil)) },
				Echo: func(s applier.Store) {
					on(s, update, 1, lab.AnswerAfter(500, metav1.StatusReasonInternalError, time.Second))
				},
				Hang: func(s applier.Store) { on(s, lab.Any, 0, lab.Hang()) },
			})
		},
		Timeout:  lab.WaitTimeout,
		Parallel: true,
	})
}

// It does so on an API server in memory, too: so a host's unit tests can run on that.
func TestStoreOnTheFake(t *testing.T) {
	t.Parallel()
	appliertest.RunStore(t, appliertest.StoreHarness{
		New: func(t testing.TB) *appliertest.Records {
			cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team", "team-a"}})
			t.Cleanup(cluster.Stop)
			crds, err := hoststore.Definitions()
			require.NoError(t, err)
			for _, crd := range crds {
				require.NoError(t, cluster.Define(crd))
			}
			views := make(map[applier.Store]*fake.View)
			var mu sync.Mutex
			inject := func(s applier.Store, f fake.Fault) {
				mu.Lock()
				defer mu.Unlock()
				views[s].Inject(f)
			}
			update := fake.Fault{Verb: "update", Resource: hoststore.Triggers.Resource, Nth: 1}
			lost, dropped, echoed := update, update, update
			lost.Lost, dropped.Err = io.ErrUnexpectedEOF, io.ErrUnexpectedEOF
			// The write is made, and the answer is one after which client-go sends it again.
			echoed.Before = func(r fake.Request) {
				u := &unstructured.Unstructured{}
				assert.NoError(t, u.UnmarshalJSON(r.Body))
				_, err := cluster.Resource(hoststore.Triggers).Namespace(r.Namespace).UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
				assert.NoError(t, err)
			}
			echoed.Err = apierrors.NewServerTimeout(hoststore.Triggers.GroupResource(), "update", 1)
			host := &host{client: cluster}
			return host.records([2]string{"team", "team-a"}, appliertest.Records{
				NewStore: func() (applier.Store, error) {
					view := cluster.As("host", nil)
					mu.Lock()
					defer mu.Unlock()
					store := hoststore.New(view)
					views[store] = view
					return store, nil
				},
				Lose: func(s applier.Store) { inject(s, lost) },
				Drop: func(s applier.Store) { inject(s, dropped) },
				Echo: func(s applier.Store) { inject(s, echoed) },
				Hang: func(s applier.Store) { inject(s, fake.Fault{Delay: time.Hour}) },
			})
		},
		Parallel: true,
	})
}

// install makes the API server serve the host's kinds.
func install(t *testing.T, client dynamic.Interface) {
	t.Helper()
	crds, err := hoststore.Definitions()
	require.NoError(t, err)
	for _, crd := range crds {
		definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		_, err := client.Resource(definitions).Create(t.Context(), crd, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, resource := range []schema.GroupVersionResource{hoststore.Triggers, hoststore.Targets} {
		require.Eventually(t, func() bool {
			_, err := client.Resource(resource).List(t.Context(), metav1.ListOptions{})
			return err == nil
		}, lab.WaitTimeout, 20*time.Millisecond)
	}
}

// wait is a finalizer that nobody takes away but a harness.
const wait = "delivery.example.com/wait"

// host is what the host's users do, through an API server.
type host struct {
	client dynamic.Interface
}

// records adds what every harness has to those of one.
func (h *host) records(namespaces [2]string, r appliertest.Records) *appliertest.Records {
	r.Namespaces = namespaces
	r.Kinds = []schema.GroupKind{{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}, {Group: "argoproj.io", Kind: "Application"}}
	r.PutTrigger = h.putTrigger
	r.PutTarget = h.putTarget
	r.DeleteTrigger = func(ctx context.Context, ref applier.TriggerRef) error {
		return h.remove(ctx, hoststore.Triggers, ref.Namespace, ref.Name)
	}
	r.DeleteTarget = func(ctx context.Context, ref applier.TargetRef) error {
		return h.remove(ctx, hoststore.Targets, ref.Namespace, ref.Name)
	}
	r.TerminateTrigger = func(ctx context.Context, ref applier.TriggerRef) error {
		return h.terminate(ctx, hoststore.Triggers, ref.Namespace, ref.Name)
	}
	r.TerminateTarget = func(ctx context.Context, ref applier.TargetRef) error {
		return h.terminate(ctx, hoststore.Targets, ref.Namespace, ref.Name)
	}
	r.Version = func(ctx context.Context, ref applier.TriggerRef) (string, error) {
		u, err := h.client.Resource(hoststore.Triggers).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return u.GetResourceVersion(), nil
	}
	return &r
}

func (h *host) putTrigger(ctx context.Context, t applier.Trigger) (applier.Trigger, error) {
	kept, err := h.put(ctx, hoststore.Triggers, hoststore.NewTrigger(t))
	if err != nil {
		return t, err
	}
	t.Ref.UID, t.Created, t.Status = kept.GetUID(), kept.GetCreationTimestamp().Time, applier.TriggerStatus{}
	return t, nil
}

func (h *host) putTarget(ctx context.Context, t applier.Target) (applier.Target, error) {
	want := hoststore.NewTarget(t)
	kept, err := h.put(ctx, hoststore.Targets, want.DeepCopy())
	if err != nil {
		return t, err
	}
	want.SetResourceVersion(kept.GetResourceVersion())
	if _, err = h.client.Resource(hoststore.Targets).Namespace(t.Ref.Namespace).UpdateStatus(ctx, want, metav1.UpdateOptions{}); err != nil {
		return t, err
	}
	t.Ref.UID = kept.GetUID()
	return t, nil
}

// put creates an object, or changes what it says of itself.
func (h *host) put(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client := h.client.Resource(resource).Namespace(u.GetNamespace())
	created, err := client.Create(ctx, u, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	patch, err := (&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(),
		"metadata": map[string]any{"finalizers": append([]string{}, u.GetFinalizers()...)},
		"spec":     u.Object["spec"],
	}}).MarshalJSON()
	if err != nil {
		return nil, err
	}
	return client.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
}

// terminate leaves an object being deleted.
func (h *host) terminate(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	client := h.client.Resource(resource).Namespace(namespace)
	_, err := client.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, wait), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{})
}

// remove deletes an object without finalizers.
func (h *host) remove(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	client := h.client.Resource(resource).Namespace(namespace)
	if _, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{})
}
