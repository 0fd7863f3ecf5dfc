package argocd_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

var applicationSets = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}

// viewed is a cluster without controllers, in which tests write what controllers would.
func viewed(t testing.TB) *fake.Cluster {
	t.Helper()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"argocd", "shop", team}})
	t.Cleanup(c.Stop)
	return c
}

// write creates objects from YAML documents.
func write(t testing.TB, client dynamic.Interface, documents string) {
	t.Helper()
	resources := map[string]schema.GroupVersionResource{"Application": applications, "ApplicationSet": applicationSets, "ConfigMap": configMaps}
	for document := range strings.SplitSeq(documents, "---\n") {
		u := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &u.Object))
		data, err := u.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, u.UnmarshalJSON(data))
		resource := client.Resource(resources[u.GetKind()]).Namespace(u.GetNamespace())
		created, err := resource.Create(t.Context(), u, metav1.CreateOptions{})
		require.NoError(t, err, document)
		if u.GetKind() == "ApplicationSet" {
			// It has a status subresource, which an Application has not.
			created.Object["status"] = u.Object["status"]
			_, err = resource.UpdateStatus(t.Context(), created, metav1.UpdateOptions{})
			require.NoError(t, err, document)
		}
	}
}

func application(name string) gitopsprovider.Workload {
	return gitopsprovider.Workload{Group: "argoproj.io", Kind: "Application", Namespace: "argocd", Name: name}
}

// app is the YAML of an Application in namespace argocd.
func app(name, spec, status string) string {
	return fmt.Sprintf("{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {namespace: argocd, name: %s}, spec: {project: default, destination: {server: 'https://kubernetes.default.svc', namespace: shop}, %s}, status: {%s}}",
		name, cmp.Or(spec, "source: {repoURL: 'https://git.example.com/acme/shop', path: apps/shop, targetRevision: main}"), status)
}

func read(t testing.TB, client dynamic.Interface, w gitopsprovider.Workload) gitopsprovider.Object {
	t.Helper()
	o, err := argocd.NewReader(client).Get(t.Context(), w)
	require.NoError(t, err)
	require.NoError(t, o.Err)
	assert.NotEmpty(t, o.UID)
	o.UID = ""
	return o
}

