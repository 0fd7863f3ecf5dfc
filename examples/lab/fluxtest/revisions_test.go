package fluxtest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestACommitIsRecognisedHoweverFluxSpellsItsRevision(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name string
		// ref is the GitRepository's, want the branch that the ask names.
		ref      map[string]any
		branch   string
		want     string
		revision string
	}{
		{
			name: "a branch", ref: map[string]any{"branch": "main"},
			branch: "main", want: "main", revision: "main@sha1:",
		},
		{
			name: "a branch that is asked for by its full name", ref: map[string]any{"branch": "main"},
			branch: "main", want: "refs/heads/main", revision: "main@sha1:",
		},
		{
			name: "the full name of a branch", ref: map[string]any{"name": "refs/heads/main"},
			branch: "main", want: "main", revision: "refs/heads/main@sha1:",
		},
		{
			name: "the full name of a branch, asked for by it", ref: map[string]any{"name": "refs/heads/main"},
			branch: "main", want: "refs/heads/main", revision: "refs/heads/main@sha1:",
		},
		{
			name: "a name wins over a branch", ref: map[string]any{"name": "refs/heads/main", "branch": "other"},
			branch: "main", want: "main", revision: "refs/heads/main@sha1:",
		},
		{
			name:   "no ref at all",
			branch: "master", want: "master", revision: "master@sha1:",
		},
		{
			name: "a branch with a slash and an at sign", ref: map[string]any{"branch": "feat/x@y"},
			branch: "feat/x@y", want: "feat/x@y", revision: "feat/x@y@sha1:",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := unfetched(t, l, l.Repository(t), func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "ref")
				if c.ref != nil {
					lab.Set(c.ref, "spec", "ref")(u)
				}
			})
			for _, value := range []string{"two", "three"} {
				ask := s.ask(s.repo.CommitTo(t, c.branch, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", value)}))
				ask.Want.Branch = c.want

				end, err := s.apply(t, ask)

				require.NoError(t, err)
				assert.Equal(t, c.revision+ask.Commit, end.AppliedRevision)
				assert.Equal(t, ask.Commit, end.AppliedCommit)
				assert.Equal(t, value, s.value(t))
			}
			again := s.ask(s.repo.Head(t, c.branch))
			again.Want.Branch, again.Reason = c.want, applier.CatchUp
			end, err := s.apply(t, again)
			require.NoError(t, err)
			assert.Equal(t, applier.ReasonCurrent, end.Reason)
			s.requireHeld(t)
		})
	}
}

// unfetched returns a Kustomization that is held from its creation on and has applied nothing, and a source that has
// fetched nothing.
func unfetched(t *testing.T, l *lab.Lab, repo *lab.Repository, mutate ...func(*unstructured.Unstructured)) *subject {
	t.Helper()
	s := &subject{lab: l, ns: l.Namespace(t), repo: repo, client: client(t, l.RESTConfig())}
	s.ref.Namespace, s.ref.Name = s.ns, "app"
	l.Kustomization(t, s.ns, "app", "app", lab.Set(true, "spec", "suspend"))
	s.hold(t)
	l.GitRepository(t, s.ns, "app", repo, mutate...)
	return s
}

