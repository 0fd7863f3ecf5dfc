package gitopsprovider_test

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var (
	kustomizations  = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"}
	gitRepositories = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
)

// exampleCluster is a cluster in memory, in which a simulated Flux applies a folder of a repository.
func exampleCluster(ctx context.Context) *fake.Cluster {
	return exampleClusterOf(ctx, fake.NewRemote())
}

func exampleClusterOf(ctx context.Context, remote *fake.Remote) *fake.Cluster {
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{"team-a"}})
	fake.StartFlux(cluster, fake.FluxOptions{Remote: remote})
	repository := remote.Repository("https://git.example.com/acme/shop")
	repository.Commit(fake.Files{"cm.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {color: blue}}"})
	_, err := cluster.Resource(gitRepositories).Namespace("team-a").
		Create(ctx, fake.NewGitRepository("team-a", "shop", repository.URL()), metav1.CreateOptions{})
	if err == nil {
		_, err = cluster.Resource(kustomizations).Namespace("team-a").
			Create(ctx, fake.NewKustomization("team-a", "shop", "shop"), metav1.CreateOptions{})
	}
	for ctx.Err() == nil && err == nil {
		list, _ := exampleViews(cluster).Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
		if len(list.Changes) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return cluster
}

// exampleViews are the views of a cluster, for Flux and for Argo CD.
func exampleViews(cluster *fake.Cluster) *gitopsprovider.Views {
	views, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, flux.NewReader(cluster), argocd.NewReader(cluster))
	if err != nil {
		panic(err)
	}
	return views
}

// What is deployed into a namespace, from where.
func ExampleViews_Changes() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := exampleCluster(ctx)
	defer cluster.Stop()

	list, err := exampleViews(cluster).Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{Namespace: "team-a"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range list.Changes {
		fmt.Printf("%s applies %s at %s\n", change.Workload, change.Source.URL, change.ToRev)
	}
	if err := list.Err(); err != nil {
		fmt.Println("there may be more:", err)
	}
	// Output:
	// Kustomization team-a/shop applies https://git.example.com/acme/shop at main@sha1:da7de77c46b4fee06637ca30d75a162b376644d7
}

// What happened in the last hour: what landed, and what was attempted and failed, with what it would have changed.
func ExampleChange_Attempt() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	remote := fake.NewRemote()
	cluster := exampleClusterOf(ctx, remote)
	defer cluster.Stop()
	remote.Repository("https://git.example.com/acme/shop").Commit(fake.Files{"broken.yaml": "kind: [\n"})
	fetch := fmt.Appendf(nil, `{"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": %q}}}`, time.Now())
	_, err := cluster.Resource(gitRepositories).Namespace("team-a").Patch(ctx, "shop", types.MergePatchType, fetch, metav1.PatchOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}

	views, err := gitopsprovider.New("prod", remote, flux.NewReader(cluster)) // a fake.Remote is a Differ
	if err != nil {
		fmt.Println(err)
		return
	}
	lastHour := gitopsprovider.TimeWindow{Since: time.Now().Add(-time.Hour)}
	var list gitopsprovider.ChangeList
	for len(list.Changes) < 2 && ctx.Err() == nil { // until the controllers have seen it
		list, _ = views.Changes(ctx, lastHour, gitopsprovider.Selector{})
		time.Sleep(10 * time.Millisecond)
	}
	for _, change := range list.Changes {
		what := "landed"
		if change.ToRev == "" {
			what = "failed, " + change.Ready.Reason
		}
		diff, err := views.Diff(ctx, change)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %q %s: %s %s\n", change.Workload, change.Commit.Subject, what, diff.Files[0].Status, diff.Files[0].Path)
	}

	// Without a window, what was attempted stands beside what is applied.
	list, _ = views.Changes(ctx, gitopsprovider.TimeWindow{}, gitopsprovider.Selector{})
	diff, err := views.Diff(ctx, list.Changes[0].Attempt())
	fmt.Println(len(list.Changes), diff.Files[0].Path, err)
	// Unordered output:
	// Kustomization team-a/shop: "Change 2 of main" failed, BuildFailed: Added broken.yaml
	// Kustomization team-a/shop: "Change 1 of main" landed: Added cm.yaml
	// 1 broken.yaml <nil>
}

// Who put an object into the cluster, and where to change it for good.
func ExampleViews_Trace() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := exampleCluster(ctx)
	defer cluster.Stop()

	trace, err := exampleViews(cluster).Trace(ctx, gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "team-a", Name: "settings"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range trace.Steps[1:] {
		fmt.Println(step.Relation, step.Workload, "by", step.By)
	}
	fmt.Println(trace.Origin().Source.URL, trace.Unknown)
	// Output:
	// managedBy Kustomization team-a/shop by label kustomize.toolkit.fluxcd.io/name
	// https://git.example.com/acme/shop []
}

// What an object depends on, as a tree.
func ExampleViews_DependencyTree() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := exampleCluster(ctx)
	defer cluster.Stop()

	tree, err := exampleViews(cluster).DependencyTree(ctx, gitopsprovider.Workload{Kind: "Kustomization", Namespace: "team-a", Name: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(tree.Text())
	// Output:
	// Kustomization team-a/shop  Ready (main@sha1:da7de77c46b4)
	// └─ source GitRepository team-a/shop  Ready (main@sha1:da7de77c46b4)
}

// A status says what the read established, also of an object that is not there.
func ExampleViews_ResourceStatus() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := exampleCluster(ctx)
	defer cluster.Stop()

	status, err := exampleViews(cluster).ResourceStatus(ctx, gitopsprovider.Workload{Kind: "Application", Namespace: "argocd", Name: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(status.Answer, "-", status.Message)
	// Output:
	// Absent - Application argocd/shop in cluster prod does not exist
}

// What begins to fail, until the context ends.
func ExampleViews_WatchFailures() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cluster := exampleCluster(ctx)
	defer cluster.Stop()

	failures, err := exampleViews(cluster).WatchFailures(ctx, gitopsprovider.FailureOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = cluster.Resource(kustomizations).Namespace("team-a").
		Create(ctx, fake.NewKustomization("team-a", "broken", "nowhere"), metav1.CreateOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for failure := range failures {
		fmt.Println(failure.Type, failure.Workload, failure.Ready.Reason) // or all of it in a line: fmt.Println(failure)
		cancel()                                                          // closes the channel
	}
	// Output:
	// Failed Kustomization team-a/broken ArtifactFailed
}
