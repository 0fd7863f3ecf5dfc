package apiserver

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func builtinKinds() []*kind {
	anyName := func(name string, _ bool) []string { return path.IsValidPathSegmentName(name) }
	role := func(new func() runtime.Object) *builtinRules {
		return &builtinRules{
			new: new, validName: anyName, upsert: true, defaults: defaultRoleRef}
	}
	events := builtinKind("", "v1", names{Plural: "events", Kind: "Event", ShortNames: []string{"ev"}}, true,
		eventRules(func() runtime.Object { return &corev1.Event{} }))
	newEvents := builtinKind("events.k8s.io", "v1", names{Plural: "events", Kind: "Event", ShortNames: []string{"ev"}}, true,
		eventRules(func() runtime.Object { return &eventsv1.Event{} }))
	newEvents.sharedWith = events
	return []*kind{
		builtinKind("", "v1", names{Plural: "configmaps", Kind: "ConfigMap", ShortNames: []string{"cm"}}, true, &builtinRules{
			new:   func() runtime.Object { return &corev1.ConfigMap{} },
			check: checkKeys, checkUpdate: checkImmutable,
		}),
		events,
		newEvents,
		builtinKind("", "v1", names{Plural: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"}}, false, namespaceRules()),
		builtinKind("", "v1", names{Plural: "secrets", Kind: "Secret"}, true, &builtinRules{
			new:      func() runtime.Object { return &corev1.Secret{} },
			defaults: defaultSecret, check: checkKeys, checkUpdate: checkSecretUpdate,
			selectable: func(_ *version, object map[string]any) fields.Set { return fields.Set{"type": text(object, "type")} },
		}),
		builtinKind("", "v1", names{Plural: "services", Kind: "Service", ShortNames: []string{"svc"}, Categories: []string{"all"}}, true, &builtinRules{
			new:       func() runtime.Object { return &corev1.Service{} },
			validName: apivalidation.NameIsDNS1035Label, subresources: []string{"status"},
			defaults: defaultService, beforeCreate: allocateClusterIP, beforeUpdate: keepClusterIP, check: checkService,
		}),
		builtinKind("", "v1", names{Plural: "serviceaccounts", Kind: "ServiceAccount", ShortNames: []string{"sa"}}, true, &builtinRules{
			new: func() runtime.Object { return &corev1.ServiceAccount{} },
		}),
		builtinKind("apps", "v1", names{Plural: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"}}, true, &builtinRules{
			new:          func() runtime.Object { return &appsv1.Deployment{} },
			subresources: []string{"status"}, numbered: true, meta: metaOnCreate,
			defaults: defaultDeployment, check: checkDeployment, checkUpdate: checkSelectorUpdate,
		}),
		builtinKind("batch", "v1", names{Plural: "jobs", Kind: "Job", Categories: []string{"all"}}, true, &builtinRules{
			new:          func() runtime.Object { return &batchv1.Job{} },
			subresources: []string{"status"}, numbered: true, meta: metaOnCreate,
			defaults: defaultJob, beforeCreate: selectJobPods, check: checkTemplate, checkUpdate: checkTemplateUpdate,
		}),
		builtinKind("coordination.k8s.io", "v1", names{Plural: "leases", Kind: "Lease"}, true, &builtinRules{
			new: func() runtime.Object { return &coordinationv1.Lease{} }, upsert: true, conditional: true, meta: metaOnCreate,
		}),
		builtinKind("rbac.authorization.k8s.io", "v1", names{Plural: "clusterrolebindings", Kind: "ClusterRoleBinding"}, false,
			role(func() runtime.Object { return &rbacv1.ClusterRoleBinding{} })),
		builtinKind("rbac.authorization.k8s.io", "v1", names{Plural: "clusterroles", Kind: "ClusterRole"}, false,
			role(func() runtime.Object { return &rbacv1.ClusterRole{} })),
		builtinKind("rbac.authorization.k8s.io", "v1", names{Plural: "rolebindings", Kind: "RoleBinding"}, true,
			role(func() runtime.Object { return &rbacv1.RoleBinding{} })),
		builtinKind("rbac.authorization.k8s.io", "v1", names{Plural: "roles", Kind: "Role"}, true,
			role(func() runtime.Object { return &rbacv1.Role{} })),
	}
}

func defaultRoleRef(object map[string]any) {
	ref, ok := object["roleRef"].(map[string]any)
	if !ok {
		return
	}
	fill(ref, "apiGroup", rbacv1.GroupName)
	each(object, "subjects", func(subject map[string]any) {
		if kind := text(subject, "kind"); kind == "User" || kind == "Group" {
			fill(subject, "apiGroup", rbacv1.GroupName)
		}
	})
}

func checkKeys(_ *version, object map[string]any) field.ErrorList {
	var list field.ErrorList
	for _, name := range []string{"data", "binaryData"} {
		values, _ := object[name].(map[string]any)
		for key := range values {
			for _, msg := range validation.IsConfigMapKey(key) {
				list = append(list, field.Invalid(field.NewPath(name).Key(key), key, msg))
			}
		}
	}
	return list
}

// checkImmutable refuses a change of data that was declared immutable.
func checkImmutable(_ *version, object, old map[string]any) field.ErrorList {
	if old["immutable"] != true {
		return nil
	}
	var list field.ErrorList
	if object["immutable"] != true {
		list = append(list, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	for _, name := range []string{"data", "binaryData"} {
		if !equality.Semantic.DeepEqual(object[name], old[name]) {
			list = append(list, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
		}
	}
	return list
}

// defaultSecret moves stringData into data, as decoding does, and sets the type.
func defaultSecret(object map[string]any) {
	if plain, ok := object["stringData"].(map[string]any); ok {
		data := part(object, "data")
		for key, value := range plain {
			data[key] = base64.StdEncoding.EncodeToString([]byte(fmt.Sprint(value)))
		}
		delete(object, "stringData")
	}
	fill(object, "type", string(corev1.SecretTypeOpaque))
}

func checkSecretUpdate(v *version, object, old map[string]any) field.ErrorList {
	list := checkImmutable(v, object, old)
	return append(list, apivalidation.ValidateImmutableField(text(object, "type"), text(old, "type"), field.NewPath("type"))...)
}

func namespaceRules() *builtinRules {
	return &builtinRules{
		new:          func() runtime.Object { return &corev1.Namespace{} },
		validName:    apivalidation.ValidateNamespaceName,
		subresources: []string{"status", "finalize"},
		defaults: func(object map[string]any) {
			u := &unstructured.Unstructured{Object: object}
			if u.GetName() == "" {
				return
			}
			labels := u.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels[corev1.LabelMetadataName] = u.GetName()
			u.SetLabels(labels)
		},
		beforeCreate: func(object map[string]any) {
			object["status"] = map[string]any{"phase": string(corev1.NamespaceActive)}
			object["spec"] = map[string]any{"finalizers": []any{string(corev1.FinalizerKubernetes)}}
		},
		beforeUpdate: func(object, old map[string]any) { keep(object, old, "spec") },
		selectable: func(_ *version, object map[string]any) fields.Set {
			return fields.Set{"status.phase": text(object, "status", "phase"), "name": text(object, "metadata", "name")}
		},
	}
}

func defaultService(object map[string]any) {
	spec := part(object, "spec")
	fill(spec, "type", string(corev1.ServiceTypeClusterIP))
	fill(spec, "sessionAffinity", string(corev1.ServiceAffinityNone))
	each(spec, "ports", func(port map[string]any) {
		fill(port, "protocol", string(corev1.ProtocolTCP))
		if target := port["targetPort"]; target == nil || target == int64(0) {
			port["targetPort"] = port["port"]
		}
	})
	if text(spec, "type") != string(corev1.ServiceTypeExternalName) {
		fill(spec, "internalTrafficPolicy", string(corev1.ServiceInternalTrafficPolicyCluster))
	}
}

// allocateClusterIP gives a service an address of its own, derived from its name.
func allocateClusterIP(object map[string]any) {
	spec := part(object, "spec")
	if text(spec, "type") == string(corev1.ServiceTypeExternalName) {
		return
	}
	if text(spec, "clusterIP") == "" {
		u := &unstructured.Unstructured{Object: object}
		h := fnv.New32a()
		fmt.Fprint(h, u.GetNamespace(), "/", u.GetName(), "/", u.GetUID())
		n := h.Sum32()
		spec["clusterIP"] = fmt.Sprintf("10.%d.%d.%d", 96+n>>24%16, n>>8&0xff, 1+n&0x7f)
	}
	fill(spec, "clusterIPs", []any{spec["clusterIP"]})
	fill(spec, "ipFamilies", []any{string(corev1.IPv4Protocol)})
	fill(spec, "ipFamilyPolicy", string(corev1.IPFamilyPolicySingleStack))
}

func keepClusterIP(object, old map[string]any) {
	spec, before := part(object, "spec"), part(old, "spec")
	for _, name := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
		if value, found := before[name]; found {
			fill(spec, name, value)
		}
	}
}

func checkService(_ *version, object map[string]any) field.ErrorList {
	spec := part(object, "spec")
	ports, _ := spec["ports"].([]any)
	if len(ports) == 0 && text(spec, "clusterIP") != "None" && text(spec, "type") != string(corev1.ServiceTypeExternalName) {
		return field.ErrorList{field.Required(field.NewPath("spec", "ports"), "")}
	}
	var list field.ErrorList
	for i := range ports {
		port, _ := ports[i].(map[string]any)
		number, _, _ := unstructured.NestedInt64(port, "port")
		for _, msg := range validation.IsValidPortNum(int(number)) {
			list = append(list, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("port"), number, msg))
		}
	}
	return list
}

func eventRules(new func() runtime.Object) *builtinRules {
	return &builtinRules{
		new: new, upsert: true, uncollected: true, meta: metaNever, check: checkEvent, selectable: eventFields, rename: renameEvent,
	}
}

// eventNames pairs the fields of core events with their names in events.k8s.io.
var eventNames = [][2]string{
	{"involvedObject", "regarding"},
	{"message", "note"},
	{"reportingComponent", "reportingController"},
	{"source", "deprecatedSource"},
	{"firstTimestamp", "deprecatedFirstTimestamp"},
	{"lastTimestamp", "deprecatedLastTimestamp"},
	{"count", "deprecatedCount"},
}

func renameEvent(to *version, object map[string]any) {
	for _, pair := range eventNames {
		from, into := pair[0], pair[1]
		if to.kind.group == "" {
			from, into = into, from
		}
		if value, found := object[from]; found {
			object[into] = value
			delete(object, from)
		}
	}
}

func eventFields(v *version, object map[string]any) fields.Set {
	about, reporter := "involvedObject", "reportingComponent"
	if v.kind.group != "" {
		about, reporter = "regarding", "reportingController"
	}
	set := fields.Set{"reason": text(object, "reason"), "type": text(object, "type"), reporter: text(object, reporter)}
	for _, name := range []string{"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"} {
		set[about+"."+name] = text(object, about, name)
	}
	if v.kind.group == "" {
		set["source"] = text(object, "source", "component")
		if set["source"] == "" {
			set["source"] = set[reporter]
		}
	}
	return set
}

// checkEvent checks that an event lies in the namespace of what it is about.
func checkEvent(v *version, object map[string]any) field.ErrorList {
	about := "involvedObject"
	if v.kind.group != "" {
		about = "regarding"
	}
	namespace := (&unstructured.Unstructured{Object: object}).GetNamespace()
	of := text(object, about, "namespace")
	if of == namespace || of == "" && (namespace == "default" || text(object, "eventTime") != "" && namespace == "kube-system") {
		return nil
	}
	if of != "" && text(object, "eventTime") != "" {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), of, "does not match event.namespace")}
}