func utc(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func viewsOf(t testing.TB, client dynamic.Interface) *gitopsprovider.Views {
	t.Helper()
	v, err := gitopsprovider.New("prod", gitopsprovider.NoDiffer{}, argocd.NewReader(client))
	require.NoError(t, err)
	return v
}

// history is a status.history of the source of app, oldest first: "2026-05-04T10:00:00Z=<commit>".
func history(entries ...string) string {
	var list []string
	for i, entry := range entries {
		at, commit, _ := strings.Cut(entry, "=")
		list = append(list, fmt.Sprintf("{id: %d, deployedAt: '%s', revision: %s, source: {repoURL: 'https://git.example.com/acme/shop', path: apps/shop, targetRevision: main}}", i, at, commit))
	}
	return "history: [" + strings.Join(list, ", ") + "]"
}

func operationState(phase, more string) string {
	return "operationState: {phase: " + phase + ", message: m, startedAt: '2026-05-04T12:00:00Z', operation: {sync: {}}" + more + "}"
}

// dryRun is the record of a dry run to commitB that ended at noon.
func dryRun(phase string) string {
	return "operationState: {phase: " + phase + ", message: m, startedAt: '2026-05-04T12:00:00Z', finishedAt: '2026-05-04T12:00:05Z', operation: {sync: {dryRun: true, revision: " + commitB + "}}, syncResult: {revision: " + commitB + "}}"
}

func TestAReaderDescribesAnApplication(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, app("shop", "", history("2026-05-04T09:00:00Z="+commitA, "2026-05-04T11:00:00Z="+commitB)+`,
  health: {status: Healthy, lastTransitionTime: "2026-05-04T11:01:00Z"}, sync: {status: OutOfSync, revision: `+commitA+`}, reconciledAt: "2026-05-04T12:00:00Z",
  resources: [{group: apps, kind: Deployment, namespace: shop, name: web, version: v1}, {group: argoproj.io, kind: Application, namespace: argocd, name: child, version: v1alpha1}]`))
	entry := func(at, commit string) gitopsprovider.Deployment {
		return gitopsprovider.Deployment{At: utc(at), Revisions: []gitopsprovider.DeployedRevision{{Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/shop", Path: "apps/shop", Revision: commit}}}
	}
	assert.Equal(t, gitopsprovider.Object{
		Workload: application("shop"), Engine: argocd.Engine, TargetNamespace: "shop",
		Ready: gitopsprovider.Condition{State: gitopsprovider.StateReady, Reason: "Healthy", Since: utc("2026-05-04T11:01:00Z")},
		Sources: []gitopsprovider.SourceUse{{
			Relation: gitopsprovider.RelationSource, Path: "apps/shop", Applied: commitB,
			Source: gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/shop", Ref: "main", Branch: "main"},
		}},
		Deployments: []gitopsprovider.Deployment{entry("2026-05-04T11:00:00Z", commitB), entry("2026-05-04T09:00:00Z", commitA)},
		Applies:     []gitopsprovider.Workload{{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, application("child")},
		References: []gitopsprovider.Reference{
			{Field: "source", Value: "https://git.example.com/acme/shop apps/shop main"}, {Field: "destination", Value: "https://kubernetes.default.svc shop"},
			{Field: "project", Value: "default"}, {Field: "sync", Value: "OutOfSync"}, {Field: "health", Value: "Healthy"},
		},
	}, read(t, c, application("shop")))
}

func TestHowAnApplicationIsDoing(t *testing.T) {
	t.Parallel()
	finished := operationState("Succeeded", ", finishedAt: '2026-05-04T10:00:05Z', syncResult: {revision: "+commitB+"}")
	healthAt := func(health, reconciled string) string {
		return fmt.Sprintf("health: {status: %s, lastTransitionTime: '2026-05-04T09:00:00Z'}, reconciledAt: '%s'", health, reconciled)
	}
	for name, test := range map[string]struct {
		status string
		state  gitopsprovider.State
		reason string
	}{
		"new":     {"", gitopsprovider.StateUnknown, ""},
		"healthy": {healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateReady, "Healthy"},
		// Health is that of before the sync until the Application is compared again. No transition is waited for.
		"not judged since its sync":   {finished + ", " + healthAt("Healthy", "2026-05-04T09:59:50Z"), gitopsprovider.StateUnknown, "NotJudged"},
		"healthy since its sync":      {finished + ", " + healthAt("Healthy", "2026-05-04T10:00:20Z"), gitopsprovider.StateReady, "Healthy"},
		"at work since its sync":      {finished + ", " + healthAt("Progressing", "2026-05-04T10:00:20Z"), gitopsprovider.StateProgressing, "Progressing"},
		"degraded":                    {healthAt("Degraded", "2026-05-04T12:00:00Z"), gitopsprovider.StateFailing, "Degraded"},
		"suspended":                   {healthAt("Suspended", "2026-05-04T12:00:00Z"), gitopsprovider.StateSuspended, "Suspended"},
		"of unknown health":           {healthAt("Unknown", "2026-05-04T12:00:00Z"), gitopsprovider.StateUnknown, "Unknown"},
		"never synced":                {healthAt("Missing", "2026-05-04T12:00:00Z"), gitopsprovider.StateUnknown, "Missing"},
		"missing since it was synced": {history("2026-05-04T09:00:00Z="+commitA) + ", " + healthAt("Missing", "2026-05-04T12:00:00Z"), gitopsprovider.StateUnknown, "Missing"},
		"syncing":                     {operationState("Running", "") + ", " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateProgressing, "Running"},
		"waiting for its retry":       {operationState("Running", ", finishedAt: '2026-05-04T12:00:00Z'") + ", " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateProgressing, "Running"},
		"failed":                      {operationState("Failed", "") + ", " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateFailing, "Failed"},
		"in error":                    {operationState("Error", ""), gitopsprovider.StateFailing, "Error"},
		// An operation is removed in the write that ends it.
		"asked to sync":                   {healthAt("Missing", "2026-05-04T12:00:00Z") + "}, operation: {sync: {revision: main}", gitopsprovider.StateProgressing, "Requested"},
		"asked to sync after its failure": {operationState("Failed", "") + "}, operation: {sync: {revision: main}", gitopsprovider.StateProgressing, "Requested"},
		"syncing what it was asked to":    {operationState("Running", "") + "}, operation: {sync: {revision: main}", gitopsprovider.StateProgressing, "Running"},
		"a dry run that failed": {
			dryRun("Failed") + ", " + healthAt("Healthy", "2026-05-04T12:00:00Z"),
			gitopsprovider.StateReady, "Healthy",
		},
		// Its record stands in the place of that of the last sync, which may have failed.
		"a dry run while out of sync": {
			dryRun("Succeeded") + ", " + history("2026-05-04T09:00:00Z="+commitA) + ", sync: {status: OutOfSync}, " + healthAt("Healthy", "2026-05-04T12:00:00Z"),
			gitopsprovider.StateUnknown, "DryRun",
		},
		"a dry run while synced": {
			dryRun("Succeeded") + ", " + history("2026-05-04T09:00:00Z="+commitA) + ", sync: {status: Synced}, " + healthAt("Healthy", "2026-05-04T11:59:00Z"),
			gitopsprovider.StateReady, "Healthy",
		},
		"a dry run while degraded": {
			dryRun("Succeeded") + ", " + history("2026-05-04T09:00:00Z="+commitA) + ", sync: {status: OutOfSync}, " + healthAt("Degraded", "2026-05-04T11:59:00Z"),
			gitopsprovider.StateFailing, "Degraded",
		},
		"a dry run while at work": {
			dryRun("Failed") + ", sync: {status: OutOfSync}, " + healthAt("Progressing", "2026-05-04T11:59:00Z"), gitopsprovider.StateProgressing, "Progressing",
		},
		"a condition that is an error": {
			"conditions: [{type: OrphanedResourceWarning, message: w}, {type: ComparisonError, message: m, lastTransitionTime: '2026-05-04T12:00:00Z'}], " + healthAt("Healthy", "2026-05-04T12:00:00Z"),
			gitopsprovider.StateFailing, "ComparisonError",
		},
		"a condition that is a warning": {"conditions: [{type: SharedResourceWarning, message: m}], " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateReady, "Healthy"},
		"out of sync": {
			history("2026-05-04T09:00:00Z="+commitA) + ", sync: {status: OutOfSync}, " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateReady, "Healthy",
		},
		// Objects without health of their own are healthy even where they are missing.
		"healthy and never synced":      {"sync: {status: OutOfSync}, " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateUnknown, "NeverSynced"},
		"missing and never synced":      {"sync: {status: OutOfSync}, " + healthAt("Missing", "2026-05-04T12:00:00Z"), gitopsprovider.StateUnknown, "NeverSynced"},
		"healthy without a sync of its": {"sync: {status: Synced}, " + healthAt("Healthy", "2026-05-04T12:00:00Z"), gitopsprovider.StateReady, "Healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, app("shop", "", test.status))
			status, err := viewsOf(t, c).ResourceStatus(t.Context(), application("shop"))
			require.NoError(t, err)
			assert.Equal(t, test.state, status.Ready.State)
			assert.Equal(t, test.reason, status.Ready.Reason)
		})
	}
}

func TestAFailureOfAnApplicationBeginsWithItsOperation(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, app("shop", "", operationState("Failed", ", syncResult: {revision: "+commitB+"}")+", sync: {status: Unknown, revision: "+commitA+"}"))
	ready := read(t, c, application("shop")).Ready
	assert.Equal(t, gitopsprovider.Condition{State: gitopsprovider.StateFailing, Reason: "Failed", Message: "m", Since: utc("2026-05-04T12:00:00Z")}, ready,
		"the revision that it is compared with is no part of it")
}

func TestWhatAnApplicationAppliedIsInItsHistory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status    string
		applied   string
		attempted string
		inPart    bool
	}{
		"a dry run applies nothing": {
			history("2026-05-04T09:00:00Z="+commitA) + ", " + dryRun("Succeeded"), commitA, "", false,
		},
		"a dry run that failed attempts nothing": {
			history("2026-05-04T09:00:00Z="+commitA) + ", " + dryRun("Failed"), commitA, "", false,
		},
		"a sync that failed before it resolved anything attempted what it was asked for": {
			history("2026-05-04T09:00:00Z="+commitA) + ", operationState: {phase: Error, startedAt: '2026-05-04T12:00:00Z', operation: {sync: {revision: " + commitB + "}}}", commitA, commitB, false,
		},
		"what a sync that was asked for no revision attempted is not known": {
			history("2026-05-04T09:00:00Z="+commitA) + ", " + operationState("Error", ""), commitA, "", false,
		},
		"a sync that failed may have applied some of it": {
			history("2026-05-04T09:00:00Z="+commitA) + ", " + operationState("Failed", ", syncResult: {revision: "+commitB+"}"), commitA, commitB, true,
		},
		"a sync that could not run applied nothing": {
			history("2026-05-04T09:00:00Z="+commitA) + ", " + operationState("Error", ", syncResult: {revision: "+commitB+"}"), commitA, commitB, false,
		},
		"nothing was synced": {"sync: {status: OutOfSync, revision: " + commitB + "}", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, app("shop", "", test.status))
			o := read(t, c, application("shop"))
			assert.Equal(t, test.applied, o.Sources[0].Applied)
			assert.Equal(t, test.attempted, o.Sources[0].Attempted)
			assert.Equal(t, test.inPart, o.InPart)
		})
	}
}

