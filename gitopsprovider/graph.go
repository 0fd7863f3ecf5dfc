package gitopsprovider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// MaxTreeNodes bounds the objects that a tree reads. Those beyond are in it, and say that they were not read.
const MaxTreeNodes = 5000

// DependencyTree returns what an object depends on: what it waits for, the source or chart it gets its content from and
// what that is made of, the appliers that it applied or generated in turn, and the generator that owns it. What it
// applied in another cluster is left out. Of an object that no Reader knows, a Deployment for instance, it is what owns
// and manages it.
//
// Every object is read once, those of one depth in parallel, eight at a time. Appliers are listed to find those of a
// generator, and where the mark of an object that no Reader knows does not name its applier in full. The order is the same in every call. An object
// that stands in the tree twice has its children at the first place; see Repeat. What could not be read is a node that
// says so.
//
// [DepNode.RootCauses] tells what is to blame, [DepNode.Text] and [DepNode.Mermaid] render the tree, and encoding/json
// encodes it.
func (v *Views) DependencyTree(ctx context.Context, w Workload) (*DepNode, error) {
	root, _, _, err := v.resolve(w)
	if err != nil {
		return nil, err
	}
	g := graph{views: v, objects: map[Workload]readObject{}, reached: map[Workload]reach{}}
	g.explore(ctx, root)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b := treeBuilder{graph: &g, built: map[Workload]reach{}, above: map[Workload]bool{}}
	return b.node(edge{to: root, reach: reachAll}), nil
}

// reach is how far the edges of an object are followed.
type reach int

const (
	// reachUp leaves out what the object applied or generated: of an owner, those are the siblings of the object that led
	// to it.
	reachUp reach = iota + 1
	reachAll
)

// edge leads to an object that another one depends on.
type edge struct {
	relation Relation
	to       Workload
	reach    reach
}

// graph is every object that can be reached from one.
type graph struct {
	views   *Views
	objects map[Workload]readObject
	reached map[Workload]reach
}

// readObject is what one read showed.
type readObject struct {
	object Object
	answer Answer
	// message says why the object is not known, or not in full.
	message string
	edges   []edge
	// listed are objects that were read with this one.
	listed []readObject
}

// explore reads what can be reached, one depth after the other.
func (g *graph) explore(ctx context.Context, root Workload) {
	for depth := []edge{{to: root, reach: reachAll}}; len(depth) > 0 && ctx.Err() == nil; {
		g.read(ctx, depth)
		var next []edge
		for _, at := range depth {
			for _, edge := range g.edges(at) {
				if g.reached[edge.to] < edge.reach {
					g.reached[edge.to] = edge.reach
					next = append(next, edge)
				}
			}
		}
		depth = next
	}
}

// read reads the objects that were not read yet.
func (g *graph) read(ctx context.Context, depth []edge) {
	var reads []func()
	var fresh []Workload
	for _, edge := range depth {
		if _, known := g.objects[edge.to]; known {
			continue
		}
		if len(g.objects) >= MaxTreeNodes {
			g.objects[edge.to] = readObject{message: fmt.Sprintf("not read: the tree has more than %d objects", MaxTreeNodes)}
			continue
		}
		g.objects[edge.to] = readObject{}
		fresh = append(fresh, edge.to)
	}
	results := make([]readObject, len(fresh))
	for i, w := range fresh {
		reads = append(reads, func() { results[i] = g.views.readNode(ctx, w) })
	}
	inParallel(reads)
	for i, w := range fresh {
		g.objects[w] = results[i]
	}
	for _, result := range results {
		for _, other := range result.listed {
			if w := other.object.Workload; g.objects[w].answer == AnswerNone && len(g.objects) < MaxTreeNodes {
				g.objects[w] = other
			}
		}
	}
}

// readNode reads one object and finds its edges.
func (v *Views) readNode(ctx context.Context, w Workload) readObject {
	w, reader, kind, err := v.resolve(w)
	if err != nil {
		return readObject{answer: AnswerUnknown, message: err.Error()}
	}
	object, err := reader.Get(ctx, w)
	if err != nil {
		return readObject{object: object, answer: AnswerOf(err), message: v.describe(w, err)}
	}
	var listed []readObject
	if kind.Role == RoleGenerator {
		object.Applies, listed = v.generated(ctx, reader, object)
	}
	read := v.found(object, kind)
	read.listed = listed
	if kind.Role == "" {
		var unknown []string
		read.edges, unknown = v.managerEdges(ctx, object, read.edges)
		read.message = strings.Join(unknown, "; ")
	}
	return read
}

// found is an object that was read.
func (v *Views) found(o Object, kind Kind) readObject {
	read := readObject{object: o, answer: AnswerFound, edges: v.edgesOf(o, kind)}
	if o.Err != nil {
		read.message = v.malformed(o)
	}
	return read
}

