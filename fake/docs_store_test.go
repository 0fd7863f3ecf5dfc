package fake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// ApplyTrigger is a host's own kind, as its Go type. The store over it is the one that docs/embedding.md shows.
type ApplyTrigger struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Applier applier.ApplierRef `json:"applier"`
	} `json:"spec"`
	Status struct {
		Record applier.TriggerStatus `json:"record"`
	} `json:"status,omitzero"`
}

func (t *ApplyTrigger) DeepCopy() *ApplyTrigger {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	t.Status.Record.DeepCopyInto(&out.Status.Record)
	return &out
}

func toTrigger(t *ApplyTrigger) applier.Trigger {
	return applier.Trigger{
		Ref:     applier.TriggerRef{Namespace: t.Namespace, Name: t.Name, UID: t.UID},
		Created: t.CreationTimestamp.Time, Deleting: !t.DeletionTimestamp.IsZero(),
		Applier: t.Spec.Applier, Status: t.Status.Record,
	}
}

var applyTriggers = schema.GroupVersionResource{Group: "acme.example.com", Version: "v1", Resource: "applytriggers"}

const applyTriggersYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applytriggers.acme.example.com}
spec:
  group: acme.example.com
  scope: Namespaced
  names: {plural: applytriggers, kind: ApplyTrigger}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              record: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// typed reads and writes ApplyTriggers as a client of controller-runtime does: by their JSON.
type typed struct {
	client dynamic.Interface
}

func (c typed) Get(ctx context.Context, key types.NamespacedName, into *ApplyTrigger) error {
	u, err := c.client.Resource(applyTriggers).Namespace(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (c typed) Update(ctx context.Context, t *ApplyTrigger) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(data); err != nil {
		return err
	}
	_, err = c.client.Resource(applyTriggers).Namespace(t.Namespace).UpdateStatus(ctx, &u, metav1.UpdateOptions{})
	return err
}

// store has the two methods that docs/embedding.md shows.
type store struct {
	applier.Store
	reader, status typed
}

func (s *store) Trigger(ctx context.Context, ref applier.TriggerRef) (applier.Trigger, error) {
	t, err := s.get(ctx, ref)
	if err != nil {
		return applier.Trigger{}, err
	}
	return toTrigger(t), nil
}

func (s *store) get(ctx context.Context, ref applier.TriggerRef) (*ApplyTrigger, error) {
	var t ApplyTrigger
	// An uncached reader: what the library decides on has to be what stands.
	switch err := s.reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &t); {
	case applier.AbsenceOf(err) == applier.AbsenceNotFound: // Not a kind that is not served.
		return nil, fmt.Errorf("%w: %w", applier.ErrRecordGone, err)
	case err != nil:
		return nil, err
	case ref.UID != "" && t.UID != ref.UID:
		return nil, fmt.Errorf("%w: it was replaced", applier.ErrRecordGone)
	}
	return &t, nil
}

func (s *store) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	for sent := false; ; sent = true {
		t, err := s.get(ctx, ref)
		switch {
		case err != nil && sent && !errors.Is(err, applier.ErrRecordGone): // The conflict may have been with a write of its own.
			return fmt.Errorf("%w: %w", applier.ErrUnconfirmed, err)
		case err != nil:
			return err
		}
		trigger, before := toTrigger(t), toTrigger(t.DeepCopy())
		if err := mutate(&trigger); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(trigger.Status, before.Status) {
			return nil
		}
		t.Status.Record = trigger.Status
		// The update carries the resourceVersion that was read. After a conflict, or if it is gone, the trigger is read again.
		err = s.status.Update(ctx, t)
		if !apierrors.IsConflict(err) && applier.AbsenceOf(err) != applier.AbsenceNotFound {
			return applier.WriteError(err)
		}
	}
}

// storeWorld is one ApplyTrigger, and a StatusWriter over the store of it.
type storeWorld struct {
	*testing.T
	cluster *fake.Cluster
	view    *fake.View
	store   *store
	writer  *applier.StatusWriter
	ref     applier.TriggerRef
}

func inStoreWorld(t *testing.T, test func(w *storeWorld)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *fake.Cluster) {
		require.NoError(t, c.Define(object(t, applyTriggersYAML)))
		created, err := c.Resource(applyTriggers).Namespace(team).Create(t.Context(), object(t, `
apiVersion: acme.example.com/v1
kind: ApplyTrigger
metadata: {name: shop}
spec: {applier: {cluster: prod, group: kustomize.toolkit.fluxcd.io, kind: Kustomization, namespace: apps, name: shop}}
`), metav1.CreateOptions{})
		require.NoError(t, err)
		w := &storeWorld{T: t, cluster: c, view: c.As("host", nil), ref: applier.TriggerRef{Namespace: team, Name: "shop", UID: created.GetUID()}}
		w.store = &store{reader: typed{w.view}, status: typed{w.view}}
		w.writer = applier.NewStatusWriter(w.store, logr.Discard())
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.writer.Start(ctx) }()
		test(w)
		stop()
		require.NoError(t, <-ended)
	})
}

