package fake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Step is a part of what a simulated controller does with an object.
type Step string

// The steps of Flux's controllers, in the order in which they come.
const (
	// FetchStep is a GitRepository's look at the remote. It fails as GitOperationFailed.
	FetchStep Step = "fetch"
	// DownloadStep is a Kustomization's download of the artifact. It fails as ArtifactFailed.
	DownloadStep Step = "download"
	// BuildStep is the build of a Kustomization's manifests. It fails as BuildFailed.
	BuildStep Step = "build"
	// ApplyStep is the apply of what was built, before anything is written. It fails as ReconciliationFailed.
	ApplyStep Step = "apply"
	// PruneStep is the deletion of what is no longer built. It fails as PruneFailed.
	PruneStep Step = "prune"
	// HealthStep is the wait for health that spec.wait and spec.healthChecks ask for. Nothing is healthy before the
	// fault's delay has passed. It fails as HealthCheckFailed: with its message, or because the delay outlasted
	// spec.timeout, which is never less than 30 s.
	HealthStep Step = "health"
)

// A StepFault is something that happens in a step of a simulated controller. The zero value concerns each step of each object
// and does nothing.
type StepFault struct {
	// Step and Object say where; a zero value is any.
	Step   Step
	Object types.NamespacedName
	// Nth is the one time that is struck, counting from 1 since the fault was injected. Zero strikes each time.
	Nth int

	// Do is called when the step begins, which waits for it. It may use the cluster and the remote, and stop the
	// controller.
	Do func()
	// Delay is how long the step takes.
	Delay time.Duration
	// Message makes the step fail with it.
	Message string
}

type stepFaults struct {
	mu     sync.Mutex
	faults []*stepFault
}

type stepFault struct {
	StepFault
	matched int
}

// Inject makes a fault strike from now on, until the returned function is called.
func (f *Flux) Inject(fault StepFault) (remove func()) { return f.faults.inject(fault) }

func (s *stepFaults) inject(fault StepFault) (remove func()) {
	injected := &stepFault{StepFault: fault}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, injected)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(other *stepFault) bool { return other == injected })
	}
}

// FailNext makes the next time of a step, for whichever object, fail with a message. Where an operation may run a step
// twice, as that of a Kustomization does whose source moves meanwhile, Inject a fault that strikes each time.
func (f *Flux) FailNext(step Step, message string) {
	f.Inject(StepFault{Step: step, Nth: 1, Message: message})
}

// struck returns the faults that strike a step of an object, and counts them.
func (s *stepFaults) struck(step Step, object types.NamespacedName) []StepFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var struck []StepFault
	for _, f := range s.faults {
		if f.Step != "" && f.Step != step || f.Object != (types.NamespacedName{}) && f.Object != object {
			continue
		}
		f.matched++
		if f.Nth == 0 || f.Nth == f.matched {
			struck = append(struck, f.StepFault)
		}
	}
	return struck
}

// step lets the faults of a step happen, and returns what it fails with.
func (s *stepFaults) step(ctx context.Context, step Step, object types.NamespacedName) error {
	for _, f := range s.struck(step, object) {
		if err := f.do(ctx); err != nil {
			return err
		}
		if !pauseFor(ctx, f.Delay) {
			return ctx.Err()
		}
		if f.Message != "" {
			return errors.New(f.Message)
		}
	}
	return nil
}

// do calls Do. The step does not wait for it once the controller is being stopped, since Do may be what stops it.
func (f StepFault) do(ctx context.Context) error {
	if f.Do == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Do()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return ctx.Err()
}
