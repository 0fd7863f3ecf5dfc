// Package dispatchertest runs the Dispatcher as an operator would, over records in the lab's own API server, while
// controllers, the API server and the host itself are stopped, killed and started. What it then did is judged by the API
// server's audit log. Thousands of operations take a while:
//
//	go test ./dispatchertest -v -operations 3000 -timeout 2h
package dispatchertest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/dispatchertest/laws"
	"github.com/gitops-applier/gitops-applier/examples/lab/hoststore"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

var (
	operations = flag.Int("operations", 300, "how many changes are pushed, and have to be applied")
	triggers   = flag.Int("triggers", 200, "how many triggers there are, each with an applier of its own")
	quiet      = flag.Duration("quiet", time.Minute, "for how long nothing may be requested in the end")
	keep       = flag.String("keep", "", "a file that is to get the audit log")
	seed       = flag.Uint64("seed", 1, "decides the order in which triggers get their turn")
)

// inFlight is how many changes are under way at a time, and between how many a disruption comes.
const (
	inFlight = 40
	between  = 27
)

// run is a test under way.
type run struct {
	*world
	host  *host
	hosts int
	// stops are when the API server was stopped.
	stops []time.Time
}

func TestNoOperationIsLostOrMadeTwiceWhileEverythingIsStoppedAndStarted(t *testing.T) {
	begin := time.Now()
	l, err := lab.Up(t.Context(), lab.Options{Parts: lab.All, AuditPolicy: laws.Policy(hoststore.Triggers.Group)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Stop()) })
	l.HelmController.Stop(t)
	l.ApplicationSetController.Stop(t)
	r := &run{world: newWorld(t, l, *triggers)}
	t.Logf("%d triggers are set up after %s", len(r.subjects), time.Since(begin).Round(time.Second))

	annotating, stopAnnotating := context.WithCancel(t.Context())
	annotated := make(chan map[string]string, 1)
	go func() { annotated <- r.alice(annotating) }()
	start := time.Now()
	r.takeOver(t, func() {})
	applied := r.push(t)
	t.Logf("%d changes were applied in %s by %d processes; attempts ended as %v",
		applied, time.Since(start).Round(time.Second), r.hosts, r.howEnded())
	stopAnnotating()
	r.settleDown(t)
	r.requireLeft(t, <-annotated)
	sleep(t.Context(), time.Second) // for watches that end

	from := time.Now()
	sleep(t.Context(), *quiet)
	to := time.Now()
	r.host.stop()
	r.judge(t, from, to)
	t.Logf("all took %s", time.Since(begin).Round(time.Second))
}

// push gives triggers their turn to push a change, some at a time, and disrupts what is under way, until all changes are
// applied. It returns how many that were: fewer than it should have been, and the test has failed, if its deadline is near.
func (r *run) push(t *testing.T) int {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, 0))
	idle := slices.Clone(r.subjects)
	pushed, answered, disrupted, wanted := 0, 0, 0, *operations
	every := min(between, max(1, wanted/(len(disruptions)+1)))
	late := r.late(t)
	for answered < wanted {
		for pushed < wanted && pushed-answered < inFlight && len(idle) > 0 {
			i := random.IntN(len(idle))
			idle[i].turn <- struct{}{}
			idle = slices.Delete(idle, i, i+1)
			pushed++
		}
		select {
		case s := <-r.answers:
			answered++
			idle = append(idle, s)
		case <-late:
			t.Errorf("the test's -timeout leaves no time for more than %d of %d changes", pushed, wanted)
			wanted, late = pushed, nil
		case <-time.After(3 * time.Minute):
			t.Fatalf("nothing was applied for three minutes, after %d of %d changes; attempts ended as %v\n%s",
				answered, wanted, r.howEnded(), r.waiting(t))
		}
		if answered >= (disrupted+1)*every && answered < wanted {
			d := disruptions[disrupted%len(disruptions)]
			at := time.Now()
			d.do(t, r)
			disrupted++
			t.Logf("after %d changes %s, for %s", answered, d.name, time.Since(at).Round(100*time.Millisecond))
		}
	}
	return answered
}

