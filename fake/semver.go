package fake

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// newest returns the tag of the highest version that a constraint such as ">=1.0.0 <2.0.0", "~1.2.3", "^1.2.3" or "*" allows.
// The lock is held.
func (r *Repository) newest(constraint string) (string, error) {
	allowed, err := parseConstraint(constraint)
	if err != nil {
		return "", fmt.Errorf("semver parse error: %w", err)
	}
	var best *version.Version
	tag := ""
	for name := range r.tags {
		v, err := version.ParseSemantic(name)
		if err != nil || v.PreRelease() != "" || slices.ContainsFunc(allowed, func(c bound) bool { return !c.allows(v) }) {
			continue
		}
		if best == nil || best.LessThan(v) {
			best, tag = v, name
		}
	}
	if tag == "" {
		return "", fmt.Errorf("no match found for semver: %s", constraint)
	}
	return tag, nil
}

// A bound is one term of a constraint: at least from, and below to, where they are set.
type bound struct {
	from, to *version.Version
	except   bool
}

func (b bound) allows(v *version.Version) bool {
	inside := (b.from == nil || v.AtLeast(b.from)) && (b.to == nil || v.LessThan(b.to))
	return inside != b.except
}

// parseConstraint reads terms that all have to hold. Of Masterminds' syntax it leaves out "||", ranges with a hyphen
// and pre-releases.
func parseConstraint(text string) ([]bound, error) {
	var bounds []bound
	for _, term := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		if term == "*" || term == "x" {
			bounds = append(bounds, bound{})
			continue
		}
		number := strings.TrimLeft(term, "=!<>~^")
		exact, err := version.ParseGeneric(withThreeParts(number))
		if err != nil {
			return nil, fmt.Errorf("improper constraint: %s", text)
		}
		b, err := boundOf(strings.TrimSuffix(term, number), exact)
		if err != nil {
			return nil, fmt.Errorf("improper constraint: %s", text)
		}
		bounds = append(bounds, b)
	}
	if len(bounds) == 0 {
		return nil, fmt.Errorf("improper constraint: %s", text)
	}
	return bounds, nil
}

func boundOf(operator string, v *version.Version) (bound, error) {
	after := v.WithPatch(v.Patch() + 1)
	switch operator {
	case "", "=":
		return bound{from: v, to: after}, nil
	case "!=":
		return bound{from: v, to: after, except: true}, nil
	case ">=":
		return bound{from: v}, nil
	case ">":
		return bound{from: after}, nil
	case "<":
		return bound{to: v}, nil
	case "<=":
		return bound{to: after}, nil
	case "~":
		return bound{from: v, to: v.WithPatch(0).WithMinor(v.Minor() + 1)}, nil
	case "^":
		return bound{from: v, to: v.WithPatch(0).WithMinor(0).WithMajor(v.Major() + 1)}, nil
	default:
		return bound{}, fmt.Errorf("operator %q", operator)
	}
}

func withThreeParts(number string) string {
	for strings.Count(number, ".") < 2 {
		number += ".0"
	}
	return number
}
