package applier

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
)

// AccessCheck reports whether the identity that writes may do what attributes say. An error is a check that got no
// answer.
type AccessCheck func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error)

// SelfSubjectAccessCheck returns an AccessCheck that asks the API server behind client by a SelfSubjectAccessReview,
// and so is answered for the identity that client is.
func SelfSubjectAccessCheck(client dynamic.Interface) AccessCheck {
	resource := client.Resource(authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"))
	return func(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
			Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes},
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(review)
		if err != nil {
			return false, fmt.Errorf("access review: %w", err)
		}
		answer, err := resource.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("access review: %w", err)
		}
		allowed, found, err := unstructured.NestedBool(answer.Object, "status", "allowed")
		if err != nil || !found {
			return false, fmt.Errorf("access review: the answer has no boolean status.allowed")
		}
		return allowed, nil
	}
}
