package gitopsprovider

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxMessage is how many characters of a message a rendered line shows.
const maxMessage = 200

// Text renders the tree for a terminal, one object a line, and below it the root causes, if something fails. A tree in JSON is
// what encoding/json makes of the node.
func (n *DepNode) Text() string {
	var b strings.Builder
	n.writeText(&b, "", "")
	if roots := n.RootCauses(); len(roots) > 0 {
		b.WriteString("\nRoot causes:\n")
		for _, root := range roots {
			fmt.Fprintf(&b, "  %s  %s\n", oneLine(root.Workload.String()), root.summary())
		}
	}
	return b.String()
}

func (n *DepNode) writeText(b *strings.Builder, first, rest string) {
	b.WriteString(first)
	if n.Relation != "" {
		fmt.Fprintf(b, "%s ", n.Relation)
	}
	b.WriteString(oneLine(n.Workload.String()))
	switch n.Repeat {
	case RepeatSeen:
		b.WriteString("  (seen above)")
	case RepeatCycle:
		b.WriteString("  (cycle)")
	default:
		b.WriteString("  " + n.summary())
	}
	b.WriteByte('\n')
	for i, child := range n.Children {
		if i == len(n.Children)-1 {
			child.writeText(b, rest+"└─ ", rest+"   ")
		} else {
			child.writeText(b, rest+"├─ ", rest+"│  ")
		}
	}
}

// summary says in a line how the object is doing.
func (n *DepNode) summary() string {
	parts := []string{n.standing()}
	if n.Suspended && n.Ready.State != StateSuspended {
		parts[0] += ", suspended"
	}
	if n.Ready.State != StateReady {
		parts = append(parts, oneLine(n.Ready.Reason))
	}
	message := n.Message
	if message == "" && n.Ready.State != StateReady {
		message = n.Ready.Message
	}
	parts = append(parts, oneLine(message))
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	line := strings.Join(parts, ": ")
	if n.Revision != "" {
		line += " (" + oneLine(shortRevision(n.Revision)) + ")"
	}
	return line
}

// longHash is the hash of a commit or an artifact.
var longHash = regexp.MustCompile(`[0-9a-f]{40,64}`)

// shortRevision abbreviates the hash in a revision.
func shortRevision(revision string) string {
	return longHash.ReplaceAllStringFunc(revision, func(hash string) string { return hash[:12] })
}

// standing is the state of an object that was found, and otherwise what the read established.
func (n *DepNode) standing() string {
	if n.Answer == AnswerFound {
		return n.Ready.State.String()
	}
	return cmp.Or(string(n.Answer), "NotRead")
}

// folded returns a message without line breaks and other control characters, which a terminal would obey.
func folded(message string) string {
	return strings.Join(strings.FieldsFunc(message, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
}

// oneLine returns a message folded, and cut at a length that a line can show.
func oneLine(message string) string {
	message = folded(message)
	if runes := []rune(message); len(runes) > maxMessage {
		return string(runes[:maxMessage]) + "…"
	}
	return message
}

// Mermaid renders the tree as a Mermaid flowchart, for a Markdown page. Each object is one node, whatever leads to it.
func (n *DepNode) Mermaid() string {
	m := mermaid{ids: map[Workload]string{}}
	m.b.WriteString("flowchart TD\n")
	m.write(n)
	for _, class := range []struct{ name, style string }{
		{"failing", "fill:#fdd,stroke:#c00"}, {"missing", "fill:#fdd,stroke:#c00,stroke-dasharray:4"},
		{"unknown", "fill:#eee,stroke:#888,stroke-dasharray:4"}, {"progressing", "fill:#ffd,stroke:#a80"},
		{"suspended", "fill:#eef,stroke:#88a"}, {"ready", "fill:#dfd,stroke:#080"},
	} {
		fmt.Fprintf(&m.b, "  classDef %s %s\n", class.name, class.style)
	}
	return m.b.String()
}

type mermaid struct {
	b   strings.Builder
	ids map[Workload]string
}

// write writes a node unless it was written, and what leads on from it.
func (m *mermaid) write(n *DepNode) {
	id, known := m.ids[n.Workload]
	if !known {
		id = fmt.Sprintf("n%d", len(m.ids))
		m.ids[n.Workload] = id
		fmt.Fprintf(&m.b, "  %s[\"%s\"]:::%s\n", id, mermaidText(n), n.class())
	}
	for _, child := range n.Children {
		m.write(child)
		fmt.Fprintf(&m.b, "  %s -->|%s| %s\n", id, child.Relation, m.ids[child.Workload])
	}
}

func mermaidText(n *DepNode) string {
	state := n.standing()
	if n.Answer == AnswerFound && n.Ready.State != StateReady && n.Ready.Reason != "" {
		state += ": " + n.Ready.Reason
	}
	return mermaidEscapes.Replace(oneLine(n.Workload.String())) + "<br/>" + mermaidEscapes.Replace(oneLine(state))
}

// mermaidEscapes are for a label in quotes, which Mermaid takes for HTML.
var mermaidEscapes = strings.NewReplacer(`"`, "#quot;", "#", "#35;", "&", "#amp;", "<", "#lt;", ">", "#gt;", "`", "#96;")

func (n *DepNode) class() string {
	switch {
	case n.Answer == AnswerAbsent || n.Answer == AnswerNotServed:
		return "missing"
	case n.Answer != AnswerFound || n.Ready.State == StateUnknown:
		return "unknown"
	default:
		return strings.ToLower(string(n.Ready.State))
	}
}
