package gitopsprovider

// DepNode is one object in a tree of what depends on what. Its Children are what it depends on, so that a failure is
// explained by what lies below it.
type DepNode struct {
	Workload Workload `json:"workload"`
	Engine   Engine   `json:"engine,omitempty"`
	// Relation is why the node above depends on this one. Empty for the root.
	Relation Relation `json:"relation,omitempty"`
	// Answer is what the read established.
	Answer Answer `json:"answer"`
	// Message says for people why the object is not known, if it is not.
	Message string `json:"message,omitempty"`
	// Ready is what this object says of itself, never of what lies below it.
	Ready Condition `json:"ready"`
	// Suspended is an object that its controller passes over.
	Suspended bool `json:"suspended,omitempty"`
	// Revision is what an applier applies, and what a source holds.
	Revision string `json:"revision,omitempty"`
	// Repeat marks an object that stands elsewhere in the tree with its children, or above this node.
	Repeat Repeat `json:"repeat,omitempty"`
	// Children are in the order of relation and name.
	Children []*DepNode `json:"children,omitempty"`
}

// Repeat is why a node has no children of its own in a tree.
type Repeat string

// The repeats of a DepNode.
const (
	// RepeatNone is a node that is not repeated.
	RepeatNone Repeat = ""
	// RepeatSeen is an object whose children stand at another node of the tree.
	RepeatSeen Repeat = "seen"
	// RepeatCycle is an object that depends on itself: it is a node above this one.
	RepeatCycle Repeat = "cycle"
)
