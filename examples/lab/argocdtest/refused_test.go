package argocdtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func applicationsRule(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{lab.Applications.Group}, Resources: []string{lab.Applications.Resource}, Verbs: verbs}
}

func unset(path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) }
}

func gitSource(s string) object {
	return object{"repoURL": s, "path": ".", "targetRevision": lab.DefaultBranch}
}

func TestAnApplicationThatCannotBeAskedIsRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	elsewhere := l.Repository(t).URL()
	const itself = "syncs on its own and would undo a sync of an older commit"
	automated := func(automated object) func(*unstructured.Unstructured) {
		return lab.Set(automated, "spec", "syncPolicy", "automated")
	}
	for _, test := range []struct {
		name   string
		mutate []func(*unstructured.Unstructured)
		// happen happens to the Application afterwards.
		happen  func(*testing.T, *subject)
		ask     func(*applier.Ask)
		reason  string
		message string
		// valid is an Application that only the ask does not fit.
		valid bool
	}{
		{name: "automated: {}", mutate: []func(*unstructured.Unstructured){automated(object{})}, reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, enabled: true", mutate: []func(*unstructured.Unstructured){automated(object{"enabled": true})}, reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, enabled: null", mutate: []func(*unstructured.Unstructured){automated(object{"enabled": nil})}, reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, only prune", mutate: []func(*unstructured.Unstructured){automated(object{"prune": true})}, reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, all false but enabled", mutate: []func(*unstructured.Unstructured){automated(object{"prune": false, "selfHeal": false})}, reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{
			name: "several sources", mutate: []func(*unstructured.Unstructured){unset("spec", "source"), lab.Set([]any{
				gitSource(elsewhere), object{"repoURL": "https://charts.invalid", "chart": "db", "targetRevision": "1.2.3"},
				object{"repoURL": elsewhere, "targetRevision": lab.DefaultBranch, "ref": "values"},
			}, "spec", "sources")}, reason: applier.ReasonUnsupportedSource, message: "spec.sources",
		},
		{
			name: "several sources and automated sync", mutate: []func(*unstructured.Unstructured){
				unset("spec", "source"), lab.Set([]any{gitSource(elsewhere), gitSource(elsewhere)}, "spec", "sources"), automated(object{}),
			}, reason: applier.ReasonUnsupportedSource, message: "spec.sources",
		},
		{name: "a list of one source", mutate: []func(*unstructured.Unstructured){unset("spec", "source"), lab.Set([]any{gitSource(elsewhere)}, "spec", "sources")}, reason: applier.ReasonUnsupportedSource, message: "spec.sources"},
		{name: "a list of one source beside a source", mutate: []func(*unstructured.Unstructured){lab.Set([]any{gitSource(elsewhere)}, "spec", "sources")}, reason: applier.ReasonUnsupportedSource, message: "spec.sources"},
		{name: "no source", mutate: []func(*unstructured.Unstructured){unset("spec", "source")}, reason: applier.ReasonUnsupportedSource, message: "has no spec.source"},
		{
			name: "a source hydrator", mutate: []func(*unstructured.Unstructured){unset("spec", "source"), lab.Set(object{
				"drySource":  gitSource(elsewhere),
				"syncSource": object{"targetBranch": "hydrated", "path": "shop"},
			}, "spec", "sourceHydrator")}, reason: applier.ReasonUnsupportedSource, message: "hydrator",
		},
		{
			name: "a Helm chart", mutate: []func(*unstructured.Unstructured){lab.Set(object{"repoURL": "https://charts.invalid", "chart": "db", "targetRevision": "1.2.3"}, "spec", "source")},
			reason: applier.ReasonUnsupportedSource, message: "the Helm chart db",
		},
		{name: "HEAD", mutate: []func(*unstructured.Unstructured){lab.Set("HEAD", "spec", "source", "targetRevision")}, reason: applier.ReasonUnsupportedSource, message: "HEAD"},
		{name: "no targetRevision", mutate: []func(*unstructured.Unstructured){unset("spec", "source", "targetRevision")}, reason: applier.ReasonUnsupportedSource, message: "targetRevision"},
		{name: "a tag", mutate: []func(*unstructured.Unstructured){lab.Set("refs/tags/v1", "spec", "source", "targetRevision")}, reason: applier.ReasonUnsupportedSource, message: "refs/tags/v1"},
		{
			name: "a commit", mutate: []func(*unstructured.Unstructured){lab.Set("0123456789012345678901234567890123456789", "spec", "source", "targetRevision")},
			reason: applier.ReasonUnsupportedSource, message: "0123456789",
		},
		{
			name: "an OCI artifact", mutate: []func(*unstructured.Unstructured){lab.Set("oci://registry.invalid/shop", "spec", "source", "repoURL")},
			reason: applier.ReasonUnsupportedSource, message: "an OCI artifact",
		},
		{name: "another branch", mutate: []func(*unstructured.Unstructured){lab.Set("develop", "spec", "source", "targetRevision")}, reason: applier.ReasonSourceMismatch, message: "syncs develop of", valid: true},
		{name: "another repository", mutate: []func(*unstructured.Unstructured){lab.Set(elsewhere, "spec", "source", "repoURL")}, reason: applier.ReasonSourceMismatch, message: "syncs main of " + elsewhere, valid: true},
		{
			name: "being deleted", mutate: []func(*unstructured.Unstructured){func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) }},
			happen: func(t *testing.T, s *subject) {
				s.delete(t)
				t.Cleanup(func() { s.patch(t, object{"metadata": object{"finalizers": nil}}) })
			}, reason: applier.ReasonDeleting, message: "is being deleted",
		},
		{name: "skipped", mutate: []func(*unstructured.Unstructured){func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"argocd.argoproj.io/skip-reconcile": "true"})
		}}, reason: applier.ReasonReconcileSkipped, message: "remove the annotation"},
		{name: "skipped, by another word", mutate: []func(*unstructured.Unstructured){func(u *unstructured.Unstructured) {
			u.SetAnnotations(map[string]string{"argocd.argoproj.io/skip-reconcile": "1"})
		}}, reason: applier.ReasonReconcileSkipped, message: "remove the annotation"},
		{name: "gone", happen: func(t *testing.T, s *subject) { s.delete(t) }, reason: applier.ReasonApplierNotFound, message: "does not exist"},

		{name: "a short hash", ask: func(a *applier.Ask) { a.Commit = a.Commit[:8] }, message: "is not a full hash", valid: true},
		{name: "a tag for a commit", ask: func(a *applier.Ask) { a.Commit = "release-1" }, message: "is not a full hash", valid: true},
		{name: "a branch that looks like a hash", ask: func(a *applier.Ask) { a.Commit = "deadbeef" }, message: "is not a full hash", valid: true},
		{name: "a hash in upper case", ask: func(a *applier.Ask) { a.Commit = "DEADBEEFDEADBEEFDEADBEEFDEADBEEFDEADBEEF" }, message: "is not a full hash", valid: true},
		{name: "HEAD for a branch", ask: func(a *applier.Ask) { a.Want.Branch = "HEAD" }, message: "HEAD", valid: true},
		{name: "no token", ask: func(a *applier.Ask) { a.Token = "" }, message: "has no token", valid: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newUnsynced(t, l, test.mutate...)
			if test.happen != nil {
				test.happen(t, s)
			}
			tr := lab.NewTransport()
			s.client = s.through(t, tr)
			ask := s.ask(s.first)
			ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }
			if test.ask != nil {
				test.ask(&ask)
			}

			verdict := s.client.Validate(t.Context(), s.ref)
			started, err := s.client.Request(t.Context(), s.ref, ask)

			assert.Zero(t, started)
			require.ErrorContains(t, err, "Application "+s.ref.String()+" in cluster lab")
			assert.ErrorContains(t, err, test.message)
			assert.True(t, applier.IsPermanent(err), "%v", err)
			assert.Equal(t, test.reason, applier.VerdictReason(err))
			assert.Zero(t, tr.Count(lab.Writes), "%v", tr.Requests())
			assert.Equal(t, test.valid, verdict.OK, "%+v", verdict)
			if !test.valid {
				assert.Equal(t, test.reason, verdict.Reason)
				assert.Equal(t, err.Error(), verdict.Message)
			}
		})
	}
}

