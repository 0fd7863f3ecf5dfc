package events

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

// A side is a cluster with controllers, simulated or real, and a Git repository that they apply.
type side struct {
	testing.TB
	api            dynamic.Interface
	namespace, url string
	push           func(files map[string]string) string
	drop           func(paths ...string) string
	// settle waits until the controllers have said what there is to say by then.
	settle func()
	// commits are those made so far, and asked is how many reconcile requests were.
	commits []string
	asked   int
}

const repositoryURL = "https://git.example.com/acme/shop"

func inMemory(t testing.TB, start func(*fake.Cluster) *fake.Remote) *side {
	const namespace = "team-a"
	cluster := fake.NewCluster(fake.Options{Namespaces: []string{namespace}})
	t.Cleanup(cluster.Stop)
	repository := start(cluster).Repository(repositoryURL)
	return &side{
		TB: t, api: cluster, namespace: namespace, url: repositoryURL, settle: synctest.Wait,
		push: func(files map[string]string) string { return repository.Commit(files) },
		drop: repository.Remove,
	}
}

func inTheLab(t testing.TB) *side {
	l := lab.Start(t)
	repository := l.Repository(t)
	return &side{
		TB: t, api: l.Dynamic(), namespace: l.Namespace(t), url: repository.URL(),
		push: func(files map[string]string) string { return repository.Commit(t, files) },
		drop: func(paths ...string) string { return repository.Remove(t, paths...) },
	}
}

func (s *side) commit(path, content string) string {
	s.commits = append(s.commits, s.push(map[string]string{path: content}))
	return s.commits[len(s.commits)-1]
}

func (s *side) remove(path string) string {
	s.commits = append(s.commits, s.drop(path))
	return s.commits[len(s.commits)-1]
}

func (s *side) create(resource schema.GroupVersionResource, object *unstructured.Unstructured) {
	s.Helper()
	_, err := s.api.Resource(resource).Namespace(s.namespace).Create(s.Context(), object, metav1.CreateOptions{})
	require.NoError(s, err)
}

// merge changes an object by a merge patch.
func (s *side) merge(resource schema.GroupVersionResource, name string, patch map[string]any) {
	s.Helper()
	body, err := json.Marshal(patch)
	require.NoError(s, err)
	_, err = s.api.Resource(resource).Namespace(s.namespace).Patch(s.Context(), name, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(s, err)
}

// ask stamps a reconcile request on an object of Flux's and waits until it was handled.
func (s *side) ask(resource schema.GroupVersionResource, name string) {
	s.Helper()
	s.asked++
	token := fmt.Sprint(s.asked)
	s.merge(resource, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"reconcile.fluxcd.io/requestedAt": token}}})
	s.await(resource, name, lab.Handled(token))
}

func (s *side) delete(resource schema.GroupVersionResource, name string) {
	s.Helper()
	require.NoError(s, s.api.Resource(resource).Namespace(s.namespace).Delete(s.Context(), name, metav1.DeleteOptions{}))
	s.await(resource, name, lab.Gone)
}

// await waits until an object satisfies a condition.
func (s *side) await(resource schema.GroupVersionResource, name string, condition lab.Condition) {
	s.Helper()
	var object *unstructured.Unstructured
	met := assert.Eventually(s, func() bool {
		var err error
		if object, err = s.api.Resource(resource).Namespace(s.namespace).Get(s.Context(), name, metav1.GetOptions{}); err != nil {
			object = nil
		}
		return condition(object)
	}, lab.WaitTimeout, 20*time.Millisecond)
	if !met {
		s.Fatalf("%s %s: %v", resource.Resource, name, object)
	}
}

// said lists what the controllers said of each object, in words that do not depend on the side, and in the order they said it where
// one worker of a controller has an object for itself. Argo CD has two for an Application, one for operations and one for comparisons.
func (s *side) said() []string {
	s.Helper()
	list, err := s.api.Resource(lab.Events).Namespace(s.namespace).List(s.Context(), metav1.ListOptions{})
	require.NoError(s, err)
	// The name of an Event ends in when it was made.
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	said := []string{}
	for _, event := range list.Items {
		if line := s.describe(event.Object); !strings.Contains(line, "garbage collected T artifacts") {
			said = append(said, line)
		}
	}
	slices.SortStableFunc(said, func(a, b string) int {
		if strings.HasPrefix(a, "Application/") && strings.HasPrefix(b, "Application/") {
			return strings.Compare(a, b)
		}
		return strings.Compare(subject(a), subject(b))
	})
	return said
}

func subject(line string) string {
	about, _, _ := strings.Cut(line, " ")
	return about
}

var (
	durations = regexp.MustCompile(`\b(\d+(\.\d+)?(ns|µs|ms|s|m|h))+\b`)
	numbers   = regexp.MustCompile(`garbage collected \d+ artifacts`)
	// The simulated controller names files as if the folder that is applied were the repository's root.
	folders = regexp.MustCompile(`/tmp/(\S*/)?kustomization-\d+(/app)?`)
	digests = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
)

func (s *side) describe(event map[string]any) string {
	text := func(path ...string) string {
		value, _, _ := unstructured.NestedString(event, path...)
		return value
	}
	annotations, _, _ := unstructured.NestedStringMap(event, "metadata", "annotations")
	line := fmt.Sprintf("%s/%s %s %s: %q by %s/%s about %s %v", text("involvedObject", "kind"), text("involvedObject", "name"), text("type"), text("reason"),
		text("message"), text("source", "component"), text("reportingComponent"), text("involvedObject", "apiVersion"), annotations)
	for i, commit := range s.commits {
		line = strings.ReplaceAll(line, commit, fmt.Sprintf("COMMIT%d", i+1))
	}
	line = strings.ReplaceAll(strings.ReplaceAll(line, s.url, "URL"), s.namespace, "NAMESPACE")
	line = folders.ReplaceAllString(numbers.ReplaceAllString(durations.ReplaceAllString(line, "T"), "garbage collected T artifacts"), "FOLDER")
	return digests.ReplaceAllString(line, "DIGEST")
}

// compare plays a scenario on both sides and expects them to say the same. The real controllers say it a moment later, so wherever
// the scenario settles it waits until they have said as much as the simulated ones.
func compare(t *testing.T, start func(*fake.Cluster) *fake.Remote, play func(*side)) {
	t.Helper()
	var want [][]string
	synctest.Test(t, func(t *testing.T) {
		simulated := inMemory(t, start)
		simulated.settle = func() {
			synctest.Wait()
			want = append(want, simulated.said())
		}
		play(simulated)
		simulated.settle()
	})
	require.NotEmpty(t, want[len(want)-1])

	real := inTheLab(t)
	real.settle = func() {
		var got []string
		if !assert.Eventually(t, func() bool { got = real.said(); return slices.Equal(got, want[0]) }, 30*time.Second, 200*time.Millisecond) {
			assert.Equal(t, strings.Join(want[0], "\n"), strings.Join(got, "\n"), "the simulated controllers say what is expected, the real ones what is actual")
			t.FailNow()
		}
		want = want[1:]
	}
	play(real)
	real.settle()
}
