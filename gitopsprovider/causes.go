package gitopsprovider

import "slices"

// RootCauses returns the nodes that are to blame for what fails in a tree, in its order: those that fail, are absent,
// or are of a kind that is not served, and depend on nothing of the sort. Objects that fail and depend on each
// other, in a cycle, are all returned. What owns or manages an object does not explain its failure.
//
// What could not be read is not among them, and may be a cause all the same.
func (n *DepNode) RootCauses() []*DepNode {
	c := causes{first: map[Workload]*DepNode{}, below: map[Workload][]Workload{}, visits: map[Workload]*visit{}}
	c.collect(n)
	for _, w := range c.order {
		if c.visits[w] == nil {
			c.visit(w)
		}
	}
	var roots []*DepNode
	for _, w := range c.order {
		if c.isProblem(w) && !c.visits[w].explained {
			roots = append(roots, c.first[w])
		}
	}
	return roots
}

// causes is the graph of a tree, and Tarjan's search for the cycles in it.
type causes struct {
	order []Workload
	first map[Workload]*DepNode
	below map[Workload][]Workload

	visits map[Workload]*visit
	stack  []Workload
}

// visit is what the search knows of an object.
type visit struct {
	number, low int
	open        bool
	// explained is whether a problem lies below the object, outside of the cycle that it is part of. It is known once the
	// visit is no longer open. troubled is whether there is a problem below it or in its cycle, itself included.
	explained, troubled bool
}

// collect turns the tree into a graph again.
func (c *causes) collect(n *DepNode) {
	if _, known := c.first[n.Workload]; !known {
		c.first[n.Workload] = n
		c.order = append(c.order, n.Workload)
	}
	for _, child := range n.Children {
		if child.Relation != RelationOwnedBy && child.Relation != RelationManagedBy {
			c.below[n.Workload] = append(c.below[n.Workload], child.Workload)
		}
		c.collect(child)
	}
}

func (c *causes) isProblem(w Workload) bool {
	n := c.first[w]
	return n.Ready.State == StateFailing || n.Answer == AnswerAbsent || n.Answer == AnswerNotServed
}

func (c *causes) visit(w Workload) *visit {
	v := &visit{number: len(c.visits), low: len(c.visits), open: true}
	c.visits[w] = v
	start := len(c.stack)
	c.stack = append(c.stack, w)
	for _, below := range c.below[w] {
		child := c.visits[below]
		if child == nil {
			child = c.visit(below)
			v.low = min(v.low, child.low)
		} else if child.open {
			v.low = min(v.low, child.number)
		}
	}
	if v.low == v.number {
		c.close(slices.Clone(c.stack[start:]))
		c.stack = c.stack[:start]
	}
	return v
}

// close judges the objects of one cycle, or a single object: everything below them was judged before.
func (c *causes) close(cycle []Workload) {
	explained, troubled := false, false
	for _, w := range cycle {
		c.visits[w].open = false
		troubled = troubled || c.isProblem(w)
		for _, below := range c.below[w] {
			explained = explained || !slices.Contains(cycle, below) && c.visits[below].troubled
		}
	}
	for _, w := range cycle {
		c.visits[w].explained, c.visits[w].troubled = explained, explained || troubled
	}
}
