package gitopsprovider

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Reader reads the objects of one engine in one cluster, and presents them in the words of this package. flux.NewReader
// and argocd.NewReader return one, [NewClusterReader] makes one for another engine, and a test may write its own.
//
// [Views] calls it, from several goroutines at once. What it returns is the caller's to read, and is not changed by anybody
// afterwards. It ends soon after ctx does. Its errors are those of the API server, or an [AnswerError], so that
// [AnswerOf] tells what they established.
type Reader interface {
	// Engine names the engine. It is constant.
	Engine() Engine

	// Kinds lists the kinds that the Reader knows. It makes no request and is constant.
	Kinds() []Kind

	// Get reads one object. Of a kind that Kinds does not list, it reads the metadata.
	Get(ctx context.Context, w Workload) (Object, error)

	// List calls each for every object of a kind in a namespace, or in all of them if that is empty. After an error,
	// each may have been called for some of them.
	List(ctx context.Context, kind Kind, namespace string, each func(Object)) error

	// Watch calls show for every object of a kind in the cluster as it stands, and whenever it has changed, until ctx
	// ends. It calls show from one goroutine at a time, and not any more once it has returned. It opens anew what breaks,
	// and shows again what may have changed meanwhile; a state that stands may be shown more than once. Where it cannot watch,
	// it shows that, once for each change of the Answer.
	Watch(ctx context.Context, kind Kind, show func(Sighting))

	// Events lists the Events of an object that are still kept, in the order of their time. An object without UID
	// has those of every object of its name.
	Events(ctx context.Context, o Object) ([]Event, error)

	// Managers tells by the marks on an object, its labels and annotations, which objects of this engine manage it. It
	// makes no request.
	Managers(o Object) []Mark
}

// Role is the part that a kind plays.
type Role string

// The roles of a kind.
const (
	// RoleApplier is a kind that applies content to a cluster.
	RoleApplier Role = "applier"
	// RoleSource is a kind that fetches content for appliers.
	RoleSource Role = "source"
	// RoleGenerator is a kind that generates appliers.
	RoleGenerator Role = "generator"
)

// Kind is a kind of object that a Reader knows.
type Kind struct {
	schema.GroupKind
	// Resource is the plural that requests name.
	Resource string
	// Versions are those whose fields the Reader can read, the preferred one first. The cluster need serve only one.
	Versions []string
	Role     Role
}

// Mark is what the labels or annotations of an object say of who manages it.
type Mark struct {
	// To names the manager. Its Namespace is empty if the mark does not tell it; its Name too if Release does.
	To Workload
	// Release is the Helm release that the manager deploys as, if the mark names only that.
	Release Release
	// By is the label or annotation.
	By string
	// Shared is whether others use that label or annotation as well, so that it counts only if the manager lists the
	// object among what it Applies.
	Shared bool
	// Copied says why the mark is not about this object, if it was copied from another one for instance. Such a mark names
	// no manager.
	Copied string
}

// Sighting is what a watch shows.
type Sighting struct {
	// Answer is AnswerFound for an object that stands, AnswerAbsent for one that was deleted, and otherwise why the kind
	// cannot be watched for now; Err is then the error. AnswerFound without an Object says that it can be watched again.
	Answer Answer
	Object Object
	Err    error
}

// Event is a Kubernetes Event of an object, of either API.
type Event struct {
	// Time is when it was last seen.
	Time    time.Time `json:"time,omitzero"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	// From is the component that reported it.
	From string `json:"from,omitempty"`
	// Count is how often it was seen; 0 and 1 are once.
	Count int64 `json:"count,omitempty"`
}
