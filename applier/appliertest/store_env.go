package appliertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// storeEnv is what a check of a store works with.
type storeEnv struct {
	*Records
	harness StoreHarness
	// store is that of one process.
	store applier.Store
}

// another makes the store of another process.
func (e *storeEnv) another() (applier.Store, error) {
	store, err := e.NewStore()
	if err != nil {
		return nil, fmt.Errorf("the harness makes no second store: %w", err)
	}
	return store, nil
}

// shop is the applier that triggers name where a check asks for no other.
func (e *storeEnv) shop() applier.ApplierRef {
	return applier.ApplierRef{
		Cluster: "prod", Group: e.Kinds[0].Group, Kind: e.Kinds[0].Kind, Namespace: "apps", Name: "shop",
	}
}

// named is a trigger of the shop's applier in the first namespace, that is to be put.
func (e *storeEnv) named(name string, change ...func(*applier.Trigger)) applier.Trigger {
	t := applier.Trigger{Ref: applier.TriggerRef{Namespace: e.Namespaces[0], Name: name}, Applier: e.shop()}
	for _, c := range change {
		c(&t)
	}
	return t
}

// trigger puts a trigger and returns it as the store is to read it.
func (e *storeEnv) trigger(ctx context.Context, name string, change ...func(*applier.Trigger)) (applier.Trigger, error) {
	t, err := e.PutTrigger(ctx, e.named(name, change...))
	if err != nil {
		return t, fmt.Errorf("the harness: put trigger %s: %w", name, err)
	}
	return t, nil
}

// target puts a target of a trigger, in the trigger's namespace, and returns it as the store is to read it.
func (e *storeEnv) target(ctx context.Context, name string, trigger applier.Trigger) (applier.Target, error) {
	t, err := e.PutTarget(ctx, applier.Target{
		Ref:       applier.TargetRef{Namespace: trigger.Ref.Namespace, Name: name},
		Trigger:   applier.TriggerRef{Namespace: trigger.Ref.Namespace, Name: trigger.Ref.Name},
		Writes:    applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
		Admission: applier.Admission{State: applier.Admitted},
	})
	if err != nil {
		return t, fmt.Errorf("the harness: put target %s: %w", name, err)
	}
	return t, nil
}

// fullStatus is a status with nothing left out. Times have microseconds, and strings what an encoding might trip over.
func (e *storeEnv) fullStatus() applier.TriggerStatus {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 15, 4, 5, 123456000, time.UTC))
	return applier.TriggerStatus{
		Operation: &applier.Operation{
			Applier: e.shop(),
			Want:    applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
			Reason:  applier.Repair,
			Targets: []applier.TargetRef{{Namespace: "team-a", Name: "one", UID: "1"}, {Namespace: "team-a", Name: "two", UID: "2"}},
			Started: applier.Started{
				Outcome: applier.OutcomeResumed, Token: "2026-01-02T15:04:05.000000006Z-1f2e3d4c5b6a7988",
				Commit: "1eabc9a41ca088515cab83f1cce49eb43e84b67f", UID: "0b5d1e88-0000-4000-8000-000000000001",
				Baseline: `{"handled":"<&>",` + "\n\t" + `"é":"\\"}`, RequestedAt: at, SuspendToken: "2026-01-02T15:04:06Z-2",
			},
			Progress: applier.Progress{
				State: applier.StateSucceeded, Reason: applier.ReasonAppliedOther, Message: "it applied \"another\"\nrevision: ü",
				SuspendToken: "2026-01-02T15:04:06Z-2", AppliedRevision: "main@sha1:1eabc9a41ca088515cab83f1cce49eb43e84b67f",
				AppliedCommit: "1eabc9a41ca088515cab83f1cce49eb43e84b67f",
			},
			Unresolved: true, CompletedAt: metav1.NewMicroTime(at.Add(time.Minute + time.Microsecond)),
		},
		RepairPending: true,
		Source: &applier.TriggerSource{
			Source:   applier.Source{GitRepository: types.NamespacedName{Namespace: "apps", Name: "repo"}, URL: "https://git.example.com/acme/shop", Revision: "main"},
			Prefetch: true,
		},
		Held: true,
	}
}

