package gitopsprovider

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// lastApplied is kubectl's copy of a whole object, the values of a Secret included.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// describe presents an object in the words of this package. It does not change it.
func (r *ClusterReader) describe(kind Kind, known bool, u *unstructured.Unstructured) Object {
	o := Object{
		Workload: Workload{Group: kind.Group, Kind: kind.Kind, Namespace: u.GetNamespace(), Name: u.GetName()},
		UID:      string(u.GetUID()),
		Labels:   u.GetLabels(), Annotations: u.GetAnnotations(),
		Owners:   owners(u),
		Deleting: u.GetDeletionTimestamp() != nil,
	}
	maps.DeleteFunc(o.Annotations, func(name, _ string) bool { return name == lastApplied })
	if known {
		o.Engine = r.dialect.Engine
		r.dialect.Describe(kind, u, &o)
	} else {
		o.Ready = conventionalReady(u)
	}
	withoutSecrets(&o)
	withCleanPaths(&o)
	return o
}

// withCleanPaths spells paths in one way: "./apps/shop/" is apps/shop, and "./" empty.
func withCleanPaths(o *Object) {
	clean := func(p string) string { return strings.TrimPrefix(path.Clean("/"+p), "/") }
	for i, use := range o.Sources {
		o.Sources[i].Path = clean(use.Path)
	}
	for _, deployment := range o.Deployments {
		for i, revision := range deployment.Revisions {
			deployment.Revisions[i].Path = clean(revision.Path)
		}
	}
}

// conventionalReady reads the condition Ready of a kind that nobody knows: by Kubernetes' conventions it means the
// same everywhere.
func conventionalReady(u *unstructured.Unstructured) Condition {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range conditions {
		fields, _ := entry.(map[string]any)
		if fields["type"] != "Ready" {
			continue
		}
		states := map[any]State{"True": StateReady, "False": StateFailing, "Unknown": StateProgressing}
		condition := Condition{State: states[fields["status"]]}
		condition.Reason, _ = fields["reason"].(string)
		condition.Message, _ = fields["message"].(string)
		since, _ := fields["lastTransitionTime"].(string)
		condition.Since = ParseTime(since)
		return condition
	}
	return Condition{}
}

// owners returns what the ownerReferences name, the controller first. A namespaced owner is in the object's namespace.
func owners(u *unstructured.Unstructured) []Workload {
	references := u.GetOwnerReferences()
	slices.SortStableFunc(references, func(a, b metav1.OwnerReference) int { return rank(a) - rank(b) })
	var owners []Workload
	for _, reference := range references {
		version, err := schema.ParseGroupVersion(reference.APIVersion)
		if err != nil {
			continue
		}
		owners = append(owners, Workload{Group: version.Group, Kind: reference.Kind, Namespace: u.GetNamespace(), Name: reference.Name})
	}
	return owners
}

func rank(reference metav1.OwnerReference) int {
	if reference.Controller != nil && *reference.Controller {
		return 0
	}
	return 1
}

// withoutSecrets strips user info from every URL and message of an object. A controller may quote its URL whole, and as
// no text that RedactText recognises.
func withoutSecrets(o *Object) {
	var quoted []string
	clean := func(source *Source) {
		if shown := publicURL(source.URL); shown != source.URL {
			quoted = append(quoted, source.URL, shown)
			source.URL = shown
		}
		source.Origin.URL = publicURL(source.Origin.URL)
	}
	if o.Source != nil {
		clean(o.Source)
	}
	for i := range o.Sources {
		clean(&o.Sources[i].Source)
	}
	for i := range o.Deployments {
		for j := range o.Deployments[i].Revisions {
			o.Deployments[i].Revisions[j].URL = publicURL(o.Deployments[i].Revisions[j].URL)
		}
	}
	o.TargetCluster = gitref.RedactText(o.TargetCluster)
	text := strings.NewReplacer(quoted...)
	o.Ready.Message = gitref.RedactText(text.Replace(o.Ready.Message))
	for i, reference := range o.References {
		o.References[i].Value = gitref.RedactText(text.Replace(reference.Value))
	}
}

// sshAddress is an SSH address with a user name and no password: ssh://git@host/path or git@host:path.
var sshAddress = regexp.MustCompile(`^(?:ssh://)?[A-Za-z0-9._-]+@[^@/?#%:]+(?::[0-9]+/|[:/])[^@?#]*$`)

// publicURL returns an address without user info, other than the user name of an SSH address, which belongs to the address.
// What is shown is also what a Differ is asked for: where the text after an @ may be no host, it is left out.
func publicURL(address string) string {
	if sshAddress.MatchString(address) {
		return address
	}
	shown := gitref.Redact(address)
	if before, _, doubtful := strings.Cut(shown, "redacted@"); doubtful {
		return before + "redacted"
	}
	return shown
}
