package argocdtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// hand is what somebody does to the Application between two requests of ours.
type hand struct {
	name string
	do   func(t *testing.T, s *subject)
	// refused says whether an error of Request is one that this may bring.
	refused func(err error) bool
	// reasons are those of an end that this may bring, beside that of success.
	reasons []string
	// left checks what it left.
	left func(t *testing.T, a *attempt, r result)
}

func reasoned(reason string) func(error) bool {
	return func(err error) bool { return applier.VerdictReason(err) == reason }
}

var hands = []hand{
	{
		name: "deleted",
		do:   func(t *testing.T, s *subject) { s.delete(t) },
		refused: func(err error) bool {
			return applier.VerdictReason(err) == applier.ReasonApplierNotFound || applier.AbsenceOf(err) == applier.AbsenceNotFound
		},
		reasons: []string{applier.ReasonGone},
		left: func(t *testing.T, a *attempt, _ result) {
			a.lab.WaitFor(t, lab.Applications, a.ns, a.ref.Name, lab.Gone)
		},
	},
	{
		name:    "replaced",
		do:      func(t *testing.T, s *subject) { s.delete(t); s.lab.Application(t, s.ns, s.ref.Name, s.repo) },
		refused: func(err error) bool { return errors.Is(err, applier.ErrStale) },
		reasons: []string{applier.ReasonReplaced},
		left: func(t *testing.T, a *attempt, r result) {
			u := a.get(t)
			if r.started.UID != u.GetUID() {
				assert.NotEqual(t, a.ask.Token, tokenOf(u.Object["operation"]), "another object is asked")
				assert.NotEqual(t, a.ask.Token, tokenOf(recordOf(u)["operation"]), "another object was asked")
			}
		},
	},
	{
		name: "retargeted to another branch",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"spec": object{"source": object{"targetRevision": "develop"}}})
		},
		refused: reasoned(applier.ReasonSourceMismatch),
		left: func(t *testing.T, a *attempt, r result) {
			assert.Equal(t, "develop", at(a.get(t).Object, "spec", "source", "targetRevision"), "the spec was written over")
		},
	},
	{
		name: "retargeted to another repository",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"spec": object{"source": object{"repoURL": s.repo.URL() + "-elsewhere"}}})
		},
		refused: reasoned(applier.ReasonSourceMismatch),
		left: func(t *testing.T, a *attempt, r result) {
			assert.Equal(t, a.repo.URL()+"-elsewhere", at(a.get(t).Object, "spec", "source", "repoURL"), "the spec was written over")
		},
	},
	{
		name: "given several sources",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"spec": object{"sources": []any{gitSource(s.repo.URL()), gitSource(s.repo.URL())}}})
		},
		refused: reasoned(applier.ReasonUnsupportedSource),
	},
	{
		name: "made to sync on its own",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"spec": object{"syncPolicy": object{"automated": object{"enabled": true}}}})
		},
		refused: reasoned(applier.ReasonAutomatedSyncEnabled),
		reasons: []string{applier.ReasonSuperseded},
	},
	{
		name: "skipped",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"metadata": object{"annotations": object{"argocd.argoproj.io/skip-reconcile": "true"}}})
		},
		refused: func(err error) bool {
			return applier.VerdictReason(err) == applier.ReasonReconcileSkipped || errors.Is(err, context.DeadlineExceeded)
		},
		reasons: []string{"not followed to an end"},
	},
	{
		name: "being deleted",
		do: func(t *testing.T, s *subject) {
			s.patch(t, object{"metadata": object{"finalizers": []any{"example.com/hold"}}})
			s.delete(t)
		},
		refused: reasoned(applier.ReasonDeleting),
		left: func(t *testing.T, a *attempt, _ result) {
			assert.NotNil(t, a.get(t).GetDeletionTimestamp())
			a.patch(t, object{"metadata": object{"finalizers": nil}})
		},
	},
}

