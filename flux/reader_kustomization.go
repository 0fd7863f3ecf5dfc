package flux

import (
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func describeKustomization(f *applier.Fields, o *gitopsprovider.Object) {
	source := sourceRef(f, o.Namespace, "spec", "sourceRef")
	use := gitopsprovider.SourceUse{
		Relation: gitopsprovider.RelationSource,
		Source:   gitopsprovider.Source{Object: source.workload(sourceGroup)},
		Path:     applier.Field[string](f, "spec", "path"),
		Applied:  applier.Field[string](f, "status", "lastAppliedRevision"),
	}
	use.Source.Origin.Revision = applier.Field[string](f, "status", "lastAppliedOriginRevision")
	o.Sources = []gitopsprovider.SourceUse{use}
	o.TargetNamespace = applier.Field[string](f, "spec", "targetNamespace")
	o.TargetCluster = elsewhere(f)
	o.Refer("sourceRef", use.Source.Object.String())
	o.Refer("path", use.Path)
	dependsOn(f, o)
	inventory(f, o)
	attempted(f, o, fluxmeta.ReconciliationFailedReason, fluxmeta.PruneFailedReason, fluxmeta.HealthCheckFailedReason,
		fluxmeta.HealthCheckCanceledReason)
	o.Deployments = kustomizationHistory(f)
}

// kustomizationHistory reads the entries of status.history that succeeded. Flux counts the runs of one content in one
// entry, which it moves to the front: one that began before the end of the one behind it was deployed anew, at a time
// after that which is not kept.
func kustomizationHistory(f *applier.Fields) []gitopsprovider.Deployment {
	var deployments []gitopsprovider.Deployment
	var ends []time.Time
	for _, entry := range f.Each("status", "history") {
		if applier.Field[string](entry, "lastReconciledStatus") != fluxmeta.ReconciliationSucceededReason {
			continue
		}
		at := gitopsprovider.ParseTime(applier.Field[string](entry, "firstReconciled"))
		ends = append(ends, gitopsprovider.ParseTime(applier.Field[string](entry, "lastReconciled")))
		deployments = append(deployments, gitopsprovider.Deployment{
			Revisions: []gitopsprovider.DeployedRevision{{Revision: applier.Field[string](entry, "metadata", "revision")}}, At: at,
		})
	}
	for i := range deployments {
		if i+1 < len(deployments) && deployments[i].At.Before(ends[i+1]) {
			deployments[i].At, deployments[i].After = time.Time{}, ends[i+1]
		}
	}
	return deployments
}
