package applier_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestAnAccessCheckAsksForTheIdentityOfItsClient(t *testing.T) {
	t.Parallel()
	attributes := authorizationv1.ResourceAttributes{Verb: "patch", Group: "example.com", Resource: "apps", Namespace: "ns", Name: "a"}
	for name, test := range map[string]struct {
		status  any
		err     error
		allowed bool
		says    string
	}{
		"allowed":             {status: map[string]any{"allowed": true}, allowed: true},
		"denied":              {status: map[string]any{"allowed": false, "denied": true}},
		"no answer":           {err: errors.New("lost"), says: "access review: lost"},
		"no status":           {says: "access review: the answer has no boolean status.allowed"},
		"a status of another": {status: map[string]any{"allowed": "true"}, says: "access review: the answer has no boolean status.allowed"},
		"a status of no kind": {status: "true", says: "access review: the answer has no boolean status.allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked *unstructured.Unstructured
			client := fake.NewSimpleDynamicClient(runtime.NewScheme())
			client.PrependReactor("create", "selfsubjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
				asked = action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
				answer := asked.DeepCopy()
				delete(answer.Object, "status")
				if test.status != nil {
					answer.Object["status"] = test.status
				}
				return true, answer, test.err
			})

			allowed, err := applier.SelfSubjectAccessCheck(client)(t.Context(), attributes)

			assert.Equal(t, test.allowed, allowed)
			if test.says == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.says)
			}
			var review authorizationv1.SelfSubjectAccessReview
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(asked.Object, &review))
			assert.Equal(t, attributes, *review.Spec.ResourceAttributes)
			assert.Nil(t, review.Spec.NonResourceAttributes)
		})
	}
}
