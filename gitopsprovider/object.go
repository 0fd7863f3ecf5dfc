package gitopsprovider

import "time"

// Object is what one object of a cluster shows, in the words of this package. A Reader fills it; what does not
// apply to the object stays zero.
type Object struct {
	Workload
	// Engine is empty for an object of a kind that the Reader does not know. Such a one has its metadata alone.
	Engine Engine
	// UID tells the object from another one of its name.
	UID         string
	Labels      map[string]string
	Annotations map[string]string
	// Owners are what the ownerReferences name, the controller first.
	Owners []Workload
	// Deleting is an object that is being deleted, Suspended one that its controller is told to pass over.
	Deleting, Suspended bool

	// Ready is how the object is doing.
	Ready Condition
	// References are what of the spec tells where the object gets its content from and what it waits for, for people.
	References []Reference

	// TargetNamespace and TargetCluster are where an applier deploys to. Empty is what its manifests say, and the
	// cluster it lives in.
	TargetNamespace, TargetCluster string
	// Sources are what an applier applies, and what a source is built from.
	Sources []SourceUse
	// Deployments are what an applier applied, newest first, as far as its history goes.
	Deployments []Deployment
	// InPart is whether some of what its Sources have in Attempted may be applied all the same.
	InPart bool
	// Release is the Helm release that an applier deploys as, namespace and name.
	Release Release

	// Source is what a source offers; nil for an object that is no source.
	Source *Source

	// Links are the objects that this one depends on, other than its Sources and what it applies.
	Links []Link
	// Applies are the objects that an applier applied, and that a generator generated.
	Applies []Workload

	// Err is what is wrong with the fields of the object, if anything. What could be read is there.
	Err error
}

// Release names a Helm release.
type Release struct {
	Namespace, Name string
}

// State sums up how an object is doing. Its zero value is StateUnknown.
type State string

// The states of an object.
const (
	// StateUnknown is an object that says nothing of itself, or was not read.
	StateUnknown State = ""
	// StateReady is an object that is as it should be.
	StateReady State = "Ready"
	// StateFailing is an object that says that it is not, suspended or not.
	StateFailing State = "Failing"
	// StateProgressing is an object whose controller is at work.
	StateProgressing State = "Progressing"
	// StateSuspended is one that is not failing, and that its controller is told to pass over.
	StateSuspended State = "Suspended"
)

// String returns the state as a word.
func (s State) String() string {
	if s == StateUnknown {
		return "Unknown"
	}
	return string(s)
}

// Condition is what an object says of itself.
type Condition struct {
	State State `json:"state,omitempty"`
	// Reason is a word of the engine's own, Message its text for people.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when the object came into this state, by its engine's clock: a Ready transition, the start of an
	// operation. It tells one failure from the next of the same reason.
	Since time.Time `json:"since,omitzero"`
}

// String returns the condition in one line, its message folded and whole: "Ready", "Failing: BuildFailed: no such file".
func (c Condition) String() string {
	if c.State == StateReady {
		return c.State.String()
	}
	return c.State.String() + c.why()
}

// why is what follows the state in a line: the reason and the message, each after a colon.
func (c Condition) why() string {
	line := ""
	for _, part := range []string{c.Reason, c.Message} {
		if part = folded(part); part != "" {
			line += ": " + part
		}
	}
	return line
}

// Reference is a field of an object's spec, for people: "sourceRef", "GitRepository flux-system/shop".
type Reference struct {
	Field string `json:"field"`
	Value string `json:"value"`
}

// SourceType is what kind of thing a source offers.
type SourceType string

// The types of sources. An engine may have others.
const (
	SourceGit    SourceType = "Git"
	SourceHelm   SourceType = "Helm"   // a chart of a Helm repository
	SourceOCI    SourceType = "OCI"    // an artifact of a registry
	SourceBucket SourceType = "Bucket" // files of an object store
)

