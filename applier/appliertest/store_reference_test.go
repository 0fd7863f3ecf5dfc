package appliertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// storeReference describes fake.Store, broken in the place that the mutation names.
func storeReference(m mutation) StoreHarness {
	return StoreHarness{New: func(testing.TB) *Records {
		host := &fake.Store{}
		unbroken := func(s applier.Store) *fake.Store { return s.(*brokenStore).Store }
		lost := errors.New("connection reset")
		return &Records{
			Namespaces: [2]string{"team", "team-a"},
			Kinds:      []schema.GroupKind{{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}, {Group: "argoproj.io", Kind: "Application"}},
			NewStore: func() (applier.Store, error) {
				return &brokenStore{Store: host.Process(), host: host, mutation: m, cache: newCache(), shared: make(map[applier.TriggerRef]applier.Trigger)}, nil
			},
			PutTrigger: func(_ context.Context, t applier.Trigger) (applier.Trigger, error) {
				if host.ChangeTrigger(t.Ref, func(kept *applier.Trigger) { kept.Applier, kept.Live, kept.Holding = t.Applier, t.Live, t.Holding }) != nil {
					host.PutTrigger(t)
				}
				return host.Process().Trigger(context.Background(), t.Ref)
			},
			DeleteTrigger: func(_ context.Context, ref applier.TriggerRef) error { host.DeleteTrigger(ref); return nil },
			PutTarget:     func(_ context.Context, t applier.Target) (applier.Target, error) { return host.PutTarget(t), nil },
			DeleteTarget:  func(_ context.Context, ref applier.TargetRef) error { host.DeleteTarget(ref); return nil },
			TerminateTrigger: func(_ context.Context, ref applier.TriggerRef) error {
				return host.ChangeTrigger(ref, func(t *applier.Trigger) { t.Deleting = true })
			},
			TerminateTarget: func(_ context.Context, ref applier.TargetRef) error {
				return host.ChangeTarget(ref, func(t *applier.Target) { t.Deleting = true })
			},
			Version: func(_ context.Context, ref applier.TriggerRef) (string, error) {
				return fmt.Sprint(len(host.History(ref))), nil
			},
			Lose: func(s applier.Store) { unbroken(s).Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Lost: lost}) },
			Drop: func(s applier.Store) {
				unbroken(s).Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Dropped: lost})
			},
			Echo: func(s applier.Store) { unbroken(s).Inject(fake.StoreFault{Method: "UpdateStatus", Nth: 1, Echo: true}) },
			Hang: func(s applier.Store) { unbroken(s).Inject(fake.StoreFault{Delay: time.Hour}) },
		}
	}}
}

// brokenStore is a store that breaks one sentence of the contract.
type brokenStore struct {
	*fake.Store
	mutation

	inFlight atomic.Int32

	host   *fake.Store
	cache  *storeCache
	shared map[applier.TriggerRef]applier.Trigger
}

func (s *brokenStore) Trigger(ctx context.Context, ref applier.TriggerRef) (applier.Trigger, error) {
	if s.is("two calls at once fail") {
		defer s.inFlight.Add(-1)
		if s.inFlight.Add(1) > 1 {
			return applier.Trigger{}, errors.New("busy")
		}
		time.Sleep(time.Millisecond)
	}
	if s.is("calls ignore their context") {
		ctx = context.WithoutCancel(ctx)
	}
	asked := ref
	if s.is("UIDs are not compared") {
		ref.UID = ""
	}
	if s.is("reads are cached") {
		return s.cache.trigger(ref, func() (applier.Trigger, error) { return s.Store.Trigger(ctx, ref) })
	}
	t, err := s.Store.Trigger(ctx, ref)
	switch {
	case err != nil && s.is("what is gone is empty"):
		return applier.Trigger{}, nil
	case err != nil && s.is("what is gone is any error"):
		return t, errors.New("not found")
	case t.Deleting && s.is("what is being deleted is gone"):
		return applier.Trigger{}, applier.ErrRecordGone
	case s.is("a ref without a UID is no trigger") && asked.UID == "":
		return applier.Trigger{}, applier.ErrRecordGone
	case s.is("Live is forgotten"):
		t.Live = false
	case s.is("Holding is forgotten"):
		t.Holding = false
	case s.is("the cluster is forgotten"):
		t.Applier.Cluster = "prod"
	case s.is("Created is forgotten"):
		t.Created = time.Time{}
	case s.is("values are shared"):
		return s.share(t), err
	}
	return t, err
}

