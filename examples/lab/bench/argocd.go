package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

var argoCDRows = []row{
	{"the controller alone: from .operation to its end", "argocd.controller", ""},
	{"an operation, followed by watching", "argocd.op", "argocd.controller"},
	{"an operation, polled every 2 s", "argocd.op.poll", "argocd.controller"},
	{"from the last write of its record to the report", "argocd.lag", ""},
}

// argoCDSubject is the Application that Argo CD is measured on.
type argoCDSubject struct {
	lab   *lab.Lab
	repo  *lab.Repository
	ref   types.NamespacedName
	taken figures
}

func (s *argoCDSubject) figures() figures { return s.taken }

func newArgoCDSubject(ctx context.Context, l *lab.Lab) (*argoCDSubject, error) {
	repo, err := l.NewRepository(ctx, "bench-argocd")
	if err != nil {
		return nil, err
	}
	s := &argoCDSubject{
		lab: l, repo: repo, ref: types.NamespacedName{Namespace: "bench-argocd", Name: "bench"},
		taken: figures{
			engine: "Argo CD", rows: argoCDRows, measured: samples{},
			counted: []string{"argocd.op", "argocd.op.poll"}, requests: map[string]map[string]int{}, most: "argocd.op",
		},
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": s.ref.Namespace},
	}}
	if _, err := l.Dynamic().Resource(lab.Namespaces).Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	application := lab.NewApplication(s.ref.Namespace, s.ref.Name, repo.URL())
	_, err = s.resource().Create(ctx, application, metav1.CreateOptions{})
	return s, err
}

func (s *argoCDSubject) round(ctx context.Context, measured samples, round int) error {
	watched := func(client applier.Client) applier.Client { return client }
	unwatched := func(client applier.Client) applier.Client { return polled{client} }
	measures := []func(string) error{
		func(commit string) error { return s.controller(ctx, measured, commit) },
		func(commit string) error { return s.apply(ctx, measured, "argocd.op", commit, watched) },
		func(commit string) error { return s.apply(ctx, measured, "argocd.op.poll", commit, unwatched) },
	}
	for i := range measures {
		// Each comes first as often as the others: the controller refreshes the Application after each sync.
		measure := measures[(i+round)%len(measures)]
		value := fmt.Sprintf("%d at %d", round, time.Now().UnixNano())
		commit, err := s.repo.Write(ctx, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value)})
		if err != nil {
			return err
		}
		if err := measure(commit); err != nil {
			return err
		}
	}
	return nil
}

// controller measures what application-controller takes from an operation that is set to its end.
func (s *argoCDSubject) controller(ctx context.Context, measured samples, commit string) error {
	body, err := json.Marshal(map[string]any{
		"operation": map[string]any{
			"initiatedBy": map[string]any{"username": "bench", "automated": true},
			"info":        []any{map[string]any{"name": "bench", "value": commit}},
			"sync":        map[string]any{"revision": commit},
		},
		"status": map[string]any{"operationState": nil},
	})
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := s.ends(watching, func(operation map[string]any) bool {
		revision, _, _ := unstructured.NestedString(operation, "sync", "revision")
		return revision == commit
	})
	begin := time.Now()
	if _, err := s.resource().Patch(ctx, s.ref.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return err
	}
	end, ok := <-ended
	if !ok {
		return errors.New("the watch ended too early")
	}
	measured.add("argocd.controller", milliseconds(end.Sub(begin)))
	return nil
}

// apply measures one operation from the request to its end, counts its requests, and measures how long after the last write of
// its record, as a watch beside it shows it, the end is reported.
func (s *argoCDSubject) apply(ctx context.Context, measured samples, name, commit string, as func(applier.Client) applier.Client) error {
	transport := lab.NewTransport()
	config := s.lab.RESTConfig()
	config.Wrap(transport.Wrap)
	connection, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	client, err := argocd.New("lab", connection, argocd.Options{Initiator: fieldManager})
	if err != nil {
		return err
	}
	// Opens the connection, as a host has done long before.
	if verdict := client.Validate(ctx, s.ref); !verdict.OK {
		return verdict.AsError()
	}
	transport.Reset()

	token := applier.NewToken()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := s.ends(watching, func(operation map[string]any) bool {
		info, _, _ := unstructured.NestedSlice(operation, "info")
		for _, entry := range info {
			if entry, ok := entry.(map[string]any); ok && entry["value"] == token {
				return true
			}
		}
		return false
	})
	begin := time.Now()
	end, err := applier.Apply(ctx, as(client), s.ref, applier.Ask{
		Want: applier.Binding{Repository: s.repo.URL(), Branch: lab.DefaultBranch}, Commit: commit, Token: token,
	}, nil)
	reported := time.Now()
	if err != nil {
		return err
	}
	if end.AppliedCommit != commit {
		return fmt.Errorf("synced %s instead of %s", end.AppliedRevision, gitref.Short(commit))
	}
	measured.add(name, milliseconds(reported.Sub(begin)))
	s.taken.count(measured, name, transport)
	written, ok := <-ended
	if !ok {
		return errors.New("the watch ended too early")
	}
	if name == "argocd.op" {
		measured.add("argocd.lag", max(0, milliseconds(reported.Sub(written))))
	}
	return nil
}

// ends watches the Application and tells when a chosen operation was first seen to have succeeded.
func (s *argoCDSubject) ends(ctx context.Context, chosen func(operation map[string]any) bool) <-chan time.Time {
	ended := make(chan time.Time, 1)
	watcher, err := s.resource().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.ref.Name).String(),
	})
	if err != nil {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		for e := range watcher.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			phase, _, _ := unstructured.NestedString(u.Object, "status", "operationState", "phase")
			operation, _, _ := unstructured.NestedMap(u.Object, "status", "operationState", "operation")
			if phase == "Succeeded" && chosen(operation) {
				ended <- time.Now()
				return
			}
		}
	}()
	return ended
}

func (s *argoCDSubject) resource() dynamic.ResourceInterface {
	return s.lab.Dynamic().Resource(lab.Applications).Namespace(s.ref.Namespace)
}
