package fluxtest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestPrefetchMakesTheSourceFetchAndAppliesNothing(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	commit := s.push(t, "two")
	before := s.get(t).GetResourceVersion()
	faults := lab.NewTransport()
	source := s.lab.Get(t, lab.GitRepositories, s.ns, "app")

	require.NoError(t, s.through(t, faults).Prefetch(t.Context(), s.ref, s.ref, commit))

	fetched := s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(commit))
	assert.Equal(t, map[string]string{manager: "Apply"}, managersOf(t, fetched, "f:metadata", "f:annotations", "f:"+requestedAt))
	assert.Equal(t, source.Object["spec"], fetched.Object["spec"])
	assert.Equal(t, before, s.get(t).GetResourceVersion(), "the Kustomization was not touched")
	assert.Equal(t, "one", s.value(t))
	assert.Equal(t, 1, faults.Count(lab.Writes))
	requireUID(t, faults, fetched.GetUID())

	err := s.client.Prefetch(t.Context(), s.ref, s.ref, commit)
	require.ErrorIs(t, err, applier.ErrNotPrefetched)
	assert.ErrorContains(t, err, "GitRepository "+s.ref.String()+" in cluster lab holds "+applier.DescribeCommit(commit))
	assert.Equal(t, fetched.GetResourceVersion(), s.lab.Get(t, lab.GitRepositories, s.ns, "app").GetResourceVersion())
}

func TestPrefetchLeavesASourceAloneWhoseConsumersNobodyChecked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ repoint, message string }{
		"another source":                    {repoint: `{"spec":{"sourceRef":{"name":"other"}}}`},
		"one of that name elsewhere":        {repoint: `{"spec":{"sourceRef":{"namespace":"kube-system"}}}`},
		"another source that is not there":  {repoint: `{"spec":{"sourceRef":{"name":"missing"}}}`},
		"another source of its own commits": {repoint: `{"spec":{"sourceRef":{"name":"pinned"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t))
			s.lab.GitRepository(t, s.ns, "other", s.repo)
			s.lab.GitRepository(t, s.ns, "pinned", s.repo, lab.Set(s.first, "spec", "ref", "commit"))
			s.as(t, "kubectl", test.repoint)
			faults := lab.NewTransport()

			err := s.through(t, faults).Prefetch(t.Context(), s.ref, s.ref, s.push(t, "two"))

			require.ErrorIs(t, err, applier.ErrPrefetchHeld)
			assert.ErrorContains(t, err, "Kustomization "+s.ref.String()+" in cluster lab applies GitRepository ")
			assert.ErrorContains(t, err, "now, not "+s.ref.String())
			assert.False(t, applier.IsPermanent(err))
			assert.Zero(t, faults.Count(lab.Writes))
		})
	}
}

func TestPrefetchRefusesWhatItCannotFetch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given   func(t *testing.T, s *subject)
		commit  string
		reason  string
		message string
	}{
		"a missing Kustomization": {
			given:  func(t *testing.T, s *subject) { s.delete(t) },
			reason: applier.ReasonApplierNotFound, message: "Kustomization {ref} in cluster lab does not exist",
		},
		"a missing source": {
			given: func(t *testing.T, s *subject) {
				require.NoError(t, s.lab.Dynamic().Resource(lab.GitRepositories).Namespace(s.ns).Delete(t.Context(), "app", metav1.DeleteOptions{}))
				s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Gone)
			},
			reason: applier.ReasonUnsupportedSource, message: "Kustomization {ref} in cluster lab: GitRepository {ref} in cluster lab does not exist",
		},
		"a commit that is none": {
			given:   func(*testing.T, *subject) {},
			commit:  "c408ce6b",
			message: `GitRepository {ref} in cluster lab is not asked to fetch: "c408ce6b" is not a full hash of 40 or 64 lower-case hex digits`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := held(t, lab.Start(t))
			test.given(t, s)
			commit := test.commit
			if commit == "" {
				commit = s.push(t, "two")
			}
			faults := lab.NewTransport()

			err := s.through(t, faults).Prefetch(t.Context(), s.ref, s.ref, commit)

			require.EqualError(t, err, strings.ReplaceAll(test.message, "{ref}", s.ref.String()))
			assert.Equal(t, test.reason, applier.VerdictReason(err))
			assert.True(t, applier.IsPermanent(err))
			assert.Zero(t, faults.Count(lab.Writes))
		})
	}
}

func TestPrefetchOfASourceThatGoesMeanwhileCreatesNone(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	faults := lab.NewTransport()
	faults.On(lab.To("apply", "gitrepositories"), 1, lab.Before(func() {
		assert.NoError(t, s.lab.Dynamic().Resource(lab.GitRepositories).Namespace(s.ns).Delete(t.Context(), "app", metav1.DeleteOptions{}))
		s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Gone)
	}))

	err := s.through(t, faults).Prefetch(t.Context(), s.ref, s.ref, s.push(t, "two"))

	require.ErrorContains(t, err, "GitRepository "+s.ref.String()+" in cluster lab was not asked to fetch: it is gone or was replaced")
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Gone)
}

func TestPrefetchWithoutAnAnswerIsUnconfirmed(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	faults := lab.NewTransport()
	faults.On(lab.To("apply", "gitrepositories"), 1, lab.LoseResponse())
	commit := s.push(t, "two")

	err := s.through(t, faults).Prefetch(t.Context(), s.ref, s.ref, commit)

	require.ErrorIs(t, err, applier.ErrUnconfirmed)
	s.lab.WaitFor(t, lab.GitRepositories, s.ns, "app", lab.Fetched(commit))
}

// A source in another namespace is that of sourceRef.namespace.
func TestPrefetchStampsASourceInAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := held(t, lab.Start(t))
	other := types.NamespacedName{Namespace: s.lab.Namespace(t), Name: "app"}
	s.lab.GitRepository(t, other.Namespace, "app", s.repo)
	s.lab.WaitFor(t, lab.GitRepositories, other.Namespace, "app", lab.Fetched(s.first))
	s.as(t, "kubectl", `{"spec":{"sourceRef":{"namespace":"`+other.Namespace+`"}}}`)
	commit := s.push(t, "two")

	require.NoError(t, s.client.Prefetch(t.Context(), s.ref, other, commit))

	s.lab.WaitFor(t, lab.GitRepositories, other.Namespace, "app", lab.Fetched(commit))
}
