package argocd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// inCluster are the names of the cluster that Argo CD runs in.
var inCluster = []string{"https://kubernetes.default.svc", "in-cluster"}

func describeApplication(f *applier.Fields, o *gitopsprovider.Object) {
	o.Suspended, _ = strconv.ParseBool(o.Annotations[skipReconcile])
	o.TargetNamespace = applier.Field[string](f, "spec", "destination", "namespace")
	cluster := cmp.Or(applier.Field[string](f, "spec", "destination", "name"), applier.Field[string](f, "spec", "destination", "server"))
	if !slices.Contains(inCluster, cluster) {
		o.TargetCluster = cluster
	}
	o.Sources = sourcesOf(f)
	o.Deployments = applicationHistory(f)
	if len(o.Deployments) > 0 && len(o.Deployments[0].Revisions) == len(o.Sources) {
		for i, revision := range o.Deployments[0].Revisions {
			o.Sources[i].Applied = revision.Revision
		}
	}
	describeHydrated(f, o)
	o.Ready = readinessOfApplication(f, o)
	for _, use := range o.Sources {
		o.Refer("source", strings.TrimRight(fmt.Sprintf("%s %s %s", use.Source.URL, cmp.Or(use.Path, "."), use.Source.Ref), " "))
	}
	o.Refer("destination", strings.Trim(cluster+" "+o.TargetNamespace, " "))
	o.Refer("project", applier.Field[string](f, "spec", "project"))
	o.Refer("sync", applier.Field[string](f, "status", "sync", "status"))
	o.Refer("health", applier.Field[string](f, "status", "health", "status"))
	describeAttempt(f, o)
}

// describeAttempt notes what the last operation failed to apply of each source: what it resolved, or else what it was asked
// for. An operation that is for one of several sources does not say which.
func describeAttempt(f *applier.Fields, o *gitopsprovider.Object) {
	state := parseState(f, "")
	if !state.failed() {
		return
	}
	// An Error is a sync that could not run: nothing was applied (3.2.11).
	o.InPart = state.phase == phaseFailed
	revisions := revisionsOf(f, "status", "operationState", "syncResult")
	if len(revisions) == 0 {
		revisions = revisionsOf(f, "status", "operationState", "operation", "sync")
	}
	if len(revisions) == len(o.Sources) {
		for i, revision := range revisions {
			o.Sources[i].Attempted = revision
		}
	}
}

// revisionsOf reads the revisions of an entry: one for each of several sources, or a single one.
func revisionsOf(f *applier.Fields, path ...string) []string {
	var revisions []string
	for _, entry := range applier.Field[[]any](f, at(path, "revisions")...) {
		revision, _ := entry.(string)
		revisions = append(revisions, revision)
	}
	if revision := applier.Field[string](f, at(path, "revision")...); len(revisions) == 0 && revision != "" {
		revisions = []string{revision}
	}
	return revisions
}

// sourcesOf reads spec.sources, which win over spec.source. One of several that has a ref and neither path nor chart makes no
// manifests: the others name its files as $ref/… (3.2.11, reposerver/repository/repository.go GenerateManifest).
func sourcesOf(f *applier.Fields) []gitopsprovider.SourceUse {
	var uses []gitopsprovider.SourceUse
	for _, entry := range f.Each("spec", "sources") {
		use := sourceUse(entry)
		use.Source.Lends = applier.Field[string](entry, "ref") != "" && use.Path == "" && use.Source.Type == gitopsprovider.SourceGit
		uses = append(uses, use)
	}
	if len(uses) == 0 && f.Has("spec", "source") {
		uses = append(uses, sourceUse(f, "spec", "source"))
	}
	return uses
}

func sourceUse(f *applier.Fields, path ...string) gitopsprovider.SourceUse {
	source := gitopsprovider.Source{
		Type: gitopsprovider.SourceGit,
		URL:  applier.Field[string](f, at(path, "repoURL")...),
		Ref:  cmp.Or(applier.Field[string](f, at(path, "targetRevision")...), "HEAD"),
	}
	chart := applier.Field[string](f, at(path, "chart")...)
	switch {
	case strings.HasPrefix(source.URL, "oci://"):
		source.Type = gitopsprovider.SourceOCI
	case chart != "":
		source.Type = gitopsprovider.SourceHelm
	default:
		// A name that is no branch may be a tag; nothing in the cluster tells them apart.
		source.Branch, _ = gitref.Branch(source.Ref)
	}
	return gitopsprovider.SourceUse{
		Relation: gitopsprovider.RelationSource, Source: source, Path: cmp.Or(chart, applier.Field[string](f, at(path, "path")...)),
	}
}

// applicationHistory reads status.history, whose newest entry is the last. It holds syncs that succeeded; one is written just
// before the operation ends.
func applicationHistory(f *applier.Fields) []gitopsprovider.Deployment {
	var deployments []gitopsprovider.Deployment
	for _, entry := range f.Each("status", "history") {
		deployment := gitopsprovider.Deployment{At: gitopsprovider.ParseTime(applier.Field[string](entry, "deployedAt"))}
		if sources := entry.Each("sources"); len(sources) > 0 {
			revisions := revisionsOf(entry)
			for i, source := range sources {
				revision := ""
				if i < len(revisions) {
					revision = revisions[i]
				}
				deployment.Revisions = append(deployment.Revisions, deployed(revision, source))
			}
		} else {
			deployment.Revisions = []gitopsprovider.DeployedRevision{deployed(applier.Field[string](entry, "revision"), entry, "source")}
		}
		deployments = append(deployments, deployment)
	}
	slices.Reverse(deployments)
	return deployments
}

func deployed(revision string, f *applier.Fields, path ...string) gitopsprovider.DeployedRevision {
	use := sourceUse(f, path...)
	return gitopsprovider.DeployedRevision{Type: use.Source.Type, URL: use.Source.URL, Path: use.Path, Revision: revision}
}

// describeHydrated reads spec.sourceHydrator, where there is one: what is synced is a branch that Argo CD writes itself, from a
// commit of a dry source.
func describeHydrated(f *applier.Fields, o *gitopsprovider.Object) {
	if !f.Has("spec", "sourceHydrator") {
		return
	}
	use := sourceUse(f, "spec", "sourceHydrator", "drySource")
	dry := gitopsprovider.Origin{URL: use.Source.URL}
	use.Source.Ref = applier.Field[string](f, "spec", "sourceHydrator", "syncSource", "targetBranch")
	use.Source.Branch = use.Source.Ref
	use.Path = applier.Field[string](f, "spec", "sourceHydrator", "syncSource", "path")
	if len(o.Deployments) > 0 && len(o.Deployments[0].Revisions) == 1 {
		use.Applied = o.Deployments[0].Revisions[0].Revision
	}
	if applier.Field[string](f, "status", "sourceHydrator", "lastSuccessfulOperation", "hydratedSHA") == use.Applied {
		dry.Revision = applier.Field[string](f, "status", "sourceHydrator", "lastSuccessfulOperation", "drySHA")
	}
	use.Source.Origin = dry
	o.Sources = []gitopsprovider.SourceUse{use}
}