// late tells when it is time to come to an end before the test's deadline.
func (r *run) late(t *testing.T) <-chan time.Time {
	t.Helper()
	deadline, ok := t.Deadline()
	if !ok {
		return nil
	}
	return time.After(time.Until(deadline) - *quiet - 3*time.Minute)
}

// waiting says of each subject whose change is not applied where it stands.
func (r *run) waiting(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	log := r.read(t)
	for _, s := range r.subjects {
		if s.isAnswered() {
			continue
		}
		fmt.Fprintf(&b, "%s:\n", s.applier)
		for _, o := range log.Operations() {
			if o.Applier.Name == s.name {
				fmt.Fprintf(&b, "  %s\n%s", o.Token, log.History(o))
			}
		}
	}
	return b.String()
}

// settleDown waits until no attempt is out and all ends are recorded.
func (r *run) settleDown(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		if r.host.out.Load() > 0 {
			return false
		}
		triggers, err := r.host.store.Triggers(t.Context(), applier.TriggerMatch{})
		return err == nil && !slices.ContainsFunc(triggers, func(trigger applier.Trigger) bool {
			return trigger.Status.Operation != nil && !trigger.Status.Operation.Completed()
		})
	}, 2*time.Minute, pauseAfterFailure)
}

// requireLeft fails the test unless everything stands as it should in the end. It touches each trigger, so that the audit
// log shows what that records.
func (r *run) requireLeft(t *testing.T, annotated map[string]string) {
	t.Helper()
	for _, s := range r.subjects {
		require.NoError(t, r.annotate(t.Context(), hoststore.Triggers, s.name, "end"))
		u := r.lab.WaitFor(t, s.resource(), r.ns, s.name, func(u *unstructured.Unstructured) bool { return !s.isHeld() || isHeld(u) })
		assert.Equal(t, "alice", u.GetLabels()["owner"], "%s", s.applier)
		if value := annotated[s.name]; value != "" {
			assert.Equal(t, value, u.GetAnnotations()["note"], "%s", s.applier)
		}
		if s.pushed == 1 && !s.live {
			continue // It was never asked.
		}
		change, err := r.change(t.Context(), s)
		if assert.NoError(t, err) {
			assert.Equal(t, s.pushed, change, "%s", s.applier)
		}
	}
}

// annotate leaves a note of alice's on an object.
func (w *world) annotate(ctx context.Context, resource schema.GroupVersionResource, name, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"note":%q}}}`, value)
	_, err := w.lab.Dynamic().Resource(resource).Namespace(w.ns).
		Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "alice"})
	return err
}

// read reads the audit log.
func (r *run) read(t *testing.T) *laws.Log {
	t.Helper()
	file, err := os.Open(r.lab.AuditLog())
	require.NoError(t, err)
	defer file.Close()
	log, err := laws.Read(file, "system:serviceaccount:"+r.ns+":", hoststore.Triggers.Resource)
	require.NoError(t, err)
	return log
}

// judge checks the laws by the audit log.
func (r *run) judge(t *testing.T, from, to time.Time) {
	t.Helper()
	if *keep != "" {
		text, err := os.ReadFile(r.lab.AuditLog())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*keep, text, 0o600))
	}
	log := r.read(t)
	r.mu.Lock()
	defer r.mu.Unlock()
	violations := append(log.Check(r.decisions, r.stops), log.Quiet(from, to)...)
	for i, v := range violations {
		if i == 5 {
			t.Errorf("and %d more", len(violations)-i)
			break
		}
		t.Error(v)
		if v.Operation != nil {
			t.Logf("the history of operation %s:\n%s", v.Operation.Token, log.History(v.Operation))
		}
	}
	started, requests := 0, 0
	for _, o := range log.Operations() {
		if o.Started() != nil {
			started++
		}
	}
	for _, e := range log.Events {
		if e.Host {
			requests++
		}
	}
	t.Logf("the audit log has %d operations of which %d were started, and %d requests of hosts", len(log.Operations()), started, requests)
}
