package applier

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// DefaultPollInterval is how often the progress of an operation is read where it is not watched.
const DefaultPollInterval = 2 * time.Second

// Follower follows operations to their end. The zero value is ready to use, and a Follower is safe for concurrent use.
type Follower struct {
	// PollInterval is how often an applier is read that cannot be watched, and how soon a read or write that failed is
	// tried again. Zero is DefaultPollInterval.
	PollInterval time.Duration
	// PollMax is what that interval grows to, doubling, while reads or writes fail one after another and while an overdue
	// operation is polled. Zero lets it not grow.
	PollMax time.Duration
	// Failed is told of each read and write that failed and is tried again; nil is told nothing. It is called on the
	// goroutine of Follow.
	Failed func(error)
	// lag is told how long it took from a change to the report that it led to; nil is told nothing.
	lag func(time.Duration)
}

// Follow calls client.Progress for the operation s of the applier ref until it ends, and reports each Progress that
// differs from the one before, the end included; report may be nil. It watches the applier where client is a
// [Watcher], and polls it otherwise. It writes into s as Progress does.
//
// A read or a write that fails is tried again. Follow returns an error once ctx has ended, which wraps the cause and
// what failed last, or for an error that is permanent: an s that is none of client's. With it comes the last Progress
// known. The operation may then still run: call Follow again, or hand s to another process.
//
// An operation that is Recovered or Unconfirmed, and resumed nothing, may not have begun. Where nothing is seen of it for a minute and a half, its
// start can no longer come, and it ends as if it were Overdue.
func (f Follower) Follow(
	ctx context.Context, client Client, ref types.NamespacedName, s *Started, report func(Progress),
) (Progress, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var changes <-chan *unstructured.Unstructured
	if watcher, ok := AsWatcher(client); ok {
		changes = watcher.Watch(watching, ref)
	}

	var last Progress
	var failed error
	var slowed time.Duration
	began := time.Now()
	for first := true; ; first = false {
		slower := failed != nil || s.Overdue && changes == nil
		if !slower {
			slowed = 0
		}
		interval := f.next(slowed)
		if slower {
			slowed = interval
		}
		unseen := last.State == StateRequested && s.mayNotHaveBegun()
		mayYetBegin := s.mayYetBegin(began)
		if unseen && mayYetBegin == 0 {
			mayYetBegin = interval // The first answer came late: what it did not show is looked for once more.
		}
		changes = f.await(ctx, changes, s, first, failed != nil, interval, mayYetBegin)
		if ctx.Err() != nil {
			return last, contextError(ctx, failed)
		}
		woken := time.Now()
		var progress Progress
		progress, failed = progressOf(ctx, client, ref, s, unseen && s.mayYetBegin(began) == 0)
		switch {
		case IsPermanent(failed):
			return last, failed
		case failed != nil:
			f.tell(failed)
			continue
		}
		if progress != last {
			f.report(report, progress, woken)
		}
		last = progress
		if progress.State.Ended() {
			return progress, nil
		}
	}
}

// progressOf calls Progress: for an operation that may not have begun, and no longer can, as if it were overdue. A request that has no
// answer after a minute gets none, and is made again: it may be the one that suspends.
func progressOf(ctx context.Context, client Client, ref types.NamespacedName, s *Started, neverBegan bool) (Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, lateWrite)
	defer cancel()
	overdue := s.Overdue
	s.Overdue = overdue || neverBegan
	defer func() { s.Overdue = overdue }()
	return client.Progress(ctx, ref, s)
}

// next returns how long to wait for the next read, where waits grow: before is the last such wait, or zero.
func (f Follower) next(before time.Duration) time.Duration {
	base := f.PollInterval
	if base <= 0 {
		base = DefaultPollInterval
	}
	return max(base, min(2*before, f.PollMax))
}

func (f Follower) report(report func(Progress), progress Progress, woken time.Time) {
	if report != nil {
		report(progress)
	}
	if f.lag != nil {
		f.lag(time.Since(woken))
	}
}

func (f Follower) tell(failed error) {
	if f.Failed != nil {
		f.Failed(failed)
	}
}

// await returns when Progress is to be called: on a change of the applier, after interval where there is no
// watch or the last call failed, once the operation can no longer begin, or when ctx ended. The first time it returns at once where
// there is no watch, or where there may be something to suspend. It returns changes, or nil once the watch was refused.
func (f Follower) await(
	ctx context.Context, changes <-chan *unstructured.Unstructured, s *Started, first, failed bool, interval, mayYetBegin time.Duration,
) <-chan *unstructured.Unstructured {
	if first && (changes == nil || s.Overdue || s.Recovered) {
		return changes
	}
	wait := mayYetBegin
	if changes == nil || failed {
		wait = interval
	}
	var poll <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		poll = timer.C
	}
	select {
	case <-ctx.Done():
	case <-poll:
	case object, ok := <-changes:
		if !ok {
			return nil
		}
		s.Observed = object
	}
	return changes
}
