package lab

import (
	"slices"
	"strings"
)

// slug turns a test's name into part of a DNS label of at most limit bytes.
func slug(name string, limit int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == limit {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}

// within says that a test is the other one or a subtest of it.
func within(test, other string) bool {
	return test == other || strings.HasPrefix(test, other+"/")
}

func (g *gate) names() []string {
	var names []string
	for name := range g.holders {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
