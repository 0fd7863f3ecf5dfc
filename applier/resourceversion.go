package applier

import "k8s.io/apimachinery/pkg/util/resourceversion"

// ResourceVersionBefore reports whether the resourceVersion a is known to be older than b, both of one object. What is no
// resourceVersion is not known to be.
func ResourceVersionBefore(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
