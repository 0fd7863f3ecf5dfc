package gitdiff

import (
	"fmt"
	"strings"
)

// quotePath writes a path in a patch as Git does with its default settings: in
// quotes, with escapes, if it holds a quote, a backslash, a control character or
// anything beyond ASCII.
func quotePath(path string) string {
	var b strings.Builder
	quoted := false
	for i := range len(path) {
		c := path[i]
		if escape, ok := escapes[c]; ok {
			b.WriteString(escape)
			quoted = true
			continue
		}
		if c < 0x20 || c >= 0x7f {
			fmt.Fprintf(&b, `\%03o`, c)
			quoted = true
			continue
		}
		b.WriteByte(c)
	}
	if !quoted {
		return path
	}
	return `"` + b.String() + `"`
}

var escapes = map[byte]string{
	'\a': `\a`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\v': `\v`, '\f': `\f`, '\r': `\r`, '"': `\"`, '\\': `\\`,
}

// nameLine is a path after --- or +++. A tab ends one that holds a space, so that
// what reads it does not take the rest for a date.
func nameLine(path string) string {
	if strings.Contains(path, " ") {
		return quotePath(path) + "\t"
	}
	return quotePath(path)
}
