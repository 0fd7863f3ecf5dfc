package appliertest

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

func (r *reference) Consumers(ctx context.Context, source types.NamespacedName) ([]consumer, error) {
	list, err := r.api.Resource(deployers).List(ctx, metav1.ListOptions{})
	if err != nil {
		if r.is("a list that failed is empty") {
			return nil, nil
		}
		return nil, fmt.Errorf("consumers of %s in cluster prod: %w", source, err)
	}
	return consumersOf(list, source, !r.is("consumers are not sorted")), nil
}

func (r *reference) Prefetch(ctx context.Context, ref, checked types.NamespacedName, commit string) error {
	object, err := r.objects(ref).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return r.errorf(ref, err)
	}
	if field(object, "spec", "source") != checked.Name && !r.is("any source is prefetched") {
		return r.errorf(ref, applier.ErrPrefetchHeld)
	}
	all := r.api.Resource(sources).Namespace(ref.Namespace)
	source, err := all.Get(ctx, field(object, "spec", "source"), metav1.GetOptions{})
	if err != nil {
		return r.errorf(ref, err)
	}
	if field(source, "status", "commit") == commit {
		return r.errorf(ref, applier.ErrNotPrefetched)
	}
	if r.is("Prefetch does nothing") {
		return nil
	}
	source.Object["spec"].(map[string]any)["token"] = applier.NewToken()
	_, err = all.Update(ctx, source, metav1.UpdateOptions{})
	return r.errorf(ref, applier.WriteError(err))
}