// share returns the same pointers for each read of a status.
func (s *brokenStore) share(t applier.Trigger) applier.Trigger {
	if _, ok := s.shared[t.Ref]; !ok {
		s.shared[t.Ref] = t
	}
	return s.shared[t.Ref]
}

func (s *brokenStore) Target(ctx context.Context, ref applier.TargetRef) (applier.Target, error) {
	if s.is("calls ignore their context") {
		ctx = context.WithoutCancel(ctx)
	}
	if s.is("UIDs are not compared") {
		ref.UID = ""
	}
	if s.is("reads are cached") {
		return s.cache.target(ref, func() (applier.Target, error) { return s.Store.Target(ctx, ref) })
	}
	t, err := s.Store.Target(ctx, ref)
	switch {
	case err != nil && s.is("what is gone is empty"):
		return applier.Target{}, nil
	case t.Deleting && s.is("what is being deleted is gone"):
		return applier.Target{}, applier.ErrRecordGone
	case s.is("the admission is forgotten"):
		t.Admission = applier.Admission{}
	case s.is("what is written is forgotten"):
		t.Writes = applier.Binding{}
	}
	return t, err
}

func (s *brokenStore) Triggers(ctx context.Context, match applier.TriggerMatch) ([]applier.Trigger, error) {
	for field, name := range map[mutation]func(){
		"the namespace is not matched": func() { match.Namespace = "" },
		"the kind is not matched":      func() { match.Kind = schema.GroupKind{} },
		"the group is not matched":     func() { match.Kind.Group = "kustomize.toolkit.fluxcd.io" },
		"the applier is not matched":   func() { match.Applier = applier.ApplierRef{} },
		"the cluster is not matched":   func() { match.Cluster = "" },
		"the source is not matched":    func() { match.Source = types.NamespacedName{} },
	} {
		if s.is(field) && (match != applier.TriggerMatch{}) {
			name()
		}
	}
	if s.is("lists are never renewed") {
		return s.cache.list(match, func() ([]applier.Trigger, error) { return s.Store.Triggers(ctx, match) })
	}
	all, err := s.Store.Triggers(ctx, match)
	switch {
	case s.is("the zero match matches none") && match == applier.TriggerMatch{}:
		return nil, nil
	case s.is("lists are not sorted"):
		slices.Reverse(all)
	case s.is("lists are sorted by one string"):
		slices.SortFunc(all, func(a, b applier.Trigger) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	case s.is("lists have no status"):
		for i := range all {
			all[i].Status = applier.TriggerStatus{}
		}
	case s.is("values of lists are shared"):
		for i := range all {
			all[i] = s.share(all[i])
		}
	}
	return all, err
}

func (s *brokenStore) Targets(ctx context.Context, ref applier.TriggerRef) ([]applier.Target, error) {
	all, err := s.Store.Targets(ctx, ref)
	switch {
	case s.is("targets are of the UID"):
		if _, gone := s.Store.Trigger(ctx, ref); gone != nil || ref.UID == "" {
			all = nil
		}
	case s.is("targets are not sorted"):
		slices.Reverse(all)
	case s.is("targets of any namespace name the trigger"):
		ref.Namespace = map[string]string{"team": "team-a", "team-a": "team"}[ref.Namespace]
		others, _ := s.Store.Targets(ctx, ref)
		all = append(all, others...)
	case s.is("targets that are being deleted are left out"):
		all = slices.DeleteFunc(all, func(t applier.Target) bool { return t.Deleting })
	}
	return all, err
}

func (s *brokenStore) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	switch {
	case s.is("calls ignore their context"):
		ctx = context.WithoutCancel(ctx)
	case s.is("UIDs are not compared"):
		ref.UID = ""
	case s.is("updates read a cache"), s.is("the last writer wins"), s.is("a conflict is an error"), s.is("only a status makes a conflict"), s.is("a new incarnation is written"):
		return s.updateOnce(ctx, ref, mutate)
	}
	failed := errors.New("")
	tries := 0
	var left applier.Trigger
	err := s.Store.UpdateStatus(ctx, ref, func(t *applier.Trigger) error {
		defer func() { left = *t }()
		before := t.Status
		if tries++; s.is("mutate is called once") && tries > 1 {
			return nil
		}
		failed = mutate(t)
		return s.afterMutate(t, before, failed)
	})
	switch {
	case errors.Is(err, applier.ErrUnconfirmed) && s.is("unconfirmed is any error"):
		return errors.New("no answer")
	case errors.Is(err, applier.ErrUnconfirmed) && s.is("unconfirmed is no error"):
		return nil
	case err != nil && err == failed && s.is("the error of mutate is wrapped"): //nolint:errorlint // As it is.
		return fmt.Errorf("trigger %s: %w", ref, err)
	case failed != nil && s.is("the error of mutate is ignored"):
		return failed
	case errors.Is(err, applier.ErrRecordGone) && s.is("mutate is called for what is gone"):
		_ = mutate(&applier.Trigger{Ref: ref})
	case err == nil && s.is("the trigger is written"):
		return s.host.ChangeTrigger(ref, func(t *applier.Trigger) { t.Applier = left.Applier })
	case err == nil && s.is("every call writes"):
		return s.host.UpdateStatus(ctx, ref, func(t *applier.Trigger) error { t.Status.Held = !t.Status.Held; return nil })
	case err == nil && ctx.Err() != nil && s.is("a cancelled write is an error"):
		return context.Cause(ctx)
	case errors.Is(err, context.Canceled) && s.is("a cancelled write is made"):
		_ = s.host.UpdateStatus(context.WithoutCancel(ctx), ref, mutate)
	}
	return err
}

