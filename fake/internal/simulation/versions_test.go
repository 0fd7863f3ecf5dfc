package simulation

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// The resources of the simulation.
var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	applications    = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// A version is an object as it stood from a moment on, until the next one.
type version struct {
	at      time.Time
	rv      int
	object  *unstructured.Unstructured
	deleted bool
}

// versions are all versions of all objects that count, in the order in which the API server made them.
type versions struct {
	mu    sync.Mutex
	of    map[objectKey][]version
	ended sync.WaitGroup
}

type objectKey struct{ resource, name string }

// watchVersions collects them until ctx ends.
func (w *world) watchVersions(ctx context.Context) error {
	for _, resource := range []schema.GroupVersionResource{kustomizations, gitRepositories, applications, configMaps} {
		// A watch is opened before anything happens, and again where the API server ends it, as it does after a while.
		watcher, err := w.cluster.Resource(resource).Namespace(team).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		w.versions.ended.Go(func() {
			for last := ""; ; {
				for event := range watcher.ResultChan() {
					if object, ok := event.Object.(*unstructured.Unstructured); ok {
						w.versions.add(resource.Resource, object, event.Type == watch.Deleted)
						last = object.GetResourceVersion()
					}
				}
				if watcher, err = w.cluster.Resource(resource).Namespace(team).Watch(ctx, metav1.ListOptions{ResourceVersion: last}); err != nil {
					return // The cluster has stopped.
				}
			}
		})
	}
	return nil
}

func (v *versions) add(resource string, object *unstructured.Unstructured, deleted bool) {
	rv, _ := strconv.Atoi(object.GetResourceVersion())
	v.mu.Lock()
	defer v.mu.Unlock()
	key := objectKey{resource, object.GetName()}
	v.of[key] = append(v.of[key], version{time.Now(), rv, object, deleted})
}

// all returns the versions of one object, oldest first.
func (v *versions) all(resource schema.GroupVersionResource, name string) []version {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.of[objectKey{resource.Resource, name}])
}

// stood reports whether the object stood as is says at some moment between from and to.
func (v *versions) stood(resource schema.GroupVersionResource, name string, from, to time.Time, is func(version) bool) bool {
	all := v.all(resource, name)
	for i, one := range all {
		until := to
		if i+1 < len(all) {
			until = all[i+1].at
		}
		if !one.at.After(to) && (!one.at.Before(from) || until.After(from) || i+1 == len(all)) && is(one) {
			return true
		}
	}
	return false
}

func (v version) text(path ...string) string {
	text, _, _ := unstructured.NestedString(v.object.Object, path...)
	return text
}

func (v version) requested() string {
	return v.object.GetAnnotations()[fluxmeta.ReconcileRequestAnnotation]
}

func (v version) handled() string { return v.text("status", "lastHandledReconcileAt") }

func (v version) suspended() bool {
	suspended, _, _ := unstructured.NestedBool(v.object.Object, "spec", "suspend")
	return suspended
}

// settled reports whether a Kustomization is suspended, and the token last asked for is handled.
func (v version) settled() bool {
	return !v.deleted && v.suspended() && v.requested() != "" && v.requested() == v.handled()
}

// appliers are the field managers that apply spec.suspend.
func (v version) suspendApplied() (names []string) {
	for _, entry := range v.object.GetManagedFields() {
		if entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		if fieldsOf(entry.FieldsV1.GetRawBytes()).has("f:spec", "f:suspend") {
			names = append(names, entry.Manager)
		}
	}
	return names
}

// suspendAppliedElsewhere reports whether a manager other than the host's applies spec.suspend.
func (v version) suspendAppliedElsewhere() bool {
	return slices.ContainsFunc(v.suspendApplied(), func(name string) bool { return name != hostName })
}

// operationToken is that of an Application's operation, or of the record of one; "" for none.
func (v version) operationToken(path ...string) string {
	operation, _, _ := unstructured.NestedMap(v.object.Object, path...)
	info, _ := operation["info"].([]any)
	for _, one := range info {
		if pair, ok := one.(map[string]any); ok && pair["name"] == infoKey {
			token, _ := pair["value"].(string)
			return token
		}
	}
	return ""
}
