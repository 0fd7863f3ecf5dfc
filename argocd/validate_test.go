package argocd

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier"
)

func TestAnApplicationThatOneCommitCannotNameOrThatIsNotOursToSyncIsRefused(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	for _, test := range []struct {
		name    string
		changes []change
		reason  string
		message string
	}{
		{"one branch of one repository", nil, applier.ReasonSucceeded, "can be asked"},
		{"a branch by its full name", []change{set("spec.source.targetRevision", "refs/heads/main")}, applier.ReasonSucceeded, ""},
		{"an empty list of sources", []change{set("spec.sources", []any{})}, applier.ReasonSucceeded, ""},
		{"automated sync that is disabled", []change{set("spec.syncPolicy.automated", object{"enabled": false})}, applier.ReasonSucceeded, ""},
		{"several sources", []change{set("spec.sources", []any{object{"repoURL": repository}, object{"chart": "db"}})}, applier.ReasonUnsupportedSource, "use spec.source"},
		{"a list of one source", []change{set("spec.sources", []any{object{"repoURL": repository}})}, applier.ReasonUnsupportedSource, "use spec.source"},
		{"no source", []change{remove("spec.source")}, applier.ReasonUnsupportedSource, "has no spec.source"},
		{"a source hydrator", []change{set("spec.sourceHydrator", object{"drySource": object{}})}, applier.ReasonUnsupportedSource, "source hydrator"},
		{"a Helm chart", []change{set("spec.source.chart", "redis")}, applier.ReasonUnsupportedSource, "the Helm chart redis"},
		{"an OCI artifact", []change{set("spec.source.repoURL", "oci://registry.example.com/shop")}, applier.ReasonUnsupportedSource, "OCI"},
		{"HEAD", []change{set("spec.source.targetRevision", "HEAD")}, applier.ReasonUnsupportedSource, "HEAD"},
		{"no targetRevision", []change{remove("spec.source.targetRevision")}, applier.ReasonUnsupportedSource, "targetRevision"},
		{"a tag", []change{set("spec.source.targetRevision", "refs/tags/v1")}, applier.ReasonUnsupportedSource, "refs/tags/v1"},
		{"a commit", []change{set("spec.source.targetRevision", commitC)}, applier.ReasonUnsupportedSource, commitC},
		{"automated sync", []change{set("spec.syncPolicy.automated", object{})}, applier.ReasonAutomatedSyncEnabled, "spec.syncPolicy.automated.enabled to false"},
		{"automated sync of several sources", []change{set("spec.syncPolicy.automated", object{}), set("spec.sources", []any{object{}})}, applier.ReasonUnsupportedSource, ""},
		{"a deletion", []change{set("metadata.deletionTimestamp", "2026-01-02T15:00:00Z")}, applier.ReasonDeleting, "is being deleted"},
		{"an annotation to skip it", []change{set("metadata.annotations", object{skipReconcile: "true"})}, applier.ReasonReconcileSkipped, "remove the annotation " + skipReconcile},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			app := parse(t, test.changes...)

			verdict := c.judge(app)

			assert.Equal(t, test.reason, verdict.Reason)
			assert.Equal(t, test.reason == applier.ReasonSucceeded, verdict.OK)
			assert.Contains(t, verdict.Message, test.message)
			assert.Contains(t, verdict.Message, "Application argocd/app in cluster prod")
			assert.NoError(t, verdict.Err)
			assert.Equal(t, &applier.Source{URL: app.source.repository, Revision: app.source.targetRevision}, verdict.Source,
				"the source is reported whatever the verdict")
			assert.Equal(t, !verdict.OK, applier.IsPermanent(verdict.AsError()))
		})
	}
}

func TestASourceIsReportedWithoutItsCredentials(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	app := parse(t, set("spec.source.repoURL", "https://bot:s3cr3t@git.example.com/acme/shop.git"))
	verdict := c.judge(app)
	assert.Equal(t, "https://git.example.com/acme/shop.git", verdict.Source.URL)
	bound := c.bound(app, applier.Binding{Repository: "https://bot:t0ken@git.example.com/acme/other", Branch: "main"})
	assert.NotContains(t, bound.Message, "s3cr3t")
	assert.NotContains(t, bound.Message, "t0ken")
}

func TestABindingIsComparedByWhatItMeans(t *testing.T) {
	t.Parallel()
	c := newClient(t, Options{})
	for _, test := range []struct {
		repository, branch string
		same               bool
	}{
		{repository, "main", true},
		{repository, "refs/heads/main", true},
		{"git@git.example.com:acme/shop", "main", true},
		{"https://bot:token@git.example.com/acme/shop/", "main", true},
		{"https://git.example.com/acme/other", "main", false},
		{repository, "develop", false},
		{repository, "", false},
		{"", "main", false},
	} {
		verdict := c.bound(parse(t), applier.Binding{Repository: test.repository, Branch: test.branch})
		assert.Equal(t, test.same, verdict.OK, "%+v", test)
		if !test.same {
			assert.Equal(t, applier.ReasonSourceMismatch, verdict.Reason)
			assert.Contains(t, verdict.Message, "Application argocd/app in cluster prod syncs main of "+repository)
		}
	}
}
