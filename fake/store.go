package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Store is an [applier.Store] in memory. A test puts triggers and targets into it, changes and deletes them as the host's
// users would, and reads back each status that was written.
//
// The zero value is empty and ready. It is safe for concurrent use, works inside a testing/synctest bubble and outside one,
// and starts no goroutine. What it keeps of a status is the JSON, as any store of a host: an operation that is read from it
// is Recovered, and what its JSON leaves out is gone.
//
// A Store is the one of a single process of the host. [Store.Process] makes one for another process over the same records.
// Each has its own calls and faults, and can be cut off.
type Store struct {
	mu      sync.Mutex
	records *records
	calls   []StoreCall
	faults  []*storeFault
	cut     bool
}

var _ applier.Store = (*Store)(nil)

// Process returns a store over the same triggers and targets, for another process of the host.
func (s *Store) Process() *Store { return &Store{records: s.shared()} }

// Cut lets no further call through, as if the process had died. What is being written is written, but its answer is lost.
// Called from a fault's Before or After it strikes just there. Triggers and targets can still be put, changed and read back.
func (s *Store) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
}

// Trigger reads one trigger.
func (s *Store) Trigger(ctx context.Context, ref applier.TriggerRef) (applier.Trigger, error) {
	return read(ctx, s, StoreCall{Method: "Trigger", Trigger: ref}, func(r *records) (applier.Trigger, error) {
		trigger, _, err := r.trigger(ref)
		return trigger, err
	})
}

// Target reads one target.
func (s *Store) Target(ctx context.Context, ref applier.TargetRef) (applier.Target, error) {
	return read(ctx, s, StoreCall{Method: "Target", Target: ref}, func(r *records) (applier.Target, error) { return r.target(ref) })
}

// Triggers lists the triggers that match.
func (s *Store) Triggers(ctx context.Context, match applier.TriggerMatch) ([]applier.Trigger, error) {
	return read(ctx, s, StoreCall{Method: "Triggers", Match: match}, func(r *records) ([]applier.Trigger, error) { return r.triggersThat(match), nil })
}

// Targets lists the targets that name the trigger.
func (s *Store) Targets(ctx context.Context, ref applier.TriggerRef) ([]applier.Target, error) {
	return read(ctx, s, StoreCall{Method: "Targets", Trigger: ref}, func(r *records) ([]applier.Target, error) { return r.targetsOf(ref), nil })
}

func read[T any](ctx context.Context, s *Store, call StoreCall, from func(*records) (T, error)) (result T, err error) {
	err = s.call(ctx, call, func(*StoreCall, []*storeFault) error {
		result, err = from(s.shared())
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

// UpdateStatus writes the status that mutate leaves. While mutate runs, it may use the Store.
func (s *Store) UpdateStatus(ctx context.Context, ref applier.TriggerRef, mutate func(*applier.Trigger) error) error {
	return s.call(ctx, StoreCall{Method: "UpdateStatus", Trigger: ref}, func(call *StoreCall, faults []*storeFault) error {
		for echoed := false; ; {
			switch err := context.Cause(ctx); {
			case err != nil && echoed:
				return fmt.Errorf("%w: %w", applier.ErrUnconfirmed, err)
			case err != nil:
				return err
			}
			status, version, err := s.mutated(ref, mutate)
			if err != nil || status == nil {
				return err
			}
			for _, f := range faults {
				if f.Between != nil {
					f.Between(*call)
				}
			}
			for _, f := range faults {
				if f.Dropped != nil {
					return fmt.Errorf("%w: %w", applier.ErrUnconfirmed, f.Dropped)
				}
			}
			if s.isCut() {
				return ErrCut
			}
			written, err := s.shared().write(ref, version, status)
			if err != nil {
				return err
			}
			if written {
				decoded := decodeStatus(status)
				call.Written = &decoded
				if echoed = slices.ContainsFunc(faults, func(f *storeFault) bool { return f.Echo }); !echoed {
					return nil
				}
			}
			faults = nil // They struck the first try.
		}
	})
}

// mutated reads the trigger and returns the JSON of the status that mutate leaves, or nil if that is the present one.
func (s *Store) mutated(ref applier.TriggerRef, mutate func(*applier.Trigger) error) (status []byte, version int, err error) {
	trigger, version, err := s.shared().trigger(ref)
	if err != nil {
		return nil, 0, err
	}
	before := encodeStatus(trigger.Status)
	if err = mutate(&trigger); err != nil {
		return nil, 0, err
	}
	if status, err = json.Marshal(trigger.Status); err != nil {
		return nil, 0, fmt.Errorf("trigger %s: its status: %w", ref, err)
	}
	if bytes.Equal(before, status) {
		return nil, 0, nil
	}
	return status, version, nil
}

// call makes one call, with whatever faults strike it, and notes it.
func (s *Store) call(ctx context.Context, call StoreCall, process func(*StoreCall, []*storeFault) error) error {
	faults := s.begin(&call)
	err := s.struck(ctx, &call, faults, process)
	s.mu.Lock()
	defer s.mu.Unlock()
	call.Err, call.Done = err, true
	s.calls[call.Number-1] = call
	return err
}

// begin notes the call and returns the faults that strike it.
func (s *Store) begin(call *StoreCall) []*storeFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	call.Number = len(s.calls) + 1
	s.calls = append(s.calls, *call)
	var striking []*storeFault
	for _, f := range s.faults {
		if f.strikes(*call) {
			striking = append(striking, f)
		}
	}
	return striking
}

func (s *Store) struck(ctx context.Context, call *StoreCall, faults []*storeFault, process func(*StoreCall, []*storeFault) error) error {
	for _, f := range faults {
		if err := sleep(ctx, f.Delay); err != nil {
			return err
		}
		if f.Before != nil {
			f.Before(*call)
		}
	}
	for _, f := range faults {
		if f.Err != nil {
			return f.Err
		}
	}
	switch err := context.Cause(ctx); {
	case s.isCut():
		return ErrCut
	case err != nil:
		return err
	}
	err := process(call, faults)
	for _, f := range faults {
		if f.After != nil {
			f.After(*call)
		}
	}
	for _, f := range faults {
		if f.Lost != nil {
			return call.lost(f.Lost)
		}
	}
	if s.isCut() && !errors.Is(err, ErrCut) {
		return call.lost(ErrCut)
	}
	return err
}

// lost is the answer to a call whose own answer got lost.
func (c *StoreCall) lost(err error) error {
	if c.Method == "UpdateStatus" {
		return fmt.Errorf("%w: %w", applier.ErrUnconfirmed, err)
	}
	return err
}

func (s *Store) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// shared returns what all processes share.
func (s *Store) shared() *records {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		s.records = &records{triggers: make(map[recordName]*triggerRecord), targets: make(map[recordName]applier.Target)}
	}
	return s.records
}
