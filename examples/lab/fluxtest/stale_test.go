package fluxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
	"github.com/gitops-applier/gitops-applier/flux"
)

// requireRefused makes a request that is refused, and checks that nothing was started by it. It returns the error.
func (s *subject) requireRefused(t *testing.T, tr *lab.Transport, ask applier.Ask) error {
	t.Helper()
	before := s.get(t)
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	started, err := s.client.Request(ctx, s.ref, ask)
	require.Error(t, err)
	assert.Zero(t, started)
	assert.Zero(t, tr.Count(toKustomizations), "a Kustomization was written to: %v", tr.Requests())
	assert.Equal(t, before.GetResourceVersion(), s.get(t).GetResourceVersion(), "the Kustomization changed")
	assert.ErrorContains(t, err, "in cluster lab")
	return err
}

func TestADecisionThatTurnsStaleStartsNothingWheneverItDoes(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, fetched := range []bool{true, false} {
		t.Run(fmt.Sprintf("fetched before: %t", fetched), func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			commit := s.first
			for holds := 0; ; holds++ {
				if !fetched {
					commit = s.push(t, fmt.Sprint("value ", holds))
				}
				tr.Reset()
				asked := 0
				ask := s.ask(commit)
				ask.Current = func() bool { asked++; return asked <= holds }
				recorded := false
				ask.Record = func(context.Context, applier.Started) error { recorded = true; return nil }
				if asks := currentAsks(fetched); holds == asks {
					_, err := s.apply(t, ask)
					require.NoError(t, err)
					assert.Equal(t, asks, asked)
					return
				}

				err := s.requireRefused(t, tr, ask)

				require.ErrorIs(t, err, applier.ErrStale, "after %d times", holds)
				assert.False(t, applier.IsPermanent(err))
				assert.Equal(t, holds == currentAsks(fetched)-1, recorded, "only the last time comes after Record")
				if holds == 0 {
					assert.Zero(t, tr.Count(lab.Writes), "something was written for a decision that never held")
				}
			}
		})
	}
}

// currentAsks is how often a request asks whether its decision still holds: before the fetch, after it, right before Record
// and right before the resume.
func currentAsks(fetched bool) int {
	if fetched {
		return 3
	}
	return 4
}

func TestADecisionThatRecordItselfMakesStaleStartsNothing(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask(s.push(t, "two"))
	var stale atomic.Bool
	records := 0
	ask.Current = func() bool { return !stale.Load() }
	ask.Record = func(context.Context, applier.Started) error {
		records++
		stale.Store(true)
		return nil
	}

	err := s.requireRefused(t, tr, ask)

	require.ErrorIs(t, err, applier.ErrStale)
	assert.Equal(t, 1, records)
	s.requireHeld(t)
}

// refusal is one reason for which a held Kustomization is not resumed.
type refusal struct {
	name string
	// arrange makes the ask, and what is wrong with it.
	arrange func(*testing.T, *subject) applier.Ask
	is      error
	message string
}