func TestWhatSomebodyDoesBetweenAnyTwoRequestsIsNeitherOverwrittenNorMisreported(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, h := range hands {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			first := newUnsynced(t, l).attempt(t)
			first.requireSucceeded(t, first.run(t))
			for n, request := range first.faults.Requests() {
				for name, when := range map[string]func(func()) lab.Action{"before": lab.Before, "after": lab.After} {
					t.Run(fmt.Sprintf("%s %d %s", name, n+1, request.Verb), func(t *testing.T) {
						s := newUnsynced(t, l)
						s.repo.CommitTo(t, "develop", lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "develop")})
						a := s.attempt(t)
						a.faults.On(lab.Any, n+1, when(func() { h.do(t, s) }))
						h.requireLawful(t, a)
					})
				}
			}
		})
	}
}

func (h hand) requireLawful(t *testing.T, a *attempt) {
	t.Helper()
	var r result
	if h.name == "skipped" { // then nobody may carry it out any more
		r = a.runBriefly(t)
	} else {
		r = a.run(t)
	}
	switch {
	case r.refused != nil:
		assert.True(t, h.refused(r.refused), "%v", r.refused)
		assert.ErrorContains(t, r.refused, "Application "+a.ref.String()+" in cluster lab")
		assert.Zero(t, r.started)
	case r.err != nil:
		assert.Contains(t, h.reasons, "not followed to an end", "%v, %+v", r.err, r.end)
	case r.end.State == applier.StateSucceeded:
		assert.Equal(t, a.commit, r.end.AppliedCommit, "%+v", r.end)
		assert.Equal(t, "Succeeded", r.end.Reason)
	default:
		assert.Contains(t, h.reasons, r.end.Reason, "%+v", r.end)
	}
	if h.left != nil {
		h.left(t, a, r)
	}
}

// The source of an operation is its own: what the spec says later does not change what is synced.
func TestARetargetingWhileASyncRunsDoesNotChangeWhatIsSynced(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for name, spec := range map[string]object{
		"another branch":     {"source": object{"targetRevision": "develop"}},
		"another path":       {"source": object{"path": "elsewhere"}},
		"another repository": {"source": object{"repoURL": "http://127.0.0.1:1/nowhere.git"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSubject(t, l)
			s.repo.CommitTo(t, "develop", lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "develop")})
			commit := s.pushHooked(t, "two")
			started := s.request(t, s.ask(commit))
			s.waitForHook(t)
			s.patch(t, object{"spec": spec})
			s.endHook(t)

			end := s.follow(t, started)

			s.requireSynced(t, end, commit, "two")
		})
	}
}

func TestAnApplicationThatIsDeletedWhileItsSyncRunsEndsIt(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	t.Run("gone", func(t *testing.T) {
		t.Parallel()
		s := newSubject(t, l)
		started := s.request(t, s.ask(s.pushHooked(t, "two")))
		s.waitForHook(t)
		s.delete(t)
		end := s.follow(t, started)
		assert.Equal(t, applier.StateFailed, end.State)
		assert.Equal(t, applier.ReasonGone, end.Reason)
		assert.Contains(t, end.Message, "Application "+s.ref.String()+" in cluster lab no longer exists")
	})
	t.Run("replaced", func(t *testing.T) {
		t.Parallel()
		s := newSubject(t, l)
		started := s.request(t, s.ask(s.pushHooked(t, "two")))
		s.waitForHook(t)
		s.delete(t)
		l.Application(t, s.ns, s.ref.Name, s.repo)
		end := s.follow(t, started)
		assert.Equal(t, applier.ReasonReplaced, end.Reason)
	})
	t.Run("being deleted: the operation goes on", func(t *testing.T) {
		t.Parallel()
		s := newSubject(t, l, func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) })
		t.Cleanup(func() { s.patch(t, object{"metadata": object{"finalizers": nil}}) })
		commit := s.pushHooked(t, "two")
		started := s.request(t, s.ask(commit))
		s.waitForHook(t)
		s.delete(t)
		p, err := s.client.Progress(t.Context(), s.ref, &started)
		require.NoError(t, err)
		assert.Equal(t, applier.StateRunning, p.State)
		s.endHook(t)
		end := s.follow(t, started)
		s.requireSynced(t, end, commit, "two")
	})
}
