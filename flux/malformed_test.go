package flux

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gitops-applier/gitops-applier/applier"
)

// canned is an API server that answers each path with a text, whatever it holds, and counts writes. A real one would not store what
// these tests answer; an old CRD, another version or a proxy may.
type canned struct {
	answers map[string]string
	writes  atomic.Int32
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPatch {
		c.writes.Add(1)
	}
	text, ok := c.answers[r.URL.Path]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		text = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": "not found"}`
	}
	fmt.Fprint(w, text)
}

const (
	pathOfKustomization = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/ns/kustomizations/app"
	pathOfGitRepository = "/apis/source.toolkit.fluxcd.io/v1/namespaces/ns/gitrepositories/app"
	pathOfReview        = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	listOfKustomization = "/apis/kustomize.toolkit.fluxcd.io/v1/kustomizations"
	listOfHelmChart     = "/apis/source.toolkit.fluxcd.io/v1/helmcharts"
	listOfHelmRelease   = "/apis/helm.toolkit.fluxcd.io/v2/helmreleases"

	heldKustomization = `{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
		"metadata": {"namespace": "ns", "name": "app", "uid": "uid", "resourceVersion": "1",
			"annotations": {"reconcile.fluxcd.io/requestedAt": "t"},
			"managedFields": [{"manager": "lib", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}}]},
		"spec": {"suspend": true, "sourceRef": {"kind": "GitRepository", "name": "app"}},
		"status": {"lastHandledReconcileAt": "t", "lastAppliedRevision": "main@sha1:` + commitA + `",
			"conditions": [{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "ok"}],
			"history": [{"digest": "a"}]}}`
	gitRepositoryAtB = `{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
		"metadata": {"namespace": "ns", "name": "app", "uid": "uid2", "resourceVersion": "1"},
		"spec": {"url": "https://git.example.com/shop", "ref": {"branch": "main"}},
		"status": {"artifact": {"revision": "main@sha1:` + commitB + `"}}}`
)

func cannedClient(t *testing.T, answers map[string]string) (*Client, *canned) {
	t.Helper()
	server := &canned{answers: map[string]string{
		pathOfKustomization: heldKustomization, pathOfGitRepository: gitRepositoryAtB,
		pathOfReview: `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "status": {"allowed": true}}`,
	}}
	for path, text := range answers {
		server.answers[path] = text
	}
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	connection, err := dynamic.NewForConfig(&rest.Config{Host: listening.URL})
	require.NoError(t, err)
	c, err := New("prod", connection, judging)
	require.NoError(t, err)
	return c, server
}

var app = types.NamespacedName{Namespace: "ns", Name: "app"}

func askOf(commit string) applier.Ask {
	return applier.Ask{Want: applier.Binding{Repository: "https://git.example.com/shop", Branch: "main"}, Commit: commit, Token: resume}
}

// calls are all calls that read a Kustomization.
var calls = map[string]func(ctx context.Context, c *Client) error{
	"Validate": func(ctx context.Context, c *Client) error { return c.Validate(ctx, app).AsError() },
	"Request": func(ctx context.Context, c *Client) error {
		_, err := c.Request(ctx, app, askOf(commitB))
		return err
	},
	"a live Request": func(ctx context.Context, c *Client) error {
		ask := askOf(commitB)
		ask.Live = true
		_, err := c.Request(ctx, app, ask)
		return err
	},
	"Progress": func(ctx context.Context, c *Client) error {
		p, err := c.Progress(ctx, app, &applier.Started{Outcome: applier.OutcomeResumed, Token: resume, Commit: commitB})
		if p != (applier.Progress{}) {
			return fmt.Errorf("a Progress beside the error %w: %+v", err, p)
		}
		return err
	},
	"Suspend":    func(ctx context.Context, c *Client) error { _, err := c.Suspend(ctx, app); return err },
	"Suspension": func(ctx context.Context, c *Client) error { _, err := c.Suspension(ctx, app); return err },
	"Release":    func(ctx context.Context, c *Client) error { _, err := c.Release(ctx, app); return err },
	"Prefetch":   func(ctx context.Context, c *Client) error { return c.Prefetch(ctx, app, app, commitB) },
}

