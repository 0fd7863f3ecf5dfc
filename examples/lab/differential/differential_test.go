// Package differential_test compares fake.Cluster with a real API server, by random sequences of calls.
package differential_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/fake"
)

var (
	sequences = flag.Int("sequences", 2000, "how many random sequences of calls to compare")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first sequence")
	longest   = flag.Int("calls", 15, "the most calls of one sequence")
	workers   = flag.Int("workers", 4, "how many sequences run at a time")
	failures  = flag.Int("failures", 5, "how many differences to report before giving up")
)

var control *lab.Lab

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	control, err = lab.Up(context.Background(), lab.Options{Parts: lab.CRDs})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server:", err)
		return 1
	}
	code := m.Run()
	if err := control.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return 1
	}
	return code
}

func TestFakeAnswersAsTheRealServer(t *testing.T) {
	cluster := fake.NewCluster(fake.Options{})
	t.Cleanup(cluster.Stop)
	crd, err := readWidgetCRD()
	require.NoError(t, err)
	require.NoError(t, defineWidgets(t.Context(), control.Dynamic(), crd))
	require.NoError(t, cluster.Define(crd))
	pair := &pair{real: control.RESTConfig(), fake: cluster.Config()}

	var (
		next, failed atomic.Int64
		wg           sync.WaitGroup
	)
	for range *workers {
		wg.Go(func() {
			for {
				i := next.Add(1) - 1
				if i >= int64(*sequences) || failed.Load() >= int64(*failures) {
					return
				}
				cluster.ResetRequests()
				seed := *firstSeed + uint64(i)
				steps := sequence(seed, *longest)
				difference := pair.compare(t.Context(), steps)
				if difference == "" {
					continue
				}
				failed.Add(1)
				steps, difference = pair.shrink(t.Context(), steps, difference)
				t.Errorf("seed %d:\n%s\n%s", seed, list(steps), difference)
			}
		})
	}
	wg.Wait()
}

func list(steps []step) string {
	var b strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&b, "  %d. %s\n", i+1, s.text)
	}
	return b.String()
}

type pair struct {
	real, fake *rest.Config
	namespaces atomic.Int64
}

var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// compare runs the steps in both clusters and describes the first difference, if there is one.
func (p *pair) compare(ctx context.Context, steps []step) string {
	namespace := fmt.Sprintf("seq-%d", p.namespaces.Add(1))
	transcripts := make([][]string, 2)
	for i, config := range []*rest.Config{p.fake, p.real} {
		lines, err := play(ctx, config, namespace, steps)
		if err != nil {
			return err.Error()
		}
		transcripts[i] = lines
	}
	return firstDifference(transcripts[0], transcripts[1])
}

func firstDifference(fake, real []string) string {
	for i := range max(len(fake), len(real)) {
		var a, b string
		if i < len(fake) {
			a = fake[i]
		}
		if i < len(real) {
			b = real[i]
		}
		if a != b {
			return fmt.Sprintf("answer %d differs\nfake: %s\nreal: %s", i+1, a, b)
		}
	}
	return ""
}

func play(ctx context.Context, config *rest.Config, namespace string, steps []step) ([]string, error) {
	w, err := newWorld(ctx, config, namespace)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: m{"apiVersion": "v1", "kind": "Namespace", "metadata": m{"name": namespace}}}
	if _, err := w.client.Resource(namespaces).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	start, err := w.start()
	if err != nil {
		return nil, err
	}
	var watches []watch.Interface
	for _, s := range watched {
		open, err := w.watch(s, metav1.ListOptions{ResourceVersion: start})
		if err != nil {
			return nil, err
		}
		defer open.Stop()
		watches = append(watches, open)
	}
	for _, s := range steps {
		s.do(w)
	}
	lines := w.transcript()
	for i, s := range watched {
		lines = append(lines, w.seen(s, watches[i])...)
	}
	for _, selector := range []metav1.ListOptions{{LabelSelector: "l1=x"}, {LabelSelector: "!l1"}, {FieldSelector: "metadata.name!=b"}} {
		selector.ResourceVersion = start
		open, err := w.watch(kustomization, selector)
		if err != nil {
			return nil, err
		}
		lines = append(lines, w.seen(kustomization, open)...)
		open.Stop()
	}
	return lines, nil
}

// watched are the kinds whose changes are watched while the steps run.
var watched = []sample{kustomization, application}

// start is a resourceVersion before the first step.
func (w *world) start() (string, error) {
	list, err := w.of(kustomization.resource).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list: %w", err)
	}
	return list.GetResourceVersion(), nil
}

func (w *world) watch(s sample, options metav1.ListOptions) (watch.Interface, error) {
	open, err := w.of(s.resource).Watch(w.ctx, options)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", s.kind, err)
	}
	return open, nil
}

// seen renders what a watch delivered until an object that is made for its end, with the labels that let it through.
func (w *world) seen(s sample, open watch.Interface) []string {
	w.ends++
	last := fmt.Sprintf("the-end-%d", w.ends)
	end := &unstructured.Unstructured{Object: change(s.base, nil)}
	end.SetName(last)
	end.SetLabels(map[string]string{"l1": "x"})
	if _, err := w.of(s.resource).Create(w.ctx, end, metav1.CreateOptions{}); err != nil {
		return []string{"create the end: " + err.Error()}
	}
	end.SetLabels(nil)
	if _, err := w.of(s.resource).Patch(w.ctx, last, types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{}); err != nil {
		return []string{"change the end: " + err.Error()}
	}
	timeout := time.After(20 * time.Second)
	var answers []answer
	for {
		select {
		case event, ok := <-open.ResultChan():
			if !ok {
				return []string{"the watch ended early"}
			}
			object, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				return []string{fmt.Sprintf("watch: %s %v", event.Type, event.Object)}
			}
			answers = append(answers, answer{call: "watch " + string(event.Type), objects: []*unstructured.Unstructured{object}})
			if object.GetName() == last && (event.Type == watch.Deleted || len(object.GetLabels()) == 0) {
				return render(answers)
			}
		case <-timeout:
			return []string{"the watch did not deliver the end in time"}
		}
	}
}

func render(answers []answer) []string {
	n := newNormalizer(answers)
	var lines []string
	for _, a := range answers {
		lines = append(lines, n.render(a))
	}
	return lines
}

// shrink drops steps as long as a difference remains.
func (p *pair) shrink(ctx context.Context, steps []step, difference string) ([]step, string) {
	for i := len(steps) - 1; i >= 0; i-- {
		fewer := append(append([]step{}, steps[:i]...), steps[i+1:]...)
		if d := p.compare(ctx, fewer); d != "" {
			steps, difference = fewer, d
		}
	}
	return steps, difference
}
