package argocdtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

var toApplications = lab.To("update", lab.Applications.Resource)

// busy returns an Application on which an operation of alice's waits for a hook.
func busy(t *testing.T, l *lab.Lab) *subject {
	t.Helper()
	s := newSubject(t, l)
	s.operate(t, syncOf(object{"revision": s.pushHooked(t, "alice's")}))
	s.waitForHook(t)
	return s
}

func TestAnOperationOfSomebodyElsesIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := busy(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	s.repo.Remove(t, "hook.yaml")
	commit := s.push(t, "ours")
	tr.On(lab.To("watch", lab.Applications.Resource), 1, lab.After(func() {
		assert.Zero(t, tr.Count(lab.Writes))
		s.endHook(t)
	}))

	end, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	s.requireSynced(t, end, commit, "ours")
	assert.Equal(t, 3, s.syncs(t), "alice's two and ours")
}

func TestAnOperationThatNeverEndsIsNamedAndLeftAsItIs(t *testing.T) {
	t.Parallel()
	s := busy(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	before := recordOf(s.get(t))
	for _, wait := range []time.Duration{-1, 500 * time.Millisecond} {
		ask := s.ask(s.first)
		ask.Wait = wait
		ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }

		started, err := s.client.Request(t.Context(), s.ref, ask)

		assert.Zero(t, started)
		require.ErrorContains(t, err, "Application "+s.ref.String()+" in cluster lab was not asked")
		assert.ErrorContains(t, err, "started by alice")
		assert.ErrorContains(t, err, "let it end, or terminate it")
		assert.False(t, applier.IsPermanent(err))
	}
	assert.Zero(t, tr.Count(lab.Writes))
	assert.Equal(t, before, recordOf(s.get(t)))
	assert.Equal(t, alice, at(s.get(t).Object, "operation", "initiatedBy", "username"))
}

func TestAnOperationSetBetweenOurReadAndOurWriteIsWaitedForToo(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, test := range []struct {
		name string
		set  func(s *subject, revision string) object
	}{
		{"with the clear", func(s *subject, revision string) object {
			return object{"operation": syncOf(object{"revision": revision}), "status": object{"operationState": nil}}
		}},
		{"without the clear", func(s *subject, revision string) object {
			return object{"operation": syncOf(object{"revision": revision})}
		}},
		{"with a filter", func(s *subject, revision string) object {
			return object{"operation": syncOf(object{"revision": revision, "resources": []any{object{"kind": "ConfigMap", "name": "cm"}}})}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			theirs := s.push(t, "alice's")
			commit := s.push(t, "ours")
			tr.On(toApplications, 1, lab.Before(func() { s.patch(t, test.set(s, theirs)) }))
			var revisions []any
			watched := s.watch(t, func(u *unstructured.Unstructured) {
				if revision := at(recordOf(u), "syncResult", "revision"); at(u.Object, "operation") == nil && revision != nil {
					revisions = append(revisions, revision)
				}
			})

			end, err := s.apply(t, s.ask(commit))

			require.NoError(t, err)
			s.requireSynced(t, end, commit, "ours")
			assert.GreaterOrEqual(t, tr.Count(lab.Writes), 2, "the first was not refused")
			watched()
			assert.Contains(t, revisions, theirs, "alice's operation was replaced")
			assert.Nil(t, at(recordOf(s.get(t)), "operation", "sync", "resources"))
		})
	}
}

func TestAnOperationSetBetweenOurReadAndOurWriteThatNeverEndsIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	theirs := s.pushHooked(t, "alice's")
	tr.On(toApplications, 1, lab.Before(func() {
		s.operate(t, syncOf(object{"revision": theirs}))
		s.waitForHook(t)
	}))
	ask := s.ask(s.first)
	ask.Wait = 300 * time.Millisecond

	started, err := s.client.Request(t.Context(), s.ref, ask)

	assert.Zero(t, started)
	require.ErrorContains(t, err, "started by alice")
	assert.Equal(t, 1, tr.Count(lab.Writes), "it was refused")
	assert.Equal(t, theirs, at(s.get(t).Object, "operation", "sync", "revision"))
}

// The controller writes status into the object that the request updates.
func TestAChangeOfStatusBetweenOurReadAndOurWriteIsReadAgain(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, changes := range []int{1, 3, 7} { // Of ten tries: the controller may change the status as well.
		t.Run(fmt.Sprint(changes, " times"), func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			commit := s.push(t, "two")
			for n := range changes {
				tr.On(toApplications, n+1, lab.Before(func() { s.patch(t, object{"status": object{"controllerNamespace": fmt.Sprint("changed-", n)}}) }))
			}

			end, err := s.apply(t, s.ask(commit))

			require.NoError(t, err)
			s.requireSynced(t, end, commit, "two")
			assert.GreaterOrEqual(t, tr.Count(lab.Writes), changes+1)
			assert.Equal(t, 2, s.syncs(t))
		})
	}
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		s := newSubject(t, l)
		tr := lab.NewTransport()
		s.client = s.through(t, tr)
		n := 0
		tr.On(toApplications, 0, lab.Before(func() {
			n++
			s.patch(t, object{"status": object{"controllerNamespace": fmt.Sprint("changed-", n)}})
		}))

		started, err := s.client.Request(t.Context(), s.ref, s.ask(s.first))

		assert.Zero(t, started)
		require.ErrorContains(t, err, "it changed at each of 10 tries")
		assert.False(t, applier.IsPermanent(err))
		assert.Equal(t, 10, n)
		assert.Nil(t, s.get(t).Object["operation"])
	})
}

