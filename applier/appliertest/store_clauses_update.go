package appliertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gitops-applier/gitops-applier/applier"
)

var updateClauses = []storeClause{
	{
		group: "UpdateStatus", name: "writes what mutate left",
		text:  "UpdateStatus writes the Status that mutate left, whole: what is read next is the same record, to the microsecond",
		check: updateWrites,
	},
	{
		group: "UpdateStatus", name: "takes away what mutate took away",
		text:  "what the Status that mutate left does not have is not there any more",
		check: updateTakesAway,
	},
	{
		group: "UpdateStatus", name: "reads past any cache",
		text:  "UpdateStatus reads the trigger as Trigger does, and calls mutate with it",
		check: updateReads,
	},
	{
		group: "UpdateStatus", name: "writes nothing but the status",
		text:  "nothing but Status is written, whatever else mutate changes",
		check: updateWritesStatusAlone,
	},
	{
		group: "UpdateStatus", name: "writes nothing that does not differ",
		text:  "UpdateStatus writes the Status that mutate left if it differs",
		needs: []Capability{Version},
		check: updateWritesDifferences,
	},
	{
		group: "UpdateStatus", name: "returns the error of mutate",
		text:  "UpdateStatus returns the error of mutate as it is, and then writes nothing",
		check: updateReturnsErrors,
	},
	{
		group: "UpdateStatus", name: "of what is gone is gone",
		text:  "UpdateStatus of a trigger that does not exist, or has another UID than ref's, is ErrRecordGone, and mutate is not called",
		check: updateIsGone,
	},
	{
		group: "UpdateStatus", name: "of what is being deleted is written",
		text:  "a trigger that is being deleted is read with Deleting set, and its status written",
		needs: []Capability{Terminate},
		check: updateDeleting,
	},
}

func updateWrites(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	open := e.fullStatus()
	open.Operation.CompletedAt, open.Operation.Unresolved, open.Operation.Progress = metav1.MicroTime{}, false, applier.Progress{State: applier.StateRequested}
	for _, want := range []applier.TriggerStatus{
		e.fullStatus(),
		open,
		mark("only an operation"),
		{Operation: open.Operation, Source: e.fullStatus().Source},
		{RepairPending: true},
		{Held: true},
	} {
		if err = e.store.UpdateStatus(ctx, put.Ref, setStatus(want)); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		got, err := e.reread(ctx, put.Ref)
		if err != nil {
			return err
		}
		if err = sameStatus(got.Status, want); err != nil {
			return err
		}
		if operation := got.Status.Operation; operation != nil && !operation.Started.Recovered {
			return errors.New("an operation was read from a record, and is not Recovered: read its JSON, or set Started.Recovered")
		}
	}
	return nil
}

func updateTakesAway(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	less := e.fullStatus()
	less.Operation.Targets = less.Operation.Targets[1:]
	less.Operation.Started.SuspendToken, less.Operation.Started.Baseline = "", ""
	less.Operation.Progress = applier.Progress{}
	less.Operation.Unresolved, less.Operation.CompletedAt = false, metav1.MicroTime{}
	less.Source.Prefetch = false
	for _, want := range []applier.TriggerStatus{less, {Source: less.Source}, {}} {
		if err = e.store.UpdateStatus(ctx, put.Ref, setStatus(e.fullStatus())); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		if err = e.store.UpdateStatus(ctx, put.Ref, setStatus(want)); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		got, err := e.reread(ctx, put.Ref)
		if err != nil {
			return err
		}
		if err = sameStatus(got.Status, want); err != nil {
			return err
		}
	}
	return nil
}

func updateReads(ctx context.Context, e *storeEnv) error {
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
		if err = other.UpdateStatus(ctx, put.Ref, setStatus(mark(want))); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		put, err = e.trigger(ctx, "shop", func(t *applier.Trigger) { t.Applier.Name = fmt.Sprint("shop-", i) })
		if err != nil {
			return err
		}
		var got applier.Trigger
		err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
			got = *t
			return nil
		})
		if err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		if err = errors.Join(sameTrigger(got, put), sameStatus(got.Status, mark(want))); err != nil {
			return fmt.Errorf("mutate was called with an older trigger: %w", err)
		}
	}
	return nil
}

func updateWritesStatusAlone(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		t.Status = mark("written")
		t.Ref.Name, t.Ref.UID = "another", "another"
		t.Created = t.Created.Add(time.Hour)
		t.Applier.Name, t.Applier.Cluster = "another", "another"
		t.Live, t.Holding, t.Deleting = !t.Live, !t.Holding, !t.Deleting
		return nil
	})
	if err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	got, err := e.reread(ctx, put.Ref)
	if err != nil {
		return err
	}
	return errors.Join(sameTrigger(got, put), sameStatus(got.Status, mark("written")))
}

func updateWritesDifferences(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	if err = e.store.UpdateStatus(ctx, put.Ref, setStatus(e.fullStatus())); err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	before, err := e.Version(ctx, put.Ref)
	if err != nil {
		return err
	}
	for _, mutate := range []func(*applier.Trigger) error{
		func(*applier.Trigger) error { return nil },
		setStatus(e.fullStatus()),
		func(t *applier.Trigger) error { t.Live = !t.Live; return nil },
	} {
		if err = e.store.UpdateStatus(ctx, put.Ref, mutate); err != nil {
			return fmt.Errorf("UpdateStatus: %w", err)
		}
		after, err := e.Version(ctx, put.Ref)
		if err != nil {
			return err
		}
		if after != before {
			return fmt.Errorf("mutate left the status as it was, and the trigger was written: it went from version %s to %s", before, after)
		}
	}
	return nil
}

func updateReturnsErrors(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	own := errors.New("no")
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		t.Status = mark("written")
		return own
	})
	if err != own { //nolint:errorlint // As it is.
		return fmt.Errorf("mutate returned an error, and UpdateStatus did not return it as it is: %w", told(err))
	}
	return e.wantMark(ctx, put.Ref, "")
}

func updateIsGone(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err == nil {
		err = e.DeleteTrigger(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	if err = e.updatesNothing(ctx, put.Ref); err != nil {
		return err
	}
	second, err := e.trigger(ctx, "shop")
	if err != nil {
		return err
	}
	return errors.Join(e.updatesNothing(ctx, put.Ref), e.wantMark(ctx, second.Ref, ""))
}

// updatesNothing wants UpdateStatus to find that the trigger is gone.
func (e *storeEnv) updatesNothing(ctx context.Context, ref applier.TriggerRef) error {
	called := false
	err := e.store.UpdateStatus(ctx, ref, func(t *applier.Trigger) error {
		called = true
		return setStatus(mark("written"))(t)
	})
	if called {
		return errors.New("the trigger is gone, and mutate was called")
	}
	return isGone("by UpdateStatus", err)
}

func updateDeleting(ctx context.Context, e *storeEnv) error {
	put, err := e.trigger(ctx, "shop")
	if err == nil {
		err = e.TerminateTrigger(ctx, put.Ref)
	}
	if err != nil {
		return err
	}
	err = e.store.UpdateStatus(ctx, put.Ref, func(t *applier.Trigger) error {
		if !t.Deleting {
			return fmt.Errorf("it is being deleted, and mutate was called with %+v", *t)
		}
		return setStatus(mark("written"))(t)
	})
	if err != nil {
		return fmt.Errorf("UpdateStatus: %w", err)
	}
	return e.wantMark(ctx, put.Ref, "written")
}
