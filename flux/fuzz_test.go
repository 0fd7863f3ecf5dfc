package flux

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// decoded is an object as the dynamic client would hand it over, if it did.
func decoded(text []byte) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if json.Unmarshal(text, &u.Object) != nil {
		return nil
	}
	return u
}

// FuzzParseKustomization judges any object as any operation's Kustomization: nothing panics, and the laws hold.
func FuzzParseKustomization(f *testing.F) {
	for _, text := range []string{wholeKustomization, heldKustomization, `{}`, `null`, `{"spec": {"suspend": 1}}`, `{"status": {"history": [1], "conditions": [{}]}}`} {
		f.Add([]byte(text), resume, commitA, settle, uint8(0))
	}
	f.Add([]byte(heldKustomization), "t", commitA, "t", uint8(0xff))
	f.Fuzz(func(t *testing.T, text []byte, token, commit, suspendToken string, flags uint8) {
		u := decoded(text)
		if u == nil {
			return
		}
		before := u.DeepCopy()
		ks, err := parseKustomization(u)
		assert.Equal(t, before, u, "what a watch shows is not changed")
		if err != nil {
			return
		}
		again, err := parseKustomization(u)
		require.NoError(t, err)
		require.Equal(t, ks, again)
		_ = ks.lastApply()
		require.Equal(t, ks.suspended, keeper(ks) != "" || (ks.suspended && hasEmptyName(ks.owners)))

		o := operation{named: "it", options: judging, started: applier.Started{Outcome: applier.OutcomeResumed, Token: token, Commit: commit, SuspendToken: suspendToken}}
		if flags&1 != 0 {
			o.started.Outcome = applier.OutcomeStamped
		}
		o.started.Recovered, o.started.Overdue = flags&2 != 0, flags&4 != 0
		if flags&8 != 0 {
			o.started.Unconfirmed = applier.ErrUnconfirmed
		}
		if flags&16 != 0 {
			o.before, o.known = baselineOf(after()), true
		}
		if flags&32 != 0 {
			o.before, o.known = baselineOf(ks), true
		}
		requireLawful(t, o, ks)

		c := &Client{cluster: "prod", options: judging}
		if p, more := c.releasing(ks); more {
			require.True(t, judging.heldByUs(ks.owners))
			require.True(t, p.guarded)
			require.Empty(t, p.token)
			if p.suspend != nil {
				require.False(t, *p.suspend)
				require.Empty(t, judging.appliedElsewhere(ks.owners), "what another applies is not fought over")
			}
		}
	})
}

// requireLawful checks what has to hold of a judgement, whatever was judged.
func requireLawful(t *testing.T, o operation, ks kustomization) {
	p, suspend := o.where(ks)
	if suspend {
		require.Zero(t, p)
		require.Equal(t, applier.OutcomeResumed, o.started.Outcome, "a live Kustomization is never suspended")
		require.Empty(t, judging.appliedElsewhere(ks.owners), "what another applies is not fought over")
		return
	}
	require.NotEmpty(t, p.State)
	require.Equal(t, o.started.SuspendToken, p.SuspendToken)
	if p.State == applier.StateSucceeded {
		require.True(t, o.known && o.before.ranSince(ks), "a success is a run since the request")
		require.Equal(t, "True", ks.ready.status)
		require.Equal(t, ks.lastApplied, p.AppliedRevision)
		require.Equal(t, gitref.CommitOf(ks.lastApplied), p.AppliedCommit)
		if p.AppliedCommit != o.started.Commit {
			require.Equal(t, applier.ReasonAppliedOther, p.Reason)
		}
	} else {
		require.Empty(t, p.AppliedRevision)
	}
	if p.State.Ended() && o.started.Outcome == applier.OutcomeResumed && judging.appliedElsewhere(ks.owners) == "" {
		require.True(t, ks.suspended && judging.heldByUs(ks.owners), "no operation ends with its Kustomization left resumed")
	}
}

func hasEmptyName(o owners) bool {
	for _, name := range append(o.applied, o.updated...) {
		if name == "" {
			return true
		}
	}
	return false
}

// FuzzParseGitRepository reads any object as a GitRepository.
func FuzzParseGitRepository(f *testing.F) {
	f.Add([]byte(gitRepositoryAtB), commitB)
	f.Add([]byte(`{"spec": {"url": "https://a:b@c", "ref": {"name": "refs/heads/"}}, "status": {"conditions": [{"type": "Ready", "message": "https://a:b@c"}]}}`), "")
	f.Fuzz(func(t *testing.T, text []byte, commit string) {
		u := decoded(text)
		if u == nil {
			return
		}
		repository, err := parseGitRepository(u)
		if err != nil {
			return
		}
		if branch, err := repository.ref.followed(); err == nil {
			require.NotEmpty(t, branch)
		}
		if repository.holds(commit) {
			require.True(t, gitref.IsCommit(commit))
			require.Equal(t, commit, gitref.CommitOf(repository.artifact))
		}
		_ = repository.fetched(commit, repository)
	})
}

// FuzzParseBaseline reads any text as a record's baseline.
func FuzzParseBaseline(f *testing.F) {
	for _, text := range []string{"", "null", "{}", baselineOf(after()).String(), `{"resourceVersion":"1","ready":"x"}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, known, err := parseBaseline(text)
		require.Equal(t, known, text != "" && err == nil)
		if !known {
			require.Zero(t, b)
			return
		}
		again, known, err := parseBaseline(b.String())
		require.NoError(t, err)
		require.True(t, known)
		require.Equal(t, b, again)
	})
}

// FuzzConsumers reads any object as one of a list that may name a source.
func FuzzConsumers(f *testing.F) {
	f.Add([]byte(`{"metadata": {"namespace": "ns", "name": "a"}, "spec": {"sourceRef": {"kind": "GitRepository", "name": "app"}}}`))
	f.Add([]byte(`{"spec": {"chart": {"spec": {"sourceRef": 1}}, "chartRef": {"kind": "HelmChart", "name": "x", "namespace": "y"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		u := decoded(text)
		if u == nil {
			return
		}
		c := &Client{cluster: "prod", options: judging}
		page := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*u}}
		for _, path := range [][]string{{"spec", "sourceRef"}, {"spec", "chartRef"}, {"spec", "chart", "spec", "sourceRef"}} {
			err := c.eachOf(page, helmReleaseKind, func(name types.NamespacedName, f *applier.Fields) {
				ref := sourceRef(f, name.Namespace, path...)
				if f.Err() == nil && ref.name.Namespace == "" {
					require.Empty(t, name.Namespace)
				}
			})
			if err != nil {
				require.ErrorContains(t, err, "field .")
			}
		}
	})
}
