package appliertest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gitops-applier/gitops-applier/applier"
)

// maxRequests is more requests than one operation can need.
const maxRequests = 500

// sweep runs a flow once for every request that it makes, and strikes that request.
type sweep struct {
	// what says in a failure what was done to the request.
	what string
	// which selects the requests that count. Nil selects all.
	which  func(*subject, *request) bool
	strike func(*subject, *request) fault
	flow   func(ctx context.Context, s *subject, h *hit) error
	// fresh takes another applier for each run, where a run leaves the applier unfit for the next. Otherwise a new process asks the
	// same applier each time.
	fresh bool
}

// sweep finds the requests by counting them: it ends with the first run that makes fewer.
func (e *env) sweep(ctx context.Context, w sweep) error {
	var s *subject
	for n := 1; n <= maxRequests; n++ {
		var err error
		if s == nil || w.fresh {
			s, err = e.subject(ctx)
		} else {
			err = s.restart()
		}
		if err != nil {
			return err
		}
		h := &hit{acted: make(chan struct{})}
		count := 0
		s.wire.on(func(r *request) fault {
			if w.which != nil && !w.which(s, r) || !h.count(&count, n, r) {
				return fault{}
			}
			return h.acting(w.strike(s, r))
		})
		err = w.flow(ctx, s, h)
		switch r := h.request(); {
		case r == nil && err != nil:
			return fmt.Errorf("with nothing wrong: %w", err)
		case r == nil && n == 1:
			return errors.New("the client makes no request through the API that NewClient is given, so none can be broken")
		case r == nil:
			return nil
		case err != nil:
			return fmt.Errorf("%s at %v: %w", w.what, r, err)
		}
	}
	return fmt.Errorf("the operation took more than %d requests", maxRequests)
}

// hit is the request that was struck, once it was.
type hit struct {
	mu     sync.Mutex
	struck *request
	acted  chan struct{}
	failed error
}

// acting notes when what is done before a request is done. It is not cut short with the request.
func (h *hit) acting(f fault) fault {
	act := f.before
	if act == nil {
		close(h.acted)
		return f
	}
	f.before = func(ctx context.Context) error {
		defer close(h.acted)
		h.failed = act(context.WithoutCancel(ctx))
		return h.failed
	}
	return f
}

// wait returns once what is done before the struck request is done, if one was struck.
func (h *hit) wait() error {
	if h.request() == nil {
		return nil
	}
	<-h.acted
	if h.failed != nil {
		return fmt.Errorf("the suite could not act as somebody else: %w", h.failed)
	}
	return nil
}

// count counts a request, and reports whether it is the n-th.
func (h *hit) count(count *int, n int, r *request) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	*count++
	if *count != n {
		return false
	}
	h.struck = r
	return true
}

func (h *hit) request() *request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.struck
}

// answers returns a strike that answers every request struck by err, unseen by the API server.
func answers(err func(*request) error) func(*subject, *request) fault {
	return func(_ *subject, r *request) fault { return fault{refuse: err(r)} }
}

// loses returns a strike that takes the answer of a request which was processed.
func loses(err func(*request) error) func(*subject, *request) fault {
	return func(_ *subject, r *request) fault { return fault{lose: err(r)} }
}

// writing selects the requests that write.
func writing(_ *subject, r *request) bool { return r.writes() }

// persist does what a host does that wants commit applied: it follows what started, and asks again, with a new token, after an
// error or an end that invites it. It returns what the contract does not allow, and counts a commit that is not applied
// after three attempts.
func (s *subject) persist(ctx context.Context, commit string) error {
	var last error
	for range 3 {
		ask, noted := s.ask(commit)
		started, err := s.client.Request(ctx, s.Ref, ask)
		if records := len(noted.records()); records > 1 {
			return fmt.Errorf("one Request called Record %d times", records)
		}
		if err != nil {
			if err := s.refused(ask, err); err != nil {
				return err
			}
			last = err
			continue
		}
		if started.Outcome == applier.OutcomeCurrent {
			return errors.New("Request answers Current for a commit that is not applied")
		}
		made := stored(s.starts(ask.Token))
		end, err := s.pursue(ctx, s.client, &started, made > 0)
		if err != nil {
			return err
		}
		made = stored(s.starts(ask.Token))
		switch err := errors.Join(s.truthful(ctx, started, end), s.settled(ctx)); {
		case err != nil:
			return err
		case made > 1:
			return fmt.Errorf("one request started the operation %d times", made)
		case end.State == applier.StateSucceeded && end.AppliedCommit == commit:
			return nil
		case made == 1 && !elsewhere(end):
			return fmt.Errorf("the operation was started and nothing kept it from being applied, and it ended %+v", end)
		}
		last = fmt.Errorf("the operation ended %+v", end)
		if !elsewhere(end) && !end.AskAgain() {
			return fmt.Errorf("the operation was not started, and its end does not say that it may be asked for again: %w", last)
		}
	}
	return fmt.Errorf("the commit is not applied after three attempts: %w", last)
}

// elsewhere reports an end at another commit, which the truth bears out. It happens where an applier learns late of what its source
// holds, and a host asks again.
func elsewhere(end applier.Progress) bool {
	return end.State == applier.StateSucceeded && end.Reason == applier.ReasonAppliedOther
}

// refused returns what is wrong with an error of Request, made by a fault that passes.
func (s *subject) refused(ask applier.Ask, err error) error {
	switch {
	case stored(s.starts(ask.Token)) > 0:
		return fmt.Errorf("the write that starts the operation was made, and Request returned an error, which means that nothing was started: %w", err)
	case applier.IsPermanent(err):
		return fmt.Errorf("Request calls permanent what mends itself: %w", err)
	}
	if wrong := s.names(err.Error(), s.Ref); wrong != nil {
		return fmt.Errorf("Request's error is not for people: %w", wrong)
	}
	return nil
}

// status returns the API server's error in err.
func status(err error) (apierrors.APIStatus, bool) {
	var status apierrors.APIStatus
	ok := errors.As(err, &status)
	return status, ok
}

// persisting is the flow that pushes a commit and has it applied.
func persisting(ctx context.Context, s *subject, _ *hit) error {
	commit, err := s.Push(ctx)
	if err != nil {
		return err
	}
	return s.persist(ctx, commit)
}
