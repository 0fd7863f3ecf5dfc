package hoststore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Store is the host's [applier.Store]. It keeps nothing of its own.
type Store struct {
	client dynamic.Interface
}

var _ applier.Store = (*Store)(nil)

// New returns a store that reads and writes through client. The identity needs to get and list both resources, and to
// update applytriggers/status.
func New(client dynamic.Interface) *Store { return &Store{client} }

// Trigger reads one ApplyTrigger.
func (s *Store) Trigger(ctx context.Context, ref applier.TriggerRef) (applier.Trigger, error) {
	u, err := s.trigger(ctx, ref)
	if err != nil {
		return applier.Trigger{}, err
	}
	return triggerOf(u)
}

func (s *Store) trigger(ctx context.Context, ref applier.TriggerRef) (*unstructured.Unstructured, error) {
	u, err := s.client.Resource(Triggers).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	return found(u, err, "trigger "+ref.String(), ref.UID)
}

// Target reads one DeliveryTarget.
func (s *Store) Target(ctx context.Context, ref applier.TargetRef) (applier.Target, error) {
	u, err := s.client.Resource(Targets).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if u, err = found(u, err, "target "+ref.String(), ref.UID); err != nil {
		return applier.Target{}, err
	}
	return targetOf(u)
}

// found returns the object that was read, or that it is gone.
func found(u *unstructured.Unstructured, err error, name string, uid types.UID) (*unstructured.Unstructured, error) {
	switch {
	case applier.AbsenceOf(err) == applier.AbsenceNotFound:
		return nil, fmt.Errorf("%s: %w", name, applier.ErrRecordGone)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case uid != "" && u.GetUID() != uid:
		return nil, fmt.Errorf("%s is another one now: %w", name, applier.ErrRecordGone)
	}
	return u, nil
}

// Triggers lists the ApplyTriggers that match. A host with thousands of them asks an informer's index instead.
func (s *Store) Triggers(ctx context.Context, match applier.TriggerMatch) ([]applier.Trigger, error) {
	list, err := s.client.Resource(Triggers).Namespace(match.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the triggers: %w", err)
	}
	var triggers []applier.Trigger
	for _, u := range byName(list) {
		t, err := triggerOf(u)
		if err != nil {
			return nil, err
		}
		if match.Matches(t) {
			triggers = append(triggers, t)
		}
	}
	return triggers, nil
}

// Targets lists the DeliveryTargets that name the trigger. They do so in its namespace alone.
func (s *Store) Targets(ctx context.Context, ref applier.TriggerRef) ([]applier.Target, error) {
	list, err := s.client.Resource(Targets).Namespace(ref.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the targets of trigger %s: %w", ref, err)
	}
	var targets []applier.Target
	for _, u := range byName(list) {
		t, err := targetOf(u)
		if err != nil {
			return nil, err
		}
		if t.Trigger.Name == ref.Name {
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// byName returns the objects by namespace and name. The API server's order is that of its keys, in which team-a-b/x
// comes before team-a/x.
func byName(list *unstructured.UnstructuredList) []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// UpdateStatus writes the record that mutate leaves, over the ApplyTrigger as it was read: by its resourceVersion, the API
// server refuses to write over anything newer.
func (s *Store) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	for sent := false; ; sent = true {
		u, err := s.trigger(ctx, ref)
		switch {
		case err != nil && sent && !errors.Is(err, applier.ErrRecordGone): // The conflict may have been with a write of its own.
			return fmt.Errorf("%w: %w", applier.ErrUnconfirmed, err)
		case err != nil:
			return err
		}
		changed, err := mutated(u, mutate)
		if err != nil || !changed {
			return err
		}
		_, err = s.client.Resource(Triggers).Namespace(ref.Namespace).UpdateStatus(ctx, u, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return nil
		case apierrors.IsConflict(err), applier.AbsenceOf(err) == applier.AbsenceNotFound:
			continue // What there is now is read again.
		default:
			return fmt.Errorf("write the status of trigger %s: %w", ref, applier.WriteError(err))
		}
	}
}

// mutated puts what mutate leaves into u, and reports whether that differs from what was there.
func mutated(u *unstructured.Unstructured, mutate func(*applier.Trigger) error) (bool, error) {
	t, err := triggerOf(u)
	if err != nil {
		return false, err
	}
	before, err := json.Marshal(t.Status)
	if err != nil {
		return false, err
	}
	if err = mutate(&t); err != nil {
		return false, err
	}
	after, err := json.Marshal(t.Status)
	if err != nil || string(before) == string(after) {
		return false, err
	}
	return true, setRecord(u, t.Status)
}