// abandon removes the .operation of an operation that waits for a hook, and leaves its record.
func (s *subject) abandon(t *testing.T) {
	t.Helper()
	s.patch(t, object{"operation": nil})
}

func TestARecordLeftInProgressIsReplacedAfterTheWait(t *testing.T) {
	t.Parallel()
	s := busy(t, lab.Start(t))
	s.abandon(t)
	s.repo.Remove(t, "hook.yaml")
	commit := s.push(t, "ours")
	ask := s.ask(commit)

	ask.Wait = -1
	_, err := s.client.Request(t.Context(), s.ref, ask)
	require.ErrorContains(t, err, "started by alice: somebody removed its .operation")

	ask.Wait = 3 * time.Second
	var seen []applier.Progress
	end, err := impatient.Apply(t.Context(), s.client, s.ref, ask, func(p applier.Progress) { seen = append(seen, p) })

	require.NoError(t, err)
	s.requireSynced(t, end, commit, "ours")
	require.NotEmpty(t, seen)
	for _, p := range seen {
		assert.Contains(t, p.Message, "it replaced an operation of alice that was left in progress")
	}
}

func TestARecordLeftInProgressToWhichAPassInFlightStillWritesIsNotReplaced(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	theirs := s.pushWaves(t, "alice's")
	s.operate(t, syncOf(object{"revision": theirs}))
	s.waitForFirstWave(t, "alice's")
	s.abandon(t)
	commit := s.push(t, "ours")
	ask := s.ask(commit)
	ask.Wait = 5 * time.Second

	started, err := s.client.Request(t.Context(), s.ref, ask)

	assert.Zero(t, started)
	require.ErrorContains(t, err, "a request that finds it unchanged for all of its wait replaces it")
	assert.Nil(t, s.get(t).Object["operation"])
	assert.Equal(t, alice, at(recordOf(s.get(t)), "operation", "initiatedBy", "username"))

	end, err := s.apply(t, ask)
	require.NoError(t, err)
	s.requireSynced(t, end, commit, "ours")
	assert.Contains(t, end.Message, "replaced")
}

// A wait that is shorter than a pass takes an operation in progress for one that was left.
func TestAPassInFlightThatSwallowsOurOperationIsReported(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	theirs := s.pushWaves(t, "alice's")
	s.operate(t, syncOf(object{"revision": theirs}))
	s.waitForFirstWave(t, "alice's")
	s.abandon(t)
	commit := s.push(t, "ours")
	ask := s.ask(commit)
	ask.Wait = 100 * time.Millisecond

	end, err := s.apply(t, ask)

	require.ErrorIs(t, err, applier.ErrFailed)
	assert.Equal(t, applier.ReasonSwallowed, end.Reason, "%+v", end)
	assert.Contains(t, end.Message, "dropped this one")
	assert.Contains(t, end.Message, "left in progress")
	assert.Equal(t, "alice's", s.value(t))
	assert.Nil(t, s.get(t).Object["operation"], "it was sent again")

	end, err = s.apply(t, s.ask(commit))
	require.NoError(t, err)
	s.requireSynced(t, end, commit, "ours")
}

// Two requests of one host for one Application are one after the other, and both told the truth.
func TestTwoRequestsAtOnceAreBothCarriedOut(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	commits := []string{s.push(t, "two"), s.push(t, "three")}
	ends := make([]applier.Progress, len(commits))
	errs := make([]error, len(commits))
	done := make(chan struct{})
	for i, commit := range commits {
		go func() {
			ends[i], errs[i] = s.apply(t, s.ask(commit))
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	for i, commit := range commits {
		// The record of the first is replaced as soon as the second is asked for, which may be before its end was read.
		if ends[i].Reason == applier.ReasonSuperseded {
			continue
		}
		require.NoError(t, errs[i])
		assert.Equal(t, commit, ends[i].AppliedCommit)
	}
	assert.Equal(t, 3, s.syncs(t))
}

// watch calls see with each state of the Application until the function that it returns is called.
func (s *subject) watch(t *testing.T, see func(*unstructured.Unstructured)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := s.lab.Dynamic().Resource(lab.Applications).Namespace(s.ns).Watch(ctx, only(s.ref.Name))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if u, ok := event.Object.(*unstructured.Unstructured); ok {
				see(u)
			}
		}
	}()
	return func() {
		cancel()
		watcher.Stop()
		<-done
	}
}