func TestWhatCannotBeAppliedIsRefusedAndNothingIsResumed(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []refusal{
		{
			name: "the artifact moves to another commit while the operation is recorded",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				ask.Record = func(context.Context, applier.Started) error {
					s.moveTo(t, s.push(t, "three"))
					return nil
				}
				return ask
			},
			is: applier.ErrStale, message: "holds main@sha1:",
		},
		{
			name: "the artifact moves to another commit while the host looks up its hold",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				ask.Held = func(context.Context) error {
					s.moveTo(t, s.push(t, "three"))
					return nil
				}
				return ask
			},
			is: applier.ErrStale, message: "holds main@sha1:",
		},
		{
			name: "the host's record does not say that it is held",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				ask.Held = func(context.Context) error { return assert.AnError }
				return ask
			},
			is: assert.AnError, message: "is not asked",
		},
		{
			name: "the commit never arrives",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				return s.ask(strings.Repeat("0123456789", 4))
			},
			message: "fetched main@sha1:",
		},
		{
			name: "the commit never arrives and is no longer wanted either",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(strings.Repeat("0123456789", 4))
				ask.Current = falseAfter(1)
				return ask
			},
			is: applier.ErrStale, message: "holds main@sha1:",
		},
		{
			name: "the branch has moved on",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				s.push(t, "three")
				return ask
			},
			message: "is it pushed to the branch",
		},
		{
			name: "the branch is gone",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				s.repo.SetBranch(t, "other", s.first)
				s.repo.DeleteBranch(t, lab.DefaultBranch)
				return ask
			},
			message: "couldn't find remote ref",
		},
		{
			name: "the branch is gone and the decision does not hold any more",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				ask := s.ask(s.push(t, "two"))
				s.repo.DeleteBranch(t, lab.DefaultBranch)
				ask.Current = falseAfter(1)
				return ask
			},
			is: applier.ErrStale,
		},
		{
			name: "the source is suspended and does not hold the commit",
			arrange: func(t *testing.T, s *subject) applier.Ask {
				s.patch(t, lab.GitRepositories, "app", "flux", `{"spec":{"suspend":true}}`)
				return s.ask(s.push(t, "two"))
			},
			message: "is suspended and does not hold",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)

			err := s.requireRefused(t, tr, c.arrange(t, s))

			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			} else {
				require.NotErrorIs(t, err, applier.ErrStale)
			}
			assert.ErrorContains(t, err, c.message)
			assert.False(t, applier.IsPermanent(err), "%v", err)
			s.requireHeld(t)
			requireLawfulWrites(t, s, tr, false)
		})
	}
}

// falseAfter returns an Ask.Current that holds n times.
func falseAfter(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

func TestAnEmptyCommitMakesFluxReportTheMissingBranch(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	s.repo.SetBranch(t, "other", s.first)
	s.repo.DeleteBranch(t, lab.DefaultBranch)
	before := s.get(t)

	started, err := s.client.Request(t.Context(), s.ref, s.ask(""))

	require.NoError(t, err)
	assert.Equal(t, applier.Started{Outcome: applier.OutcomeCurrent}, started)
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", func(u *unstructured.Unstructured) bool {
		message, _ := ready(t, u)["message"].(string)
		return strings.Contains(message, "couldn't find remote ref")
	})
	assert.Zero(t, tr.Count(toKustomizations))
	assert.Equal(t, 1, tr.Count(lab.Writes), "the GitRepository is stamped, and nothing else is written")
	requireLawfulWrites(t, s, tr, false)
	assert.Equal(t, before.GetResourceVersion(), s.get(t).GetResourceVersion())
	s.requireHeld(t)
}

func TestAnEmptyCommitThatIsNoLongerWantedWritesNothing(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask("")
	ask.Current = falseAfter(0)

	err := s.requireRefused(t, tr, ask)

	require.ErrorIs(t, err, applier.ErrStale)
	assert.Zero(t, tr.Count(lab.Writes))
}

func TestAKustomizationThatTheHostDoesNotHoldIsNotAsked(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name    string
		arrange func(*testing.T, *subject)
		is      error
		reason  string
		message string
	}{
		{
			name:    "nobody suspended it",
			arrange: func(*testing.T, *subject) {},
			is:      applier.ErrNotHeld, message: "Suspend",
		},
		{
			name:    "it was created suspended",
			arrange: func(t *testing.T, s *subject) { s.as(t, "kubectl-create", `{"spec":{"suspend":true}}`) },
			is:      applier.ErrNotHeld, message: "Suspend",
		},
		{
			name:    "flux suspend suspended it",
			arrange: func(t *testing.T, s *subject) { s.as(t, "flux", `{"spec":{"suspend":true}}`) },
			is:      applier.ErrNotHeld, message: "Suspend",
		},
		{
			name: "flux resume took it from the host",
			arrange: func(t *testing.T, s *subject) {
				s.hold(t)
				s.as(t, "flux", `{"spec":{"suspend":null}}`)
			},
			is: applier.ErrNotHeld, message: "Suspend",
		},
		{
			name: "the host released it",
			arrange: func(t *testing.T, s *subject) {
				s.hold(t)
				_, err := s.client.Release(t.Context(), s.ref)
				require.NoError(t, err)
			},
			is: applier.ErrNotHeld, message: "Suspend",
		},
		{
			name: "another host holds it",
			arrange: func(t *testing.T, s *subject) {
				other, err := flux.New("lab", s.lab.Dynamic(), flux.Options{FieldManager: "other"})
				require.NoError(t, err)
				token, err := other.Suspend(t.Context(), s.ref)
				require.NoError(t, err)
				s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Handled(token))
			},
			reason: applier.ReasonSuspendOwnedElsewhere, message: "field manager other",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := live(t, l)
			c.arrange(t, s)
			s.settled(t)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)

			err := s.requireRefused(t, tr, s.ask(s.push(t, "two")))

			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			} else {
				require.NotErrorIs(t, err, applier.ErrNotHeld)
			}
			assert.Equal(t, c.reason, applier.VerdictReason(err))
			assert.True(t, applier.IsPermanent(err))
			assert.ErrorContains(t, err, c.message)
			assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab")
			assert.Zero(t, tr.Count(lab.Writes))
			assert.Equal(t, "one", s.value(t))
		})
	}
}

