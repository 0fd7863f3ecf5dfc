package simulation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// A mutation is a part that is broken, for the simulation to find out. The zero value breaks nothing.
type mutation struct {
	// law is the one that it breaks, and first the first seed that is tried: one that is known to find it saves time.
	law   law
	first uint64

	client  func(*process, applier.Client) applier.Client
	store   func(*process) applier.Store
	dynamic func(*process) dynamic.Interface
	// forgetful is a host that does not follow what the records say.
	forgetful bool
}

var mutations = map[string]mutation{
	"a backend that records nothing": {law: recordedFirst, client: asking(func(ctx context.Context, c applier.Client, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
		ask.Record = nil
		return c.Request(ctx, ref, ask)
	})},
	"a backend that records what it has started": {law: recordedFirst, client: asking(func(ctx context.Context, c applier.Client, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
		record := ask.Record
		ask.Record = nil
		started, err := c.Request(ctx, ref, ask)
		if err == nil && started.Outcome != applier.OutcomeCurrent {
			_ = record(ctx, started)
		}
		return started, err
	})},
	"a backend that does not ask whether the decision holds": {law: onlyWhatWasAsked, first: 11, client: asking(func(ctx context.Context, c applier.Client, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
		ask.Current = nil
		return c.Request(ctx, ref, ask)
	})},
	"a backend that takes a lost answer for a refusal": {law: neverMoreThanIsKnown, first: 14, client: asking(func(ctx context.Context, c applier.Client, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
		started, err := c.Request(ctx, ref, ask)
		if err == nil && started.Unconfirmed != nil {
			return applier.Started{}, started.Unconfirmed
		}
		return started, err
	})},
	"a backend that does not suspend again": {law: neverLeftResumed, client: judging(func(s *applier.Started, handled string, end applier.Progress) (applier.Progress, bool) {
		return end, handled == s.Token
	})},
	"a backend that believes what stands": {law: theAppliersOwnWord, first: 13, client: judging(func(_ *applier.Started, _ string, end applier.Progress) (applier.Progress, bool) {
		return end, end.AppliedCommit != ""
	})},
	"a backend that takes a failed read for an end": {law: neverMoreThanIsKnown, first: 14, client: following(func(p applier.Progress, err error, s *applier.Started) (applier.Progress, error) {
		if err != nil {
			return applier.Progress{State: applier.StateFailed, Reason: applier.ReasonGone, Message: err.Error()}, nil
		}
		return p, nil
	})},
	"a backend that calls every end a success": {law: theAppliersOwnWord, client: following(func(p applier.Progress, err error, s *applier.Started) (applier.Progress, error) {
		if p.State == applier.StateFailed {
			p = applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonSucceeded, AppliedCommit: s.Commit, AppliedRevision: "main@sha1:" + s.Commit}
		}
		return p, err
	})},
	"a backend that goes on polling":          {law: quietWhenIdle, client: func(p *process, c applier.Client) applier.Client { return poller{around{c}, p} }},
	"a client that does not guard its writes": {law: nobodysWorkIsOverwritten, first: 30, dynamic: func(p *process) dynamic.Interface { return unguarded{p.view} }},
	"a store that reads from a cache":         {law: onlyWhatWasAsked, first: 18, store: func(p *process) applier.Store { return cachedStore{p.records, &p.w.cache} }},
	"a store that writes over what changed":   {law: neverMoreThanIsKnown, store: func(p *process) applier.Store { return blindStore{p.records} }},
	"a store that hides what failed":          {law: recordedFirst, store: func(p *process) applier.Store { return mildStore{p.records} }},
	"a host that forgets":                     {law: oneEnd, first: 11, forgetful: true},
}

// enough is how many seeds find any of them.
const enough = 40

// The simulation can fail: whichever part is broken, some of the first seeds find it.
func TestTheSimulationFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	switch {
	case *oneSeed != 0 || *seeds != 0:
		t.Skip("other seeds are asked for")
	case raceEnabled:
		t.Skip("what the checks find does not depend on the race detector")
	}
	for _, name := range slices.Sorted(maps.Keys(mutations)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := max(1, mutations[name].first)
			for seed := first; seed < first+enough; seed++ {
				if seed%250 == 7 {
					continue // It is a large one.
				}
				found := false
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					law := fmt.Sprintf("law %d,", mutations[name].law)
					for _, broken := range simulate(t, seed, plan{processes: 1, broken: mutations[name]}).violations() {
						if !found && strings.HasPrefix(broken, law) {
							t.Logf("found by seed %d: %s", seed, broken)
							found = true
						}
					}
				})
				if found {
					return
				}
			}
			t.Errorf("%d seeds do not find it", enough)
		})
	}
}

// around is a client around another one.
type around struct{ applier.Client }

func (a around) Unwrap() applier.Client { return a.Client }

type asker struct {
	around
	request func(context.Context, applier.Client, types.NamespacedName, applier.Ask) (applier.Started, error)
}

