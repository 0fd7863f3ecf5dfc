package conformance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/appliertest"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// Package argocd keeps the contract on a real Argo CD, with syncs that count as automated and with manual ones.
func TestArgoCDConforms(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for name, manual := range map[string]bool{"automated": false, "manual": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			appliertest.Run(t, appliertest.Harness{
				New:      func(t testing.TB) *appliertest.Applier { return newApplication(t, l).applier(manual) },
				Lacks:    []appliertest.Capability{appliertest.Holder, appliertest.Prefetcher},
				Timeout:  4 * time.Minute, // a lost refresh is made up for by the next resync alone
				Parallel: true,
			})
		})
	}
}

// application is one Application in a namespace of its own, with its repository.
type application struct {
	lab  *lab.Lab
	ref  types.NamespacedName
	repo *lab.Repository

	mu      sync.Mutex
	commits map[string]string // the commit that put a value into the ConfigMap
}

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func newApplication(t testing.TB, l *lab.Lab) *application {
	ns := l.Namespace(t)
	a := &application{lab: l, ref: types.NamespacedName{Namespace: ns, Name: "app"}, repo: l.Repository(t), commits: make(map[string]string)}
	first, err := a.push(t.Context(), manifest, noHook)
	if err != nil {
		t.Fatal(err)
	}
	app := lab.NewApplication(ns, "app", a.repo.URL())
	// A sync that fails is to end before the suite gives up.
	app.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{
		"retry": map[string]any{"limit": int64(1), "backoff": map[string]any{"duration": "1s", "maxDuration": "1s"}},
	}
	app.Object["operation"] = map[string]any{"sync": map[string]any{"revision": first}}
	l.Create(t, lab.Applications, app)
	l.WaitFor(t, lab.Applications, ns, "app", lab.Synced(first))
	return a
}

// A sync of a commit with a hook waits for its end. Nobody runs it here. A file without content is passed over.
const (
	noHook = ""
	hook   = `apiVersion: v1
kind: Pod
metadata:
  name: hook
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  restartPolicy: Never
  containers: [{name: hook, image: hook}]
`
)

// push commits a manifest with a value of its own.
func (a *application) push(ctx context.Context, manifest, hook string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value := fmt.Sprintf("value-%d", len(a.commits)+1)
	files := lab.Files{"app.yaml": fmt.Sprintf(manifest, value), "hook.yaml": hook}
	commit, err := a.repo.Write(ctx, files)
	a.commits[value] = commit
	return commit, err
}

// applied reads the ConfigMap.
func (a *application) applied(ctx context.Context) (string, error) {
	object, err := a.lab.Dynamic().Resource(lab.ConfigMaps).Namespace(a.ref.Namespace).Get(ctx, "app", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(object.Object, "data", "key")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.commits[value], err
}

// endHook lets the hook succeed, once it is there.
func (a *application) endHook(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lab.WaitTimeout)
	defer cancel()
	resource := a.lab.Dynamic().Resource(pods).Namespace(a.ref.Namespace)
	err := applier.AwaitObject(ctx, a.applications(), a.ref.Name, 0, func(app *unstructured.Unstructured) (bool, error) {
		message, _, err := unstructured.NestedString(app.Object, "status", "operationState", "message")
		return message == waitingForHook, err
	})
	if err != nil {
		return err
	}
	_, err = resource.Patch(ctx, "hook", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
	return err
}

// waitingForHook is what a record says that waits for the hook, and for nothing else.
const waitingForHook = "waiting for completion of hook /Pod/hook"

func (a *application) applications() dynamic.ResourceInterface {
	return a.lab.Dynamic().Resource(lab.Applications).Namespace(a.ref.Namespace)
}

// change changes the Application as the argocd CLI does: as it was read, once more after a conflict. One that is gone makes no
// difference.
func (a *application) change(change func(app map[string]any)) func(context.Context) error {
	return func(ctx context.Context) error {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			app, err := a.applications().Get(ctx, a.ref.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(app.Object)
			_, err = a.applications().Update(ctx, app, metav1.UpdateOptions{FieldManager: "argocd-server"})
			return err
		})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
}

// What the argocd CLI has Argo CD's API server do.
func syncTip(app map[string]any) {
	if app["operation"] == nil {
		app["operation"] = map[string]any{"initiatedBy": map[string]any{"username": "alice"}, "sync": map[string]any{}}
		unstructured.RemoveNestedField(app, "status", "operationState")
	}
}

func terminate(app map[string]any) {
	if _, running, _ := unstructured.NestedMap(app, "status", "operationState"); running && app["operation"] != nil {
		_ = unstructured.SetNestedField(app, "Terminating", "status", "operationState", "phase")
	}
}

func refresh(app map[string]any) {
	_ = unstructured.SetNestedField(app, "normal", "metadata", "annotations", "argocd.argoproj.io/refresh")
}

// sync makes somebody else sync a commit of their own, until the returned function is called.
func (a *application) sync(ctx context.Context) (func(context.Context) error, error) {
	commit, err := a.push(ctx, manifest, hook)
	if err == nil {
		err = a.change(func(app map[string]any) {
			syncTip(app)
			_ = unstructured.SetNestedField(app, commit, "operation", "sync", "revision")
		})(ctx)
	}
	return a.endHook, err
}

func (a *application) applier(manual bool) *appliertest.Applier {
	return &appliertest.Applier{
		Cluster: "prod", Ref: a.ref,
		Want: applier.Binding{Repository: a.repo.URL(), Branch: lab.DefaultBranch},
		NewClient: func(api dynamic.Interface) (applier.Client, error) {
			return argocd.New("prod", api, argocd.Options{Initiator: "acme", Manual: manual})
		},
		Push:    func(ctx context.Context) (string, error) { return a.push(ctx, manifest, noHook) },
		Applied: a.applied,
		API:     a.lab.Dynamic(), Resource: lab.Applications,
		PushBroken: func(ctx context.Context) (string, string, error) {
			commit, err := a.push(ctx, "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s", noHook)
			return commit, "yaml", err
		},
		PushStuck: func(ctx context.Context) (string, func(context.Context) error, error) {
			commit, err := a.push(ctx, manifest, hook)
			return commit, a.endHook, err
		},
		Retarget: a.change(func(app map[string]any) {
			_ = unstructured.SetNestedField(app, "elsewhere", "spec", "source", "targetRevision")
		}),
		ForeignOperation: a.sync,
		Hands: []appliertest.Hand{
			{Name: "argocd app sync", Act: a.change(syncTip)},
			{Name: "argocd app terminate-op", Act: a.change(terminate)},
			{Name: "argocd app get --refresh", Act: a.change(refresh)},
		},
	}
}