// Source is where content comes from.
type Source struct {
	// Object is the object of the cluster that is the source. Zero if an applier names the address itself.
	Object Workload `json:"object,omitzero"`
	// Type is empty if it is not known, because Object could not be read for instance.
	Type SourceType `json:"type,omitempty"`
	// URL is the address, without a password. An SSH address keeps its user name.
	URL string `json:"url,omitempty"`
	// Ref is what is followed, for people: "main", "v1.0.0", ">=1.0.0". Branch is set if that is a branch.
	Ref    string `json:"ref,omitempty"`
	Branch string `json:"branch,omitempty"`
	// Revision is what the source holds now, in its engine's words.
	Revision string `json:"revision,omitempty"`
	// BuiltFrom is the revision of another source that Revision was built from, and is set for a source that has Sources.
	BuiltFrom string `json:"builtFrom,omitempty"`
	// Origin is the Git repository and revision that an artifact says it was made from. It is the word of whoever pushed
	// the artifact.
	Origin Origin `json:"origin,omitzero"`
	// Chart is the name that the Helm chart in it has in its Chart.yaml. Empty if that is not known.
	Chart string `json:"chart,omitempty"`
	// Lends is whether an applier applies nothing of it by itself: its other sources draw files from it, Helm values
	// for instance.
	Lends bool `json:"lends,omitempty"`
	// Incomplete says why a revision does not name the content in full. Empty if it does.
	Incomplete string `json:"incomplete,omitempty"`
}

// Origin is what an artifact says it was made from.
type Origin struct {
	URL      string `json:"url,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// SourceUse is a source as an object uses it.
type SourceUse struct {
	// Source is what is known of it from the object itself: its Object, or its Type, URL and Ref.
	Source Source
	// Relation is RelationSource or RelationChart.
	Relation Relation
	// Path is the folder within the source, without a slash at either end, or the name of the chart. Empty is all of it.
	Path string
	// Applied is the revision that is applied now, in the engine's words. Empty if nothing is.
	Applied string
	// Attempted is the revision that an applier last failed to apply, if it fails. That may be the one that is applied: it
	// was not what failed then, and is not shown.
	Attempted string
}

// Deployment is one entry of an applier's own history.
type Deployment struct {
	// Revisions are what was applied, one for each of the applier's Sources at that time.
	Revisions []DeployedRevision
	// At is when. Zero if the history does not tell; After may then say when at the earliest.
	At, After time.Time
}

// DeployedRevision is what a deployment applied of one source.
type DeployedRevision struct {
	// Type, URL and Path are those that the source had at the time. An empty URL is what the object says now.
	Type      SourceType
	URL, Path string
	// Chart is the name of the chart that Revision is a version of, where the history tells that and no URL.
	Chart string
	// Revision is in the engine's words.
	Revision string
}

// Relation is why one object depends on another.
type Relation string

// The relations of a tree and a trace.
const (
	// RelationSource is where an object gets its content from.
	RelationSource Relation = "source"
	// RelationChart is the chart that a release is made of.
	RelationChart Relation = "chart"
	// RelationDependsOn is what an object waits for.
	RelationDependsOn Relation = "dependsOn"
	// RelationApplies is an applier that another one applied.
	RelationApplies Relation = "applies"
	// RelationGenerates is an applier that a generator made.
	RelationGenerates Relation = "generates"
	// RelationOwnedBy is an owner by ownerReference, such as the generator of an applier.
	RelationOwnedBy Relation = "ownedBy"
	// RelationManagedBy is the applier that an object's marks name.
	RelationManagedBy Relation = "managedBy"
)

// Refer adds a reference, unless the value is empty.
func (o *Object) Refer(field, value string) {
	if value != "" {
		o.References = append(o.References, Reference{Field: field, Value: value})
	}
}

// ParseTime reads a time as Kubernetes objects hold it. What is none, such as an empty text, is the zero time.
func ParseTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// Link leads from one object to another.
type Link struct {
	Relation Relation
	To       Workload
}
