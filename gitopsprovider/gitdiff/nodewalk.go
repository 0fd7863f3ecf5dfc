package gitdiff

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nodeWalk looks for Secrets in the nodes of a document.
type nodeWalk struct {
	document *document
	nesting  int
	seen     map[*yaml.Node]bool // walked
	hidden   map[*yaml.Node]bool // a value, or made of values
	work     int                 // fields looked at
	unclear  bool                // it cannot be told what is a value and what is not
}

func (w *nodeWalk) walk(n *yaml.Node) {
	if n == nil || w.seen[n] || w.hidden[n] {
		return
	}
	w.seen[n] = true
	switch n.Kind {
	case yaml.AliasNode:
		w.walk(n.Alias)
	case yaml.ScalarNode:
		w.walkString(n)
	case yaml.MappingNode:
		w.walkMapping(n)
	default:
		for _, child := range n.Content {
			w.walk(child)
		}
	}
}

func (w *nodeWalk) walkString(n *yaml.Node) {
	if !looksSecret(n.Value) {
		return
	}
	if w.nesting == mostNesting {
		w.unclear = true
		return
	}
	if m := readNested(n.Value, w.nesting+1); m.secret() {
		w.document.inner = append(w.document.inner, inner{n, m})
	}
}

func (w *nodeWalk) walkMapping(n *yaml.Node) {
	fields := w.fields(n)
	for _, f := range fields {
		switch kind := resolve(f.value); {
		case !strings.EqualFold(f.key, "kind") || kind.Kind != yaml.ScalarNode:
		case strings.EqualFold(kind.Value, "Secret"):
			w.hideSecret(fields)
		case strings.EqualFold(kind.Value, "SecretList"):
			w.hideItems(fields)
		case strings.EqualFold(kind.Value, "SecretGenerator"):
			w.hideLiterals(fields, "SecretGenerator/"+w.identify(fields))
		}
	}
	for _, f := range fields {
		if strings.EqualFold(f.key, "secretGenerator") {
			w.hideGenerators(f.value)
		}
	}
	w.hidePatch(fields)
	for _, child := range n.Content {
		w.walk(child)
	}
}

// field is a field of a mapping.
type field struct {
	key   string
	value *yaml.Node
}

// mostWork bounds how many fields of a document are looked at. A few merges (<<)
// can make billions.
const mostWork = 2_000_000

// fields returns the fields of a mapping, those it merges in (<<) too.
func (w *nodeWalk) fields(n *yaml.Node) []field {
	return w.merged(n, map[*yaml.Node]bool{})
}

func (w *nodeWalk) merged(n *yaml.Node, seen map[*yaml.Node]bool) []field {
	n = resolve(n)
	w.work += len(n.Content)
	if w.work > mostWork {
		w.unclear = true
	}
	if seen[n] || w.unclear {
		return nil
	}
	seen[n] = true
	var all []field
	switch n.Kind {
	case yaml.SequenceNode: // of a merge
		for _, child := range n.Content {
			all = append(all, w.merged(child, seen)...)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := resolve(n.Content[i])
			if key.Kind == yaml.ScalarNode && key.Value == "<<" {
				all = append(all, w.merged(n.Content[i+1], seen)...)
				continue
			}
			all = append(all, field{key.Value, n.Content[i+1]}) // a key that is no scalar has no name
		}
	}
	return all
}

