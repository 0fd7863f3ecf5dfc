package flux

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// describeSource reads the sources that are built from nothing else in the cluster.
func describeSource(kind string, f *applier.Fields, o *gitopsprovider.Object) {
	source := &gitopsprovider.Source{
		URL:      applier.Field[string](f, "spec", "url"),
		Revision: applier.Field[string](f, "status", "artifact", "revision"),
	}
	o.Source = source
	switch kind {
	case gitRepositoryKind.name:
		describeGitRepository(f, o)
	case "OCIRepository":
		source.Type = gitopsprovider.SourceOCI
		source.Ref = first(f, "digest", "semver", "tag")
		source.Origin = gitopsprovider.Origin{
			URL:      applier.Field[string](f, "status", "artifact", "metadata", "org.opencontainers.image.source"),
			Revision: applier.Field[string](f, "status", "artifact", "metadata", "org.opencontainers.image.revision"),
		}
	case "Bucket":
		source.Type = gitopsprovider.SourceBucket
		source.URL = strings.TrimSuffix(applier.Field[string](f, "spec", "endpoint"), "/") + "/" + applier.Field[string](f, "spec", "bucketName")
	case "HelmRepository":
		source.Type = gitopsprovider.SourceHelm
		if applier.Field[string](f, "spec", "type") == "oci" && !o.Suspended && o.Ready.Reason == "" {
			// Nothing is fetched for one of type oci, and it has no status (source-controller v1.9.4).
			o.Ready = gitopsprovider.Condition{State: gitopsprovider.StateReady}
		}
	case "ExternalArtifact":
		source.Type = "ExternalArtifact"
		describeProducer(f, o)
	}
	o.Refer("url", source.URL)
	o.Refer("ref", source.Ref)
}

func describeGitRepository(f *applier.Fields, o *gitopsprovider.Object) {
	ref := gitRepositoryRef{
		branch: applier.Field[string](f, "spec", "ref", "branch"),
		name:   applier.Field[string](f, "spec", "ref", "name"),
		tag:    applier.Field[string](f, "spec", "ref", "tag"),
		semver: applier.Field[string](f, "spec", "ref", "semver"),
		commit: applier.Field[string](f, "spec", "ref", "commit"),
	}
	o.Source.Type = gitopsprovider.SourceGit
	o.Source.Ref = cmp.Or(ref.commit, ref.name, ref.tag, ref.semver, ref.branch, "master")
	if branch, err := ref.followed(); err == nil {
		o.Source.Branch, o.Source.Ref = branch, branch
	}
	for _, entry := range f.Each("spec", "include") {
		name := applier.Field[string](entry, "repository", "name")
		o.Links = append(o.Links, gitopsprovider.Link{Relation: gitopsprovider.RelationSource, To: gitopsprovider.Workload{
			Group: sourceGroup, Kind: gitRepositoryKind.name, Namespace: o.Namespace, Name: name,
		}})
		o.Source.Incomplete = "the source includes GitRepository " + name
		o.Refer("include", name)
	}
	// The controller writes the URL into a message whole, in whatever spelling.
	o.Ready.Message = strings.ReplaceAll(o.Ready.Message, o.Source.URL, gitref.Redact(o.Source.URL))
}

// describeProducer reads what an ExternalArtifact is made by, whose kind is not known here.
func describeProducer(f *applier.Fields, o *gitopsprovider.Object) {
	producer := sourceRef(f, o.Namespace, "spec", "sourceRef")
	version, err := schema.ParseGroupVersion(applier.Field[string](f, "spec", "sourceRef", "apiVersion"))
	if err != nil {
		f.Fail("is no API version", "spec", "sourceRef", "apiVersion")
	}
	if producer.kind != "" {
		to := producer.workload(version.Group)
		o.Links = append(o.Links, gitopsprovider.Link{Relation: gitopsprovider.RelationSource, To: to})
		o.Refer("sourceRef", to.String())
	}
}

// first returns the first field of spec.ref that is set.
func first(f *applier.Fields, names ...string) string {
	for _, name := range names {
		if value := applier.Field[string](f, "spec", "ref", name); value != "" {
			return value
		}
	}
	return ""
}