// settled returns once the controller is done with the present generation: it has applied it, or passed over it as suspended.
func (s *subject) settled(t *testing.T) {
	t.Helper()
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, func(u *unstructured.Unstructured) bool {
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		return observed == u.GetGeneration() && ready(t, u)["status"] == "True"
	})
}

func TestAHoldThatIsNotHandledYetIsWaitedFor(t *testing.T) {
	l := lab.Alone(t)
	s := live(t, l)
	commit := s.push(t, "two")
	s.moveTo(t, commit)
	s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, lab.Applied(commit))
	s.settled(t)
	l.KustomizeController.Stop(t)
	_, err := s.client.Suspend(t.Context(), s.ref)
	require.NoError(t, err)
	tr := lab.NewTransport()
	s.client = s.through(t, tr)

	for _, wait := range []time.Duration{-1, 50 * time.Millisecond} {
		ask := s.ask(commit)
		ask.Wait = wait
		err := s.requireRefused(t, tr, ask)
		require.ErrorIs(t, err, applier.ErrBusy)
		assert.False(t, applier.IsPermanent(err), "%v", err)
		assert.ErrorContains(t, err, "is kustomize-controller running?")
	}

	tr.Reset()
	ask := s.ask(commit)
	tr.On(lab.To("watch", "kustomizations"), 1, lab.After(func() { l.KustomizeController.Start(t) }))
	end, err := s.apply(t, ask)

	require.NoError(t, err)
	assert.Equal(t, commit, end.AppliedCommit)
	s.requireHeld(t)
}

func TestARequestReturnsSoonAfterItsContextEnds(t *testing.T) {
	l := lab.Alone(t)
	s := held(t, l)
	l.SourceController.Stop(t)
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	tr.On(lab.To("watch", "gitrepositories"), 1, lab.After(func() { cancel(assert.AnError) }))

	_, err := s.client.Request(ctx, s.ref, s.ask(s.push(t, "two")))

	require.ErrorIs(t, err, assert.AnError)
	assert.ErrorContains(t, err, "GitRepository "+s.ns+"/app in cluster lab did not fetch")
	assert.Zero(t, tr.Count(toKustomizations))
	s.requireHeld(t)
}

func TestAnAskWaitsForTheOperationBeforeIt(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	states := s.states(t)
	first, err := s.client.Request(t.Context(), s.ref, s.ask(s.push(t, "two")))
	require.NoError(t, err)
	impatient := s.ask(first.Commit)
	impatient.Wait = -1
	_, err = s.client.Request(t.Context(), s.ref, impatient)
	require.ErrorIs(t, err, applier.ErrBusy)
	assert.False(t, applier.IsPermanent(err))
	assert.ErrorContains(t, err, "lib has Kustomization")

	ends := make(chan applier.Progress, 1)
	tr := lab.NewTransport()
	tr.On(lab.To("watch", "kustomizations"), 1, lab.After(func() {
		go func() { ends <- s.follow(t, client(t, s.lab.RESTConfig()), first) }()
	}))
	s.client = s.through(t, tr)
	end, err := s.apply(t, s.ask(first.Commit))

	require.NoError(t, err)
	assert.Equal(t, first.Commit, end.AppliedCommit)
	assert.Equal(t, applier.StateSucceeded, (<-ends).State)
	assert.Equal(t, []bool{true, false, true, false, true}, suspends(states()))
	s.requireHeld(t)
}

