package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// printer prints answers as text or as JSON.
type printer struct {
	out  io.Writer
	json bool
}

func (p printer) print(text string) { fmt.Fprint(p.out, text) }

// line prints a line, after as many empty ones as the format begins with line breaks.
func (p printer) line(format string, args ...any) {
	text := strings.TrimLeft(format, "\n")
	p.print(format[:len(format)-len(text)])
	fmt.Fprintln(p.out, strings.TrimRight(clean(fmt.Sprintf(text, args...)), " "))
}

func (p printer) encode(answer any) error {
	encoder := json.NewEncoder(p.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}

// clean returns text without line breaks and other control characters, which a terminal would obey. Tabs stay.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return ' '
		}
		return r
	}, text)
}

// source names where content comes from.
func source(s gitopsprovider.Source, path string) string {
	text := s.URL
	if !s.Object.IsZero() {
		text = strings.TrimPrefix(text+" ("+s.Object.String()+")", " ")
	}
	if path == "" {
		return text
	}
	return text + " " + path
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

var hash = regexp.MustCompile(`[0-9a-f]{40,64}`)

// short abbreviates the hashes in a revision.
func short(revision string) string {
	return hash.ReplaceAllStringFunc(revision, func(h string) string { return h[:12] })
}

// times says how often an Event was seen.
func times(count int64) string {
	if count < 2 {
		return ""
	}
	return fmt.Sprintf(" ×%d", count)
}
