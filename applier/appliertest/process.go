package appliertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// process is one run of a host: its client, the way it reaches the cluster, and what its asks called back.
type process struct {
	client applier.Client
	wire   *wire
}

// process starts one.
func (a *Applier) process() (*process, error) {
	p := &process{wire: &wire{api: a.API}}
	var err error
	if a.API == nil {
		p.client, err = a.NewClient(nil)
	} else {
		p.client, err = a.NewClient(p.wire)
	}
	if err == nil && p.client == nil {
		err = errors.New("NewClient returned nil")
	}
	if err == nil && len(p.wire.requests()) > 0 {
		err = fmt.Errorf("NewClient made %v: it is to make no request", p.wire.requests()[0])
	}
	if err != nil {
		return nil, fmt.Errorf("the harness makes no client: %w", err)
	}
	return p, nil
}

// forget starts counting anew.
func (w *wire) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = nil
}

// calls are the calls back that an ask got, and how many requests had been made before each.
type calls struct {
	mu   sync.Mutex
	made []call
}

type call struct {
	name    string
	request int
	started applier.Started
}

// records returns the calls of Record.
func (c *calls) records() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []call
	for _, made := range c.made {
		if made.name == "Record" {
			found = append(found, made)
		}
	}
	return found
}

// ask returns an ask for commit that notes its calls back. What is already set in change stays.
func (s *subject) ask(commit string, change ...func(*applier.Ask)) (applier.Ask, *calls) {
	noted := &calls{}
	ask := applier.Ask{Want: s.Want, Commit: commit, Token: applier.NewToken(), Live: s.Live, Wait: s.env.harness.Timeout}
	for _, c := range change {
		c(&ask)
	}
	note := func(name string, started applier.Started) {
		requests := len(s.wire.requests())
		noted.mu.Lock()
		defer noted.mu.Unlock()
		noted.made = append(noted.made, call{name, requests, started})
	}
	current, held, record := ask.Current, ask.Held, ask.Record
	ask.Current = func() bool {
		note("Current", applier.Started{})
		return current == nil || current()
	}
	ask.Held = func(ctx context.Context) error {
		note("Held", applier.Started{})
		if held == nil {
			return nil
		}
		return held(ctx)
	}
	ask.Record = func(ctx context.Context, started applier.Started) error {
		note("Record", started)
		if record == nil {
			return nil
		}
		return record(ctx, started)
	}
	return ask, noted
}

// starts returns the requests that write token into the applier: those that start an operation.
func (s *subject) starts(token string) []*request {
	var found []*request
	for _, r := range s.touches() {
		if strings.Contains(r.body, token) {
			found = append(found, r)
		}
	}
	return found
}

// stored returns how many of them the API server made.
func stored(requests []*request) int {
	n := 0
	for _, r := range requests {
		if r.stored {
			n++
		}
	}
	return n
}

// isStart reports whether a request is the one that starts the operation of token.
func (s *subject) isStart(r *request, token string) bool {
	return s.touched(r) && strings.Contains(r.body, token)
}

// touches returns the requests that write to the applier.
func (s *subject) touches() []*request {
	var found []*request
	for _, r := range s.wire.requests() {
		if s.touched(r) {
			found = append(found, r)
		}
	}
	return found
}

func (s *subject) touched(r *request) bool {
	return r.writes() && r.resource.GroupResource() == s.Resource.GroupResource() && r.namespace == s.Ref.Namespace && r.name == s.Ref.Name
}

// untouched returns the first request that wrote to the applier, as an error.
func (s *subject) untouched(after string) error {
	if touches := s.touches(); len(touches) > 0 {
		return fmt.Errorf("%s, the client sent a write to the applier: %v", after, touches[0])
	}
	return nil
}