// operation is one of the trigger's own, at a state.
func (w *storeWorld) operation(state applier.State) *applier.Operation {
	trigger, err := w.store.Trigger(w.Context(), w.ref)
	require.NoError(w, err)
	o := &applier.Operation{
		Applier:  trigger.Applier,
		Started:  applier.Started{Outcome: applier.OutcomeResumed, Token: "t1", RequestedAt: metav1.NowMicro()},
		Progress: applier.Progress{State: state},
	}
	if state.Ended() {
		o.CompletedAt = metav1.NowMicro()
	}
	return o
}

func (w *storeWorld) shown() applier.State {
	synctest.Wait()
	trigger, err := w.store.Trigger(w.Context(), w.ref)
	require.NoError(w, err)
	if trigger.Status.Operation == nil {
		return ""
	}
	return trigger.Status.Operation.Progress.State
}

func TestTheDocumentedStoreKeepsAnOperationFromItsRecordToItsEnd(t *testing.T) {
	t.Parallel()
	inStoreWorld(t, func(w *storeWorld) {
		require.NoError(w, w.writer.RecordApplyOperation(w.Context(), w.ref, w.operation(applier.StateRequested)))
		for _, state := range []applier.State{applier.StateRunning, applier.StateSucceeded} {
			time.Sleep(time.Minute)
			w.writer.PublishTriggerStatus(w.ref, applier.Publication{Operation: w.operation(state)})
			assert.Equal(w, state, w.shown())
		}
	})
}

func TestTheDocumentedStoreWritesNothingOverWhatChanged(t *testing.T) {
	t.Parallel()
	inStoreWorld(t, func(w *storeWorld) {
		calls := 0
		require.NoError(w, w.store.UpdateStatus(w.Context(), w.ref, func(t *applier.Trigger) error {
			if calls++; calls == 1 {
				require.NoError(w, w.store.UpdateStatus(w.Context(), w.ref, func(t *applier.Trigger) error { t.Status.RepairPending = true; return nil }))
			}
			t.Status.Held = true
			return nil
		}))
		trigger, err := w.store.Trigger(w.Context(), w.ref)
		require.NoError(w, err)
		assert.Equal(w, 2, calls)
		assert.True(w, trigger.Status.Held && trigger.Status.RepairPending)
	})
}

func TestTheDocumentedStoreSaysWhatBecameOfAWrite(t *testing.T) {
	t.Parallel()
	held := func(t *applier.Trigger) error { t.Status.Held = true; return nil }
	for name, tc := range map[string]struct {
		faults []fake.Fault
		change func(w *storeWorld)
		err    error
	}{
		"no answer":        {faults: []fake.Fault{{Verb: "update", Lost: io.ErrUnexpectedEOF}}, err: applier.ErrUnconfirmed},
		"nothing arrived":  {faults: []fake.Fault{{Verb: "update", Err: io.ErrUnexpectedEOF}}, err: applier.ErrUnconfirmed},
		"another object":   {change: func(w *storeWorld) { w.ref.UID = "another" }, err: applier.ErrRecordGone},
		"no object at all": {change: func(w *storeWorld) { w.ref.Name = "none" }, err: applier.ErrRecordGone},
		"deleted before the write": {
			faults: []fake.Fault{{Verb: "update", Err: apierrors.NewNotFound(applyTriggers.GroupResource(), "shop")}, {Verb: "get", Nth: 2, Err: apierrors.NewNotFound(applyTriggers.GroupResource(), "shop")}},
			err:    applier.ErrRecordGone,
		},
		"a conflict, after which it cannot be read": {
			faults: []fake.Fault{{Verb: "update", Nth: 1, Err: apierrors.NewConflict(applyTriggers.GroupResource(), "shop", nil)}, {Verb: "get", Nth: 2, Err: apierrors.NewInternalError(io.ErrUnexpectedEOF)}},
			err:    applier.ErrUnconfirmed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inStoreWorld(t, func(w *storeWorld) {
				for _, fault := range tc.faults {
					w.view.Inject(fault)
				}
				if tc.change != nil {
					tc.change(w)
				}
				require.ErrorIs(w, w.store.UpdateStatus(w.Context(), w.ref, held), tc.err)
			})
		})
	}
}
