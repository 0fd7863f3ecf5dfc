package fake

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// PutTrigger creates the trigger, or makes the one of its name as t says, status and all, and returns what is kept. Where t
// has no UID or no time of creation, one of that name keeps its own, and a new one gets them. Another UID is another
// incarnation.
func (s *Store) PutTrigger(t applier.Trigger) applier.Trigger {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := recordName{t.Ref.Namespace, t.Ref.Name}
	kept := r.triggers[name]
	if kept != nil && (t.Ref.UID == "" || t.Ref.UID == kept.trigger.Ref.UID) {
		t.Ref.UID = kept.trigger.Ref.UID
		if t.Created.IsZero() {
			t.Created = kept.trigger.Created
		}
	}
	if t.Ref.UID == "" {
		t.Ref.UID = r.newUID()
	}
	if t.Created.IsZero() {
		t.Created = time.Now()
	}
	r.keep(name, t, encodeStatus(t.Status))
	return r.triggers[name].copy()
}

// ChangeTrigger changes a trigger as somebody else does: whatever change leaves is kept, its name and UID aside. It is
// ErrRecordGone for one that is not there, or has another UID. It must not be called from change.
func (s *Store) ChangeTrigger(ref applier.TriggerRef, change func(*applier.Trigger)) error {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, err := r.findTrigger(ref)
	if err != nil {
		return err
	}
	t := kept.copy()
	change(&t)
	t.Ref = kept.trigger.Ref
	r.keep(recordName{ref.Namespace, ref.Name}, t, encodeStatus(t.Status))
	return nil
}

// DeleteTrigger removes a trigger at once, whatever its UID. One that takes its time has Deleting set by ChangeTrigger
// before.
func (s *Store) DeleteTrigger(ref applier.TriggerRef) {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.triggers, recordName{ref.Namespace, ref.Name})
}

// PutTarget creates the target, or makes the one of its name as t says, and returns what is kept. Where t has no UID, one of
// that name keeps its own, and a new one gets one. Another UID is another incarnation.
func (s *Store) PutTarget(t applier.Target) applier.Target {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := recordName{t.Ref.Namespace, t.Ref.Name}
	if t.Ref.UID == "" {
		t.Ref.UID = r.targets[name].Ref.UID
	}
	if t.Ref.UID == "" {
		t.Ref.UID = r.newUID()
	}
	r.targets[name] = copyTarget(t)
	return t
}

// ChangeTarget changes a target as somebody else does: whatever change leaves is kept, its name and UID aside. It is
// ErrRecordGone for one that is not there, or has another UID. It must not be called from change.
func (s *Store) ChangeTarget(ref applier.TargetRef, change func(*applier.Target)) error {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.findTarget(ref)
	if err != nil {
		return err
	}
	kept := t.Ref
	t = copyTarget(t)
	change(&t)
	t.Ref = kept
	r.targets[recordName{ref.Namespace, ref.Name}] = copyTarget(t)
	return nil
}

// DeleteTarget removes a target at once, whatever its UID. One that takes its time has Deleting set by ChangeTarget before.
func (s *Store) DeleteTarget(ref applier.TargetRef) {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.targets, recordName{ref.Namespace, ref.Name})
}

// History returns every status that UpdateStatus wrote on a trigger, in the order of the writes, whichever process made them.
// Without a UID in ref, it is that of all incarnations; it stays when they are deleted.
func (s *Store) History(ref applier.TriggerRef) []applier.TriggerStatus {
	r := s.shared()
	r.mu.Lock()
	defer r.mu.Unlock()
	var history []applier.TriggerStatus
	for _, w := range r.writes {
		if w.ref.Namespace == ref.Namespace && w.ref.Name == ref.Name && (ref.UID == "" || ref.UID == w.ref.UID) {
			history = append(history, decodeStatus(w.status))
		}
	}
	return history
}

// records are the triggers and targets that the processes share.
type records struct {
	mu       sync.Mutex
	triggers map[recordName]*triggerRecord
	targets  map[recordName]applier.Target
	writes   []statusWrite
	// uids and versions count those given out. No version repeats, so that a trigger that was deleted and made anew has another.
	uids, versions int
}

type recordName struct{ namespace, name string }