// afterMutate breaks what mutate left.
func (s *brokenStore) afterMutate(t *applier.Trigger, before applier.TriggerStatus, failed error) error {
	operation := t.Status.Operation
	switch {
	case failed != nil && s.is("the error of mutate is ignored"):
		return nil
	case failed != nil:
		return failed
	case s.is("what is being deleted is not written") && t.Deleting:
		return applier.ErrRecordGone
	case s.is("times are whole seconds") && operation != nil:
		operation.Started.RequestedAt.Time = operation.Started.RequestedAt.Truncate(time.Second)
	case s.is("Held is not written"):
		t.Status.Held = before.Held
	case s.is("Prefetch is not written") && t.Status.Source != nil:
		t.Status.Source.Prefetch = false
	case s.is("messages are cut at a line's end") && operation != nil:
		operation.Progress.Message, _, _ = strings.Cut(operation.Progress.Message, "\n")
	case s.is("a nil field is left as it was") && operation == nil:
		t.Status.Operation = before.Operation
	case s.is("empty fields are left as they were") && operation != nil && operation.CompletedAt.IsZero() && before.Operation != nil:
		operation.CompletedAt = before.Operation.CompletedAt
	}
	return nil
}

// updateOnce reads, calls mutate and writes, and gets what happened in between wrong.
func (s *brokenStore) updateOnce(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	read := func() (applier.Trigger, error) { return s.Store.Trigger(ctx, ref) }
	if s.is("updates read a cache") {
		uncached := read
		read = func() (applier.Trigger, error) { return s.cache.trigger(ref, uncached) }
	}
	read1, err := read()
	if err != nil {
		return err
	}
	t := read1
	before := t.Status
	if err = mutate(&t); err != nil {
		return err
	}
	if s.is("a new incarnation is written") {
		ref.UID = ""
	}
	time.Sleep(time.Millisecond)
	return s.Store.UpdateStatus(ctx, ref, func(now *applier.Trigger) error {
		conflict := sameStatus(now.Status, before) != nil || sameTrigger(*now, read1) != nil
		if conflict && s.is("a conflict is an error") {
			return errors.New("conflict")
		}
		if sameStatus(now.Status, before) != nil && s.is("only a status makes a conflict") {
			return errors.New("conflict")
		}
		now.Status = t.Status
		return nil
	})
}

// storeCache remembers the first answer to each read.
type storeCache struct {
	triggers map[applier.TriggerRef]applier.Trigger
	targets  map[applier.TargetRef]applier.Target
	lists    map[applier.TriggerMatch][]applier.Trigger
}

func newCache() *storeCache {
	return &storeCache{make(map[applier.TriggerRef]applier.Trigger), make(map[applier.TargetRef]applier.Target), make(map[applier.TriggerMatch][]applier.Trigger)}
}

func (c *storeCache) trigger(ref applier.TriggerRef, read func() (applier.Trigger, error)) (applier.Trigger, error) {
	return remember(c.triggers, ref, read)
}

func (c *storeCache) target(ref applier.TargetRef, read func() (applier.Target, error)) (applier.Target, error) {
	return remember(c.targets, ref, read)
}

func (c *storeCache) list(match applier.TriggerMatch, read func() ([]applier.Trigger, error)) ([]applier.Trigger, error) {
	return remember(c.lists, match, read)
}

func remember[K comparable, V any](known map[K]V, key K, read func() (V, error)) (V, error) {
	if v, ok := known[key]; ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		known[key] = v
	}
	return v, err
}