func resolve(n *yaml.Node) *yaml.Node {
	for range 20 {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

// valueField is a field that holds values. A Secret has no binaryData, but a
// mistake does not make the values of one public.
var valueField = regexp.MustCompile(`(?i)^(string|binary)?data$`)

// hideSecret makes slots of the values of a Secret.
func (w *nodeWalk) hideSecret(fields []field) {
	id := w.identify(fields)
	for _, f := range fields {
		if valueField.MatchString(f.key) {
			w.hide(f.value, id+"/"+f.key)
		}
	}
}

// identify names a Secret by its namespace and name.
func (w *nodeWalk) identify(fields []field) string {
	id := ""
	for _, f := range fields {
		if !strings.EqualFold(f.key, "metadata") {
			continue
		}
		for _, m := range w.fields(f.value) {
			if m.key == "name" || m.key == "namespace" {
				id += m.key + "=" + resolve(m.value).Value + ","
			}
		}
	}
	return id
}

// hideItems treats the items of a SecretList as Secrets: they need not name their
// kind.
func (w *nodeWalk) hideItems(fields []field) {
	for _, f := range fields {
		if !strings.EqualFold(f.key, "items") {
			continue
		}
		for _, item := range resolve(f.value).Content {
			w.hideSecret(w.fields(item))
		}
	}
}

// hidePatch makes a slot of a patch for Secrets, which need not say their kind
// itself: it may list fields and values.
func (w *nodeWalk) hidePatch(fields []field) {
	forSecrets, name := false, ""
	for _, f := range fields {
		if f.key != "target" {
			continue
		}
		for _, t := range w.fields(f.value) {
			value := resolve(t.value).Value
			forSecrets = forSecrets || t.key == "kind" && secretKind.MatchString(value)
			if t.key == "name" {
				name = value
			}
		}
	}
	for _, f := range fields {
		if forSecrets && f.key == "patch" {
			w.hide(f.value, "patch/"+name)
		}
	}
}

// secretKind is a kind of a target that may mean Secret: Kustomize takes it for a
// regular expression.
var secretKind = regexp.MustCompile(`(?i)(^|[^a-z])Secret($|[^a-z])`)

// hide makes slots of all scalars below a node.
func (w *nodeWalk) hide(n *yaml.Node, place string) {
	n = resolve(n)
	if w.hidden[n] {
		return
	}
	w.hidden[n] = true
	switch n.Kind {
	case yaml.ScalarNode:
		w.addSlot(n, place, "", n.Value)
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := resolve(n.Content[i])
			if key.Kind != yaml.ScalarNode {
				w.unclear = true
				return
			}
			w.hide(n.Content[i+1], place+"/"+key.Value)
		}
	default:
		for i, child := range n.Content {
			w.hide(child, place+"/"+strconv.Itoa(i))
		}
	}
}

// addSlot makes a slot of a scalar, of which a beginning stays.
func (w *nodeWalk) addSlot(n *yaml.Node, place, beginning, value string) {
	w.document.slots = append(w.document.slots, slot{place, value, func(mask string) {
		n.Value, n.Tag, n.Style = beginning+mask, "!!str", 0
	}})
}

// hideGenerators hides the literals of the generators that a kustomization lists.
func (w *nodeWalk) hideGenerators(generators *yaml.Node) {
	generators = resolve(generators)
	if generators.Kind == yaml.MappingNode { // a list was meant
		w.hideLiterals(w.fields(generators), "secretGenerator")
	}
	for i, g := range generators.Content {
		w.hideLiterals(w.fields(g), fmt.Sprintf("secretGenerator/%d", i))
	}
}

// hideLiterals makes slots of the literals, key=value, that Kustomize generates a
// Secret from. What has another form is hidden as a whole.
func (w *nodeWalk) hideLiterals(fields []field, place string) {
	for _, f := range fields {
		if !strings.EqualFold(f.key, "literals") {
			continue
		}
		literals := resolve(f.value)
		if literals.Kind != yaml.SequenceNode {
			w.hide(literals, place+"/literals")
			continue
		}
		for i, literal := range literals.Content {
			literal = resolve(literal)
			key, value, ok := strings.Cut(literal.Value, "=")
			switch {
			case w.hidden[literal]:
			case literal.Kind != yaml.ScalarNode || !ok:
				w.hide(literal, fmt.Sprintf("%s/%d", place, i))
			default:
				w.hidden[literal] = true
				w.addSlot(literal, place+"/"+key, key+"=", value)
			}
		}
	}
}
