package gitopsprovider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Provider is what a program asks about what GitOps does in a cluster. [Views] implements it for every engine that has a
// [Reader]; a host's tests may have their own.
//
// Its methods may be called from several goroutines. An error is an invalid argument, or a ctx that ended: what could
// not be read is part of the answer.
type Provider interface {
	// Changes lists what the appliers that sel selects apply, newest first. See Views.Changes.
	Changes(ctx context.Context, window TimeWindow, sel Selector) (ChangeList, error)
	// Diff returns what a change changed. See Views.Diff.
	Diff(ctx context.Context, change Change) (Diff, error)
	// DependencyTree returns what an object depends on. See Views.DependencyTree.
	DependencyTree(ctx context.Context, w Workload) (*DepNode, error)
	// ResourceStatus returns how an object is doing, and why. See Views.ResourceStatus.
	ResourceStatus(ctx context.Context, w Workload) (ResourceStatus, error)
	// Trace returns what manages an object, up to repository, path and commit. See Views.Trace.
	Trace(ctx context.Context, w Workload) (Trace, error)
	// WatchFailures reports what begins to fail until ctx ends. See Views.WatchFailures.
	WatchFailures(ctx context.Context, options FailureOptions) (<-chan FailureEvent, error)
}

// Views answers for one cluster, from its Readers and a Differ. It keeps no state but what the Readers do, and is safe for
// concurrent use.
type Views struct {
	cluster string
	differ  Differ
	readers []Reader
}

var _ Provider = (*Views)(nil)

// New returns the views of a cluster, whose name is for messages. The readers, at least one and one for each engine, are
// of that cluster. It makes no request.
func New(cluster string, differ Differ, readers ...Reader) (*Views, error) {
	if differ == nil {
		return nil, errors.New("gitopsprovider: a Differ is required: pass NoDiffer{} to do without diffs")
	}
	if len(readers) == 0 {
		return nil, errors.New("gitopsprovider: no Reader: pass flux.NewReader, argocd.NewReader, or both")
	}
	var engines []Engine
	for _, reader := range readers {
		if reader == nil {
			return nil, errors.New("gitopsprovider: a Reader is nil")
		}
		if slices.Contains(engines, reader.Engine()) {
			return nil, fmt.Errorf("gitopsprovider: two Readers of %s: pass one", reader.Engine())
		}
		engines = append(engines, reader.Engine())
	}
	return &Views{cluster: cluster, differ: differ, readers: slices.Clone(readers)}, nil
}

// named names an object in a message.
func (v *Views) named(w Workload) string { return fmt.Sprintf("%s in cluster %s", w, v.cluster) }

// resolve fills in the group of a kind that a Reader knows, in whatever case it is written, and finds the Reader that reads w, and its kind if it is
// one that the Reader knows. An object of another kind is read by the first Reader.
func (v *Views) resolve(w Workload) (Workload, Reader, Kind, error) {
	if w.Kind == "" || w.Name == "" {
		return w, nil, Kind{}, fmt.Errorf("cannot read an object of kind %q and name %q in cluster %s: set both", w.Kind, w.Name, v.cluster)
	}
	for _, reader := range v.readers {
		for _, kind := range reader.Kinds() {
			if strings.EqualFold(kind.Kind, w.Kind) && (w.Group == "" || w.Group == kind.Group) {
				w.Group, w.Kind = kind.Group, kind.Kind
				return w, reader, kind, nil
			}
		}
	}
	return w, v.readers[0], Kind{}, nil
}

// managers are the marks on an object, of every engine.
func (v *Views) managers(o Object) []Mark {
	var marks []Mark
	for _, reader := range v.readers {
		marks = append(marks, reader.Managers(o)...)
	}
	return marks
}
