package appliertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/gitops-applier/gitops-applier/applier"
)

var readClauses = []storeClause{
	{
		group: "Trigger", name: "is read whole",
		text:  "Trigger returns what the host's object says: its UID, when it was created, the applier, Live and Holding",
		check: triggerIsWhole,
	},
	{
		group: "Trigger", name: "is as new as every write that was answered",
		text:  "what Trigger returns is at least as new as every write that was answered before the call, whoever wrote",
		check: triggerIsNew,
	},
	{
		group: "Trigger", name: "that does not exist is gone",
		text:  "Trigger of an object that does not exist is ErrRecordGone",
		check: triggerIsGone,
	},
	{
		group: "Trigger", name: "of another UID is gone",
		text:  "a trigger of another UID than ref's is ErrRecordGone; a ref without a UID means whichever there is",
		check: triggerIsReplaced,
	},
	{
		group: "Trigger", name: "that is being deleted is there",
		text:  "a trigger that is being deleted is read with Deleting set, until it is gone",
		needs: []Capability{Terminate},
		check: triggerIsDeleting,
	},
	{
		group: "Trigger", name: "is the caller's own",
		text:  "whatever a caller does to a value that was returned, nobody else sees it",
		check: triggerIsOwned,
	},
	{
		group: "Target", name: "is read whole",
		text:  "Target returns what the host's object says: its UID, the trigger that it names, what is written for it, and its admission",
		check: targetIsWhole,
	},
	{
		group: "Target", name: "is as new as every write that was answered",
		text:  "what Target returns is at least as new as every write that was answered before the call",
		check: targetIsNew,
	},
	{
		group: "Target", name: "that does not exist is gone",
		text:  "Target of an object that does not exist is ErrRecordGone",
		check: targetIsGone,
	},
	{
		group: "Target", name: "of another UID is gone",
		text:  "a target of another UID than ref's is ErrRecordGone; a ref without a UID means whichever there is",
		check: targetIsReplaced,
	},
	{
		group: "Target", name: "that is being deleted is there",
		text:  "a target that is being deleted is read with Deleting set, until it is gone",
		needs: []Capability{Terminate},
		check: targetIsDeleting,
	},
}

// often is how often a check repeats what a cache might get right by chance.
const often = 10

func triggerIsWhole(ctx context.Context, e *storeEnv) error {
	for i, change := range []func(*applier.Trigger){
		func(*applier.Trigger) {},
		func(t *applier.Trigger) { t.Live = true },
		func(t *applier.Trigger) { t.Holding = true },
		func(t *applier.Trigger) {
			t.Applier.Cluster, t.Applier.Namespace, t.Applier.Name = "dev", "other", "cart"
		},
	} {
		want, err := e.trigger(ctx, fmt.Sprintf("shop-%d", i), change)
		if err != nil {
			return err
		}
		got, err := e.store.Trigger(ctx, want.Ref)
		if err != nil {
			return fmt.Errorf("Trigger: %w", err)
		}
		if err = sameTrigger(got, want); err != nil {
			return err
		}
		if err = sameStatus(got.Status, applier.TriggerStatus{}); err != nil {
			return fmt.Errorf("nothing was written yet: %w", err)
		}
	}
	return nil
}

func triggerIsNew(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	other, err := e.another()
	if err != nil {
		return err
	}
	for i := range often {
		want := fmt.Sprint("mark ", i)
		if err := e.store.UpdateStatus(ctx, put.Ref, setStatus(mark(want))); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		for _, reader := range []applier.Store{other, e.store} {
			got, err := reader.Trigger(ctx, put.Ref)
			if err == nil && marked(got) != want {
				err = fmt.Errorf("the status %q was written, and %q read", want, marked(got))
			}
			if err != nil {
				return fmt.Errorf("Trigger: %w", err)
			}
		}
		changed, err := e.trigger(ctx, "shop", func(t *applier.Trigger) { t.Applier.Name = fmt.Sprint("shop-", i) })
		if err != nil {
			return err
		}
		got, err := other.Trigger(ctx, put.Ref)
		if err != nil {
			return fmt.Errorf("Trigger: %w", err)
		}
		if err = sameTrigger(got, changed); err != nil {
			return err
		}
	}
	return nil
}