// request asks for commit, and wants an operation to be started.
func (s *subject) request(ctx context.Context, commit string, change ...func(*applier.Ask)) (applier.Started, error) {
	ask, _ := s.ask(commit, change...)
	started, err := s.client.Request(ctx, s.Ref, ask)
	switch {
	case err != nil:
		return started, fmt.Errorf("Request: %w", err)
	case started.Outcome == applier.OutcomeCurrent || started.Outcome == "":
		return started, fmt.Errorf("Request started nothing for a new commit: its outcome is %q", started.Outcome)
	}
	return started, nil
}

// follow follows started as a host does, until it ends.
func (s *subject) follow(ctx context.Context, started *applier.Started) (applier.Progress, error) {
	return s.followWith(ctx, s.client, started, nil)
}

func (s *subject) followWith(ctx context.Context, client applier.Client, started *applier.Started, report func(applier.Progress)) (applier.Progress, error) {
	ctx, cancel := context.WithTimeout(ctx, s.env.harness.Timeout)
	defer cancel()
	end, err := s.follower.Follow(ctx, client, s.Ref, started, report)
	if err != nil {
		return end, fmt.Errorf("the operation did not end within %v; last seen %+v: %w", s.env.harness.Timeout, end, err)
	}
	return end, nil
}

// pursue follows an operation as a host does that gives up waiting where nothing happens: one whose starting write was not made
// stands as requested for as long as it may, and ends once it is Overdue.
func (s *subject) pursue(ctx context.Context, client applier.Client, started *applier.Started, made bool) (applier.Progress, error) {
	if made || !started.Recovered && started.Unconfirmed == nil {
		return s.followWith(ctx, client, started, nil)
	}
	waiting, cancel := context.WithTimeout(ctx, s.env.harness.Timeout/20)
	defer cancel()
	end, err := s.follower.Follow(waiting, client, s.Ref, started, nil)
	if err == nil || ctx.Err() != nil {
		return end, err
	}
	started.Overdue = true
	return s.followWith(ctx, client, started, nil)
}

// apply asks for commit, follows the operation, and wants it to end as the truth is, whatever that is.
func (s *subject) apply(ctx context.Context, commit string) (applier.Started, applier.Progress, error) {
	started, err := s.request(ctx, commit)
	if err != nil {
		return started, applier.Progress{}, err
	}
	end, err := s.follow(ctx, &started)
	if err != nil {
		return started, end, err
	}
	return started, end, errors.Join(s.truthful(ctx, started, end), s.settled(ctx))
}

// succeed asks for commit, and wants it to be applied.
func (s *subject) succeed(ctx context.Context, commit string) error {
	_, end, err := s.apply(ctx, commit)
	if err == nil && (end.State != applier.StateSucceeded || end.AppliedCommit != commit) {
		err = fmt.Errorf("nothing was wrong, and the operation ended %+v instead of Succeeded at %s", end, commit)
	}
	return err
}

// truthful returns what an end claims that is not so.
func (s *subject) truthful(ctx context.Context, started applier.Started, end applier.Progress) error {
	if end.Reason == "" {
		return fmt.Errorf("the end has no reason: %+v", end)
	}
	if end.State != applier.StateSucceeded {
		return nil
	}
	applied, err := s.Applied(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("the harness cannot read what is applied: %w", err)
	case end.AppliedRevision == "":
		return fmt.Errorf("the operation Succeeded and names no revision: %+v", end)
	case gitref.CommitOf(end.AppliedRevision) != "" && gitref.CommitOf(end.AppliedRevision) != end.AppliedCommit:
		return fmt.Errorf("AppliedCommit %q is not that of AppliedRevision %q", end.AppliedCommit, end.AppliedRevision)
	case end.AppliedCommit != applied:
		return fmt.Errorf("the operation Succeeded at %q, and the cluster holds %q", end.AppliedCommit, applied)
	case applied != started.Commit && end.Reason != applier.ReasonAppliedOther:
		return fmt.Errorf("the operation applied %s instead of %s, and its reason is %q instead of %s", applied, started.Commit, end.Reason, applier.ReasonAppliedOther)
	}
	return nil
}

// missing names an applier that does not exist.
func (s *subject) missing() types.NamespacedName {
	return types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name + "-missing"}
}
