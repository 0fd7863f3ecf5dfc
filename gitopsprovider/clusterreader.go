package gitopsprovider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// Dialect is what has to be known of an engine to read its objects.
type Dialect struct {
	// Engine is its name.
	Engine Engine
	// Kinds are the kinds that Describe knows.
	Kinds []Kind
	// Describe fills in what an object of one of the Kinds shows, in any of its Versions. What its metadata shows, from
	// Workload to Deleting, is there already. It sets Err where a field has a type that it cannot read. It may
	// leave paths as they are spelled, and user info in URLs and messages: the ClusterReader cleans both.
	Describe func(kind Kind, u *unstructured.Unstructured, o *Object)
	// Managers is as Reader.Managers has it.
	Managers func(o Object) []Mark
}

// ClusterReader is a Reader over client-go's dynamic client. It is safe for concurrent use.
//
// Versions are found by trying: the first that the cluster serves is used from then on, and the others are tried
// again once it is no longer served. That a kind is not served is not remembered.
type ClusterReader struct {
	client  dynamic.Interface
	dialect Dialect
	served  servedVersions
}

var _ Reader = (*ClusterReader)(nil)

// NewClusterReader returns a Reader of an engine's objects. It makes no request.
func NewClusterReader(client dynamic.Interface, dialect Dialect) *ClusterReader {
	return &ClusterReader{client: client, dialect: dialect}
}

// Engine returns the engine's name.
func (r *ClusterReader) Engine() Engine { return r.dialect.Engine }

// Kinds returns the kinds that it knows.
func (r *ClusterReader) Kinds() []Kind { return r.dialect.Kinds }

// Managers returns the marks of this engine on an object.
func (r *ClusterReader) Managers(o Object) []Mark { return r.dialect.Managers(o) }

// Get reads one object. A kind that the Dialect does not have is looked for under its usual plural and the versions
// that APIs usually have, and shows its metadata. Where nothing is served under these, the answer is AnswerUnknown.
func (r *ClusterReader) Get(ctx context.Context, w Workload) (Object, error) {
	kind, known := r.kind(w)
	object, err := r.get(ctx, kind, w)
	if !known && AnswerOf(err) == AnswerNotServed {
		err = &AnswerError{Answer: AnswerUnknown, Err: fmt.Errorf("%w: the plural and the versions were guessed, and it may serve the kind by others", err)}
	}
	if err != nil {
		return Object{}, err
	}
	return r.describe(kind, known, object), nil
}
