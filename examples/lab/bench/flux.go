package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

const fieldManager = "bench"

var fluxRows = []row{
	{"the controller alone: resumed, applied, suspended, handled", "flux.controller", ""},
	{"an operation, followed by watching", "flux.op", "flux.controller"},
	{"an operation, polled every 2 s", "flux.op.poll", "flux.controller"},
	{"the controllers alone, with the fetch of a new commit", "flux.controller.fetch", ""},
	{"an operation with the fetch of a new commit", "flux.op.fetch", "flux.controller.fetch"},
	{"from the last status write to the report", "flux.lag", ""},
}

// fluxSubject is the Kustomization that Flux is measured on.
type fluxSubject struct {
	lab   *lab.Lab
	repo  *lab.Repository
	ref   types.NamespacedName
	taken figures
}

func (s *fluxSubject) figures() figures { return s.taken }

func newFluxSubject(ctx context.Context, l *lab.Lab) (*fluxSubject, error) {
	repo, err := l.NewRepository(ctx, "bench")
	if err != nil {
		return nil, err
	}
	s := &fluxSubject{
		lab: l, repo: repo, ref: types.NamespacedName{Namespace: "bench", Name: "bench"},
		taken: figures{
			engine: "Flux", rows: fluxRows, measured: samples{},
			counted: []string{"flux.op", "flux.op.fetch", "flux.op.poll"}, requests: map[string]map[string]int{}, most: "flux.op.fetch",
		},
	}
	if _, err := s.push(ctx, "first"); err != nil {
		return nil, err
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.ref.Namespace},
	}}
	if _, err := l.Dynamic().Resource(lab.Namespaces).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	source := lab.NewGitRepository(s.ref.Namespace, s.ref.Name, repo.URL())
	if _, err := s.resource(lab.GitRepositories).Create(ctx, source, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	kustomization := lab.NewKustomization(s.ref.Namespace, s.ref.Name, s.ref.Name)
	if _, err := s.resource(lab.Kustomizations).Create(ctx, kustomization, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := s.until(ctx, lab.Kustomizations, "", func(u *unstructured.Unstructured) bool { return status(u, "lastAppliedRevision") != "" }); err != nil {
		return nil, err
	}
	return s, s.suspend(ctx)
}

// round takes each figure once.
func (s *fluxSubject) round(ctx context.Context, measured samples, round int) error {
	for _, measure := range []func(context.Context, samples, string) error{
		s.controller, s.controllerWithFetch, s.operation, s.operationPolled, s.operationWithFetch,
	} {
		commit, err := s.push(ctx, fmt.Sprintf("%d at %d", round, time.Now().UnixNano()))
		if err != nil {
			return err
		}
		if err := measure(ctx, measured, commit); err != nil {
			return err
		}
	}
	return nil
}

// controller measures what kustomize-controller takes for the two writes of an operation, each made as soon as the one before is
// handled.
func (s *fluxSubject) controller(ctx context.Context, measured samples, commit string) error {
	if err := s.fetch(ctx, commit); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.runOnce(ctx); err != nil {
		return err
	}
	measured.addSince("flux.controller", begin)
	return nil
}

func (s *fluxSubject) controllerWithFetch(ctx context.Context, measured samples, commit string) error {
	begin := time.Now()
	if err := s.fetch(ctx, commit); err != nil {
		return err
	}
	if err := s.runOnce(ctx); err != nil {
		return err
	}
	measured.addSince("flux.controller.fetch", begin)
	return nil
}

// runOnce resumes the Kustomization, waits until that is handled, and suspends it in the same way.
func (s *fluxSubject) runOnce(ctx context.Context) error {
	if err := s.set(ctx, false); err != nil {
		return err
	}
	return s.suspend(ctx)
}

func (s *fluxSubject) suspend(ctx context.Context) error { return s.set(ctx, true) }

func (s *fluxSubject) operation(ctx context.Context, measured samples, commit string) error {
	if err := s.fetch(ctx, commit); err != nil {
		return err
	}
	return s.apply(ctx, measured, "flux.op", commit, func(client applier.Client) applier.Client { return client })
}

func (s *fluxSubject) operationWithFetch(ctx context.Context, measured samples, commit string) error {
	return s.apply(ctx, measured, "flux.op.fetch", commit, func(client applier.Client) applier.Client { return client })
}

func (s *fluxSubject) operationPolled(ctx context.Context, measured samples, commit string) error {
	if err := s.fetch(ctx, commit); err != nil {
		return err
	}
	return s.apply(ctx, measured, "flux.op.poll", commit, func(client applier.Client) applier.Client { return polled{client} })
}

// apply measures one operation from the request to its end, counts its requests, and measures how long after the last status
// write, as a watch beside it shows it, the end is reported.
func (s *fluxSubject) apply(ctx context.Context, measured samples, name, commit string, as func(applier.Client) applier.Client) error {
	transport := lab.NewTransport()
	config := s.lab.RESTConfig()
	config.Wrap(transport.Wrap)
	connection, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := flux.New("lab", connection, flux.Options{FieldManager: fieldManager})
	if err != nil {
		return err
	}
	// Opens the connection, as a host has done long before.
	if _, err := client.Suspension(ctx, s.ref); err != nil {
		return err
	}
	transport.Reset()

	watching, stop := context.WithCancel(ctx)
	lastWrites := s.lastWrites(watching)
	begin := time.Now()
	end, err := applier.Apply(ctx, as(client), s.ref, applier.Ask{
		Want: applier.Binding{Repository: s.repo.URL(), Branch: lab.DefaultBranch}, Commit: commit,
	}, nil)
	reported := time.Now()
	if err != nil {
		stop()
		return err
	}
	if end.AppliedCommit != commit {
		stop()
		return fmt.Errorf("applied %s instead of %s", end.AppliedRevision, gitref.Short(commit))
	}
	measured.add(name, milliseconds(reported.Sub(begin)))
	s.taken.count(measured, name, transport)
	written := <-lastWrites(end.SuspendToken)
	stop()
	if name != "flux.op.poll" {
		measured.add("flux.lag", max(0, milliseconds(reported.Sub(written))))
	}
	return nil
}

// lastWrites watches the Kustomization and returns a function that tells when a token was first seen handled.
func (s *fluxSubject) lastWrites(ctx context.Context) func(token string) <-chan time.Time {
	type event struct {
		handled string
		at      time.Time
	}
	events := make(chan event, 1024)
	watcher, err := s.resource(lab.Kustomizations).Watch(ctx, s.alone())
	if err == nil {
		go func() {
			defer close(events)
			for e := range watcher.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					events <- event{status(u, "lastHandledReconcileAt"), time.Now()}
				}
			}
		}()
	}
	return func(token string) <-chan time.Time {
		found := make(chan time.Time, 1)
		for e := range events {
			if e.handled == token {
				found <- e.at
				break
			}
		}
		close(found)
		return found
	}
}

