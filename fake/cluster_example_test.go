package fake_test

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/fake"
)

// Somebody changes an object between a program's read and its write.
func ExampleFault() {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	defer cluster.Stop()
	ctx := context.Background()
	settings := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"},
	}}
	program := cluster.As("program", nil).Resource(settings).Namespace("team-a")
	created, err := program.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	somebody := cluster.Resource(settings).Namespace("team-a")
	changed := created.DeepCopy()
	changed.SetLabels(map[string]string{"by": "somebody"})
	if _, err := somebody.Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	_, err = program.Update(ctx, created, metav1.UpdateOptions{})
	fmt.Println("conflict:", apierrors.IsConflict(err))

	cluster.Inject(fake.Fault{Verb: "get", Err: apierrors.NewServiceUnavailable("restarting")})
	_, err = somebody.Get(ctx, "settings", metav1.GetOptions{})
	fmt.Println("unavailable:", apierrors.IsServiceUnavailable(err))
	for _, request := range cluster.Requests() {
		fmt.Println(request)
	}
	// Output:
	// conflict: true
	// unavailable: true
	// #1 update configmaps team-a/settings -> 200
	// #2 get configmaps team-a/settings -> 503
}
