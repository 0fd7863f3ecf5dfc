package differential_test

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

func (s sample) String() string { return s.kind + "." + s.resource.Version }

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
	helmChart, helmRepository, ociRepository, bucket, applicationSet,
}