// generated lists the appliers that a generator owns. What it says of them itself may be out of date, and counts only where
// they cannot be listed.
func (v *Views) generated(ctx context.Context, reader Reader, generator Object) ([]Workload, []readObject) {
	var names []Workload
	var listed []readObject
	for _, kind := range reader.Kinds() {
		if kind.Role != RoleApplier {
			continue
		}
		err := reader.List(ctx, kind, generator.Namespace, func(o Object) {
			if slices.Contains(o.Owners, generator.Workload) {
				names = append(names, o.Workload)
				listed = append(listed, v.found(o, kind))
			}
		})
		if err != nil {
			return generator.Applies, nil
		}
	}
	return names, listed
}

// managerEdges adds what manages an object that no Reader knows, and says what could not be established.
func (v *Views) managerEdges(ctx context.Context, o Object, edges []edge) ([]edge, []string) {
	t := tracer{views: v}
	for _, mark := range v.managers(o) {
		manager, _ := t.manager(ctx, o, mark)
		known := slices.ContainsFunc(edges, func(e edge) bool { return e.to == manager })
		if !manager.IsZero() && !known {
			edges = append(edges, edge{RelationManagedBy, manager, reachUp})
		}
	}
	return edges, t.trace.Unknown
}

// edges returns where an object leads from here.
func (g *graph) edges(at edge) []edge {
	edges := g.objects[at.to].edges
	if at.reach == reachAll {
		return edges
	}
	return slices.DeleteFunc(slices.Clone(edges), func(e edge) bool {
		return e.relation == RelationApplies || e.relation == RelationGenerates
	})
}

// edgesOf returns what an object depends on, each once, in a stable order.
func (v *Views) edgesOf(o Object, kind Kind) []edge {
	var edges []edge
	add := func(relation Relation, to Workload, reach reach) {
		to, _, _, err := v.resolve(to)
		known := slices.ContainsFunc(edges, func(e edge) bool { return e.to == to })
		if err == nil && !known {
			edges = append(edges, edge{relation, to, reach})
		}
	}
	for _, link := range o.Links {
		add(link.Relation, link.To, reachAll)
	}
	for _, use := range o.Sources {
		if !use.Source.Object.IsZero() {
			add(cmp.Or(use.Relation, RelationSource), use.Source.Object, reachAll)
		}
	}
	relation := RelationApplies
	if kind.Role == RoleGenerator {
		relation = RelationGenerates
	}
	for _, applied := range o.Applies {
		// What is applied elsewhere is not in this cluster.
		if o.TargetCluster == "" && v.knows(applied) && applied != o.Workload {
			add(relation, applied, reachAll)
		}
	}
	for _, owner := range o.Owners {
		if kind.Role == "" || v.knows(owner) {
			add(RelationOwnedBy, owner, reachUp)
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int {
		return cmp.Or(cmp.Compare(rankOf(a.relation), rankOf(b.relation)), compareWorkloads(a.to, b.to))
	})
	return edges
}

// knows reports whether a Reader knows the kind of w.
func (v *Views) knows(w Workload) bool {
	for _, reader := range v.readers {
		if slices.ContainsFunc(reader.Kinds(), func(k Kind) bool { return k.GroupKind == w.GroupKind() }) {
			return true
		}
	}
	return false
}

// rankOf orders relations: what an object waits for, what it is made of, what it made, what made it.
func rankOf(relation Relation) int {
	return slices.Index([]Relation{RelationDependsOn, RelationSource, RelationChart, RelationApplies, RelationGenerates,
		RelationOwnedBy, RelationManagedBy}, relation)
}

// treeBuilder makes a tree of a graph.
type treeBuilder struct {
	graph *graph
	built map[Workload]reach
	above map[Workload]bool
}

func (b *treeBuilder) node(at edge) *DepNode {
	read := b.graph.objects[at.to]
	node := &DepNode{
		Workload: at.to, Engine: read.object.Engine, Relation: at.relation, Answer: read.answer, Message: read.message,
		Ready: read.object.Ready, Suspended: read.object.Suspended, Revision: revisionOf(read.object),
	}
	switch {
	case b.above[at.to]:
		node.Repeat = RepeatCycle
		return node
	case b.built[at.to] >= at.reach:
		node.Repeat = RepeatSeen
		return node
	}
	b.built[at.to], b.above[at.to] = at.reach, true
	for _, edge := range b.graph.edges(at) {
		// That it is owned by what it stands below is no cycle, and nothing new.
		if edge.relation != RelationOwnedBy || !b.above[edge.to] {
			node.Children = append(node.Children, b.node(edge))
		}
	}
	delete(b.above, at.to)
	return node
}

// revisionOf returns what an applier applies, or a source holds.
func revisionOf(o Object) string {
	if o.Source != nil {
		return o.Source.Revision
	}
	for _, use := range o.Sources {
		if use.Applied != "" {
			return use.Applied
		}
	}
	return ""
}
