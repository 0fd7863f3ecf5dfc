package flux_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/appliertest"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
)

// Package flux keeps the contract, with Kustomizations that are held and with live ones. These are the clauses that
// the lab checks on real controllers, by the same names: "go -C examples/lab run . conformance" lists both.
func TestFluxConforms(t *testing.T) {
	t.Parallel()
	// A cluster in memory makes much garbage and keeps little: this saves a quarter of the time.
	percent := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for name, live := range map[string]bool{"held": false, "live": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := appliertest.Harness{
				New:      func(t testing.TB) *appliertest.Applier { return newConformer(t, live).applier() },
				Wrap:     synctest.Test,
				Parallel: true,
			}
			if live {
				h.Lacks = []appliertest.Capability{appliertest.Holder}
			}
			appliertest.Run(t, h)
		})
	}
}

// conformer is a cluster with one Kustomization, for one case of the suite.
type conformer struct {
	cluster *fake.Cluster
	flux    *fake.Flux
	repo    *fake.Repository
	live    bool

	mu      sync.Mutex
	commits map[string]string // the commit that put a value into the ConfigMap
}

var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

const team = "team-a"

const conformanceURL = "https://git.example.com/acme/conforming"

var conforming = types.NamespacedName{Namespace: team, Name: "app"}

func newConformer(t testing.TB, live bool) *conformer {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{team}})
	t.Cleanup(cluster.Stop)
	c := &conformer{cluster: cluster, flux: fake.StartFlux(cluster, fake.FluxOptions{}), live: live, commits: make(map[string]string)}
	c.repo = c.flux.Remote().Repository(conformanceURL)
	c.push(manifest)
	_, err := cluster.Resource(gitRepositories).Namespace(team).Create(t.Context(), fake.NewGitRepository(team, "app", conformanceURL), metav1.CreateOptions{})
	if err == nil {
		_, err = cluster.Resource(kustomizations).Namespace(team).Create(t.Context(), fake.NewKustomization(team, "app", "app"), metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if applied, err := c.applied(t.Context()); applied == "" {
		t.Fatalf("the first commit is not applied: %v", err)
	}
	return c
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
	remove := c.flux.Inject(fake.StepFault{Step: fake.ApplyStep, Object: conforming, Do: func() { <-released }})
	return func(context.Context) error {
		remove()
		close(released)
		return nil
	}
}

func (c *conformer) applier() *appliertest.Applier {
	// The flux CLI patches as these do.
	patch := func(data string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.cluster.Resource(kustomizations).Namespace(team).Patch(ctx, "app", types.MergePatchType, []byte(data), metav1.PatchOptions{FieldManager: "flux"})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
	}
	stamp := func(ctx context.Context) error {
		return patch(fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano)))(ctx)
	}
	suspend, resume := patch(`{"spec":{"suspend":true}}`), patch(`{"spec":{"suspend":null}}`)
	hands := []appliertest.Hand{{Name: "flux suspend", Act: suspend}, {Name: "flux resume", Act: resume}, {Name: "flux reconcile", Act: stamp}}
	if c.live {
		hands[0].Undo = resume
	}
	a := &appliertest.Applier{
		Cluster: "prod", Ref: conforming, Live: c.live,
		Want: applier.Binding{Repository: conformanceURL, Branch: "main"},
		NewClient: func(api dynamic.Interface) (applier.Client, error) {
			return flux.New("prod", api, flux.Options{FieldManager: "acme"})
		},
		Push:    func(context.Context) (string, error) { return c.push(manifest), nil },
		Applied: c.applied,
		API:     c.cluster, Resource: kustomizations,
		PushBroken: func(context.Context) (string, string, error) {
			return c.push("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s"), "yaml", nil
		},
		PushStuck: func(context.Context) (string, func(context.Context) error, error) {
			release := c.stick()
			return c.push(manifest), release, nil
		},
		Retarget: patch(`{"spec":{"sourceRef":{"name":"elsewhere"}}}`),
		ForeignOperation: func(ctx context.Context) (func(context.Context) error, error) {
			release := c.stick()
			err := errors.Join(resume(ctx), stamp(ctx))
			synctest.Wait()
			return release, err
		},
		Hands: hands,
	}
	return a
}