func triggerIsGone(ctx context.Context, e *storeEnv) error {
	for _, ref := range []applier.TriggerRef{
		{Namespace: e.Namespaces[0], Name: "shop"},
		{Namespace: e.Namespaces[0], Name: "shop", UID: "0b5d1e88-0000-4000-8000-000000000001"},
	} {
		if err := isGone(e.store.Trigger(ctx, ref)); err != nil {
			return err
		}
	}
	put, err := e.trigger(ctx, "shop")
	if err == nil {
		_, err = e.store.Trigger(ctx, put.Ref)
	}
	if err == nil {
		err = e.DeleteTrigger(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	return isGone(e.store.Trigger(ctx, put.Ref))
}

// isGone returns an error unless a read returned ErrRecordGone.
func isGone[T any](got T, err error) error {
	switch {
	case err == nil:
		return fmt.Errorf("it is gone, and was read: %+v", got)
	case !errors.Is(err, applier.ErrRecordGone):
		return fmt.Errorf("it is gone, and the error is not ErrRecordGone: %w", err)
	}
	return nil
}

func triggerIsReplaced(ctx context.Context, e *storeEnv) error {
	first, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	if err = e.store.UpdateStatus(ctx, first.Ref, setStatus(mark("first"))); err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	if err = e.DeleteTrigger(ctx, first.Ref); err != nil {
		return err
	}
	second, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	if err = isGone(e.store.Trigger(ctx, first.Ref)); err != nil {
		return err
	}
	for _, ref := range []applier.TriggerRef{second.Ref, {Namespace: second.Ref.Namespace, Name: second.Ref.Name}} {
		got, err := e.store.Trigger(ctx, ref)
		if err != nil {
			return fmt.Errorf("Trigger with UID %q: %w", ref.UID, err)
		}
		if err = errors.Join(sameTrigger(got, second), sameStatus(got.Status, applier.TriggerStatus{})); err != nil {
			return err
		}
	}
	return nil
}

func triggerIsDeleting(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err == nil {
		err = e.TerminateTrigger(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	got, err := e.store.Trigger(ctx, put.Ref)
	if err == nil && !got.Deleting {
		err = fmt.Errorf("it is being deleted, and was read as %+v", got)
	}
	return err
}

func triggerIsOwned(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	want := e.fullStatus()
	given := e.fullStatus()
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		t.Status = given
		return nil
	})
	if err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	spoil(&given)
	for _, changed := range []string{"what mutate left", "what Trigger returned"} {
		read, err := e.store.Trigger(ctx, put.Ref)
		if err != nil {
			return fmt.Errorf("Trigger: %w", err)
		}
		if err = sameStatus(read.Status, want); err != nil {
			return fmt.Errorf("%s was changed afterwards: %w", changed, err)
		}
		spoil(&read.Status)
	}
	var listed []applier.Trigger
	err = e.eventually(ctx, func() error {
		listed, err = e.store.Triggers(ctx, applier.TriggerMatch{Namespace: e.Namespaces[0]})
		if err == nil && (len(listed) != 1 || listed[0].Status.Operation == nil || listed[0].Status.Source == nil) {
			err = fmt.Errorf("Triggers were to be the one with its status, and are %+v", listed)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err = sameStatus(listed[0].Status, want); err != nil {
		return fmt.Errorf("what Trigger returned was changed afterwards: %w", err)
	}
	spoil(&listed[0].Status)
	if listed, err = e.store.Triggers(ctx, applier.TriggerMatch{Namespace: e.Namespaces[0]}); err != nil {
		return fmt.Errorf("Triggers: %w", err)
	}
	if len(listed) != 1 {
		return fmt.Errorf("Triggers were to be one, and are %+v", listed)
	}
	if err = sameStatus(listed[0].Status, want); err != nil {
		return fmt.Errorf("what Triggers returned was changed afterwards: %w", err)
	}
	return nil
}

// spoil changes all that a status refers to.
func spoil(status *applier.TriggerStatus) {
	status.Operation.Targets[0].Name = "spoiled"
	status.Operation.Started.Token = "spoiled"
	status.Source.URL = "spoiled"
}

func targetIsWhole(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	want, err := e.target(ctx, "site", trigger)
	if err != nil {
		return err
	}
	got, err := e.store.Target(ctx, want.Ref)
	if err != nil {
		return fmt.Errorf("Target: %w", err)
	}
	return sameTarget(got, want)
}

func targetIsNew(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	for i := range often {
		trigger.Ref.Name = fmt.Sprint("shop-", i)
		want, err := e.target(ctx, "site", trigger)
		if err != nil {
			return err
		}
		got, err := e.store.Target(ctx, want.Ref)
		if err != nil {
			return fmt.Errorf("Target: %w", err)
		}
		if err = sameTarget(got, want); err != nil {
			return err
		}
	}
	return nil
}

func targetIsGone(ctx context.Context, e *storeEnv) error {
	for _, ref := range []applier.TargetRef{
		{Namespace: e.Namespaces[0], Name: "site"},
		{Namespace: e.Namespaces[0], Name: "site", UID: "0b5d1e88-0000-4000-8000-000000000001"},
	} {
		if err := isGone(e.store.Target(ctx, ref)); err != nil {
			return err
		}
	}
	return nil
}

func targetIsReplaced(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	first, err := e.target(ctx, "site", trigger)
	if err == nil {
		_, err = e.store.Target(ctx, first.Ref)
	}
	if err == nil {
		err = e.DeleteTarget(ctx, first.Ref)
	}
	if err != nil {
		return err
	}
	if err = isGone(e.store.Target(ctx, first.Ref)); err != nil {
		return err
	}
	second, err := e.target(ctx, "site", trigger)
	if err != nil {
		return err
	}
	if err = isGone(e.store.Target(ctx, first.Ref)); err != nil {
		return err
	}
	for _, ref := range []applier.TargetRef{second.Ref, {Namespace: second.Ref.Namespace, Name: second.Ref.Name}} {
		got, err := e.store.Target(ctx, ref)
		if err != nil {
			return fmt.Errorf("Target with UID %q: %w", ref.UID, err)
		}
		if err = sameTarget(got, second); err != nil {
			return err
		}
	}
	return nil
}

func targetIsDeleting(ctx context.Context, e *storeEnv) error {
	trigger, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	put, err := e.target(ctx, "site", trigger)
	if err == nil {
		err = e.TerminateTarget(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	got, err := e.store.Target(ctx, put.Ref)
	if err == nil && !got.Deleting {
		err = fmt.Errorf("it is being deleted, and was read as %+v", got)
	}
	return err
}