func TestAHydratedApplicationNamesItsDryCommit(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	hydrator := "{drySource: {repoURL: 'https://git.example.com/acme/shop', path: apps, targetRevision: main}, syncSource: {targetBranch: env/prod, path: shop}}"
	write(t, c, app("shop", "sourceHydrator: "+hydrator, history("2026-05-04T10:00:00Z="+commitB)+
		", sourceHydrator: {lastSuccessfulOperation: {drySHA: "+commitA+", hydratedSHA: "+commitB+", sourceHydrator: "+hydrator+"}}"))
	uses := read(t, c, application("shop")).Sources
	require.Len(t, uses, 1)
	assert.Equal(t, gitopsprovider.SourceUse{
		Relation: gitopsprovider.RelationSource, Path: "shop", Applied: commitB,
		Source: gitopsprovider.Source{
			Type: gitopsprovider.SourceGit, URL: "https://git.example.com/acme/shop", Ref: "env/prod", Branch: "env/prod",
			Origin: gitopsprovider.Origin{URL: "https://git.example.com/acme/shop", Revision: commitA},
		},
	}, uses[0])
}

func TestAnApplicationElsewhereAndPassedOver(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	write(t, c, `{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {namespace: argocd, name: shop, annotations: {argocd.argoproj.io/skip-reconcile: "true"}},
  spec: {project: default, destination: {name: edge, namespace: web}, source: {repoURL: "https://u:s3cret@git.example.com/acme/shop"}}, status: {health: {status: Healthy}}}`)
	o := read(t, c, application("shop"))
	assert.Equal(t, "edge", o.TargetCluster)
	assert.True(t, o.Suspended)
	assert.Equal(t, gitopsprovider.StateSuspended, o.Ready.State)
	assert.Equal(t, "HEAD", o.Sources[0].Source.Ref)
	assert.Empty(t, o.Sources[0].Source.Branch)
	assert.NotContains(t, fmt.Sprintf("%+v", o), "s3cret")
}