// push commits a new value and returns the commit.
func (s *fluxSubject) push(ctx context.Context, value string) (string, error) {
	return s.repo.Write(ctx, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value)})
}

// fetch makes the GitRepository hold the commit.
func (s *fluxSubject) fetch(ctx context.Context, commit string) error {
	body := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": applier.NewToken()}}}
	written, err := s.write(ctx, lab.GitRepositories, "GitRepository", body)
	if err != nil {
		return err
	}
	return s.until(ctx, lab.GitRepositories, written, lab.Fetched(commit))
}

// set writes spec.suspend with a new token and waits until that is handled.
func (s *fluxSubject) set(ctx context.Context, suspend bool) error {
	token := applier.NewToken()
	body := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": token}},
		"spec":     map[string]any{"suspend": suspend},
	}
	written, err := s.write(ctx, lab.Kustomizations, "Kustomization", body)
	if err != nil {
		return err
	}
	return s.until(ctx, lab.Kustomizations, written, lab.Handled(token))
}

// write applies body and returns the resourceVersion that it left.
func (s *fluxSubject) write(ctx context.Context, gvr schema.GroupVersionResource, kind string, body map[string]any) (string, error) {
	u := &unstructured.Unstructured{Object: body}
	u.SetAPIVersion(gvr.GroupVersion().String())
	u.SetKind(kind)
	u.SetName(s.ref.Name)
	u.SetNamespace(s.ref.Namespace)
	written, err := s.resource(gvr).Apply(ctx, s.ref.Name, u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return "", err
	}
	return written.GetResourceVersion(), nil
}

// until waits for a condition on the object by a watch from a resourceVersion on.
func (s *fluxSubject) until(ctx context.Context, gvr schema.GroupVersionResource, from string, condition lab.Condition) error {
	ctx, cancel := context.WithTimeout(ctx, lab.WaitTimeout)
	defer cancel()
	options := s.alone()
	options.ResourceVersion = from
	watcher, err := s.resource(gvr).Watch(ctx, options)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		if u, ok := e.Object.(*unstructured.Unstructured); ok && condition(u) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("the watch of %s %s ended too early", gvr.Resource, s.ref), ctx.Err())
}

func (s *fluxSubject) alone() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", s.ref.Name).String()}
}

func (s *fluxSubject) resource(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	return s.lab.Dynamic().Resource(gvr).Namespace(s.ref.Namespace)
}

func status(u *unstructured.Unstructured, field string) string {
	value, _, _ := unstructured.NestedString(u.Object, "status", field)
	return value
}