// Two processes of one host, or two asks of one process: the resume of one is no resume of the other.
func TestAnAskThatAnotherOneOvertakesIsDecidedAnew(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	commit := s.push(t, "two")
	ask := s.ask(commit)
	ask.Wait = -1
	tr := lab.NewTransport()
	var other applier.Started
	tr.On(toKustomizations, 1, lab.Before(func() {
		var err error
		other, err = client(t, s.lab.RESTConfig()).Request(t.Context(), s.ref, s.ask(commit))
		assert.NoError(t, err)
	}))
	s.client = s.through(t, tr)

	_, err := s.client.Request(t.Context(), s.ref, ask)

	require.ErrorIs(t, err, applier.ErrBusy)
	assert.False(t, applier.IsPermanent(err))
	assert.Equal(t, 1, tr.Count(toKustomizations))
	assert.NotEqual(t, ask.Token, requested(s.get(t)))
	assert.Equal(t, applier.StateSucceeded, s.follow(t, s.client, other).State)
	s.requireHeld(t)
}

// No write can keep the controller from taking up a newer artifact while the Kustomization is resumed. It is told.
func TestANewerCommitThatIsFetchedWhileOursIsAppliedIsReported(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name   string
		newer  lab.Files
		ran    lab.Condition
		is     error
		reason string
	}{
		{
			name: "and applied", newer: lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "three")},
			ran: func(u *unstructured.Unstructured) bool { return lab.Applied(attempted(u))(u) },
			is:  applier.ErrAppliedOther, reason: applier.ReasonAppliedOther,
		},
		{
			name: "and failed", newer: lab.Files{"broken.yaml": "kind: [\n"},
			ran: func(u *unstructured.Unstructured) bool { return u != nil && ready(t, u)["reason"] == "BuildFailed" },
			is:  applier.ErrFailed, reason: applier.ReasonAttemptedOther,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := held(t, l)
			commit := s.push(t, "two")
			var newer string
			tr := lab.NewTransport()
			tr.On(func(r lab.Request) bool { return toKustomizations(r) && bodyOf(t, r).Spec["suspend"] == true }, 1,
				lab.Before(func() {
					newer = s.repo.Commit(t, c.newer)
					s.moveTo(t, newer)
					s.lab.WaitFor(t, lab.Kustomizations, s.ns, s.ref.Name, func(u *unstructured.Unstructured) bool {
						return attempted(u) == newer && c.ran(u)
					})
				}))
			s.client = s.through(t, tr)

			end, err := s.apply(t, s.ask(commit))

			require.ErrorIs(t, err, c.is)
			assert.Equal(t, c.reason, end.Reason)
			assert.Contains(t, end.Message, "main@sha1:"+newer+" instead of "+applier.DescribeCommit(commit))
			if errors.Is(c.is, applier.ErrAppliedOther) {
				assert.Equal(t, "main@sha1:"+newer, end.AppliedRevision)
				assert.Equal(t, newer, end.AppliedCommit)
			}
			s.requireHeld(t)
		})
	}
}

// The newer artifact and our suspend race. Whichever is first, what is reported is what stands in the cluster.
func TestWhatIsReportedIsWhatWasAppliedWheneverANewerCommitIsFetched(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s := held(t, l, waits)
			started := s.startUnready(t)
			s.moveTo(t, s.push(t, "three"))
			s.becomeReady(t)

			end := s.follow(t, s.client, started)

			assert.Equal(t, applier.StateSucceeded, end.State, "%+v", end)
			stands := s.get(t)
			applied, _, _ := unstructured.NestedString(stands.Object, "status", "lastAppliedRevision")
			assert.Equal(t, applied, end.AppliedRevision)
			assert.Equal(t, end.AppliedCommit != started.Commit, end.Reason == applier.ReasonAppliedOther)
			assert.Equal(t, map[bool]string{true: "one", false: "three"}[end.AppliedCommit == started.Commit], s.value(t))
			s.requireHeld(t)
		})
	}
}

// attempted is the commit that was last attempted.
func attempted(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	revision, _, _ := unstructured.NestedString(u.Object, "status", "lastAttemptedRevision")
	return gitref.CommitOf(revision)
}
