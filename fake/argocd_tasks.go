package fake

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	hookAnnotation = "argocd.argoproj.io/hook"
	waveAnnotation = "argocd.argoproj.io/sync-wave"
	preSync        = "PreSync"
)

// A task is what a sync does with one object.
type task struct {
	object *unstructured.Unstructured
	// hook is a Job that runs before everything else; prune is an object that the source no longer has.
	hook, prune bool
	wave        int
}

// before reports whether a task belongs into an earlier wave than another. Hooks come before all else.
func (t task) before(other task) bool {
	if t.hook != other.hook {
		return t.hook
	}
	return t.wave < other.wave
}

// outcome is the result of the task, before anything was done.
func (t task) outcome() argoResourceOf {
	e := entryOf(t.object)
	result := argoResourceOf{Group: e.group, Version: e.version, Kind: e.kind, Namespace: e.namespace, Name: e.name, SyncPhase: "Sync"}
	if t.hook {
		result.HookType, result.SyncPhase = preSync, preSync
	}
	return result
}

func (r argoResourceOf) entry() inventoryEntry {
	return inventoryEntry{namespace: r.Namespace, name: r.Name, group: r.Group, kind: r.Kind, version: r.Version}
}

// tasks are all of the operation's. A sync of selected resources, and one with the strategy apply, runs no hooks.
func (p *pass) tasks(ctx context.Context, targets []*unstructured.Unstructured) ([]task, error) {
	sync := p.state.Operation.Sync
	skipHooks := len(sync.Resources) > 0 || sync.SyncStrategy["apply"] != nil
	var tasks []task
	for _, object := range targets {
		t := task{object: object, hook: object.GetAnnotations()[hookAnnotation] != "", wave: waveOf(object)}
		skipped := t.hook && skipHooks
		if p.selected(object) && !skipped {
			tasks = append(tasks, t)
		}
	}
	extra, err := p.extra(ctx, p.app, targets)
	for _, object := range extra {
		if p.selected(object) {
			tasks = append(tasks, task{object: object, prune: true, wave: waveOf(object)})
		}
	}
	slices.SortStableFunc(tasks, func(a, b task) int { return compareEntries(entryOf(a.object), entryOf(b.object)) })
	return tasks, err
}

func waveOf(object *unstructured.Unstructured) int {
	wave, _ := strconv.Atoi(object.GetAnnotations()[waveAnnotation])
	return wave
}

// selected reports whether the operation is for an object.
func (p *pass) selected(object *unstructured.Unstructured) bool {
	resources, e := p.state.Operation.Sync.Resources, entryOf(object)
	return len(resources) == 0 || slices.ContainsFunc(resources, func(r argoSelected) bool {
		return r.Group == e.group && r.Kind == e.kind && r.Name == e.name && (r.Namespace == "" || r.Namespace == e.namespace)
	})
}

// result is what became of a task, nil before it was begun.
func (p *pass) result(t task) *argoResourceOf {
	for i := range p.state.SyncResult.Resources {
		r := &p.state.SyncResult.Resources[i]
		if r.entry().id() == entryOf(t.object).id() && (r.HookType != "") == t.hook {
			return r
		}
	}
	return nil
}

// pending are the tasks that have not been begun.
func (p *pass) pending(tasks []task) []task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return p.result(t) != nil })
}

func (p *pass) anyFailed() bool {
	return slices.ContainsFunc(p.state.SyncResult.Resources, func(r argoResourceOf) bool { return r.HookPhase == argoFailed })
}

// firstWave are the tasks to do first, and whether there is something to do after them.
func firstWave(tasks []task) (first []task, later bool) {
	lowest := slices.MinFunc(tasks, func(a, b task) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	})
	for _, t := range tasks {
		if lowest.before(t) {
			later = true
		} else {
			first = append(first, t)
		}
	}
	return first, later || lowest.hook
}

// invalid are the results of tasks of kinds that the cluster does not serve. One is enough for nothing to be applied.
func (p *pass) invalid(tasks []task) []argoResourceOf {
	var invalid []argoResourceOf
	for _, t := range tasks {
		gvk := t.object.GroupVersionKind()
		if _, _, served := p.argo.cluster.server.ResourceOf(gvk); !served {
			result := t.outcome()
			result.Status, result.HookPhase = "SyncFailed", argoFailed
			result.Message = fmt.Sprintf(`The Kubernetes API could not find %s/%s for requested resource %s/%s. Make sure the "%s" CRD is installed on the destination cluster.`,
				gvk.Group, gvk.Kind, t.object.GetNamespace(), t.object.GetName(), gvk.Kind)
			invalid = append(invalid, result)
		}
	}
	return invalid
}

// instance is what Argo CD calls an Application in what it applies: the namespace is left out for its own.
func instance(app *unstructured.Unstructured) string {
	if app.GetNamespace() == argoNamespace {
		return app.GetName()
	}
	return app.GetNamespace() + "_" + app.GetName()
}

// tracking is the annotation by which Argo CD knows what an Application applied.
func tracking(app, object *unstructured.Unstructured) string {
	e := entryOf(object)
	return fmt.Sprintf("%s:%s/%s:%s/%s", instance(app), e.group, e.kind, e.namespace, e.name)
}

// trackedBy is the Application that applied an object.
func trackedBy(object *unstructured.Unstructured) (types.NamespacedName, bool) {
	app, _, found := strings.Cut(object.GetAnnotations()[trackingAnnotation], ":")
	namespace, name, other := strings.Cut(app, "_")
	if !other {
		namespace, name = argoNamespace, app
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, found
}

// tracked are the objects that an Application applied, but for hooks.
func (c *applicationController) tracked(ctx context.Context, app *unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	c.argo.mu.Lock()
	var like []*unstructured.Unstructured
	for gvk := range c.argo.applied {
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(gvk)
		like = append(like, object)
	}
	c.argo.mu.Unlock()
	var tracked []*unstructured.Unstructured
	for _, object := range like {
		resource, err := c.resourceOf(object)
		if err != nil {
			continue // it is served no more
		}
		list, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			item := &list.Items[i]
			if item.GetAnnotations()[trackingAnnotation] == tracking(app, item) && item.GetAnnotations()[hookAnnotation] == "" {
				tracked = append(tracked, item)
			}
		}
	}
	return tracked, nil
}

// extra are the objects that an Application applied and that are not among its targets.
func (c *applicationController) extra(ctx context.Context, app *unstructured.Unstructured, targets []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	tracked, err := c.tracked(ctx, app)
	return slices.DeleteFunc(tracked, func(object *unstructured.Unstructured) bool {
		return object.GetDeletionTimestamp() != nil || slices.ContainsFunc(targets, func(target *unstructured.Unstructured) bool {
			return entryOf(target).id() == entryOf(object).id()
		})
	}), err
}

// resourceOf is where an object is.
func (c *applicationController) resourceOf(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	return resourceIn(c.argo.cluster, c.client, object)
}

// delete deletes an object, if it is there.
func (c *applicationController) delete(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := c.resourceOf(object)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{PropagationPolicy: &background})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
