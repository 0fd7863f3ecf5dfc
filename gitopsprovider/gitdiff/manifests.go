package gitdiff

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// manifests is a file read as YAML documents; JSON is YAML.
type manifests struct{ documents []*document }

// document is one document of a file, with the marker before it.
type document struct {
	raw    string
	marker string // --- and its line end, if it has one
	nodes  []*yaml.Node
	slots  []slot
	inner  []inner // strings in it that are manifests with Secrets
	opaque bool    // it seems to hold a Secret, and cannot be read
	mask   string  // what an opaque document is replaced by
}

// inner is a string in a document that holds manifests of its own, such as the
// annotation with what kubectl applied last.
type inner struct {
	node      *yaml.Node
	manifests *manifests
}

// mostNesting is how deep manifests in strings in manifests are read.
const mostNesting = 4

// mostDocuments is how many documents of a file are read one by one.
const mostDocuments = 2000

// separator begins a document. It does so in the middle of any text, since YAML
// forbids it there.
var separator = regexp.MustCompile(`(?m)^---(?:[ \t\r]|$)`)

// readManifests reads a text, which may be anything.
func readManifests(text string) *manifests {
	m := readNested(text, 0)
	m.numberPlaces(map[string]int{})
	return m
}

func readNested(text string, nesting int) *manifests {
	m := &manifests{}
	starts := separator.FindAllStringIndex(text, mostDocuments)
	if len(starts) == mostDocuments {
		starts = nil // one reading of them all is quicker
	}
	begin := 0
	for i := 0; i <= len(starts); i++ {
		end := len(text)
		if i < len(starts) {
			end = starts[i][0]
		}
		if end > begin {
			m.documents = append(m.documents, readDocument(text[begin:end], nesting))
		}
		begin = end
	}
	return m
}

// numberPlaces tells several fields of one place apart by their order.
func (m *manifests) numberPlaces(times map[string]int) {
	for _, d := range m.documents {
		for i := range d.slots {
			place := d.slots[i].place
			times[place]++
			d.slots[i].place = place + "#" + strconv.Itoa(times[place])
		}
		for _, in := range d.inner {
			in.manifests.numberPlaces(times)
		}
	}
}

func readDocument(raw string, nesting int) *document {
	d := &document{raw: raw}
	if !strings.Contains(raw, ":") {
		return d // no mapping is in it
	}
	if line, _, ok := strings.Cut(raw, "\n"); ok && strings.HasPrefix(raw, "---") && strings.TrimSpace(line) == "---" {
		d.marker = line + "\n"
	}
	nodes, err := parse(raw)
	if err != nil || commentsLookSecret(raw) {
		d.opaque = looksSecret(raw) || err == nil
		return d
	}
	d.nodes = nodes
	w := &nodeWalk{document: d, nesting: nesting, seen: map[*yaml.Node]bool{}, hidden: map[*yaml.Node]bool{}}
	for _, n := range nodes {
		w.walk(n)
	}
	// Of a node that is hidden, nothing else is to be written.
	d.inner = slices.DeleteFunc(d.inner, func(in inner) bool { return w.hidden[in.node] })
	if w.unclear {
		d.slots, d.inner, d.opaque = nil, nil, true
	}
	return d
}

// parse returns all documents of a text: more than one if they are separated in
// a way that separator does not know, by a lone carriage return for example.
func parse(text string) (nodes []*yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser is not proof against everything
			nodes, err = nil, fmt.Errorf("parser: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		n := &yaml.Node{}
		err := decoder.Decode(n)
		if errors.Is(err, io.EOF) {
			return nodes, nil
		}
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
}

var commentLine = regexp.MustCompile(`(?m)^[ \t]*#+(.*)$`)

// commentsLookSecret reports whether somebody commented a Secret out.
func commentsLookSecret(raw string) bool {
	if !strings.Contains(raw, "#") {
		return false
	}
	var comments strings.Builder
	for _, match := range commentLine.FindAllStringSubmatch(raw, -1) {
		comments.WriteString(match[1])
		comments.WriteByte('\n')
	}
	return looksSecret(comments.String())
}

func (m *manifests) slots() []slot {
	var all []slot
	for _, d := range m.documents {
		all = append(all, d.slots...)
		for _, in := range d.inner {
			all = append(all, in.manifests.slots()...)
		}
	}
	return all
}

func (m *manifests) opaque() []*document {
	var all []*document
	for _, d := range m.documents {
		if d.opaque {
			all = append(all, d)
		}
		for _, in := range d.inner {
			all = append(all, in.manifests.opaque()...)
		}
	}
	return all
}

func (m *manifests) secret() bool { return len(m.slots()) > 0 || len(m.opaque()) > 0 }

func (d *document) maskOpaque(same bool, different string) {
	d.mask = mask
	if !same {
		d.mask = different
	}
}

// render returns the text with what was hidden.
func (m *manifests) render() string {
	var b strings.Builder
	for _, d := range m.documents {
		b.WriteString(d.render())
	}
	return b.String()
}

func (d *document) render() string {
	if !d.opaque && len(d.slots) == 0 && len(d.inner) == 0 {
		return d.raw
	}
	if !d.opaque {
		for _, in := range d.inner {
			in.node.Value = in.manifests.render()
			in.node.Style = 0
		}
		if text, err := encode(d.nodes); err == nil {
			return d.marker + text
		}
	}
	hidden := d.mask
	if hidden == "" {
		hidden = mask
	}
	return d.marker + "# " + hidden + opaqueNotice
}

// opaqueNotice is written, after a mask, instead of a document that is left out.
const opaqueNotice = ": not shown, since it seems to hold a Secret and cannot be read\n"

// encode writes documents, without comments and in block style.
func encode(nodes []*yaml.Node) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			text, err = "", fmt.Errorf("encoder: %v", p)
		}
	}()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	for _, n := range nodes {
		plain(n)
		if err := e.Encode(n); err != nil {
			return "", err
		}
	}
	if err := e.Close(); err != nil {
		return "", err
	}
	return b.String(), nil
}

// plain removes comments and flow style.
func plain(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	n.Style &^= yaml.FlowStyle
	for _, child := range n.Content {
		plain(child)
	}
}

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
		}
	}
	for _, f := range fields {
		if strings.EqualFold(f.key, "secretGenerator") {
			w.hideLiterals(f.value)
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

// hideLiterals makes slots of the literals that Kustomize generates Secrets from.
func (w *nodeWalk) hideLiterals(generators *yaml.Node) {
	for i, g := range resolve(generators).Content {
		for _, f := range w.fields(g) {
			if !strings.EqualFold(f.key, "literals") {
				continue
			}
			for _, literal := range resolve(f.value).Content {
				literal = resolve(literal)
				key, value, _ := strings.Cut(literal.Value, "=")
				if w.hidden[literal] {
					continue
				}
				w.hidden[literal] = true
				w.addSlot(literal, fmt.Sprintf("secretGenerator/%d/%s", i, key), key+"=", value)
			}
		}
	}
}
