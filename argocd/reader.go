package argocd

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// Engine is the name of Argo CD in the views of package gitopsprovider.
const Engine gitopsprovider.Engine = "ArgoCD"

// NewReader returns a Reader of Argo CD's objects for the views of package gitopsprovider. It makes no request.
//
// Its appliers are Applications, its generators ApplicationSets. It needs the verbs get, list and watch on both, and get
// and list on Events.
//
// A source of several that has a ref and no path lends its files to the others and makes no manifests. It is a change of its
// own, with Source.Lends and a note: a commit of it is applied only so far as the others name the files that it touches.
//
// What an Application follows and nobody synced yet is not among what it applies; once something was synced, all that it follows
// is.
//
// What is applied is the newest entry of status.history, and what was before it the one before: dry runs and syncs of
// selected resources leave none. An Application is Ready when it is healthy. It fails when its last operation did, when
// it has a condition that is an error, or when its health is Degraded, and is at work while an operation is asked for or
// goes on. How it is doing is unknown while it was never synced, while its health was not judged since the last sync, while
// objects are Missing, which is said of what nobody synced yet, and after a dry run while it is OutOfSync: the record of a dry
// run takes the place of that of the sync before it, which may have failed. A child that is not healthy does not make its parent
// so: Argo CD does not carry health up by default. Being OutOfSync is no failure.
func NewReader(client dynamic.Interface) *gitopsprovider.ClusterReader {
	return gitopsprovider.NewClusterReader(client, gitopsprovider.Dialect{
		Engine: Engine, Kinds: readerKinds, Describe: describe, Managers: managers,
	})
}

const applicationSet = "ApplicationSet"

var readerKinds = []gitopsprovider.Kind{
	{GroupKind: Kind, Resource: applications.Resource, Versions: []string{applications.Version}, Role: gitopsprovider.RoleApplier},
	{
		GroupKind: schema.GroupKind{Group: Kind.Group, Kind: applicationSet}, Resource: "applicationsets",
		Versions: []string{applications.Version}, Role: gitopsprovider.RoleGenerator,
	},
}

func describe(kind gitopsprovider.Kind, u *unstructured.Unstructured, o *gitopsprovider.Object) {
	f := applier.FieldsOf(u)
	for _, entry := range f.Each("status", "resources") {
		if kind.Kind == Kind.Kind && neverApplied(f, entry) {
			continue
		}
		o.Applies = append(o.Applies, gitopsprovider.Workload{
			Group: applier.Field[string](entry, "group"), Kind: applier.Field[string](entry, "kind"),
			Namespace: applier.Field[string](entry, "namespace"), Name: applier.Field[string](entry, "name"),
		})
	}
	if kind.Kind == applicationSet {
		o.Ready = readinessOfSet(f)
	} else {
		describeApplication(f, o)
	}
	o.Err = f.Err()
}

// neverApplied reports whether an Application names one of its resources only because it follows it: nothing was synced
// yet, and the resource is Missing, or all that is known of it is that it is OutOfSync. Argo CD writes the health of each into the
// Application on request alone (3.2.11, controller/health.go).
func neverApplied(f, resource *applier.Fields) bool {
	health := applier.Field[string](resource, "health", "status")
	return len(applier.Field[[]any](f, "status", "history")) == 0 &&
		(health == healthMissing || health == "" && applier.Field[string](resource, "status") == outOfSync)
}

const (
	trackingID    = "argocd.argoproj.io/tracking-id"
	instanceLabel = "app.kubernetes.io/instance"
)

// managers reads what Argo CD tracks its objects by: an annotation that names the Application and the object itself, so
// that a copy of it is recognised, or a label that Helm charts use as well.
func managers(o gitopsprovider.Object) []gitopsprovider.Mark {
	if id := o.Annotations[trackingID]; id != "" {
		mark := gitopsprovider.Mark{By: "annotation " + trackingID}
		app, about, ok := strings.Cut(id, ":")
		if !ok {
			mark.Copied = fmt.Sprintf("it is %q, not application:group/kind:namespace/name", id)
			return []gitopsprovider.Mark{mark}
		}
		mark.To = applicationNamed(app)
		if itself := fmt.Sprintf("%s/%s:%s/%s", o.Group, o.Kind, o.Namespace, o.Name); about != itself && !sameObject(about, o) {
			mark.Copied = "it names " + about
		}
		return []gitopsprovider.Mark{mark}
	}
	if app := o.Labels[instanceLabel]; app != "" {
		return []gitopsprovider.Mark{{To: applicationNamed(app), By: "label " + instanceLabel, Shared: true}}
	}
	return nil
}

// sameObject reports whether a tracking-id is about an object of the cluster as a whole: Argo CD then writes the
// destination's namespace (3.2.11, util/argo/resource_tracking.go).
func sameObject(about string, o gitopsprovider.Object) bool {
	kind, name, _ := strings.Cut(about, ":")
	_, name, _ = strings.Cut(name, "/")
	return o.Namespace == "" && kind == o.Group+"/"+o.Kind && name == o.Name
}

// applicationNamed is an Application by its instance name: its name alone in Argo CD's own namespace, which is not
// known here, and namespace_name elsewhere.
func applicationNamed(instance string) gitopsprovider.Workload {
	namespace, name, ok := strings.Cut(instance, "_")
	if !ok {
		namespace, name = "", instance
	}
	return gitopsprovider.Workload{Group: Kind.Group, Kind: Kind.Kind, Namespace: namespace, Name: name}
}