func sorted(names []recordName) []recordName {
	slices.SortFunc(names, func(a, b recordName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return names
}

// triggerRecord is one trigger. It is replaced by every write and never changed.
type triggerRecord struct {
	// trigger is only looked at; what is handed out is a copy.
	trigger applier.Trigger
	// status is its status, as it is kept.
	status  []byte
	version int
}

// statusWrite is one write of UpdateStatus.
type statusWrite struct {
	ref    applier.TriggerRef
	status []byte
}

// copy returns the trigger for somebody to keep.
func (t *triggerRecord) copy() applier.Trigger {
	trigger := t.trigger
	trigger.Status = decodeStatus(t.status)
	return trigger
}

func (r *records) newUID() types.UID {
	r.uids++
	return types.UID(fmt.Sprintf("uid-%d", r.uids))
}

// write writes the status, if the trigger is at that version. Otherwise nothing is written.
func (r *records) write(ref applier.TriggerRef, version int, status []byte) (written bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, err := r.findTrigger(ref)
	if err != nil || kept.version != version {
		return false, err
	}
	r.keep(recordName{ref.Namespace, ref.Name}, kept.trigger, status)
	r.writes = append(r.writes, statusWrite{kept.trigger.Ref, status})
	return true, nil
}

// keep keeps the trigger with that status. The lock is held.
func (r *records) keep(name recordName, t applier.Trigger, status []byte) {
	r.versions++
	t.Status = decodeStatus(status)
	r.triggers[name] = &triggerRecord{trigger: t, status: status, version: r.versions}
}

func (r *records) trigger(ref applier.TriggerRef) (applier.Trigger, int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept, err := r.findTrigger(ref)
	if err != nil {
		return applier.Trigger{}, 0, err
	}
	return kept.copy(), kept.version, nil
}

func (r *records) target(ref applier.TargetRef) (applier.Target, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.findTarget(ref)
	if err != nil {
		return applier.Target{}, err
	}
	return copyTarget(t), nil
}

func (r *records) triggersThat(match applier.TriggerMatch) []applier.Trigger {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []recordName
	for name, t := range r.triggers {
		if match.Matches(t.trigger) {
			names = append(names, name)
		}
	}
	var triggers []applier.Trigger
	for _, name := range sorted(names) {
		triggers = append(triggers, r.triggers[name].copy())
	}
	return triggers
}

func (r *records) targetsOf(ref applier.TriggerRef) []applier.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []recordName
	for name, t := range r.targets {
		if t.Trigger.Namespace == ref.Namespace && t.Trigger.Name == ref.Name {
			names = append(names, name)
		}
	}
	var targets []applier.Target
	for _, name := range sorted(names) {
		targets = append(targets, copyTarget(r.targets[name]))
	}
	return targets
}

func (r *records) findTrigger(ref applier.TriggerRef) (*triggerRecord, error) {
	kept := r.triggers[recordName{ref.Namespace, ref.Name}]
	switch {
	case kept == nil:
		return nil, fmt.Errorf("trigger %s: %w", ref, applier.ErrRecordGone)
	case ref.UID != "" && ref.UID != kept.trigger.Ref.UID:
		return nil, fmt.Errorf("trigger %s is another one now: %w", ref, applier.ErrRecordGone)
	}
	return kept, nil
}

func (r *records) findTarget(ref applier.TargetRef) (applier.Target, error) {
	t, ok := r.targets[recordName{ref.Namespace, ref.Name}]
	switch {
	case !ok:
		return t, fmt.Errorf("target %s: %w", ref, applier.ErrRecordGone)
	case ref.UID != "" && ref.UID != t.Ref.UID:
		return t, fmt.Errorf("target %s is another one now: %w", ref, applier.ErrRecordGone)
	}
	return t, nil
}

func copyTarget(t applier.Target) applier.Target {
	if t.Object != nil {
		t.Object = t.Object.DeepCopyObject()
	}
	return t
}

// encodeStatus returns the JSON that is kept. Only a year past 9999 cannot be kept.
func encodeStatus(status applier.TriggerStatus) []byte {
	encoded, err := json.Marshal(status)
	if err != nil {
		panic(fmt.Sprintf("fake: a status that cannot be kept: %v", err))
	}
	return encoded
}

func decodeStatus(encoded []byte) (status applier.TriggerStatus) {
	if err := json.Unmarshal(encoded, &status); err != nil {
		panic(fmt.Sprintf("fake: a status that cannot be read: %v", err))
	}
	return status
}
