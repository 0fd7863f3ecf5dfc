package fake_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
)

func unset(path ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) }
}

// through returns a client of a host's, whose requests are those of a view.
func (w *argoWorld) through(view dynamic.Interface) *argocd.Client {
	w.Helper()
	client, err := argocd.New("prod", view, argocd.Options{Initiator: "acme"})
	require.NoError(w, err)
	return client
}

// writesOf are the changes of Applications that a view asked for.
func writesOf(view *fake.View) int {
	n := 0
	for _, r := range view.Requests() {
		if r.Resource == applications.Resource && r.Verb != "get" && r.Verb != "watch" {
			n++
		}
	}
	return n
}

func TestAnApplicationThatCannotBeAskedIsRefusedAndNothingIsWritten(t *testing.T) {
	const elsewhere = "https://git.example.com/acme/elsewhere"
	source := func(url string) fields { return fields{"repoURL": url, "path": ".", "targetRevision": "main"} }
	automated := func(policy fields) []func(*unstructured.Unstructured) {
		return []func(*unstructured.Unstructured){set(policy, "spec", "syncPolicy", "automated")}
	}
	with := func(mutate ...func(*unstructured.Unstructured)) []func(*unstructured.Unstructured) { return mutate }
	const itself = "syncs on its own and would undo a sync of an older commit"
	for _, test := range []struct {
		name   string
		mutate []func(*unstructured.Unstructured)
		// happen happens to the Application afterwards.
		happen  func(*argoWorld)
		ask     func(*applier.Ask)
		reason  string
		message string
		// valid is an Application that only the ask does not fit.
		valid bool
	}{
		{name: "automated: {}", mutate: automated(fields{}), reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, enabled: true", mutate: automated(fields{"enabled": true}), reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, enabled: null", mutate: automated(fields{"enabled": nil}), reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{name: "automated, only prune", mutate: automated(fields{"prune": true}), reason: applier.ReasonAutomatedSyncEnabled, message: itself},
		{
			name: "automated, all false but enabled", mutate: automated(fields{"prune": false, "selfHeal": false}),
			reason: applier.ReasonAutomatedSyncEnabled, message: itself,
		},
		{
			name: "several sources", mutate: with(unset("spec", "source"), set([]any{source(elsewhere), source(repositoryURL)}, "spec", "sources")),
			reason: applier.ReasonUnsupportedSource, message: "spec.sources",
		},
		{
			name: "a list of one source", mutate: with(unset("spec", "source"), set([]any{source(repositoryURL)}, "spec", "sources")),
			reason: applier.ReasonUnsupportedSource, message: "spec.sources",
		},
		{
			name: "a list of one source beside a source", mutate: with(set([]any{source(repositoryURL)}, "spec", "sources")),
			reason: applier.ReasonUnsupportedSource, message: "spec.sources",
		},
		{name: "no source", mutate: with(unset("spec", "source")), reason: applier.ReasonUnsupportedSource, message: "has no spec.source"},
		{
			name: "a source hydrator", mutate: with(unset("spec", "source"), set(fields{
				"drySource":  source(repositoryURL),
				"syncSource": fields{"targetBranch": "hydrated", "path": "shop"},
			}, "spec", "sourceHydrator")), reason: applier.ReasonUnsupportedSource, message: "source hydrator",
		},
		{
			name: "a Helm chart", mutate: with(set(fields{"repoURL": "https://charts.example.com", "chart": "db", "targetRevision": "1.2.3"}, "spec", "source")),
			reason: applier.ReasonUnsupportedSource, message: "the Helm chart db",
		},
		{
			name: "an OCI artifact", mutate: with(set("oci://registry.example.com/shop", "spec", "source", "repoURL")),
			reason: applier.ReasonUnsupportedSource, message: "an OCI artifact",
		},
		{name: "HEAD", mutate: with(set("HEAD", "spec", "source", "targetRevision")), reason: applier.ReasonUnsupportedSource, message: "HEAD"},
		{
			name: "no targetRevision", mutate: with(unset("spec", "source", "targetRevision")),
			reason: applier.ReasonUnsupportedSource, message: "targetRevision",
		},
		{name: "a tag", mutate: with(set("refs/tags/v1", "spec", "source", "targetRevision")), reason: applier.ReasonUnsupportedSource, message: "refs/tags/v1"},
		{
			name: "a commit", mutate: with(set("0123456789012345678901234567890123456789", "spec", "source", "targetRevision")),
			reason: applier.ReasonUnsupportedSource, message: "0123456789",
		},
		{
			name: "another branch", mutate: with(set("develop", "spec", "source", "targetRevision")),
			reason: applier.ReasonSourceMismatch, message: "syncs develop of", valid: true,
		},
		{
			name: "another repository", mutate: with(set(elsewhere, "spec", "source", "repoURL")),
			reason: applier.ReasonSourceMismatch, message: "syncs main of " + elsewhere, valid: true,
		},
		{
			name: "being deleted", mutate: with(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"example.com/hold"}) }),
			happen: (*argoWorld).delete, reason: applier.ReasonDeleting, message: "is being deleted",
		},
		{
			name: "skipped", mutate: with(func(u *unstructured.Unstructured) {
				u.SetAnnotations(map[string]string{"argocd.argoproj.io/skip-reconcile": "true"})
			}), reason: applier.ReasonReconcileSkipped, message: "remove the annotation",
		},
		{name: "gone", happen: (*argoWorld).delete, reason: applier.ReasonApplierNotFound, message: "does not exist"},
		{
			name:   "of a kind that is not served",
			happen: func(w *argoWorld) { w.cluster.Unserve(applications.GroupResource()) },
			reason: applier.ReasonApplierNotFound, message: "is Argo CD installed there?",
		},

		{name: "a short hash", ask: func(a *applier.Ask) { a.Commit = a.Commit[:8] }, message: "is not a full hash", valid: true},
		{name: "a tag for a commit", ask: func(a *applier.Ask) { a.Commit = "release-1" }, message: "is not a full hash", valid: true},
		{name: "a branch that looks like a hash", ask: func(a *applier.Ask) { a.Commit = "deadbeef" }, message: "is not a full hash", valid: true},
		{name: "a hash in upper case", ask: func(a *applier.Ask) { a.Commit = "DEADBEEFDEADBEEFDEADBEEFDEADBEEFDEADBEEF" }, message: "is not a full hash", valid: true},
		{name: "HEAD for a branch", ask: func(a *applier.Ask) { a.Want.Branch = "HEAD" }, message: "HEAD", valid: true},
		{name: "no token", ask: func(a *applier.Ask) { a.Token = "" }, message: "has no token", valid: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				one := w.push("one", value("one"))
				w.argo.Stop() // it would sync the automated ones
				w.application(test.mutate...)
				if test.happen != nil {
					test.happen(w)
				}
				view := w.cluster.As("host", nil)
				client := w.through(view)
				ask := w.ask(one)
				ask.Record = func(context.Context, applier.Started) error { t.Error("recorded"); return nil }
				if test.ask != nil {
					test.ask(&ask)
				}

				verdict := client.Validate(w.Context(), argoApp)
				started, err := client.Request(w.Context(), argoApp, ask)

				assert.Zero(w, started)
				require.ErrorContains(w, err, "Application team-a/app in cluster prod")
				assert.ErrorContains(w, err, test.message)
				assert.True(w, applier.IsPermanent(err), "%v", err)
				assert.Equal(w, test.reason, applier.VerdictReason(err))
				assert.Zero(w, writesOf(view), "%v", view.Requests())
				assert.Equal(w, test.valid, verdict.OK, "%+v", verdict)
				if !test.valid {
					assert.Equal(w, test.reason, verdict.Reason)
					assert.Equal(w, err.Error(), verdict.Message)
				}
			})
		})
	}
}