// A cluster may be named by an address, and a name may hold an @.
func TestADestinationHoldsNoUserInfo(t *testing.T) {
	t.Parallel()
	c := viewed(t)
	for name, test := range map[string]struct{ destination, want string }{
		"address": {"server: 'https://u:s3cret@edge.example.com'", "https://edge.example.com"},
		"name":    {"name: admin@edge", "admin@edge"},
	} {
		write(t, c, "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {namespace: argocd, name: "+name+"}, spec: {project: default, destination: {"+test.destination+", namespace: web}, source: {repoURL: 'https://git.example.com/acme/shop'}}}")
		o := read(t, c, application(name))
		assert.Equal(t, test.want, o.TargetCluster)
		assert.NotContains(t, fmt.Sprintf("%+v", o), "s3cret")
	}
}

func TestHowAnApplicationSetIsDoing(t *testing.T) {
	t.Parallel()
	condition := func(kind, status string) string {
		return fmt.Sprintf("{type: %s, status: '%s', reason: %sReason, message: m, lastTransitionTime: '2026-05-04T12:00:00Z'}", kind, status, kind)
	}
	for name, test := range map[string]struct {
		conditions []string
		state      gitopsprovider.State
		reason     string
	}{
		"new": {nil, gitopsprovider.StateUnknown, ""},
		"up to date": {
			[]string{condition("ErrorOccurred", "False"), condition("ParametersGenerated", "True"), condition("ResourcesUpToDate", "True")},
			gitopsprovider.StateReady, "ResourcesUpToDateReason",
		},
		"in error": {
			[]string{condition("ResourcesUpToDate", "True"), condition("ErrorOccurred", "True")}, gitopsprovider.StateFailing, "ErrorOccurredReason",
		},
		"rolling out": {
			[]string{condition("ErrorOccurred", "False"), condition("RolloutProgressing", "True"), condition("ResourcesUpToDate", "True")},
			gitopsprovider.StateProgressing, "RolloutProgressingReason",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := viewed(t)
			write(t, c, set("all", strings.Join(test.conditions, ", "), ""))
			o := read(t, c, gitopsprovider.Workload{Group: "argoproj.io", Kind: "ApplicationSet", Namespace: "argocd", Name: "all"})
			assert.Equal(t, test.state, o.Ready.State)
			assert.Equal(t, test.reason, o.Ready.Reason)
		})
	}
}

// set is the YAML of an ApplicationSet in namespace argocd.
func set(name, conditions, resources string) string {
	return fmt.Sprintf("{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, metadata: {namespace: argocd, name: %s}, spec: {generators: [], template: {metadata: {}, spec: {project: default, destination: {}}}}, status: {conditions: [%s], resources: [%s]}}",
		name, conditions, resources)
}
