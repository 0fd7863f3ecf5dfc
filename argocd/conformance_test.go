package argocd_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"

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
	"github.com/gitops-applier/gitops-applier/fake"
)

// Package argocd keeps the contract, with syncs that count as automated and with manual ones. These are the clauses that the lab
// checks on a real controller, by the same names: "go -C examples/lab run . conformance" lists both.
func TestArgoCDConforms(t *testing.T) {
	t.Parallel()
	// A cluster in memory makes much garbage and keeps little: this saves a quarter of the time.
	percent := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for name, manual := range map[string]bool{"automated": false, "manual": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			appliertest.Run(t, appliertest.Harness{
				New:      func(t testing.TB) *appliertest.Applier { return newConformer(t).applier(manual) },
				Wrap:     synctest.Test,
				Lacks:    []appliertest.Capability{appliertest.Holder, appliertest.Prefetcher},
				Parallel: true,
			})
		})
	}
}

// conformer is a cluster with one Application, for one case of the suite.
type conformer struct {
	cluster *fake.Cluster
	argo    *fake.ArgoCD
	repo    *fake.Repository

	mu      sync.Mutex
	commits map[string]string // the commit that put a value into the ConfigMap
}

var (
	applications = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

const team = "team-a"

const conformanceURL = "https://git.example.com/acme/conforming"

var conforming = types.NamespacedName{Namespace: team, Name: "app"}

func newConformer(t testing.TB) *conformer {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{team}})
	t.Cleanup(cluster.Stop)
	c := &conformer{cluster: cluster, argo: fake.StartArgoCD(cluster, fake.ArgoCDOptions{}), commits: make(map[string]string)}
	c.repo = c.argo.Remote().Repository(conformanceURL)
	c.push(manifest)
	app := fake.NewApplication(team, "app", conformanceURL)
	// A sync that fails is to end before the suite gives up.
	app.Object["spec"].(map[string]any)["syncPolicy"] = map[string]any{
		"retry": map[string]any{"limit": int64(1), "backoff": map[string]any{"duration": "1s", "maxDuration": "1s"}},
	}
	app.Object["operation"] = map[string]any{"sync": map[string]any{}}
	if _, err := c.applications().Create(t.Context(), app, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if applied, err := c.applied(t.Context()); applied == "" {
		t.Fatalf("the first commit is not applied: %v", err)
	}
	return c
}

func (c *conformer) applications() dynamic.ResourceInterface {
	return c.cluster.Resource(applications).Namespace(team)
}

const manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {key: %s}}"

// push commits a manifest with a value of its own.
func (c *conformer) push(manifest string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := fmt.Sprintf("value-%d", len(c.commits)+1)
	commit := c.repo.Commit(fake.Files{"app.yaml": fmt.Sprintf(manifest, value)})
	c.commits[value] = commit
	return commit
}

func (c *conformer) applied(ctx context.Context) (string, error) {
	object, err := c.cluster.Resource(configMaps).Namespace(team).Get(ctx, "app", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commits[object.Object["data"].(map[string]any)["key"].(string)], nil
}

// stick makes every apply wait until the returned function is called.
func (c *conformer) stick() func(context.Context) error {
	released := make(chan struct{})
	remove := c.argo.Inject(fake.StepFault{Step: fake.ApplyStep, Object: conforming, Do: func() { <-released }})
	return func(context.Context) error {
		remove()
		close(released)
		return nil
	}
}

// change changes the Application as the argocd CLI does: as it was read, once more after a conflict. One that is gone makes no
// difference.
func (c *conformer) change(change func(app map[string]any)) func(context.Context) error {
	return func(ctx context.Context) error {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			app, err := c.applications().Get(ctx, conforming.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(app.Object)
			_, err = c.applications().Update(ctx, app, metav1.UpdateOptions{FieldManager: "argocd-server"})
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

func (c *conformer) applier(manual bool) *appliertest.Applier {
	return &appliertest.Applier{
		Cluster: "prod", Ref: conforming,
		Want: applier.Binding{Repository: conformanceURL, Branch: "main"},
		NewClient: func(api dynamic.Interface) (applier.Client, error) {
			return argocd.New("prod", api, argocd.Options{Initiator: "acme", Manual: manual})
		},
		Push:    func(context.Context) (string, error) { return c.push(manifest), nil },
		Applied: c.applied,
		API:     c.cluster, Resource: applications,
		PushBroken: func(context.Context) (string, string, error) {
			return c.push("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s"), "yaml", nil
		},
		PushStuck: func(context.Context) (string, func(context.Context) error, error) {
			release := c.stick()
			return c.push(manifest), release, nil
		},
		Retarget: c.change(func(app map[string]any) {
			_ = unstructured.SetNestedField(app, "elsewhere", "spec", "source", "targetRevision")
		}),
		ForeignOperation: func(ctx context.Context) (func(context.Context) error, error) {
			release := c.stick()
			err := c.change(syncTip)(ctx)
			synctest.Wait()
			return release, errors.Join(err, ctx.Err())
		},
		Hands: []appliertest.Hand{
			{Name: "argocd app sync", Act: c.change(syncTip)},
			{Name: "argocd app terminate-op", Act: c.change(terminate)},
			{Name: "argocd app get --refresh", Act: c.change(refresh)},
		},
	}
}