func TestAMalformedKustomizationIsAnErrorAndWritesNothing(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string][2]string{
		"spec.suspend":                         {`"suspend": true`, `"suspend": "true"`},
		"spec":                                 {`"spec": {`, `"spec": "x", "other": {`},
		"spec.sourceRef":                       {`"sourceRef": {`, `"sourceRef": "app", "other": {`},
		"status.conditions":                    {`"conditions": [{`, `"conditions": ["Ready", {`},
		"status.conditions.status":             {`"status": "True"`, `"status": true`},
		"status.lastHandledReconcileAt":        {`"lastHandledReconcileAt": "t"`, `"lastHandledReconcileAt": 7`},
		"status.lastAppliedRevision":           {`"lastAppliedRevision": "`, `"lastAppliedRevision": [], "other": "`},
		"status.history":                       {`"history": [{"digest": "a"}]`, `"history": "a"`},
		"metadata.annotations":                 {`"annotations": {`, `"annotations": "x", "other": {`},
		"metadata.managedFields":               {`"managedFields": [{`, `"managedFields": ["lib", {`},
		"metadata.managedFields.fieldsV1":      {`{"f:spec": {"f:suspend": {}}}`, `"f:spec"`},
		"metadata.managedFields.fieldsV1.spec": {`{"f:suspend": {}}`, `["f:suspend"]`},
	} {
		malformed := strings.Replace(heldKustomization, replace[0], replace[1], 1)
		require.NotEqual(t, heldKustomization, malformed, what)
		require.True(t, json.Valid([]byte(malformed)), what)
		for name, call := range calls {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				c, server := cannedClient(t, map[string]string{pathOfKustomization: malformed})
				err := call(t.Context(), c)
				require.ErrorContains(t, err, "Kustomization ns/app in cluster prod: field .")
				assert.False(t, applier.IsPermanent(err), "nothing is known of the Kustomization")
				assert.Zero(t, server.writes.Load())
			})
		}
	}
}

func TestAMalformedGitRepositoryIsAnErrorAndWritesNothing(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string][2]string{
		"spec.url":                 {`"url": "https://git.example.com/shop"`, `"url": 7`},
		"spec.ref":                 {`"ref": {`, `"ref": "main", "other": {`},
		"spec.ref.branch":          {`"branch": "main"`, `"branch": ["main"]`},
		"status.artifact":          {`"artifact": {`, `"artifact": 7, "other": {`},
		"status.artifact.revision": {`"revision": "`, `"revision": true, "other": "`},
	} {
		malformed := strings.Replace(gitRepositoryAtB, replace[0], replace[1], 1)
		require.NotEqual(t, gitRepositoryAtB, malformed, what)
		for _, name := range []string{"Validate", "Request", "a live Request", "Prefetch"} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				c, server := cannedClient(t, map[string]string{pathOfGitRepository: malformed})
				err := calls[name](t.Context(), c)
				require.ErrorContains(t, err, "cannot read GitRepository ns/app in cluster prod: field .")
				assert.Zero(t, server.writes.Load())
			})
		}
	}
}

// What is answered is no object at all.
func TestAnAnswerThatIsNoObjectIsAnError(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"", "null", "[]", `"x"`, "{", "{}", `<html>`, `{"apiVersion": "v1", "kind": "Status", "status": "Success"}`} {
		for name, call := range calls {
			t.Run(name+" of "+answer, func(t *testing.T) {
				t.Parallel()
				c, server := cannedClient(t, map[string]string{pathOfKustomization: answer})
				require.Error(t, call(t.Context(), c))
				assert.Zero(t, server.writes.Load())
			})
		}
	}
}

// What the Kustomization lacks is not there, which each call has its own answer for.
func TestAKustomizationWithoutFieldsIsAnOrdinaryOneThatNobodyHolds(t *testing.T) {
	t.Parallel()
	bare := `{"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"namespace": "ns", "name": "app", "uid": "u", "resourceVersion": "1"}}`
	c, server := cannedClient(t, map[string]string{pathOfKustomization: bare})

	verdict := c.Validate(t.Context(), app)
	assert.Equal(t, applier.ReasonUnsupportedSource, verdict.Reason)
	suspension, err := c.Suspension(t.Context(), app)
	require.NoError(t, err)
	assert.Zero(t, suspension)
	keeper, err := c.Release(t.Context(), app)
	require.NoError(t, err)
	assert.Empty(t, keeper)
	assert.Zero(t, server.writes.Load())
}

// A server-side apply without a UID would create what is not there.
func TestNothingIsWrittenToAnObjectWithoutAUID(t *testing.T) {
	t.Parallel()
	withoutUID := map[string]string{
		pathOfKustomization: strings.Replace(heldKustomization, `"uid": "uid", `, "", 1), pathOfGitRepository: strings.Replace(gitRepositoryAtB, `"uid": "uid2", `, "", 1),
	}
	for name, call := range map[string]func(ctx context.Context, c *Client) error{
		"Suspend": calls["Suspend"], "Release": calls["Release"], "Request": calls["Request"],
		"Prefetch": func(ctx context.Context, c *Client) error { return c.Prefetch(ctx, app, app, commitC) },
		"Progress": func(ctx context.Context, c *Client) error {
			_, err := c.Progress(ctx, app, &applier.Started{Outcome: applier.OutcomeResumed, Token: resume, Recovered: true, Baseline: baselineOf(after()).String()})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, server := cannedClient(t, withoutUID)
			err := call(t.Context(), c)
			require.ErrorContains(t, err, "ns/app in cluster prod")
			require.ErrorContains(t, err, "field .metadata.uid is missing")
			assert.NotErrorIs(t, err, applier.ErrUnconfirmed)
			assert.Zero(t, server.writes.Load())
		})
	}
}

