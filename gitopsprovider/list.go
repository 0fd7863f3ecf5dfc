package gitopsprovider

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// listLimit is how many objects one page of a list holds.
const listLimit = 500

// List reads every object of a kind, page by page.
func (r *ClusterReader) List(ctx context.Context, kind Kind, namespace string, each func(Object)) error {
	return r.inVersion(kind, func(resource dynamic.NamespaceableResourceInterface) error {
		return eachOf(ctx, resource.Namespace(namespace), metav1.ListOptions{}, func(u *unstructured.Unstructured) {
			each(r.describe(kind, true, u))
		})
	})
}

// eachOf visits every object of a list, page by page. The next page is read while one is visited.
func eachOf(
	ctx context.Context, resource dynamic.ResourceInterface, options metav1.ListOptions, visit func(*unstructured.Unstructured),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan *unstructured.UnstructuredList)
	var failed error
	go func() {
		defer close(pages)
		failed = eachPage(ctx, resource, options, pages)
	}()
	for page := range pages {
		for i := range page.Items {
			visit(&page.Items[i])
		}
	}
	return failed
}

func eachPage(
	ctx context.Context, resource dynamic.ResourceInterface, options metav1.ListOptions, pages chan<- *unstructured.UnstructuredList,
) error {
	options.Limit = listLimit
	for {
		page, err := resource.List(ctx, options)
		if next := continueAfterExpiry(err); next != "" && next != options.Continue {
			options.Continue = next
			continue
		}
		if err != nil {
			return err
		}
		select {
		case pages <- page:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// continueAfterExpiry returns the token with which a list goes on whose snapshot the API server has dropped: the pages after
// it show a later state.
func continueAfterExpiry(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}
