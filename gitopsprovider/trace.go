package gitopsprovider

// Trace is what manages an object, from the object up.
type Trace struct {
	// Steps begin with the object that was asked for. Each further one manages or owns the one before.
	Steps []TraceStep `json:"steps"`
	// Unknown says for people what could not be established, one sentence each.
	Unknown []string `json:"unknown,omitempty"`
}

// TraceStep is one object of a Trace.
type TraceStep struct {
	Workload Workload `json:"workload"`
	Engine   Engine   `json:"engine,omitempty"`
	// Relation is RelationManagedBy or RelationOwnedBy, of this object to the one before. Empty for the first.
	Relation Relation `json:"relation,omitempty"`
	// By is the label, annotation or ownerReference of the object before that names this one.
	By string `json:"by,omitempty"`
	// Confirmed is whether this one lists the object before among what it applied to this cluster. An applier that does not may have
	// let go of it, and the mark been left behind.
	Confirmed bool `json:"confirmed,omitempty"`
	// Answer is what the read of this object established.
	Answer  Answer    `json:"answer"`
	Ready   Condition `json:"ready"`
	Message string    `json:"message,omitempty"`
	// Sources are what an applier applies: repository, path and commit.
	Sources []TraceSource `json:"sources,omitempty"`
}

// TraceSource is a source of an applier in a Trace.
type TraceSource struct {
	Source Source `json:"source"`
	Path   string `json:"path,omitempty"`
	// Revision is what is applied, Commit its full hash where that is one.
	Revision string `json:"revision,omitempty"`
	Commit   string `json:"commit,omitempty"`
}

// Origin returns the nearest source of what manages the object that is in a Git repository: where to change the object for
// good. What manages its manager has the manager's manifest, and not the object's. What an applier applies itself is in
// its own step. One that only lends files, such as values for a chart of a Helm repository, is meant if the applier has no
// other. The zero value is that none is known.
func (t Trace) Origin() TraceSource {
	for _, step := range t.Steps[min(1, len(t.Steps)):] {
		for _, lends := range []bool{false, true} {
			for _, source := range step.Sources {
				if source.Source.Type == SourceGit && source.Source.Lends == lends {
					return source
				}
			}
		}
	}
	return TraceSource{}
}
