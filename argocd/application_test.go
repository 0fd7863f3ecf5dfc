package argocd

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/gitops-applier/gitops-applier/applier"
)

// The commits of the tables: A was synced before, B is asked for, C is somebody else's.
const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	commitC = "cccccccccccccccccccccccccccccccccccccccc"

	token      = "2026-01-02T15:00:00Z-request"
	repository = "https://git.example.com/acme/shop.git"
)

// object is a JSON object.
type object = map[string]any

// change is one thing that is different about an Application.
type change func(object)

// set sets a field, named by its path with dots.
func set(path string, value any) change {
	return func(o object) {
		if err := unstructured.SetNestedField(o, value, strings.Split(path, ".")...); err != nil {
			panic(err)
		}
	}
}

func remove(path string) change {
	return func(o object) { unstructured.RemoveNestedField(o, strings.Split(path, ".")...) }
}

// newApplication is an Application that may be asked and has synced A for somebody, with changes.
func newApplication(changes ...change) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: object{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "Application",
		"metadata":   object{"namespace": "argocd", "name": "app", "uid": "uid", "resourceVersion": "1"},
		"spec": object{
			"project":     "default",
			"source":      object{"repoURL": repository, "path": "apps/shop", "targetRevision": "main"},
			"destination": object{"server": "https://kubernetes.default.svc", "namespace": "shop"},
		},
		"status": object{"operationState": record("alice", "", commitA, "Succeeded", "successfully synced (all tasks run)")},
	}}
	for _, change := range changes {
		change(u.Object)
	}
	return u
}

// record is the record of a sync of a commit, as 3.2.11 writes it.
func record(initiator, token, commit, phase, message string) object {
	operation := object{
		"initiatedBy": object{"username": initiator},
		"sync":        object{"revision": commit},
	}
	if token != "" {
		operation["info"] = []any{object{"name": DefaultInfoKey, "value": token}}
	}
	return object{
		"operation":  operation,
		"phase":      phase,
		"message":    message,
		"startedAt":  "2026-01-02T15:00:00Z",
		"syncResult": object{"revision": commit, "source": object{"repoURL": repository}},
	}
}

func newClient(t testing.TB, options Options) *Client {
	t.Helper()
	if options.Initiator == "" {
		options.Initiator = "host"
	}
	c, err := New("prod", dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), options)
	require.NoError(t, err)
	return c
}

func parse(t testing.TB, changes ...change) application {
	t.Helper()
	app, err := parseApplication(newApplication(changes...), DefaultInfoKey)
	require.NoError(t, err)
	return app
}

func TestAutomatedSyncIsOnInEverySpellingOfIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		change    change
		automated bool
		prune     bool
	}{
		{"no syncPolicy", remove("spec.syncPolicy"), false, false},
		{"an empty syncPolicy", set("spec.syncPolicy", object{}), false, false},
		{"only syncOptions", set("spec.syncPolicy", object{"syncOptions": []any{"Replace=true"}}), false, false},
		{"automated: null", set("spec.syncPolicy", object{"automated": nil}), false, false},
		{"automated: {}", set("spec.syncPolicy", object{"automated": object{}}), true, false},
		{"enabled: true", set("spec.syncPolicy", object{"automated": object{"enabled": true}}), true, false},
		{"enabled: null", set("spec.syncPolicy", object{"automated": object{"enabled": nil}}), true, false},
		{"only prune", set("spec.syncPolicy", object{"automated": object{"prune": true}}), true, true},
		{"all false but enabled", set("spec.syncPolicy", object{"automated": object{"prune": false, "selfHeal": false}}), true, false},
		{"enabled: false", set("spec.syncPolicy", object{"automated": object{"enabled": false}}), false, false},
		{"enabled: false beside prune", set("spec.syncPolicy", object{"automated": object{"enabled": false, "prune": true}}), false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			app := parse(t, test.change)
			assert.Equal(t, test.automated, app.policy.automated)
			assert.Equal(t, test.prune, app.policy.prune)
		})
	}
}

// The controller reads the annotation by strconv.ParseBool.
func TestAnApplicationIsSkippedWhereItsControllerSkipsIt(t *testing.T) {
	t.Parallel()
	for value, skipped := range map[string]bool{
		"true": true, "True": true, "TRUE": true, "t": true, "1": true,
		"false": false, "0": false, "": false, "yes": false,
	} {
		app := parse(t, set("metadata.annotations", object{skipReconcile: value}))
		assert.Equal(t, skipped, app.skipped, "%q", value)
	}
}

