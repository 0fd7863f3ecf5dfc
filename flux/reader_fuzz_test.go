package flux

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// FuzzDescribe presents any object as any of Flux's kinds: nothing panics, nothing is changed, and it is the same twice.
func FuzzDescribe(f *testing.F) {
	for _, text := range []string{
		wholeKustomization, heldKustomization, `{}`, `null`, `{"spec": 1}`, `{"status": {"history": [1], "conditions": [{}], "inventory": {"entries": [{"id": "_"}]}}}`,
		`{"spec": {"chart": {"spec": {"chart": "./web", "sourceRef": {"kind": "GitRepository"}}}, "dependsOn": [{"name": "a"}]}, "status": {"helmChart": "a/b", "history": [{"status": "deployed", "chartVersion": "1"}]}}`,
		`{"spec": {"url": "https://u:p@h/r", "ref": {"name": "refs/heads/x"}, "include": [{"repository": {"name": "o"}}]}, "status": {"conditions": [{"type": "Ready", "status": "False", "message": "https://u:p@h/r"}]}}`,
		`{"spec": {"sourceRef": {"apiVersion": "a/b/c", "kind": "G"}}, "status": {"inventory": {"entries": [{"id": "a_b__c_d_e"}, {"id": 1}]}}}`,
	} {
		for kind := range readerKinds {
			f.Add([]byte(text), uint8(kind))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, kind uint8) {
		u := decoded(text)
		if u == nil {
			return
		}
		before := u.DeepCopy()
		present := func() gitopsprovider.Object {
			k := readerKinds[int(kind)%len(readerKinds)]
			o := gitopsprovider.Object{Workload: gitopsprovider.Workload{Group: k.Group, Kind: k.Kind, Namespace: "ns", Name: "a"}}
			describe(k, u, &o)
			o.Labels, o.Annotations = u.GetLabels(), u.GetAnnotations()
			managers(o)
			return o
		}
		first := present()
		assert.Equal(t, first, present())
		assert.Equal(t, before, u, "what was read is not changed")
	})
}
