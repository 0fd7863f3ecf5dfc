package gitopsprovider

import (
	"context"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// concurrentReads bounds the reads of one view that are made at a time.
const concurrentReads = 8

// survey is what lists of a cluster showed. Each kind is listed once.
type survey struct {
	views     *Views
	namespace string

	mu      sync.Mutex
	reads   []Read
	objects map[Workload]Object
	listed  map[schema.GroupKind]bool
}

// survey begins a survey of a cluster. Where a kind may not be listed in the whole cluster, it is listed in the namespace,
// if that is not empty.
func (v *Views) survey(namespace string) *survey {
	return &survey{views: v, namespace: namespace, objects: map[Workload]Object{}, listed: map[schema.GroupKind]bool{}}
}

// list lists every kind that wanted wants and that was not listed yet, and keeps the objects that keep keeps.
func (s *survey) list(ctx context.Context, wanted func(Kind) bool, keep func(Object) bool) {
	var lists []func()
	for _, reader := range s.views.readers {
		for _, kind := range reader.Kinds() {
			if s.listed[kind.GroupKind] || !wanted(kind) {
				continue
			}
			s.listed[kind.GroupKind] = true
			lists = append(lists, func() { s.read(ctx, reader, kind, keep) })
		}
	}
	inParallel(lists)
}

func (s *survey) read(ctx context.Context, reader Reader, kind Kind, keep func(Object) bool) {
	var kept []Object
	collect := func(o Object) {
		if keep(o) {
			kept = append(kept, o)
		}
	}
	namespace := ""
	err := reader.List(ctx, kind, "", collect)
	if AnswerOf(err) == AnswerForbidden && s.namespace != "" {
		kept = nil
		if second := reader.List(ctx, kind, s.namespace, collect); second == nil {
			err, namespace = nil, s.namespace
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range kept {
		s.objects[object.Workload] = object
	}
	read := Read{
		Engine: reader.Engine(), Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Answer: AnswerOf(err), Err: err,
		Message: describeRead("read", "get and list", "the objects of kind "+kind.Kind+" in cluster "+s.views.cluster, err),
	}
	if namespace != "" {
		read.Message = "this identity may list the objects of kind " + kind.Kind + " in namespace " + namespace +
			" alone: those of other namespaces are missing"
	}
	s.reads = append(s.reads, read)
}

// sorted returns the objects in the order of their names.
func (s *survey) sorted() []Object {
	objects := slices.Collect(maps.Values(s.objects))
	slices.SortFunc(objects, func(a, b Object) int { return compareWorkloads(a.Workload, b.Workload) })
	return objects
}

// inParallel runs functions, some at a time, and returns when all have.
func inParallel(functions []func()) {
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrentReads)
	for _, function := range functions {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			function()
		})
	}
	running.Wait()
}