func TestAnOperationNamesWhoStartedItAndWhatItIs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		operation object
		want      operation
	}{
		{"empty", object{}, operation{}},
		{"by a person", object{"initiatedBy": object{"username": "alice"}, "sync": object{"revision": commitC}}, operation{initiator: "alice", revision: commitC}},
		{"by automated sync", object{"initiatedBy": object{"automated": true}}, operation{initiator: "automated sync"}},
		{"by a host", object{
			"initiatedBy": object{"username": "host", "automated": true},
			"info":        []any{object{"name": "reason", "value": "x"}, object{"name": DefaultInfoKey, "value": token}},
			"sync":        object{"revision": commitB},
		}, operation{initiator: "host", token: token, revision: commitB}},
		{"a dry run", object{"sync": object{"dryRun": true}}, operation{partial: "a dry run"}},
		{"of some resources", object{"sync": object{"resources": []any{object{"kind": "Job", "name": "seed"}}}}, operation{partial: "a sync of selected resources"}},
		{"of local manifests", object{"sync": object{"manifests": []any{"{}"}}}, operation{partial: "a sync of local manifests"}},
		{"with lists that are empty", object{"sync": object{"resources": []any{}, "manifests": []any{}, "dryRun": false}}, operation{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			app := parse(t, set("operation", test.operation), set("status.operationState.operation", test.operation))
			assert.Equal(t, test.want, *app.operation)
			assert.Equal(t, test.want, app.state.operation)
		})
	}
}

// The finishedAt of an operation that waits for its own retry is no end.
func TestOnlyAFinalPhaseCompletesAnOperation(t *testing.T) {
	t.Parallel()
	for phase, completed := range map[string]bool{
		"Running": false, "Terminating": false, "": false, "Succeeded": true, "Failed": true, "Error": true,
	} {
		app := parse(t, set("status.operationState.phase", phase), set("status.operationState.finishedAt", "2026-01-02T15:00:01Z"))
		assert.Equal(t, completed, app.state.completed(), phase)
		assert.Equal(t, !completed, app.busy(), phase)
		assert.Equal(t, !completed, app.orphaned(), phase)
	}
	pending := parse(t, set("operation", object{}))
	assert.True(t, pending.busy())
	assert.False(t, pending.orphaned())
	idle := parse(t, remove("status"))
	assert.False(t, idle.busy())
	assert.False(t, idle.orphaned())
}

func TestAFieldOfTheWrongTypeIsAnErrorThatNamesIt(t *testing.T) {
	t.Parallel()
	for path, value := range map[string]any{
		"spec.source.repoURL":                                  7,
		"spec.source.targetRevision":                           []any{},
		"spec.sources":                                         "one",
		"spec.syncPolicy.automated.enabled":                    "no",
		"spec.syncPolicy.automated.prune":                      "no",
		"spec.syncPolicy.syncOptions":                          object{},
		"spec.syncPolicy.retry":                                []any{},
		"operation.sync.revision":                              true,
		"operation.info":                                       "text",
		"status.operationState.phase":                          object{},
		"status.operationState.syncResult.revision":            int64(7),
		"status.operationState.operation.sync.dryRun":          "yes",
		"status.operationState.operation.initiatedBy":          "alice",
		"status.operationState.syncResult.resources":           object{},
		"status.operationState.operation.initiatedBy.username": int64(7),
	} {
		u := newApplication()
		require.NoError(t, unstructured.SetNestedField(u.Object, runtimeValue(value), strings.Split(path, ".")...))
		_, err := parseApplication(u, DefaultInfoKey)
		assert.ErrorContains(t, err, path)
	}
}

func runtimeValue(value any) any {
	if number, ok := value.(int); ok {
		return int64(number)
	}
	return value
}

func FuzzAnyApplicationIsJudgedWithoutPanic(f *testing.F) {
	for _, u := range []*unstructured.Unstructured{
		newApplication(),
		newApplication(remove("status"), remove("spec")),
		newApplication(set("status.operationState", record("host", token, commitB, "Succeeded", ""))),
		newApplication(set("status.operationState", record("host", token, commitC, "Running", "waiting")), set("operation", object{"info": []any{}})),
	} {
		text, err := json.Marshal(u.Object)
		require.NoError(f, err)
		f.Add(text)
	}
	c := newClient(f, Options{})
	f.Fuzz(func(t *testing.T, text []byte) {
		u := &unstructured.Unstructured{}
		if json.Unmarshal(text, &u.Object) != nil || u.Object == nil {
			return
		}
		app, err := parseApplication(u, DefaultInfoKey)
		if err != nil {
			assert.ErrorContains(t, err, "field ")
			return
		}
		verdict := c.judge(app)
		assert.NotEmpty(t, verdict.Reason)
		assert.NotEmpty(t, verdict.Message)
		if verdict.OK {
			assert.True(t, app.source.present)
			assert.False(t, app.policy.automated)
		}
		(&request{client: c, ask: applier.Ask{Commit: commitB, Token: token}}).update(app)
		app.busy()
		p := following{started: applier.Started{Token: token, Commit: commitB}}.where(app)
		assert.NotEmpty(t, p.State)
		assert.Equal(t, p.State.Ended(), p.Reason != "")
		if p.State == applier.StateSucceeded {
			assert.Equal(t, token, app.state.operation.token)
			assert.NotEmpty(t, p.AppliedRevision)
		}
	})
}
