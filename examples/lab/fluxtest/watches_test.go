package fluxtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// watched are suspended Kustomizations of one namespace, and what is shown of each.
type watched struct {
	lab    *lab.Lab
	ns     string
	names  []string
	faults *lab.Transport
	shown  []<-chan *unstructured.Unstructured
}

func newWatched(t *testing.T, l *lab.Lab, ns string, count int) *watched {
	w := &watched{lab: l, ns: ns}
	for i := range count {
		w.names = append(w.names, fmt.Sprintf("app-%03d", i))
		l.Kustomization(t, ns, w.names[i], "app", lab.Set(true, "spec", "suspend"))
	}
	return w
}

// watch watches them as an identity, and waits until what stands of each was shown.
func (w *watched) watch(t *testing.T, config *rest.Config) {
	t.Helper()
	w.faults = lab.NewTransport()
	config.Wrap(w.faults.Wrap)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	watches := applier.NewObjectWatches(client.Resource(lab.Kustomizations))
	for _, name := range w.names {
		w.shown = append(w.shown, watches.Watch(t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}))
	}
	for i := range w.names {
		w.await(t, i, "")
	}
}

// await waits until an object is shown at a version or after it, which the controller may have written on top of it; at
// any for "".
func (w *watched) await(t *testing.T, i int, version string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	last := "nothing"
	for {
		select {
		case object, open := <-w.shown[i]:
			require.True(t, open, "the watch of %s was closed", w.names[i])
			if object == nil {
				last = "that it is gone"
				continue
			}
			if last = object.GetResourceVersion(); !applier.ResourceVersionBefore(last, version) {
				return
			}
		case <-ctx.Done():
			require.Fail(t, "it is not shown", "%s at %q: the last that was shown is %s", w.names[i], version, last)
		}
	}
}

// change changes an object, and returns its resourceVersion.
func (w *watched) change(t *testing.T, i int) string {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"change":%q}}}`, applier.NewToken())
	written, err := w.lab.Dynamic().Resource(lab.Kustomizations).Namespace(w.ns).Patch(
		t.Context(), w.names[i], types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
	return written.GetResourceVersion()
}

// follows requires that a change of each is shown.
func (w *watched) follows(t *testing.T) {
	t.Helper()
	for i := range w.names {
		w.await(t, i, w.change(t, i))
	}
}

// asked counts the requests of a verb, in the whole cluster and in namespaces.
func (w *watched) asked(verb string) (cluster, namespace int) {
	for _, r := range w.faults.Requests() {
		switch {
		case r.Verb == verb && r.Namespace == "":
			cluster++
		case r.Verb == verb:
			namespace++
		}
	}
	return cluster, namespace
}

func granted(names []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{lab.Kustomizations.Group}, Resources: []string{lab.Kustomizations.Resource},
		ResourceNames: names, Verbs: verbs,
	}
}

func TestAWatchIsSharedAsFarAsRBACAllows(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	const count = 10
	for name, test := range map[string]struct {
		config                          func(t *testing.T, w *watched) *rest.Config
		clusterLists, namespaceLists    int
		clusterWatches, sharedOrObjects int
		gets                            int
	}{
		"the whole cluster": {
			config: func(t *testing.T, w *watched) *rest.Config {
				return l.ClusterServiceAccount(t, w.ns, granted(nil, "get", "list", "watch"))
			},
			clusterLists: 1, clusterWatches: 1, sharedOrObjects: 3, gets: count,
		},
		"a namespace": {
			config: func(t *testing.T, w *watched) *rest.Config {
				return l.ServiceAccount(t, w.ns, granted(nil, "get", "list", "watch"))
			},
			clusterLists: 1, namespaceLists: 1, sharedOrObjects: 3 + 1, gets: count,
		},
		"objects": {
			config: func(t *testing.T, w *watched) *rest.Config {
				return l.ServiceAccount(t, w.ns, granted(w.names, "get", "watch"))
			},
			clusterLists: 1, namespaceLists: 1, sharedOrObjects: count,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, l, l.Namespace(t), count)
			w.watch(t, test.config(t, w))

			cluster, namespace := w.asked("list")
			assert.Equal(t, test.clusterLists, cluster)
			assert.Equal(t, test.namespaceLists, namespace)
			cluster, namespace = w.asked("watch")
			assert.Equal(t, test.clusterWatches, cluster)
			assert.LessOrEqual(t, namespace, test.sharedOrObjects, "the first few may have been given up for a shared one before they were opened")
			require.Eventually(t, func() bool { // some were shown before they were read
				_, gets := w.asked("get")
				return gets == test.gets
			}, lab.WaitTimeout, 20*time.Millisecond)
			before := len(w.faults.Requests())
			w.follows(t)
			assert.Len(t, w.faults.Requests(), before, "nothing is asked for what changes")
		})
	}
}

// The API server ends, objects change, and it is there again: a watch that goes on from before is too old for it.
func TestSharedWatchesOutliveTheAPIServer(t *testing.T) {
	l := lab.Alone(t)
	ns := l.Namespace(t)
	for name, count := range map[string]int{"few": 10, "many": 120} {
		t.Run(name, func(t *testing.T) {
			w := newWatched(t, l, ns, count)
			config := l.ServiceAccount(t, ns, granted(nil, "get", "list", "watch"))
			w.watch(t, config)
			w.follows(t)
			w.faults.Reset()
			before := len(w.faults.Requests())

			l.APIServer.Kill(t)
			l.APIServer.Start(t)
			changed := w.change(t, 3)
			began := time.Now()
			w.await(t, 3, changed)
			t.Logf("shown %v after the API server was there again, by %d requests", time.Since(began), len(w.faults.Requests())-before)
			w.follows(t)
			_, watches := w.asked("watch")
			assert.Less(t, watches, count, "still shared")
			for _, name := range w.names {
				require.NoError(t, l.Dynamic().Resource(lab.Kustomizations).Namespace(ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
			}
			for _, name := range w.names {
				l.WaitFor(t, lab.Kustomizations, ns, name, lab.Gone)
			}
		})
	}
}
