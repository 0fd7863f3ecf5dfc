package flux

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// Engine is the name of Flux in the views of package gitopsprovider.
const Engine gitopsprovider.Engine = "Flux"

// NewReader returns a Reader of Flux's objects for the views of package gitopsprovider. It makes no request.
//
// Its appliers are Kustomizations and HelmReleases, its sources GitRepositories, OCIRepositories, Buckets,
// HelmRepositories, HelmCharts and ExternalArtifacts, each in the newest of the versions that the cluster serves:
// v1, v2, or a beta. It needs the verbs get, list and watch on those that are asked for, and get and list on Events.
//
// What is applied is lastAppliedRevision, and what was before it the previous entry of status.history that succeeded. Flux keeps
// one entry for each content, under the last revision that had it, so commits that changed nothing of the
// content do not stand in it. Of a HelmRelease it is the version of the chart; if that is built from a GitRepository, its commit
// is known as long as the HelmChart still holds that version. Its history names the chart and not the repository: of a version
// of another chart than the one that is named now, only that name is known.
func NewReader(client dynamic.Interface) *gitopsprovider.ClusterReader {
	return gitopsprovider.NewClusterReader(client, gitopsprovider.Dialect{
		Engine: Engine, Kinds: readerKinds, Describe: describe, Managers: managers,
	})
}

const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"
)

// readerKinds are the kinds that are read, with every version that a Flux still in use may serve alone.
var readerKinds = []gitopsprovider.Kind{
	readerKind(gitopsprovider.RoleApplier, kustomizeGroup, "Kustomization", "kustomizations", "v1", "v1beta2", "v1beta1"),
	readerKind(gitopsprovider.RoleApplier, helmGroup, "HelmRelease", "helmreleases", "v2", "v2beta2", "v2beta1"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "GitRepository", "gitrepositories", "v1", "v1beta2", "v1beta1"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "OCIRepository", "ocirepositories", "v1", "v1beta2"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "Bucket", "buckets", "v1", "v1beta2", "v1beta1"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "HelmRepository", "helmrepositories", "v1", "v1beta2", "v1beta1"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "HelmChart", "helmcharts", "v1", "v1beta2", "v1beta1"),
	readerKind(gitopsprovider.RoleSource, sourceGroup, "ExternalArtifact", "externalartifacts", "v1"),
}

func readerKind(role gitopsprovider.Role, group, name, resource string, versions ...string) gitopsprovider.Kind {
	return gitopsprovider.Kind{
		GroupKind: schema.GroupKind{Group: group, Kind: name}, Resource: resource, Versions: versions, Role: role,
	}
}

func describe(kind gitopsprovider.Kind, u *unstructured.Unstructured, o *gitopsprovider.Object) {
	f := applier.FieldsOf(u)
	o.Suspended = applier.Field[bool](f, "spec", "suspend")
	o.Ready = readiness(f, o.Suspended)
	switch kind.Kind {
	case "Kustomization":
		describeKustomization(f, o)
	case "HelmRelease":
		describeHelmRelease(f, o)
	case "HelmChart":
		describeHelmChart(f, o)
	default:
		describeSource(kind.Kind, f, o)
	}
	o.Err = f.Err()
}

// managers reads the labels that kustomize-controller and helm-controller put on what they apply, and the annotations of Helm.
func managers(o gitopsprovider.Object) []gitopsprovider.Mark {
	var marks []gitopsprovider.Mark
	label := func(group, kind string) {
		name, namespace := o.Labels[group+"/name"], o.Labels[group+"/namespace"]
		if name != "" && namespace != "" {
			marks = append(marks, gitopsprovider.Mark{
				To: gitopsprovider.Workload{Group: group, Kind: kind, Namespace: namespace, Name: name}, By: "label " + group + "/name",
			})
		}
	}
	label(helmGroup, "HelmRelease")
	if release := o.Annotations["meta.helm.sh/release-name"]; release != "" && len(marks) == 0 {
		marks = append(marks, gitopsprovider.Mark{
			To: gitopsprovider.Workload{Group: helmGroup, Kind: "HelmRelease"},
			By: "annotation meta.helm.sh/release-name",
			Release: gitopsprovider.Release{
				Namespace: o.Annotations["meta.helm.sh/release-namespace"], Name: release,
			},
		})
	}
	label(kustomizeGroup, "Kustomization")
	return marks
}