func (a asker) Request(ctx context.Context, ref types.NamespacedName, ask applier.Ask) (applier.Started, error) {
	return a.request(ctx, a.Client, ref, ask)
}

func asking(request func(context.Context, applier.Client, types.NamespacedName, applier.Ask) (applier.Started, error)) func(*process, applier.Client) applier.Client {
	return func(_ *process, c applier.Client) applier.Client { return asker{around{c}, request} }
}

type follower struct {
	around
	progress func(applier.Progress, error, *applier.Started) (applier.Progress, error)
}

func (f follower) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	p, err := f.Client.Progress(ctx, ref, s)
	return f.progress(p, err, s)
}

func following(progress func(applier.Progress, error, *applier.Started) (applier.Progress, error)) func(*process, applier.Client) applier.Client {
	return func(_ *process, c applier.Client) applier.Client { return follower{around{c}, progress} }
}

// judge ends an operation of a Kustomization by what stands, where it thinks fit.
type judge struct {
	around
	p     *process
	ended func(s *applier.Started, handled string, end applier.Progress) (applier.Progress, bool)
}

func (j judge) Progress(ctx context.Context, ref types.NamespacedName, s *applier.Started) (applier.Progress, error) {
	if s.Outcome == applier.OutcomeResumed {
		object, err := j.p.view.Resource(kustomizations).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return applier.Progress{}, err
		}
		v := version{object: object}
		revision := v.text("status", "lastAppliedRevision")
		end := applier.Progress{State: applier.StateSucceeded, Reason: applier.ReasonSucceeded, AppliedRevision: revision, AppliedCommit: gitref.CommitOf(revision)}
		if end.AppliedCommit != s.Commit {
			end.Reason = applier.ReasonAppliedOther
		}
		if end, ended := j.ended(s, v.handled(), end); ended {
			s.Observed = nil
			return end, nil
		}
	}
	return j.Client.Progress(ctx, ref, s)
}

func judging(ended func(*applier.Started, string, applier.Progress) (applier.Progress, bool)) func(*process, applier.Client) applier.Client {
	return func(p *process, c applier.Client) applier.Client { return judge{around{c}, p, ended} }
}

// poller reads an applier on and on once it was watched.
type poller struct {
	around
	p *process
}

func (o poller) Watch(ctx context.Context, ref types.NamespacedName) <-chan *unstructured.Unstructured {
	o.p.running.Go(func() {
		for pause(o.p.working, 10*time.Second) {
			o.Validate(o.p.working, ref)
		}
	})
	watcher, _ := applier.AsWatcher(o.Client)
	return watcher.Watch(ctx, ref)
}

// unguarded is a client whose writes do not carry the resourceVersion that was read.
type unguarded struct{ dynamic.Interface }

func (u unguarded) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return unguardedResource{u.Interface.Resource(resource), resource}
}

type unguardedResource struct {
	dynamic.NamespaceableResourceInterface
	resource schema.GroupVersionResource
}

func (u unguardedResource) Namespace(namespace string) dynamic.ResourceInterface {
	return unguardedObjects{u.NamespaceableResourceInterface.Namespace(namespace)}
}

type unguardedObjects struct{ dynamic.ResourceInterface }

func (u unguardedObjects) Apply(ctx context.Context, name string, object *unstructured.Unstructured, options metav1.ApplyOptions, subresources ...string) (*unstructured.Unstructured, error) {
	unstructured.RemoveNestedField(object.Object, "metadata", "resourceVersion")
	return u.ResourceInterface.Apply(ctx, name, object, options, subresources...)
}

func (u unguardedObjects) Update(ctx context.Context, object *unstructured.Unstructured, options metav1.UpdateOptions, subresources ...string) (*unstructured.Unstructured, error) {
	if now, err := u.Get(ctx, object.GetName(), metav1.GetOptions{}); err == nil {
		object.SetResourceVersion(now.GetResourceVersion())
	}
	return u.ResourceInterface.Update(ctx, object, options, subresources...)
}

// cachedStore answers every read by what it read first.
type cachedStore struct {
	applier.Store
	targets *sync.Map
}

func (s cachedStore) Target(ctx context.Context, ref applier.TargetRef) (applier.Target, error) {
	if known, ok := s.targets.Load(ref); ok {
		return known.(applier.Target), nil
	}
	t, err := s.Store.Target(ctx, ref)
	if err == nil {
		s.targets.Store(ref, t)
	}
	return t, err
}

// blindStore writes what it made of an earlier read.
type blindStore struct{ applier.Store }

func (s blindStore) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	t, err := s.Trigger(ctx, ref)
	if err == nil {
		err = mutate(&t)
	}
	if err != nil {
		return err
	}
	pause(ctx, 3*time.Second)
	return s.Store.UpdateStatus(ctx, ref, func(now *applier.Trigger) error {
		now.Status = t.Status
		return nil
	})
}

// mildStore says that what failed was done.
type mildStore struct{ applier.Store }

func (s mildStore) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	_ = s.Store.UpdateStatus(ctx, ref, mutate)
	return nil
}
