package fluxtest

import (
	"context"
	"encoding/json"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// states records every state of the Kustomization from the present one on. The function that it returns ends that with
// the state that stands then, and returns all.
func (s *subject) states(t *testing.T) func() []*unstructured.Unstructured {
	t.Helper()
	first := s.get(t)
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	t.Cleanup(cancel)
	changes, err := s.lab.Dynamic().Resource(lab.Kustomizations).Namespace(s.ns).Watch(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, s.ref.Name).String(),
		ResourceVersion: first.GetResourceVersion(),
	})
	require.NoError(t, err)
	return func() []*unstructured.Unstructured {
		t.Helper()
		defer changes.Stop()
		seen, last := []*unstructured.Unstructured{first}, s.get(t)
		for seen[len(seen)-1].GetResourceVersion() != last.GetResourceVersion() {
			change, open := <-changes.ResultChan()
			require.True(t, open, "the watch ended before it showed the last state")
			object, ok := change.Object.(*unstructured.Unstructured)
			require.True(t, ok, "the watch showed %v", change.Object)
			seen = append(seen, object)
		}
		return seen
	}
}

// suspends returns spec.suspend in each of the states, one value for those that follow each other with the same.
func suspends(states []*unstructured.Unstructured) []bool {
	var values []bool
	for _, state := range states {
		value, _, _ := unstructured.NestedBool(state.Object, "spec", "suspend")
		if len(values) == 0 || values[len(values)-1] != value {
			values = append(values, value)
		}
	}
	return values
}

// toKustomizations matches what may change a Kustomization.
func toKustomizations(r lab.Request) bool {
	return r.Writes() && r.Resource == lab.Kustomizations.Resource
}

// written is the body of one write.
type written struct {
	Metadata struct {
		Name            string
		Namespace       string
		UID             string
		ResourceVersion string
		Annotations     map[string]string
	}
	Spec map[string]any
}

func bodyOf(t *testing.T, r lab.Request) written {
	t.Helper()
	var body written
	require.NoError(t, json.Unmarshal(r.Body, &body), "%s: %s", r, r.Body)
	return body
}

// requestedIn is the token that a write asks for.
func requestedIn(t *testing.T, r lab.Request) string {
	t.Helper()
	return bodyOf(t, r).Metadata.Annotations[fluxmeta.ReconcileRequestAnnotation]
}

// requireLawfulWrites checks what each write carried that passed through tr: server-side applies that state the UID,
// on a Kustomization spec.suspend with it (a live ask's stamp aside), and on a GitRepository the annotation alone.
func requireLawfulWrites(t *testing.T, s *subject, tr *lab.Transport, live bool) {
	t.Helper()
	uid := string(s.get(t).GetUID())
	for _, r := range tr.Requests() {
		if !r.Writes() {
			continue
		}
		require.Equal(t, "apply", r.Verb, "%s", r)
		require.Equal(t, manager, r.FieldManager, "%s", r)
		body := bodyOf(t, r)
		require.NotEmpty(t, body.Metadata.UID, "%s: %s", r, r.Body)
		require.Len(t, body.Metadata.Annotations, 1, "%s: %s", r, r.Body)
		require.NotEmpty(t, body.Metadata.Annotations[fluxmeta.ReconcileRequestAnnotation], "%s: %s", r, r.Body)
		switch {
		case r.Resource == lab.GitRepositories.Resource:
			require.Empty(t, body.Spec, "%s: %s", r, r.Body)
			require.Empty(t, body.Metadata.ResourceVersion, "%s: %s", r, r.Body)
		case live:
			require.Equal(t, uid, body.Metadata.UID)
			require.Empty(t, body.Spec, "%s: %s", r, r.Body)
			require.NotEmpty(t, body.Metadata.ResourceVersion, "%s: %s", r, r.Body)
		default:
			require.Equal(t, uid, body.Metadata.UID)
			require.Len(t, body.Spec, 1, "%s: %s", r, r.Body)
			suspend, stated := body.Spec["suspend"].(bool)
			require.True(t, stated, "%s: %s", r, r.Body)
			if !suspend {
				require.NotEmpty(t, body.Metadata.ResourceVersion, "%s: %s", r, r.Body)
			}
		}
	}
}

// patch changes an object of the test by a merge patch under another field manager.
func (s *subject) patch(t testing.TB, gvr schema.GroupVersionResource, name, fieldManager, patch string) {
	t.Helper()
	_, err := s.lab.Dynamic().Resource(gvr).Namespace(s.ns).
		Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	assert.NoError(t, err)
}

// moveTo points the branch at a commit and returns once the GitRepository has fetched it.
func (s *subject) moveTo(t *testing.T, commit string) {
	t.Helper()
	s.repo.SetBranch(t, lab.DefaultBranch, commit)
	s.annotate(t, lab.GitRepositories, "app", stampedNow())
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(commit))
}

// assertHeldInEach checks that spec.suspend is the host's alone in each of the states.
func assertHeldInEach(t *testing.T, states []*unstructured.Unstructured) {
	t.Helper()
	for _, state := range states {
		assert.Equal(t, map[string]string{manager: "Apply"}, managersOf(t, state, "f:spec", "f:suspend"),
			"at resourceVersion %s", state.GetResourceVersion())
	}
}