func TestAnotherBranchThanTheAskNamesIsRefused(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, c := range []struct {
		name    string
		ref     map[string]any
		want    string
		reason  string
		message string
	}{
		{name: "another branch", ref: map[string]any{"branch": "release"}, want: "main", reason: applier.ReasonSourceMismatch, message: "applies branch release"},
		{name: "master, where none is named", want: "main", reason: applier.ReasonSourceMismatch, message: "applies branch master"},
		{name: "a tag", ref: map[string]any{"tag": "v1"}, want: "main", reason: applier.ReasonUnsupportedSource, message: "spec.ref.tag"},
		{name: "a tag over a branch", ref: map[string]any{"tag": "v1", "branch": "main"}, want: "main", reason: applier.ReasonUnsupportedSource, message: "spec.ref.tag"},
		{name: "a tag by its full name", ref: map[string]any{"name": "refs/tags/main"}, want: "main", reason: applier.ReasonUnsupportedSource, message: "refs/tags/main"},
		{name: "a range of versions", ref: map[string]any{"semver": ">=1.0.0"}, want: "main", reason: applier.ReasonUnsupportedSource, message: "spec.ref.semver"},
		{
			name: "a commit on the branch", ref: map[string]any{"branch": "main", "commit": "0123456789012345678901234567890123456789"},
			want: "main", reason: applier.ReasonUnsupportedSource, message: "spec.ref.commit",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := l.Repository(t)
			commit := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")})
			s := unfetched(t, l, repo, func(u *unstructured.Unstructured) {
				unstructured.RemoveNestedField(u.Object, "spec", "ref")
				if c.ref != nil {
					lab.Set(c.ref, "spec", "ref")(u)
				}
			})
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			ask := s.ask(commit)
			ask.Want.Branch = c.want

			err := s.requireRefused(t, tr, ask)

			assert.Equal(t, c.reason, applier.VerdictReason(err), "%v", err)
			assert.True(t, applier.IsPermanent(err))
			assert.ErrorContains(t, err, c.message)
			assert.Zero(t, tr.Count(lab.Writes))
		})
	}
}

// The pass that only adds the finalizer handles the token, and Ready is True before the artifact shows (source-controller
// v1.9.4). Neither is a fetch that brought nothing.
func TestASourceThatIsAskedBeforeItsControllerSawItIsWaitedFor(t *testing.T) {
	l := lab.Alone(t)
	repo := l.Repository(t)
	commit := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")})
	l.SourceController.Stop(t)
	s := unfetched(t, l, repo)
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	tr.On(lab.To("watch", "gitrepositories"), 1, lab.After(func() { l.SourceController.Start(t) }))

	end, err := s.apply(t, s.ask(commit))

	require.NoError(t, err)
	assert.Equal(t, commit, end.AppliedCommit)
	s.requireHeld(t)
}

func TestASourceInAnotherNamespaceIsFetchedThere(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	for _, liveAsk := range []bool{false, true} {
		t.Run(map[bool]string{false: "held", true: "live"}[liveAsk], func(t *testing.T) {
			t.Parallel()
			repo, sources := l.Repository(t), l.Namespace(t)
			s := &subject{lab: l, ns: l.Namespace(t), repo: repo, client: client(t, l.RESTConfig())}
			s.ref.Namespace, s.ref.Name = s.ns, "app"
			s.first = s.push(t, "one")
			l.GitRepository(t, sources, "shared", repo)
			l.Kustomization(t, s.ns, "app", "shared", lab.Set(sources, "spec", "sourceRef", "namespace"))
			l.WaitFor(t, lab.Kustomizations, s.ns, "app", lab.Applied(s.first))
			if !liveAsk {
				s.hold(t)
			}
			ask := s.ask(s.push(t, "two"))
			ask.Live = liveAsk

			end, err := s.apply(t, ask)

			require.NoError(t, err)
			assert.Equal(t, "main@sha1:"+ask.Commit, end.AppliedRevision)
			assert.Equal(t, "two", s.value(t))
		})
	}
}

// source-controller v1.9.4 cannot fetch such a repository. What it says is what is reported.
func TestARepositoryOfSHA256CommitsIsRefusedInFluxsOwnWords(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	repo := l.RepositoryOf(t, lab.SHA256)
	commit := repo.Commit(t, lab.Files{"cm.yaml": lab.ConfigMap("cm", "key", "two")})
	require.Len(t, commit, 64)
	s := unfetched(t, l, repo)
	tr := lab.NewTransport()
	s.client = s.through(t, tr)

	err := s.requireRefused(t, tr, s.ask(commit))

	require.ErrorContains(t, err, "GitOperationFailed")
	assert.ErrorContains(t, err, "object-format=sha256")
	assert.False(t, applier.IsPermanent(err))
}