func TestAKindThatIsNotServedIsSaidToBe(t *testing.T) {
	t.Parallel()
	bare := lab.StartBare(t)
	c := client(t, bare.RESTConfig(), argocd.Options{})
	ref := types.NamespacedName{Namespace: "argocd", Name: "app"}

	verdict := c.Validate(t.Context(), ref)
	_, err := c.Request(t.Context(), ref, applier.Ask{Want: applier.Binding{Repository: "r", Branch: "main"}, Token: "t"})

	assert.Equal(t, applier.ReasonApplierNotFound, verdict.Reason)
	assert.Contains(t, verdict.Message, "is Argo CD installed there?")
	assert.Equal(t, applier.ReasonApplierNotFound, applier.VerdictReason(err))
}

func TestAnIdentityThatMayNotUpdateIsTold(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newSubject(t, l)
	s.client = client(t, l.ServiceAccount(t, s.ns, applicationsRule("get", "list", "watch")), argocd.Options{})
	before := s.get(t)

	verdict := s.client.Validate(t.Context(), s.ref)
	started, err := s.client.Request(t.Context(), s.ref, s.ask(s.first))

	assert.False(t, verdict.OK)
	assert.Equal(t, applier.ReasonForbidden, verdict.Reason)
	assert.Contains(t, verdict.Message, "grant it the verb update on applications.argoproj.io")
	assert.Equal(t, s.repo.URL(), verdict.Source.URL)
	assert.Zero(t, started)
	assert.Equal(t, applier.AbsenceForbidden, applier.AbsenceOf(err), "%v", err)
	assert.ErrorContains(t, err, "this identity may not update Application "+s.ref.String()+" in cluster lab")
	assert.Equal(t, before.Object["operation"], s.get(t).Object["operation"])
	assert.Equal(t, recordOf(before), recordOf(s.get(t)))
}