// setStatus is a mutate function. It leaves a copy, which a store may do anything to.
func setStatus(status applier.TriggerStatus) func(*applier.Trigger) error {
	return func(t *applier.Trigger) error {
		record, err := json.Marshal(status)
		t.Status = applier.TriggerStatus{}
		return errors.Join(err, json.Unmarshal(record, &t.Status))
	}
}

// mark is a status that tells one write from another.
func mark(token string) applier.TriggerStatus {
	return applier.TriggerStatus{Operation: &applier.Operation{Started: applier.Started{Token: token}}}
}

// marked returns the mark of a status.
func marked(t applier.Trigger) string {
	if t.Status.Operation == nil {
		return ""
	}
	return t.Status.Operation.Started.Token
}

// wantMark reads a trigger past any cache by another process, and wants this mark on it.
func (e *storeEnv) wantMark(ctx context.Context, ref applier.TriggerRef, want string) error {
	t, err := e.reread(ctx, ref)
	if err == nil && marked(t) != want {
		err = fmt.Errorf("the status was to be %q, and is %q", want, marked(t))
	}
	return err
}

// reread reads a trigger as another process does.
func (e *storeEnv) reread(ctx context.Context, ref applier.TriggerRef) (applier.Trigger, error) {
	store, err := e.another()
	if err != nil {
		return applier.Trigger{}, err
	}
	t, err := store.Trigger(ctx, ref)
	if err != nil {
		return t, fmt.Errorf("Trigger: %w", err)
	}
	return t, nil
}

// sameTrigger returns how got differs from want, their statuses aside.
func sameTrigger(got, want applier.Trigger) error {
	created := got.Created.Equal(want.Created)
	got.Created, want.Created = time.Time{}, time.Time{}
	got.Status, want.Status = applier.TriggerStatus{}, applier.TriggerStatus{}
	if got != want || !created {
		return fmt.Errorf("the trigger was to be %+v, and is %+v", want, got)
	}
	return nil
}

// sameStatus returns how got differs from want, as records.
func sameStatus(got, want applier.TriggerStatus) error {
	gotJSON, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		return err
	}
	wantJSON, err := json.MarshalIndent(want, "", " ")
	if err == nil && string(gotJSON) != string(wantJSON) {
		err = fmt.Errorf("the status was to be %s\nand is %s", wantJSON, gotJSON)
	}
	return err
}

// sameTarget returns how got differs from want, the object for Events aside.
func sameTarget(got, want applier.Target) error {
	got.Object, want.Object = nil, nil
	if got != want {
		return fmt.Errorf("the target was to be %+v, and is %+v", want, got)
	}
	return nil
}

// eventually looks until a list, which may be older than what was written, is as wanted.
func (e *storeEnv) eventually(ctx context.Context, look func() error) error {
	deadline := time.Now().Add(e.harness.Timeout)
	for {
		err := look()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// meanwhile does something in the middle of a write, and reports whether it was done by then. A store that locks what it
// is about to write makes it wait: then it is done after the write.
type meanwhile struct {
	// over is whether it was done in the middle.
	over bool
	done chan error
}

// patience is how long something in the middle of a write is waited for.
const patience = 2 * time.Second

func (m *meanwhile) begin(do func() error) {
	m.done = make(chan error, 1)
	go func() { m.done <- do() }()
	select {
	case err := <-m.done:
		m.over = true
		m.done <- err
	case <-time.After(patience):
	}
}

// end waits for what was begun, and returns its error.
func (m *meanwhile) end() error {
	if m.done == nil {
		return fmt.Errorf("mutate was not called")
	}
	return <-m.done
}
