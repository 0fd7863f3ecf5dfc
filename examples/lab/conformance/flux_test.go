package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/appliertest"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// Package flux keeps the contract on a real Flux, with Kustomizations that are held and with live ones.
func TestFluxConforms(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for name, live := range map[string]bool{"held": false, "live": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := appliertest.Harness{
				New:      func(t testing.TB) *appliertest.Applier { return newKustomization(t, l).applier(live) },
				Timeout:  lab.WaitTimeout,
				Parallel: true,
			}
			if live {
				h.Lacks = []appliertest.Capability{appliertest.Holder}
			}
			appliertest.Run(t, h)
		})
	}
}

// kustomization is one Kustomization in a namespace of its own, with its repository.
type kustomization struct {
	lab  *lab.Lab
	ref  types.NamespacedName
	repo *lab.Repository

	mu      sync.Mutex
	commits map[string]string // the commit that put a value into the ConfigMap
}

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

func newKustomization(t testing.TB, l *lab.Lab) *kustomization {
	ns := l.Namespace(t)
	k := &kustomization{lab: l, ref: types.NamespacedName{Namespace: ns, Name: "app"}, repo: l.Repository(t), commits: make(map[string]string)}
	first, err := k.push(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	l.Create(t, deployments, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": ns, "name": gate},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"app": gate}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": gate}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "app", "image": "example.com/app"}}},
			},
		},
	}})
	if err := k.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.GitRepository(t, ns, "app", k.repo)
	l.Kustomization(t, ns, "app", "app", lab.Set([]any{
		map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": gate, "namespace": ns},
	}, "spec", "healthChecks"))
	l.WaitFor(t, lab.Kustomizations, ns, "app", lab.Applied(first))
	return k
}

const manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {key: %s}}"

// push commits a manifest with a value of its own.
func (k *kustomization) push(ctx context.Context, manifest string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	value := fmt.Sprintf("value-%d", len(k.commits)+1)
	commit, err := k.repo.Write(ctx, lab.Files{"app.yaml": fmt.Sprintf(manifest, value)})
	k.commits[value] = commit
	return commit, err
}

// applied reads the ConfigMap.
func (k *kustomization) applied(ctx context.Context) (string, error) {
	object, err := k.lab.Dynamic().Resource(lab.ConfigMaps).Namespace(k.ref.Namespace).Get(ctx, "app", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(object.Object, "data", "key")
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.commits[value], err
}

// What flux suspend and flux resume send.
const (
	suspend = `{"spec":{"suspend":true}}`
	resume  = `{"spec":{"suspend":null}}`
)

// gate is the Deployment that the Kustomization's runs wait for. No controller of the lab cares for it.
const gate = "gate"

// shut makes every run that starts wait until the gate is open again.
func (k *kustomization) shut(ctx context.Context) error {
	return k.gateStatus(ctx, `{"status": {"readyReplicas": 0, "availableReplicas": 0, "updatedReplicas": 0, "replicas": 0,
		"conditions": [{"type": "Available", "status": "False"}]}}`)
}

func (k *kustomization) open(ctx context.Context) error {
	return k.gateStatus(ctx, `{"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
		"conditions": [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}}`)
}

func (k *kustomization) gateStatus(ctx context.Context, status string) error {
	_, err := k.lab.Dynamic().Resource(deployments).Namespace(k.ref.Namespace).
		Patch(ctx, gate, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status")
	return err
}

// patch patches the Kustomization as the flux CLI does. One that is gone makes no difference.
func (k *kustomization) patch(data string) func(context.Context) error {
	return func(ctx context.Context) error { return k.patchOf(ctx, lab.Kustomizations, data) }
}

func (k *kustomization) patchOf(ctx context.Context, resource schema.GroupVersionResource, data string) error {
	_, err := k.lab.Dynamic().Resource(resource).Namespace(k.ref.Namespace).
		Patch(ctx, k.ref.Name, types.MergePatchType, []byte(data), metav1.PatchOptions{FieldManager: "flux"})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (k *kustomization) stamp(ctx context.Context) error { return k.stampOf(ctx, lab.Kustomizations) }

func (k *kustomization) stampOf(ctx context.Context, resource schema.GroupVersionResource) error {
	return k.patchOf(ctx, resource, fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano)))
}

// until waits for a condition of one of the two objects.
func (k *kustomization) until(ctx context.Context, resource schema.GroupVersionResource, condition lab.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, lab.WaitTimeout)
	defer cancel()
	return applier.AwaitObject(ctx, k.lab.Dynamic().Resource(resource).Namespace(k.ref.Namespace), k.ref.Name, 0,
		func(u *unstructured.Unstructured) (bool, error) { return condition(u), nil })
}

// checking is satisfied while a run waits for the gate.
func checking(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Healthy" && condition["status"] == "Unknown"
	})
}

// reconcile makes somebody else run the Kustomization at a new commit, until the returned function is called: flux reconcile
// kustomization --with-source, after flux resume.
func (k *kustomization) reconcile(ctx context.Context) (func(context.Context) error, error) {
	if err := k.shut(ctx); err != nil {
		return nil, err
	}
	commit, err := k.push(ctx, manifest)
	if err == nil {
		err = k.stampOf(ctx, lab.GitRepositories)
	}
	if err == nil {
		err = k.until(ctx, lab.GitRepositories, lab.Fetched(commit))
	}
	if err == nil {
		err = k.patch(resume)(ctx)
	}
	if err == nil {
		err = k.stamp(ctx)
	}
	if err == nil {
		err = k.until(ctx, lab.Kustomizations, checking)
	}
	return k.open, err
}

func (k *kustomization) applier(live bool) *appliertest.Applier {
	hands := []appliertest.Hand{
		{Name: "flux suspend", Act: k.patch(suspend)},
		{Name: "flux resume", Act: k.patch(resume)},
		{Name: "flux reconcile", Act: k.stamp},
	}
	if live {
		hands[0].Undo = k.patch(resume)
	}
	return &appliertest.Applier{
		Cluster: "prod", Ref: k.ref, Live: live,
		Want: applier.Binding{Repository: k.repo.URL(), Branch: lab.DefaultBranch},
		NewClient: func(api dynamic.Interface) (applier.Client, error) {
			return flux.New("prod", api, flux.Options{FieldManager: "acme"})
		},
		Push:    func(ctx context.Context) (string, error) { return k.push(ctx, manifest) },
		Applied: k.applied,
		API:     k.lab.Dynamic(), Resource: lab.Kustomizations,
		PushBroken: func(ctx context.Context) (string, string, error) {
			commit, err := k.push(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s")
			return commit, "yaml", err
		},
		PushStuck: func(ctx context.Context) (string, func(context.Context) error, error) {
			if err := k.shut(ctx); err != nil {
				return "", nil, err
			}
			commit, err := k.push(ctx, manifest)
			return commit, k.open, err
		},
		Retarget:         k.patch(`{"spec":{"sourceRef":{"name":"elsewhere"}}}`),
		ForeignOperation: k.reconcile,
		Hands:            hands,
	}
}