func TestAnIdentityThatMayNotReadIsTold(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newSubject(t, l)
	s.client = client(t, l.ServiceAccount(t, s.ns, applicationsRule("update")), argocd.Options{})

	verdict := s.client.Validate(t.Context(), s.ref)
	_, err := s.client.Request(t.Context(), s.ref, s.ask(s.first))

	assert.Equal(t, applier.ReasonForbidden, verdict.Reason)
	assert.Contains(t, verdict.Message, "grant it the verb get on applications.argoproj.io")
	assert.Equal(t, applier.ReasonForbidden, applier.VerdictReason(err))
}

func TestAnApplicationThatCanBeAskedIsValid(t *testing.T) {
	t.Parallel()
	l := lab.Start(t)
	s := newUnsynced(t, l, lab.Set(object{"enabled": false}, "spec", "syncPolicy", "automated"))
	s.client = client(t, l.ServiceAccount(t, s.ns, applicationsRule("get", "update")), argocd.Options{})
	before := s.get(t)

	verdict := s.client.Validate(t.Context(), s.ref)

	assert.True(t, verdict.OK, "%+v", verdict)
	assert.Equal(t, applier.ReasonSucceeded, verdict.Reason)
	assert.Equal(t, &applier.Source{URL: s.repo.URL(), Revision: "main"}, verdict.Source)
	assert.Equal(t, before.Object["spec"], s.get(t).Object["spec"])
}

func TestADecisionThatTurnsStaleStartsNothingWheneverItDoes(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	const asks = 2 // right before Record, and right before the update
	for holds := range asks {
		tr.Reset()
		asked, recorded := 0, false
		ask := s.ask(s.first)
		ask.Current = func() bool { asked++; return asked <= holds }
		ask.Record = func(context.Context, applier.Started) error { recorded = true; return nil }

		started, err := s.client.Request(t.Context(), s.ref, ask)

		require.ErrorIs(t, err, applier.ErrStale)
		assert.ErrorContains(t, err, "Application "+s.ref.String()+" in cluster lab")
		assert.Zero(t, started)
		assert.Equal(t, holds == asks-1, recorded)
		assert.Zero(t, tr.Count(lab.Writes))
	}
	ask := s.ask(s.first)
	asked := 0
	ask.Current = func() bool { asked++; return asked <= asks }
	_, err := s.apply(t, ask)
	require.NoError(t, err)
}

func TestAnOperationThatCannotBeRecordedIsNotStarted(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask(s.first)
	ask.Record = func(context.Context, applier.Started) error { return assert.AnError }

	_, err := s.client.Request(t.Context(), s.ref, ask)

	require.ErrorIs(t, err, assert.AnError)
	assert.ErrorContains(t, err, "is not asked")
	assert.Zero(t, tr.Count(lab.Writes))
}

func TestAnEmptyCommitAsksNothing(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.Start(t))
	tr := lab.NewTransport()
	s.client = s.through(t, tr)
	ask := s.ask("")
	ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }

	started, err := s.client.Request(t.Context(), s.ref, ask)

	require.NoError(t, err)
	assert.Equal(t, applier.Started{Outcome: applier.OutcomeCurrent}, started)
	assert.Zero(t, tr.Count(lab.Writes))
}

func (s *subject) delete(t testing.TB) {
	t.Helper()
	assert.NoError(t, s.lab.Dynamic().Resource(lab.Applications).Namespace(s.ns).Delete(context.Background(), s.ref.Name, metav1.DeleteOptions{}))
}
