package differential_test

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kinds that no simulated controller works for: what tests of them write, status included, is kept as the real server keeps it.

func sourceKind(kind, resource string, specOf m, fragments ...fragment) sample {
	return sample{
		resource: schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: resource},
		kind:     kind,
		status:   true,
		base:     m{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": m{}, "spec": specOf},
		spec: append([]fragment{
			spec("2m", "interval"), spec("x", "interval"), spec(nil, "interval"), spec(true, "suspend"), spec(int64(1), "bogus"),
		}, fragments...),
		statuses: []fragment{
			status(int64(1), "observedGeneration"), status("t", "lastHandledReconcileAt"), status(l{condition("Ready", "False", "Failed")}, "conditions"), set(nil, "status"),
			status(m{"digest": "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "lastUpdateTime": "2024-01-02T03:04:05Z", "path": "p", "revision": "1.0.0", "url": "http://u"}, "artifact"),
			status(m{"path": "p"}, "artifact"),
		},
		jsonPatch: []string{`{"op":"replace","path":"/spec/interval","value":"3m"}`, `{"op":"remove","path":"/spec/suspend"}`},
	}
}

var helmChart = sourceKind("HelmChart", "helmcharts",
	m{"interval": "1m", "chart": "./charts/app", "sourceRef": m{"kind": "GitRepository", "name": "s"}},
	spec("app", "chart"), spec(nil, "chart"), spec("1.x", "version"), spec(nil, "version"), spec("Revision", "reconcileStrategy"), spec("Never", "reconcileStrategy"),
	spec(m{"kind": "HelmRepository", "name": "r"}, "sourceRef"), spec(m{"kind": "ConfigMap", "name": "r"}, "sourceRef"), spec(l{"values.yaml"}, "valuesFiles"))

var helmRepository = sourceKind("HelmRepository", "helmrepositories",
	m{"url": "https://charts.example.com"},
	spec("oci://registry.example.com/charts", "url"), spec("ftp://x", "url"), spec(nil, "url"), spec("oci", "type"), spec("other", "type"),
	spec(m{"name": "s"}, "secretRef"), spec(true, "passCredentials"), spec("30s", "timeout"), spec("generic", "provider"))

var ociRepository = sourceKind("OCIRepository", "ocirepositories",
	m{"interval": "1m", "url": "oci://registry.example.com/app"},
	spec("https://x", "url"), spec(m{"tag": "v1"}, "ref"), spec(m{"semver": "1.x", "digest": "sha256:a"}, "ref"), spec(nil, "ref"),
	spec(m{"mediaType": "a", "operation": "copy"}, "layerSelector"), spec(m{"operation": "burn"}, "layerSelector"), spec(true, "insecure"))

var bucket = sourceKind("Bucket", "buckets",
	m{"interval": "1m", "bucketName": "b", "endpoint": "s3.example.com"},
	spec("c", "bucketName"), spec(nil, "endpoint"), spec("aws", "provider"), spec("other", "provider"), spec("p/", "prefix"), spec(m{"name": "s"}, "secretRef"), spec(true, "insecure"))

var applicationSet = sample{
	resource: schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"},
	kind:     "ApplicationSet",
	status:   true,
	base: m{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet", "metadata": m{},
		"spec": m{
			"generators": l{m{"list": m{"elements": l{m{"name": "one"}}}}},
			"template": m{
				"metadata": m{"name": "{{.name}}"},
				"spec":     m{"project": "default", "destination": m{"namespace": "n"}, "source": m{"repoURL": "https://git.example.com/acme/shop", "path": "."}},
			},
		},
	},
	spec: []fragment{
		spec(l{m{"list": m{"elements": l{m{"name": "two", "deep": m{"er": int64(1)}}}}}}, "generators"), spec(l{}, "generators"), spec(nil, "generators"),
		spec(l{m{"git": m{"repoURL": "u", "revision": "main", "directories": l{m{"path": "*"}}}}}, "generators"), spec(l{m{"git": m{"revision": "main"}}}, "generators"),
		spec(true, "goTemplate"), spec("yes", "goTemplate"), spec(l{"missingkey=error"}, "goTemplateOptions"), spec("x", "template", "spec", "project"), spec(nil, "template"),
		spec(m{"preserveResourcesOnDeletion": true}, "syncPolicy"), spec("what", "bogus"),
	},
	statuses: []fragment{
		status(l{m{"type": "ErrorOccurred", "status": "True", "reason": "R", "message": "m"}}, "conditions"), status(l{m{"type": "ErrorOccurred"}}, "conditions"), set(nil, "status"),
		status(l{m{"kind": "Application", "name": "one", "group": "argoproj.io", "status": "Synced"}}, "resources"), status("what", "bogus"),
	},
	jsonPatch: []string{`{"op":"add","path":"/spec/generators/-","value":{"list":{"elements":[]}}}`, `{"op":"remove","path":"/spec/template"}`},
}
