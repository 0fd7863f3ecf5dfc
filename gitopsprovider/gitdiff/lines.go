package gitdiff

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

const (
	contextLines = 3

	// lineDiffTime is how long the search for the shortest difference of two
	// files takes at most. What is found by then is whole, but longer.
	lineDiffTime = 2 * time.Second
)

// edit is a run of lines: common to both sides if kind is ' ', removed if '-',
// added if '+'.
type edit struct {
	kind  byte
	lines []string // with their line ends
}

// splitLines cuts a text after its line feeds. A carriage return is part of the
// line, as for Git.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// diffLines returns the edits that turn one list of lines into another, or false
// if there are too many different lines.
func diffLines(before, after []string) ([]edit, bool) {
	numbers := map[string]rune{}
	old, ok := numberLines(before, numbers)
	now, ok2 := numberLines(after, numbers)
	if !ok || !ok2 {
		return nil, false
	}
	dmp := diffmatchpatch.New()
	dmp.DiffTimeout = lineDiffTime
	var edits []edit
	for _, d := range dmp.DiffMainRunes(old, now, false) {
		n := utf8.RuneCountInString(d.Text)
		switch d.Type {
		case diffmatchpatch.DiffEqual:
			edits = append(edits, edit{' ', before[:n]})
			before, after = before[n:], after[n:]
		case diffmatchpatch.DiffDelete:
			edits = append(edits, edit{'-', before[:n]})
			before = before[n:]
		case diffmatchpatch.DiffInsert:
			edits = append(edits, edit{'+', after[:n]})
			after = after[n:]
		}
	}
	return edits, true
}

// numberLines gives each different line a rune of its own. Surrogates are left
// out: as text they are all one.
func numberLines(lines []string, numbers map[string]rune) ([]rune, bool) {
	const surrogates, surrogatesEnd = 0xD800, 0xE000
	out := make([]rune, len(lines))
	for i, line := range lines {
		r, ok := numbers[line]
		if !ok {
			r = rune(len(numbers) + 1)
			if r >= surrogates {
				r += surrogatesEnd - surrogates
			}
			if r > utf8.MaxRune {
				return nil, false
			}
			numbers[line] = r
		}
		out[i] = r
	}
	return out, true
}

// writeHunks writes edits in the unified form, whole hunks up to a number of
// bytes. It reports whether that was all.
func writeHunks(b *strings.Builder, edits []edit, most int64) bool {
	for _, h := range hunks(edits) {
		text := h.String()
		if int64(b.Len()+len(text)) > most {
			return false
		}
		b.WriteString(text)
	}
	return true
}

// hunk is a part of a patch: edits with the lines around them.
type hunk struct {
	before, after           int // the numbers of the lines above it
	beforeCount, afterCount int
	edits                   []edit
}

// hunks groups edits that are no more than twice the context apart.
func hunks(edits []edit) []hunk {
	var all []hunk
	var current *hunk
	before, after := 0, 0 // lines passed
	for i, e := range edits {
		n := len(e.lines)
		last := i == len(edits)-1
		switch {
		case e.kind != ' ':
			if current == nil {
				current = &hunk{before: before, after: after}
			}
			current.add(e)
		case current != nil && !last && n <= 2*contextLines:
			current.add(e)
		case current != nil:
			current.add(edit{' ', e.lines[:min(n, contextLines)]})
			all = append(all, *current)
			current = nil
		}
		if e.kind != '+' {
			before += n
		}
		if e.kind != '-' {
			after += n
		}
		if e.kind == ' ' && current == nil && !last {
			tail := e.lines[max(0, n-contextLines):]
			current = &hunk{before: before - len(tail), after: after - len(tail)}
			current.add(edit{' ', tail})
		}
	}
	if current != nil {
		all = append(all, *current)
	}
	return all
}

func (h *hunk) add(e edit) {
	h.edits = append(h.edits, e)
	if e.kind != '+' {
		h.beforeCount += len(e.lines)
	}
	if e.kind != '-' {
		h.afterCount += len(e.lines)
	}
}

func (h *hunk) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "@@ -%s +%s @@\n", span(h.before, h.beforeCount), span(h.after, h.afterCount))
	for _, e := range h.edits {
		for _, line := range e.lines {
			b.WriteByte(e.kind)
			b.WriteString(line)
			if !strings.HasSuffix(line, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	return b.String()
}

// span writes where a hunk is on one side. One without lines is at the line above
// it.
func span(above, count int) string {
	switch count {
	case 0:
		return fmt.Sprintf("%d,0", above)
	case 1:
		return fmt.Sprint(above + 1)
	}
	return fmt.Sprintf("%d,%d", above+1, count)
}