func (w *argoWorld) delete() {
	w.Helper()
	require.NoError(w, w.applications().Delete(w.Context(), "app", metav1.DeleteOptions{}))
}

func TestAnIdentityThatMayNotUpdateIsToldAndChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		verbs []string
		grant string
	}{
		"it may only read":   {verbs: []string{"get", "list", "watch"}, grant: "grant it the verb update on applications.argoproj.io"},
		"it may only update": {verbs: []string{"update"}, grant: "grant it the verb get on applications.argoproj.io"},
		"it may do nothing":  {grant: "grant it the verb get on applications.argoproj.io"},
	} {
		t.Run(name, func(t *testing.T) {
			inArgo(t, func(w *argoWorld) {
				w.synced()
				client := w.through(w.cluster.As("limited", func(a authorizationv1.ResourceAttributes) bool {
					return slices.Contains(test.verbs, a.Verb)
				}))
				before := w.get()

				verdict := client.Validate(w.Context(), argoApp)
				started, err := client.Request(w.Context(), argoApp, w.ask(w.push("two", value("two"))))

				assert.False(w, verdict.OK)
				assert.Equal(w, applier.ReasonForbidden, verdict.Reason)
				assert.Contains(w, verdict.Message, test.grant)
				assert.Zero(w, started)
				assert.ErrorContains(w, err, test.grant)
				assert.Equal(w, applier.ReasonForbidden, applier.VerdictReason(err))
				assert.Equal(w, before, w.get())
			})
		})
	}
}

func TestAnApplicationThatMayNotBeWatchedIsPolled(t *testing.T) {
	inArgo(t, func(w *argoWorld) {
		w.synced()
		client := w.through(w.cluster.As("limited", func(a authorizationv1.ResourceAttributes) bool { return a.Verb == "get" || a.Verb == "update" }))
		end, err := w.applyBy(client, w.ask(w.push("two", value("two"))))
		require.NoError(w, err)
		assert.Equal(w, "two", w.called[end.AppliedCommit])
		assert.Equal(w, "two", w.data("cm"))
	})
}
