package fake_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"}

func allowed(t *testing.T, client dynamic.Interface, verb string) bool {
	t.Helper()
	answer, err := client.Resource(accessReviews).Create(t.Context(), object(t, `
apiVersion: authorization.k8s.io/v1
kind: SelfSubjectAccessReview
spec:
  resourceAttributes: {group: kustomize.toolkit.fluxcd.io, resource: kustomizations, namespace: team-a, verb: `+verb+`}
`), metav1.CreateOptions{})
	require.NoError(t, err)
	yes, _, _ := unstructured.NestedBool(answer.Object, "status", "allowed")
	return yes
}

func TestAnIdentityMayDoWhatItsRuleAllows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	createShop(t, c)
	reader := c.As("reader", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "get" })

	_, err := reader.Resource(kustomizations).Namespace(team).Get(t.Context(), "shop", metav1.GetOptions{})
	require.NoError(t, err)
	assert.True(t, allowed(t, c, "patch"), "the administrator may do everything")
	assert.True(t, allowed(t, reader, "get"))
	assert.False(t, allowed(t, reader, "patch"))

	_, err = reader.Resource(kustomizations).Namespace(team).UpdateStatus(t.Context(), newShops(t, c).get(), metav1.UpdateOptions{})
	assert.True(t, apierrors.IsForbidden(err))
	assert.EqualError(t, err, `kustomizations.kustomize.toolkit.fluxcd.io "shop" is forbidden: User "reader" cannot update resource `+
		`"kustomizations/status" in API group "kustomize.toolkit.fluxcd.io" in the namespace "team-a"`)

	_, err = reader.Resource(kustomizations).List(t.Context(), metav1.ListOptions{})
	assert.EqualError(t, err, `kustomizations.kustomize.toolkit.fluxcd.io is forbidden: User "reader" cannot list resource `+
		`"kustomizations" in API group "kustomize.toolkit.fluxcd.io" at the cluster scope`)
}

func TestAnApplyThatCreatesNeedsTheVerbCreateToo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	patcher := c.As("patcher", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "patch" })
	shop := object(t, shopYAML)
	apply := func() error {
		_, err := patcher.Resource(kustomizations).Namespace(team).Apply(t.Context(), "shop", shop, metav1.ApplyOptions{FieldManager: "lib"})
		return err
	}
	assert.True(t, apierrors.IsForbidden(apply()))
	createShop(t, c)
	assert.NoError(t, apply())
}