func TestAStartedThatIsNotOfThisPackageIsAnErrorAndWritesNothing(t *testing.T) {
	t.Parallel()
	good := applier.Started{Outcome: applier.OutcomeResumed, Token: resume, Commit: commitB, UID: "uid", Baseline: baselineOf(after()).String()}
	for name, test := range map[string]struct {
		mutate func(*applier.Started)
		says   string
	}{
		"no outcome":           {func(s *applier.Started) { s.Outcome = "" }, `the operation's outcome "" is not one of package flux`},
		"Argo CD's outcome":    {func(s *applier.Started) { s.Outcome = applier.OutcomeSyncRequested }, `the operation's outcome "SyncRequested" is not one of package flux`},
		"no token":             {func(s *applier.Started) { s.Token = "" }, "the operation has no token"},
		"a garbage baseline":   {func(s *applier.Started) { s.Baseline = "garbage" }, "the operation's baseline is not one of package flux"},
		"an empty object":      {func(s *applier.Started) { s.Baseline = "{}" }, "the operation's baseline is not one of package flux"},
		"a baseline of a list": {func(s *applier.Started) { s.Baseline = "[]" }, "the operation's baseline is not one of package flux"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, server := cannedClient(t, nil)
			s := good
			test.mutate(&s)
			p, err := c.Progress(t.Context(), app, &s)
			require.ErrorContains(t, err, "Kustomization ns/app in cluster prod: "+test.says)
			assert.Zero(t, p)
			assert.Zero(t, server.writes.Load())
		})
	}
	t.Run("a garbage UID", func(t *testing.T) {
		t.Parallel()
		c, server := cannedClient(t, nil)
		s := good
		s.UID = "garbage"
		p, err := c.Progress(t.Context(), app, &s)
		require.NoError(t, err)
		assert.Equal(t, applier.ReasonReplaced, p.Reason)
		assert.Zero(t, server.writes.Load())
	})
	t.Run("a garbage observation", func(t *testing.T) {
		t.Parallel()
		c, _ := cannedClient(t, nil)
		s := good
		s.UID, s.Observed = "", &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": 1}}}
		_, err := c.Progress(t.Context(), app, &s)
		require.ErrorContains(t, err, "field .spec.suspend is int, not bool")
		assert.Nil(t, s.Observed, "it is not looked at again")
	})
}

func TestConsumersOfMalformedObjectsAreUnknown(t *testing.T) {
	t.Parallel()
	list := func(kind, spec string) string {
		return `{"apiVersion": "v1", "kind": "` + kind + `List", "metadata": {}, "items": [{"apiVersion": "v1", "kind": "` + kind + `",
			"metadata": {"namespace": "ns", "name": "odd"}, "spec": ` + spec + `}]}`
	}
	for name, test := range map[string]struct{ path, list, says string }{
		"a Kustomization's sourceRef":       {listOfKustomization, list("Kustomization", `{"sourceRef": "app"}`), "Kustomization ns/odd in cluster prod: field .spec.sourceRef.kind is inside something that is no object"},
		"a Kustomization's sourceRef.name":  {listOfKustomization, list("Kustomization", `{"sourceRef": {"kind": "GitRepository", "name": 1}}`), "Kustomization ns/odd in cluster prod: field .spec.sourceRef.name is int64, not string"},
		"a HelmChart's sourceRef":           {listOfHelmChart, list("HelmChart", `{"sourceRef": []}`), "HelmChart ns/odd in cluster prod: field .spec.sourceRef"},
		"a HelmRelease's chart":             {listOfHelmRelease, list("HelmRelease", `{"chart": "x"}`), "HelmRelease ns/odd in cluster prod: field .spec.chart"},
		"a HelmRelease's chartRef":          {listOfHelmRelease, list("HelmRelease", `{"chartRef": {"kind": {}}}`), "HelmRelease ns/odd in cluster prod: field .spec.chartRef.kind is map[string]interface {}, not string"},
		"a list that is none":               {listOfHelmRelease, `{"kind": "x"`, "cannot list the objects of kind HelmRelease in cluster prod: "},
		"a list of what is no object":       {listOfKustomization, `{"apiVersion": "v1", "kind": "KustomizationList", "items": ["app"]}`, "cannot list the objects of kind Kustomization in cluster prod: "},
		"a list whose items are not a list": {listOfKustomization, `{"apiVersion": "v1", "kind": "KustomizationList", "items": {}}`, "Kustomization"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{
				listOfKustomization: list("Kustomization", `{"sourceRef": {"kind": "GitRepository", "name": "app"}}`),
				listOfHelmChart:     list("HelmChart", `{}`), listOfHelmRelease: list("HelmRelease", `{}`),
			}
			c, _ := cannedClient(t, answers)
			found, err := c.Consumers(t.Context(), app)
			require.NoError(t, err)
			require.Len(t, found, 1)

			answers[test.path] = test.list
			c, _ = cannedClient(t, answers)
			found, err = c.Consumers(t.Context(), app)
			require.ErrorContains(t, err, test.says)
			assert.Empty(t, found)
		})
	}
}

