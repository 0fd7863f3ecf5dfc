package argocd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// FuzzDescribe presents any object as an Application and as an ApplicationSet: nothing panics, nothing is changed, and
// it is the same twice.
func FuzzDescribe(f *testing.F) {
	for _, text := range []string{
		`{}`, `null`, `{"spec": 1}`, `{"spec": {"sources": [1, {"chart": 2}], "source": {"repoURL": "https://u:p@h/r"}}}`,
		`{"spec": {"sourceHydrator": {"drySource": {}, "syncSource": {}}}, "status": {"history": [{"sources": [{}], "revisions": [1]}, {"source": 3}]}}`,
		`{"status": {"operationState": {"phase": "Failed", "startedAt": "x", "operation": {"sync": {"dryRun": true}}}, "resources": [{}], "conditions": [{"type": "XError"}]}}`,
		`{"status": {"health": {"status": "Healthy", "lastTransitionTime": 1}, "reconciledAt": "2026-05-04T12:00:00Z"}}`,
		`{"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "a:b/c:d/e"}, "labels": {"app.kubernetes.io/instance": "a_b"}}}`,
	} {
		f.Add([]byte(text), uint8(0))
		f.Add([]byte(text), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, kind uint8) {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(text, &u.Object) != nil {
			return
		}
		before := u.DeepCopy()
		present := func() gitopsprovider.Object {
			k := readerKinds[int(kind)%len(readerKinds)]
			o := gitopsprovider.Object{Workload: gitopsprovider.Workload{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "a"}}
			o.Labels, o.Annotations = u.GetLabels(), u.GetAnnotations()
			describe(k, u, &o)
			managers(o)
			return o
		}
		first := present()
		assert.Equal(t, first, present())
		assert.Equal(t, before, u, "what was read is not changed")
	})
}
