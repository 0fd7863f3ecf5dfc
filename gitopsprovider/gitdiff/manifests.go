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
