package differential_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// A step is one call, or a few that belong together. What it does depends on what the world answered before, but not
// on any other world: the same steps can be run in both.
type step struct {
	text string
	do   func(w *world)
}

// sample is one of the kinds that sequences work on.
type sample struct {
	resource  schema.GroupVersionResource
	kind      string
	base      map[string]any
	status    bool
	spec      []fragment
	statuses  []fragment
	jsonPatch []string
}

// A fragment changes one thing of an object or of a patch.
type fragment func(object map[string]any)

func set(value any, path ...string) fragment {
	return func(object map[string]any) {
		_ = unstructured.SetNestedField(object, runtime.DeepCopyJSONValue(value), path...)
	}
}

func spec(value any, path ...string) fragment {
	return set(value, append([]string{"spec"}, path...)...)
}

func status(value any, path ...string) fragment {
	return set(value, append([]string{"status"}, path...)...)
}

func meta(value any, path ...string) fragment {
	return set(value, append([]string{"metadata"}, path...)...)
}

type (
	m = map[string]any
	l = []any
)

var metaFragments = []fragment{
	meta("x", "labels", "l1"),
	meta("y", "labels", "l1"),
	meta("z", "labels", "l2"),
	meta(nil, "labels"),
	meta(nil, "labels", "l1"),
	meta("not valid!", "labels", "l1"),
	meta(int64(5), "labels", "l1"),
	meta("v1", "annotations", "a1"),
	meta("v2", "annotations", "a1"),
	meta("t1", "annotations", "reconcile.fluxcd.io/requestedAt"),
	meta(nil, "annotations", "a1"),
	meta(nil, "annotations"),
	meta(l{"example.com/hold"}, "finalizers"),
	meta(l{"example.com/hold"}, "finalizers"),
	meta(l{"example.com/hold", "example.com/other"}, "finalizers"),
	meta(l{}, "finalizers"),
	meta(nil, "finalizers"),
	meta(l{m{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}}, "ownerReferences"),
	meta(l{m{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}, m{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}}, "ownerReferences"),
	meta(l{m{"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}}, "ownerReferences"),
	meta("what", "bogus"),
	meta(int64(7), "generation"),
	meta("2001-02-03T04:05:06Z", "creationTimestamp"),
	meta("2001-02-03T04:05:06Z", "deletionTimestamp"),
	meta(nil, "creationTimestamp"),
	meta("elsewhere", "namespace"),
	meta("another", "name"),
}

func condition(kind, state, reason string) m {
	return m{"type": kind, "status": state, "reason": reason, "message": "said so", "lastTransitionTime": "2024-01-02T03:04:05Z"}
}

var kustomization = sample{
	resource: schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Resource: "kustomizations"},
	kind:     "Kustomization",
	status:   true,
	base: m{
		"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": m{},
		"spec": m{"interval": "10m", "prune": true, "sourceRef": m{"kind": "GitRepository", "name": "s"}},
	},
	spec: []fragment{
		spec(true, "suspend"), spec(true, "suspend"), spec(false, "suspend"), spec(false, "suspend"), spec(nil, "suspend"),
		spec("1m", "interval"), spec("10m", "interval"), spec("soon", "interval"), spec(int64(5), "interval"), spec(nil, "interval"),
		spec(true, "prune"), spec(false, "prune"), spec("yes", "prune"),
		spec(m{"kind": "GitRepository", "name": "s"}, "sourceRef"), spec(m{"kind": "Bucket", "name": "b", "namespace": "n"}, "sourceRef"),
		spec(m{"kind": "Nothing", "name": "b"}, "sourceRef"), spec(m{"kind": "Bucket"}, "sourceRef"), spec(nil, "sourceRef"),
		spec("./x", "path"), spec("./y", "path"), spec(nil, "path"), spec("", "targetNamespace"), spec("t", "targetNamespace"),
		spec("2m", "timeout"), spec(true, "wait"), spec(true, "force"), spec(nil, "force"),
		spec(l{m{"name": "d1"}}, "dependsOn"), spec(l{m{"name": "d1"}, m{"name": "d2", "namespace": "n"}}, "dependsOn"), spec(l{m{"namespace": "n"}}, "dependsOn"), spec("d1", "dependsOn"), spec(l{}, "dependsOn"),
		spec(l{m{"apiVersion": "v1", "kind": "ConfigMap", "name": "h"}}, "healthChecks"), spec(l{m{"kind": "ConfigMap"}}, "healthChecks"),
		spec("w", "postBuild", "substitute", "k"), spec(nil, "postBuild", "substitute", "k"), spec(l{m{"kind": "Secret", "name": "x"}}, "postBuild", "substituteFrom"),
		spec(l{m{"kind": "Secret", "name": "x", "optional": nil}}, "postBuild", "substituteFrom"),
		spec(l{m{"patch": "p", "target": m{"kind": "Deployment"}}}, "patches"), spec(l{m{"target": m{}}}, "patches"),
		spec(l{"originAnnotations"}, "buildMetadata"), spec(l{"no"}, "buildMetadata"), spec(l{"originAnnotations", "originAnnotations"}, "buildMetadata"),
		spec(m{"a": "b"}, "commonMetadata", "labels"), spec("Orphan", "deletionPolicy"), spec("Never", "deletionPolicy"),
		spec(l{m{"name": "i", "newTag": "1", "bogus": true}}, "images"),
		spec("what", "bogus"), spec(m{"deep": l{int64(1)}}, "bogus"), set(m{}, "spec"), set(nil, "spec"), set("text", "spec"), set("top", "bogus"),
		set(int64(1), "kind"), set("Else", "kind"), set("kustomize.toolkit.fluxcd.io/v9", "apiVersion"),
	},
	statuses: []fragment{
		status(int64(1), "observedGeneration"), status(int64(-1), "observedGeneration"), status("one", "observedGeneration"), status(1.5, "observedGeneration"), status(nil, "observedGeneration"),
		status("t1", "lastHandledReconcileAt"), status("t2", "lastHandledReconcileAt"), status(nil, "lastHandledReconcileAt"),
		status("main@sha1:abc", "lastAppliedRevision"),
		status(l{condition("Ready", "True", "ReconciliationSucceeded")}, "conditions"),
		status(l{condition("Ready", "Unknown", "Progressing"), condition("Reconciling", "True", "Progressing")}, "conditions"),
		status(l{condition("Ready", "Perhaps", "Progressing")}, "conditions"), status(l{condition("Ready", "True", "")}, "conditions"), status(l{m{"type": "Ready"}}, "conditions"), status(l{}, "conditions"),
		status(l{m{"id": "a_b__ConfigMap", "v": "v1"}}, "inventory", "entries"), status(m{}, "inventory"), status(nil, "inventory"),
		status(l{m{"digest": "d", "firstReconciled": "2024-01-02T03:04:05Z", "lastReconciled": "2024-01-02T03:04:05Z", "lastReconciledDuration": "1s", "lastReconciledStatus": "ok", "totalReconciliations": int64(1)}}, "history"),
		status(l{m{"digest": "d", "firstReconciled": "yesterday", "lastReconciled": "2024-01-02T03:04:05Z", "lastReconciledDuration": "1s", "lastReconciledStatus": "ok", "totalReconciliations": int64(1)}}, "history"),
		status("what", "bogus"), set(m{}, "status"), set(nil, "status"), set("text", "status"),
	},
	jsonPatch: []string{
		`{"op":"add","path":"/spec/suspend","value":true}`, `{"op":"replace","path":"/spec/suspend","value":false}`, `{"op":"remove","path":"/spec/suspend"}`,
		`{"op":"add","path":"/spec/path","value":"./j"}`, `{"op":"replace","path":"/spec/interval","value":"3m"}`, `{"op":"replace","path":"/spec/interval","value":"never"}`,
		`{"op":"test","path":"/spec/prune","value":true}`, `{"op":"test","path":"/metadata/generation","value":1}`,
		`{"op":"add","path":"/metadata/annotations","value":{"j":"1"}}`, `{"op":"add","path":"/metadata/annotations/a1","value":"j"}`, `{"op":"remove","path":"/metadata/annotations/a1"}`,
		`{"op":"remove","path":"/metadata/finalizers"}`, `{"op":"add","path":"/metadata/finalizers","value":["example.com/hold"]}`,
		`{"op":"replace","path":"/status","value":{"lastHandledReconcileAt":"j"}}`, `{"op":"add","path":"/status/lastHandledReconcileAt","value":"j"}`,
		`{"op":"add","path":"/spec/bogus","value":1}`, `{"op":"move","from":"/spec/path","path":"/spec/timeout"}`, `{"op":"bad","path":"/spec/path"}`, `{"op":"add","path":"/no/such/place","value":1}`,
		`{"op":"replace","path":"/metadata/resourceVersion","value":"1"}`, `{"op":"remove","path":"/metadata/managedFields"}`, `{"op":"remove","path":"/spec"}`, `{"op":"remove","path":"/metadata/labels"}`,
		`{"op":"replace","path":"/metadata/name","value":"z"}`, `{"op":"copy","from":"/spec/interval","path":"/spec/timeout"}`,
	},
}

var gitRepository = sample{
	resource: schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"},
	kind:     "GitRepository",
	status:   true,
	base: m{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": m{},
		"spec": m{"interval": "1m", "url": "https://git.example.com/acme/shop"},
	},
	spec: []fragment{
		spec("ssh://git@git.example.com/acme/shop", "url"), spec("ftp://x", "url"), spec(nil, "url"), spec("2m", "interval"), spec("x", "interval"),
		spec("main", "ref", "branch"), spec("v1", "ref", "tag"), spec(nil, "ref"), spec(m{}, "ref"), spec(true, "suspend"), spec(m{"name": "s"}, "secretRef"), spec(m{}, "secretRef"),
		spec(l{m{"repository": m{"name": "r"}}}, "include"), spec("azure", "provider"), spec("other", "provider"), spec("30s", "timeout"), spec(nil, "timeout"), spec(l{"a", "a"}, "sparseCheckout"), spec(m{"mode": "HEAD", "secretRef": m{"name": "k"}}, "verify"), spec(m{"mode": "x"}, "verify"),
		spec(int64(1), "bogus"),
	},
	statuses: []fragment{
		status(int64(1), "observedGeneration"), status("t", "lastHandledReconcileAt"),
		status(m{"digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "lastUpdateTime": "2024-01-02T03:04:05Z", "path": "p", "revision": "main@sha1:a", "url": "http://u"}, "artifact"),
		status(m{"path": "p"}, "artifact"), status(m{"digest": "x", "lastUpdateTime": "2024-01-02T03:04:05Z", "path": "p", "revision": "r", "url": "u"}, "artifact"),
		status(l{condition("Ready", "True", "Succeeded")}, "conditions"), set(nil, "status"),
	},
	jsonPatch: []string{
		`{"op":"add","path":"/spec/ref","value":{"branch":"main"}}`, `{"op":"replace","path":"/spec/ref/branch","value":"dev"}`, `{"op":"add","path":"/metadata/annotations","value":{"j":"1"}}`,
		`{"op":"remove","path":"/spec/timeout"}`, `{"op":"add","path":"/status/artifact","value":{}}`,
	},
}

var configMap = sample{
	resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	kind:     "ConfigMap",
	base:     m{"apiVersion": "v1", "kind": "ConfigMap", "metadata": m{}, "data": m{"k": "v"}},
	spec: []fragment{
		set("v1", "data", "k"), set("v2", "data", "k"), set("w", "data", "k2"), set(nil, "data", "k"), set(nil, "data"), set(int64(1), "data", "k"), set("aGk=", "binaryData", "b"), set("?", "binaryData", "b"),
		set(true, "immutable"), set(false, "immutable"), set("what", "bogus"), set("v", "data", "not a key"), set("text", "data"),
	},
	jsonPatch: []string{
		`{"op":"add","path":"/data/k","value":"j"}`, `{"op":"remove","path":"/data/k"}`, `{"op":"remove","path":"/data"}`, `{"op":"add","path":"/data","value":{"n":"1"}}`, `{"op":"add","path":"/bogus","value":1}`,
	},
}

var helmRelease = sample{
	resource: schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"},
	kind:     "HelmRelease",
	status:   true,
	base: m{
		"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": m{},
		"spec": m{"interval": "1m", "chartRef": m{"kind": "HelmChart", "name": "c"}},
	},
	spec: []fragment{
		spec(m{"any": m{"thing": l{int64(1), "x", nil, 1.5}}}, "values"), spec("v", "values", "a"), spec(nil, "values", "a"), spec(nil, "values"), spec(l{}, "values"),
		spec(m{}, "uninstall"), spec("foreground", "uninstall", "deletionPropagation"), spec(nil, "uninstall"), spec(int64(2), "upgrade", "remediation", "retries"),
		spec(l{m{"kind": "Secret", "name": "s"}}, "valuesFrom"), spec(l{m{"kind": "Nothing", "name": "s"}}, "valuesFrom"), spec("no", "install", "crds"),
		spec(int64(5), "maxHistory"), spec("five", "maxHistory"), spec(5.5, "maxHistory"), spec(l{m{"kustomize": m{"patches": l{m{"patch": "p"}}}}}, "postRenderers"),
	},
	statuses: []fragment{
		status(int64(3), "failures"), status(int64(1), "observedGeneration"), status(l{condition("Ready", "True", "InstallSucceeded")}, "conditions"),
		status(l{m{"chartName": "c", "chartVersion": "1", "configDigest": "d", "digest": "d", "firstDeployed": "2024-01-02T03:04:05Z", "lastDeployed": "2024-01-02T03:04:05Z", "name": "n", "namespace": "n", "status": "deployed", "version": int64(1)}}, "history"),
	},
	jsonPatch: []string{`{"op":"add","path":"/spec/values","value":{"j":[1,2]}}`, `{"op":"add","path":"/spec/values/k","value":1.0}`},
}

var application = sample{
	resource: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"},
	kind:     "Application",
	base: m{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": m{},
		"spec": m{"project": "default", "destination": m{"server": "https://kubernetes.default.svc"}, "source": m{"repoURL": "https://git.example.com/acme/shop", "path": "."}},
	},
	spec: []fragment{
		spec("main", "source", "targetRevision"), spec(nil, "source"), spec(int64(5), "project"), spec(nil, "project"), spec(m{"automated": m{"prune": true}}, "syncPolicy"), spec(nil, "syncPolicy"), spec(l{"CreateNamespace=true"}, "syncPolicy", "syncOptions"),
		set(m{"sync": m{"revision": "abc", "prune": true}, "initiatedBy": m{"username": "lib"}}, "operation"), set(m{"sync": m{"revision": "def"}, "retry": m{"limit": int64(3)}}, "operation"), set(nil, "operation"), set("text", "operation"), set(m{"sync": m{"syncStrategy": m{"hook": m{"force": nil}}}}, "operation"),
		status(m{"phase": "Running", "message": "m", "startedAt": "2024-01-02T03:04:05Z", "operation": m{"sync": m{"revision": "abc"}}}, "operationState"),
		status(m{"phase": "Succeeded"}, "operationState"), status(nil, "operationState"), set(nil, "status"), status("Synced", "sync", "status"), status("2024-01-02T03:04:05Z", "reconciledAt"), status("today", "reconciledAt"),
		spec("what", "bogus"),
	},
	jsonPatch: []string{
		`{"op":"remove","path":"/operation"}`, `{"op":"add","path":"/operation","value":{"sync":{"revision":"j"}}}`, `{"op":"remove","path":"/status/operationState"}`, `{"op":"add","path":"/status","value":{"sync":{"status":"Synced"}}}`, `{"op":"replace","path":"/spec/project","value":"other"}`,
	},
}

var event = sample{
	resource: schema.GroupVersionResource{Version: "v1", Resource: "events"},
	kind:     "Event",
	base: m{
		"apiVersion": "v1", "kind": "Event", "metadata": m{},
		"involvedObject": m{"kind": "Kustomization", "name": "a", "namespace": "elsewhere"}, "reason": "R", "message": "m", "type": "Normal",
	},
	spec: []fragment{
		set(int64(2), "count"), set("n", "message"), set("2024-01-02T03:04:05Z", "lastTimestamp"), set("today", "lastTimestamp"), set(m{"component": "c"}, "source"), set(m{"kind": "Kustomization", "name": "a"}, "involvedObject"), set("what", "bogus"),
	},
	jsonPatch: []string{`{"op":"replace","path":"/message","value":"j"}`, `{"op":"add","path":"/count","value":3}`},
}

var lease = sample{
	resource: schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	kind:     "Lease",
	base:     m{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": m{}, "spec": m{"holderIdentity": "x", "leaseDurationSeconds": int64(15)}},
	spec: []fragment{
		spec("y", "holderIdentity"), spec(nil, "holderIdentity"), spec("2024-01-02T03:04:05.123456Z", "renewTime"), spec("2024-01-02T03:04:05Z", "renewTime"), spec(int64(1), "leaseTransitions"), set(nil, "spec"),
	},
	jsonPatch: []string{`{"op":"replace","path":"/spec/holderIdentity","value":"j"}`},
}

var secret = sample{
	resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"},
	kind:     "Secret",
	base:     m{"apiVersion": "v1", "kind": "Secret", "metadata": m{}, "data": m{"k": "dg=="}},
	spec: []fragment{
		set("dg==", "data", "k"), set("dzE=", "data", "k2"), set(nil, "data"), set("?", "data", "k"), set("plain", "stringData", "s"), set("plain", "stringData", "k"), set("other", "type"), set("Opaque", "type"), set(nil, "type"),
		set(true, "immutable"), set("what", "bogus"), set("dg==", "data", "not a key"),
	},
	jsonPatch: []string{`{"op":"add","path":"/data/k","value":"ag=="}`, `{"op":"remove","path":"/data/k"}`, `{"op":"add","path":"/stringData","value":{"j":"1"}}`},
}

var role = sample{
	resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	kind:     "Role",
	base:     m{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": m{}, "rules": l{m{"apiGroups": l{""}, "resources": l{"pods"}, "verbs": l{"get"}}}},
	spec: []fragment{
		set(l{m{"apiGroups": l{""}, "resources": l{"pods"}, "verbs": l{"list"}}}, "rules"), set(l{}, "rules"), set(nil, "rules"), set("what", "bogus"),
	},
	jsonPatch: []string{`{"op":"add","path":"/rules/0/verbs/-","value":"watch"}`, `{"op":"remove","path":"/rules"}`},
}

// samples, the more important ones more than once.
var samples = []sample{
	kustomization, kustomization, kustomization, kustomization, kustomization, gitRepository, gitRepository, application, application,
	widget, widget, widget, widgetV2, helmRelease, configMap, secret, role, event, lease,
}

var (
	names    = []string{"a", "a", "a", "b"}
	managers = []string{"m1", "m2", "m3", "m1", ""}
)

// generator makes the steps of one sequence.
type generator struct {
	*rand.Rand
	sample sample
}

func pick[T any](g *rand.Rand, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func sequence(seed uint64, longest int) []step {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	first := pick(g.Rand, samples)
	var steps []step
	for range 2 + g.IntN(longest-1) {
		g.sample = first
		if g.chance(10) {
			g.sample = pick(g.Rand, samples)
		} else if first.kind == widget.kind && g.chance(25) {
			g.sample = pick(g.Rand, []sample{widget, widgetV2})
		}
		steps = append(steps, g.step(len(steps)))
	}
	return steps
}

func (g *generator) step(at int) step {
	makers := []struct {
		weight int
		make   func() step
	}{
		{14, g.create}, {12, g.update}, {18, g.apply}, {10, g.merge}, {8, g.json}, {2, g.strategic}, {10, g.writeStatus}, {7, g.delete}, {5, g.get}, {6, g.list}, {2, g.deleteAll},
	}
	if at == 0 && g.chance(70) {
		return g.create()
	}
	total := 0
	for _, maker := range makers {
		total += maker.weight
	}
	n := g.IntN(total)
	for _, maker := range makers {
		if n -= maker.weight; n < 0 {
			return maker.make()
		}
	}
	panic("unreachable")
}

func (g *generator) fragments(from []fragment, most int) []fragment {
	var out []fragment
	if len(from) == 0 {
		return nil
	}
	for range g.IntN(most + 1) {
		out = append(out, pick(g.Rand, from))
	}
	return out
}

// changes are a few fragments, of metadata and spec, seldom of status.
func (g *generator) changes() []fragment {
	out := g.fragments(g.sample.spec, 2)
	if g.chance(45) {
		out = append(out, g.fragments(metaFragments, 2)...)
	}
	if len(g.sample.statuses) > 0 && g.chance(10) {
		out = append(out, g.fragments(g.sample.statuses, 1)...)
	}
	return out
}

func change(object map[string]any, by []fragment) map[string]any {
	out := runtime.DeepCopyJSON(object)
	for _, f := range by {
		f(out)
	}
	return out
}

func (g *generator) dryRun() []string {
	if g.chance(7) {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (g *generator) validation() string {
	if g.chance(20) {
		return pick(g.Rand, []string{"Strict", "Ignore", "Warn", "Wrong"})
	}
	return ""
}

func compact(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func key(s sample, name string) string { return s.kind + " " + name }

func (g *generator) create() step {
	s, name := g.sample, pick(g.Rand, names)
	body := s.base
	if g.chance(35) {
		body = change(body, g.changes())
	}
	body = change(body, nil)
	by, on := "name", name
	if g.chance(4) {
		by, on = "generateName", "gen-"
	}
	if text := body["metadata"]; text != nil {
		meta(on, by)(body)
	}
	if g.chance(6) {
		meta("1", "resourceVersion")(body)
	}
	options := metav1.CreateOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("create %s %s %+v", s.kind, compact(body), createText(options))
	return step{text, func(w *world) {
		body := runtime.DeepCopyJSON(body)
		if s.kind == "Event" {
			w.inNamespace(body)
		}
		object, err := w.of(s.resource).Create(w.ctx, &unstructured.Unstructured{Object: body}, options)
		w.answer(text, object, err)
		if err == nil && len(options.DryRun) == 0 {
			w.remember(key(s, object.GetName()), object)
		}
	}}
}

// inNamespace makes an event one of something in the world's namespace, where it belongs.
func (w *world) inNamespace(event map[string]any) {
	if about, ok := event["involvedObject"].(map[string]any); ok {
		if _, named := about["namespace"]; named {
			about["namespace"] = w.namespace
		}
	}
}

func createText(o metav1.CreateOptions) string {
	return fmt.Sprintf("by=%q dry=%v validation=%q", o.FieldManager, len(o.DryRun) > 0, o.FieldValidation)
}

// stale says from which earlier answer a write takes its resourceVersion: 0 is the latest, -1 none, -2 garbage.
func (g *generator) revision() func(w *world, key string) string {
	switch n := g.IntN(100); {
	case n < 70:
		return func(w *world, key string) string { return back(w.versions[key], 0, "") }
	case n < 85:
		return func(w *world, key string) string { return back(w.versions[key], 1, "3") }
	case n < 93:
		return func(*world, string) string { return "" }
	case n < 96:
		return func(*world, string) string { return "0" }
	default:
		return func(*world, string) string { return "garbage" }
	}
}

func (g *generator) uid() func(w *world, key string) string {
	switch n := g.IntN(100); {
	case n < 60:
		return func(w *world, key string) string { return back(w.uids[key], 0, "11111111-0000-0000-0000-000000000000") }
	case n < 80:
		return func(w *world, key string) string { return back(w.uids[key], 1, "22222222-0000-0000-0000-000000000000") }
	default:
		return func(*world, string) string { return "33333333-0000-0000-0000-000000000000" }
	}
}

func (g *generator) update() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(15)
	changes := g.changes()
	if subresource {
		changes = append(changes, g.fragments(s.statuses, 2)...)
	}
	revision := g.revision()
	uid := g.uid()
	withUID := g.chance(15)
	options := metav1.UpdateOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("update %s %s status=%v %s by=%q dry=%v validation=%q", s.kind, name, subresource,
		compact(change(m{}, changes)), options.FieldManager, len(options.DryRun) > 0, options.FieldValidation)
	return step{text, func(w *world) {
		object := &unstructured.Unstructured{Object: change(s.base, nil)}
		if last := w.last[key(s, name)]; last != nil {
			object = last.DeepCopy()
		}
		object.SetName(name)
		object.SetResourceVersion(revision(w, key(s, name)))
		if withUID {
			object.SetUID(types.UID(uid(w, key(s, name))))
		}
		object.Object = change(object.Object, changes)
		// The client takes the name of the URL from the object.
		call := w.of(s.resource).Update
		if subresource {
			updated, err := w.of(s.resource).UpdateStatus(w.ctx, object, options)
			w.written(text, s, updated, err, options.DryRun)
			return
		}
		updated, err := call(w.ctx, object, options)
		w.written(text, s, updated, err, options.DryRun)
	}}
}

func (w *world) written(text string, s sample, object *unstructured.Unstructured, err error, dryRun []string) {
	w.answer(text, object, err)
	if err == nil && len(dryRun) == 0 {
		w.remember(key(s, object.GetName()), object)
	}
}

func (g *generator) apply() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(12)
	body := m{"apiVersion": s.base["apiVersion"], "kind": s.base["kind"], "metadata": m{}}
	if g.chance(25) {
		body = change(s.base, nil)
	}
	body = change(body, g.changes())
	if subresource {
		body = change(body, g.fragments(s.statuses, 2))
	}
	if g.chance(97) && body["metadata"] != nil {
		meta(name, "name")(body)
	}
	revision, withRevision := g.revision(), g.chance(20)
	uid, withUID := g.uid(), g.chance(20)
	force := g.chance(40)
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	if force {
		options.Force = &force
	}
	text := fmt.Sprintf("apply %s %s status=%v %s by=%q force=%v dry=%v validation=%q rv=%v uid=%v", s.kind, name, subresource, compact(body),
		options.FieldManager, force, len(options.DryRun) > 0, options.FieldValidation, withRevision, withUID)
	return step{text, func(w *world) {
		body := change(body, nil)
		if withRevision {
			meta(revision(w, key(s, name)), "resourceVersion")(body)
		}
		if withUID {
			meta(uid(w, key(s, name)), "uid")(body)
		}
		w.patch(text, s, name, types.ApplyPatchType, []byte(compact(body)), options, subresource)
	}}
}

func (w *world) patch(text string, s sample, name string, kind types.PatchType, body []byte, options metav1.PatchOptions, subresource bool) {
	var subresources []string
	if subresource {
		subresources = []string{"status"}
	}
	object, err := w.of(s.resource).Patch(w.ctx, name, kind, body, options, subresources...)
	w.written(text, s, object, err, options.DryRun)
}

func (g *generator) merge() step {
	return g.mergeOf("merge", types.MergePatchType)
}

func (g *generator) strategic() step {
	return g.mergeOf("strategic", types.StrategicMergePatchType)
}

func (g *generator) mergeOf(verb string, kind types.PatchType) step {
	s, name := g.sample, pick(g.Rand, names)
	body := change(m{}, g.changes())
	subresource := s.status && g.chance(15)
	if subresource {
		body = change(body, g.fragments(s.statuses, 2))
	}
	revision, withRevision := g.revision(), g.chance(15)
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("%s %s %s status=%v %s by=%q dry=%v validation=%q rv=%v", verb, s.kind, name, subresource, compact(body),
		options.FieldManager, len(options.DryRun) > 0, options.FieldValidation, withRevision)
	return step{text, func(w *world) {
		body := change(body, nil)
		if withRevision {
			meta(revision(w, key(s, name)), "resourceVersion")(body)
		}
		w.patch(text, s, name, kind, []byte(compact(body)), options, subresource)
	}}
}

func (g *generator) json() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(15)
	body := "["
	for i := range 1 + g.IntN(2) {
		if i > 0 {
			body += ","
		}
		body += pick(g.Rand, s.jsonPatch)
	}
	body += "]"
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("json %s %s status=%v %s by=%q dry=%v validation=%q", s.kind, name, subresource, body,
		options.FieldManager, len(options.DryRun) > 0, options.FieldValidation)
	return step{text, func(w *world) {
		w.patch(text, s, name, types.JSONPatchType, []byte(body), options, subresource)
	}}
}

// writeStatus is what a controller does: read, change the status, write it back.
func (g *generator) writeStatus() step {
	s, name := g.sample, pick(g.Rand, names)
	changes := g.fragments(s.statuses, 3)
	merge := g.chance(50)
	manager := pick(g.Rand, managers)
	text := fmt.Sprintf("status %s %s %s merge=%v by=%q", s.kind, name, compact(change(m{}, changes)), merge, manager)
	if !s.status {
		return g.get()
	}
	return step{text, func(w *world) {
		if merge {
			body := []byte(compact(change(m{}, changes)))
			w.patch(text, s, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager}, true)
			return
		}
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.answer(text, nil, err)
			return
		}
		object.Object = change(object.Object, changes)
		updated, err := w.of(s.resource).UpdateStatus(w.ctx, object, metav1.UpdateOptions{FieldManager: manager})
		w.written(text, s, updated, err, nil)
	}}
}

func (g *generator) delete() step {
	s, name := g.sample, pick(g.Rand, names)
	var options metav1.DeleteOptions
	uid, withUID := g.uid(), g.chance(25)
	revision, withRevision := g.revision(), g.chance(20)
	options.DryRun = g.dryRun()
	if g.chance(25) {
		policy := pick(g.Rand, []metav1.DeletionPropagation{
			metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan, "Wrong",
		})
		options.PropagationPolicy = &policy
	}
	text := fmt.Sprintf("delete %s %s uid=%v rv=%v policy=%v dry=%v", s.kind, name, withUID, withRevision, compact(options.PropagationPolicy), len(options.DryRun) > 0)
	return step{text, func(w *world) {
		options := options
		if withUID || withRevision {
			options.Preconditions = &metav1.Preconditions{}
		}
		if withUID {
			want := types.UID(uid(w, key(s, name)))
			options.Preconditions.UID = &want
		}
		if withRevision {
			want := revision(w, key(s, name))
			options.Preconditions.ResourceVersion = &want
		}
		err := w.of(s.resource).Delete(w.ctx, name, options)
		w.answer(text, nil, err)
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{})
		w.answer("  get after delete", object, err)
	}}
}

func (g *generator) get() step {
	s, name := g.sample, pick(g.Rand, names)
	var subresources []string
	if g.chance(20) {
		subresources = []string{"status"}
	}
	if g.chance(3) {
		subresources = []string{"nothing"}
	}
	text := fmt.Sprintf("get %s %s %v", s.kind, name, subresources)
	return step{text, func(w *world) {
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{}, subresources...)
		w.answer(text, object, err)
		if err == nil {
			w.remember(key(s, name), object)
		}
	}}
}

func (g *generator) list() step {
	s := g.sample
	options := metav1.ListOptions{
		LabelSelector: pick(g.Rand, []string{"", "", "", "l1=x", "l1", "!l1", "l1 in (x,y)", "l1=="}),
		FieldSelector: pick(g.Rand, []string{"", "", "", "metadata.name=a", "metadata.name!=a", "spec.path=./x", "metadata.namespace=elsewhere"}),
		Limit:         pick(g.Rand, []int64{0, 0, 1}),
	}
	text := fmt.Sprintf("list %s labels=%q fields=%q limit=%d", s.kind, options.LabelSelector, options.FieldSelector, options.Limit)
	return step{text, func(w *world) {
		options := options
		for page := 1; ; page++ {
			list, err := w.of(s.resource).List(w.ctx, options)
			a := answer{call: fmt.Sprintf("%s page %d", text, page), err: err}
			if err == nil {
				for i := range list.Items {
					a.objects = append(a.objects, &list.Items[i])
				}
				a.note = fmt.Sprintf("%s %s remaining=%v", list.GetAPIVersion(), list.GetKind(), compact(list.GetRemainingItemCount()))
			}
			w.answers = append(w.answers, a)
			if err != nil || list.GetContinue() == "" || page == 5 {
				return
			}
			options.Continue = list.GetContinue()
		}
	}}
}

func (g *generator) deleteAll() step {
	s := g.sample
	selector := pick(g.Rand, []string{"", "l1=x", "l1=x"})
	text := fmt.Sprintf("deletecollection %s labels=%q", s.kind, selector)
	return step{text, func(w *world) {
		err := w.of(s.resource).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
		w.answer(text, nil, err)
	}}
}