// One reason of Flux's stands for an artifact that turns up in a minute, and for a path that this commit does not have.
func TestArtifactFailedIsToldApart(t *testing.T) {
	t.Parallel()
	const pathMissing = "kustomization path not found: stat /tmp/kustomization-1/apps/shop: no such file or directory"
	for name, test := range map[string]struct {
		message, artifact string
		reason            string
		says              string
	}{
		"the artifact was not there yet": {
			message: "artifact not found, retrying in 30s", artifact: "main@sha1:" + commitB,
			reason: "ArtifactFailed", says: "artifact not found, retrying in 30s",
		},
		"the commit has no such path": {
			message: pathMissing, artifact: "main@sha1:" + commitB,
			reason: applier.ReasonPathNotFound, says: "commit bbbbbbbbbbbb has no such path: " + pathMissing,
		},
		"another commit has no such path": {
			message: pathMissing, artifact: "main@sha1:" + commitA, reason: applier.ReasonAttemptedOther, says: "main@sha1:" + commitA,
		},
		"no artifact is there any more": {
			message: pathMissing, reason: applier.ReasonAttemptedOther, says: "no artifact",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := strings.NewReplacer(
				`/requestedAt": "t"`, `/requestedAt": "`+settle+`"`, `"lastHandledReconcileAt": "t"`, `"lastHandledReconcileAt": "`+settle+`"`,
				`"status": "True", "reason": "ReconciliationSucceeded", "message": "ok"`, `"status": "False", "reason": "ArtifactFailed", "message": "`+test.message+`"`,
			).Replace(heldKustomization)
			c, server := cannedClient(t, map[string]string{
				pathOfKustomization: failed, pathOfGitRepository: strings.Replace(gitRepositoryAtB, "main@sha1:"+commitB, test.artifact, 1),
			})
			s := applier.Started{Outcome: applier.OutcomeResumed, Token: resume, Commit: commitB, UID: "uid", Baseline: baselineOf(after()).String(), SuspendToken: settle}

			p, err := c.Progress(t.Context(), app, &s)

			require.NoError(t, err)
			assert.Equal(t, applier.StateFailed, p.State)
			assert.Equal(t, test.reason, p.Reason)
			assert.Contains(t, p.Message, test.says)
			assert.Zero(t, server.writes.Load())
		})
	}
}

func TestABackendWithBadOptionsMakesNoClient(t *testing.T) {
	t.Parallel()
	c, server := cannedClient(t, nil)
	for says, options := range map[string]Options{
		"flux: Options.FieldManager is required":                               {},
		"flux: Options.FieldManager is required: set it, and every former one": {FieldManager: "lib", FormerFieldManagers: []string{""}},
		"is longer than 128 characters":                                        {FieldManager: strings.Repeat("x", 129)},
	} {
		backend := Backend(options)
		require.ErrorContains(t, backend.Err, says)
		made, err := backend.New("prod", c.dynamic)
		require.ErrorContains(t, err, says)
		if made != nil {
			t.Error("a nil *Client in an interface")
		}
		_, err = applier.NewBackends(backend)
		require.ErrorContains(t, err, says)
	}
	_, err := New("prod", nil, judging)
	require.EqualError(t, err, "flux: no dynamic client for cluster prod")
	backends, err := applier.NewBackends(Backend(judging))
	require.NoError(t, err)
	made, err := backends.Client(Kind, "prod", c.dynamic)
	require.NoError(t, err)
	assert.Equal(t, applier.ReasonSucceeded, made.Validate(t.Context(), app).Reason)
	assert.Zero(t, server.writes.Load())
}
