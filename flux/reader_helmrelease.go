package flux

import (
	"cmp"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

func describeHelmRelease(f *applier.Fields, o *gitopsprovider.Object) {
	o.TargetNamespace = applier.Field[string](f, "spec", "targetNamespace")
	o.TargetCluster = elsewhere(f)
	use := gitopsprovider.SourceUse{
		Relation: gitopsprovider.RelationChart,
		Source:   gitopsprovider.Source{Object: chartOf(f, o).workload(sourceGroup)},
		// Versions before v2 kept the version here (helm-controller 0.37, v2beta1).
		Applied: applier.Field[string](f, "status", "lastAppliedRevision"),
	}
	o.Release = gitopsprovider.Release{
		Namespace: cmp.Or(o.TargetNamespace, o.Namespace), Name: applier.Field[string](f, "spec", "releaseName"),
	}
	if o.Release.Name == "" {
		o.Release.Name = strings.TrimPrefix(o.TargetNamespace+"-"+o.Name, "-")
	}
	gone := false
	for i, snapshot := range f.Each("status", "history") {
		if i == 0 {
			// A long name is shortened, so the release is called what it was stored as.
			o.Release.Namespace = cmp.Or(applier.Field[string](snapshot, "namespace"), o.Release.Namespace)
			o.Release.Name = cmp.Or(applier.Field[string](snapshot, "name"), o.Release.Name)
		}
		status := applier.Field[string](snapshot, "status")
		gone = gone || strings.HasPrefix(status, "uninstall") && len(o.Deployments) == 0
		if status != "deployed" && status != "superseded" {
			continue
		}
		version := applier.Field[string](snapshot, "chartVersion")
		if len(o.Deployments) == 0 && !gone {
			use.Applied = version
		}
		o.Deployments = append(o.Deployments, gitopsprovider.Deployment{
			Revisions: []gitopsprovider.DeployedRevision{{Chart: applier.Field[string](snapshot, "chartName"), Revision: version}},
			At:        gitopsprovider.ParseTime(applier.Field[string](snapshot, "lastDeployed")),
		})
	}
	o.Sources = []gitopsprovider.SourceUse{use}
	o.Refer("chart", strings.TrimSpace(applier.Field[string](f, "spec", "chart", "spec", "chart")+" "+
		applier.Field[string](f, "spec", "chart", "spec", "version")))
	if f.Has("spec", "chart") {
		o.Refer("sourceRef", sourceRef(f, o.Namespace, "spec", "chart", "spec", "sourceRef").workload(sourceGroup).String())
	}
	if f.Has("spec", "chartRef") {
		o.Refer("chartRef", use.Source.Object.String())
	}
	dependsOn(f, o)
	inventory(f, o)
	attempted(f, o, o.Ready.Reason)
}

// chartOf returns the object that holds the chart: what chartRef names, or the HelmChart that helm-controller makes of spec.chart
// in the namespace of its source (v1.6.4, api/v2/helmrelease_types.go).
func chartOf(f *applier.Fields, o *gitopsprovider.Object) sourceReference {
	if f.Has("spec", "chartRef") {
		return sourceRef(f, o.Namespace, "spec", "chartRef")
	}
	if namespace, name, ok := strings.Cut(applier.Field[string](f, "status", "helmChart"), "/"); ok {
		return sourceReference{helmChartKind.name, types.NamespacedName{Namespace: namespace, Name: name}}
	}
	source := sourceRef(f, o.Namespace, "spec", "chart", "spec", "sourceRef")
	return sourceReference{helmChartKind.name, types.NamespacedName{Namespace: source.name.Namespace, Name: o.Namespace + "-" + o.Name}}
}

func describeHelmChart(f *applier.Fields, o *gitopsprovider.Object) {
	from := sourceRef(f, o.Namespace, "spec", "sourceRef")
	// A HelmChart's source is in its own namespace.
	from.name.Namespace = o.Namespace
	chart := applier.Field[string](f, "spec", "chart")
	o.Source = &gitopsprovider.Source{
		Type: gitopsprovider.SourceHelm, Ref: applier.Field[string](f, "spec", "version"), Chart: chartName(f, from.kind),
		Revision:  applier.Field[string](f, "status", "artifact", "revision"),
		BuiltFrom: applier.Field[string](f, "status", "observedSourceArtifactRevision"),
	}
	if from.kind == gitRepositoryKind.name && applier.Field[string](f, "spec", "reconcileStrategy") != "Revision" {
		o.Source.Incomplete = "the chart is packaged anew only when its version changes (reconcileStrategy ChartVersion)"
	}
	use := gitopsprovider.SourceUse{
		Relation: gitopsprovider.RelationSource, Source: gitopsprovider.Source{Object: from.workload(sourceGroup)}, Path: chart,
		Applied: o.Source.BuiltFrom,
	}
	o.Sources = []gitopsprovider.SourceUse{use}
	o.Refer("chart", strings.TrimSpace(chart+" "+o.Source.Ref))
	o.Refer("sourceRef", use.Source.Object.String())
}

// chartName is the name of the chart that a HelmChart asks for. source-controller notes it with every chart that it packages,
// and keeps the old one while it fails to (v1.9.4, internal/controller/helmchart_controller.go). In a HelmRepository
// the charts are found by their names; elsewhere spec.chart is a folder.
func chartName(f *applier.Fields, source string) string {
	if source == "HelmRepository" {
		return path.Base(applier.Field[string](f, "spec", "chart"))
	}
	return applier.Field[string](f, "status", "observedChartName")
}
