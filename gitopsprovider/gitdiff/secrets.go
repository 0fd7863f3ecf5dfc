package gitdiff

import (
	"cmp"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// The masks that stand for a value of a Secret. A value that both sides have in
// the same place is the first of them on both; where it differs, each side has
// its own, so that the change shows while nothing can be computed from it.
const (
	mask       = "***"
	maskBefore = "***(before)"
	maskAfter  = "***(after)"
)

// leastTwin is the length from which on a value is hidden outside of its Secret
// too. Shorter ones are in too many other words.
const leastTwin = 6

// A text in a string has backslashes before its quotes, one in a string in a
// string has more of them.
var (
	secretHint = regexp.MustCompile(`(?i)\bkind\\*["']?\s*:\s*[^\n]{0,60}\bsecret(list)?\b`)
	dataHint   = regexp.MustCompile(`(?i)(\b|_)(string|binary)?data\\*["']?\s*:`)

	generatorHint = regexp.MustCompile(`(?i)\bsecretGenerator\b`)
	literalsHint  = regexp.MustCompile(`(?i)\bliterals\\*["']?\s*:`)
)

// looksSecret reports whether a text that cannot be read as YAML may hold a
// Secret, or what Kustomize generates one from.
func looksSecret(text string) bool {
	return secretHint.MatchString(text) && dataHint.MatchString(text) ||
		generatorHint.MatchString(text) && literalsHint.MatchString(text)
}

// hideSecrets hides the values of the Secrets that the two sides of a file hold,
// and reports whether there were any.
//
// A document that holds a Secret is written anew from what it means, with masks
// for the values, and without its comments: no way of writing a value survives
// that. A document that seems to hold one and cannot be read is left out as a
// whole. Values are also hidden, as they are and in base64, wherever else they
// are in the file.
func hideSecrets(before, after *content) bool {
	old, now := readManifests(before.text), readManifests(after.text)
	if !old.secret() && !now.secret() {
		return false
	}
	both := before.exists && after.exists
	hideSlots(old.slots(), now.slots(), both)
	hideOpaque(old, now, both)
	twins := newTwins(old.slots(), now.slots())
	if len(twins.forms) > mostForms {
		leaveOut(before, after, both)
		return true
	}
	before.text = twins.hide(old.render())
	after.text = twins.hide(now.render())
	return true
}

// mostForms bounds how many forms of values are looked for in a file.
const mostForms = 20_000

// leaveOut replaces a file as a whole.
func leaveOut(before, after *content, both bool) {
	same := !both || before.text == after.text
	for c, different := range map[*content]string{before: maskBefore, after: maskAfter} {
		if !c.exists {
			continue
		}
		if same {
			different = mask
		}
		c.text = "# " + different + tooManyNotice
	}
}

const tooManyNotice = ": not shown, since it holds too many values of Secrets\n"

// slot is a value of a Secret, and where it is.
type slot struct {
	place string // the same for the same field of the same Secret
	value string
	set   func(mask string)
}

// hideSlots masks the values of both sides.
func hideSlots(old, now []slot, both bool) {
	maskAgainst(old, now, both, maskBefore)
	maskAgainst(now, old, both, maskAfter)
}

func maskAgainst(slots, others []slot, both bool, different string) {
	there := map[string]string{}
	for _, s := range others {
		there[s.place] = s.value
	}
	for _, s := range slots {
		value, ok := there[s.place]
		if !both || ok && value == s.value {
			s.set(mask)
		} else {
			s.set(different)
		}
	}
}

// hideOpaque masks the documents that cannot be read.
func hideOpaque(old, now *manifests, both bool) {
	before, after := old.opaque(), now.opaque()
	texts := func(docs []*document) map[string]bool {
		set := map[string]bool{}
		for _, d := range docs {
			set[d.raw] = true
		}
		return set
	}
	inBefore, inAfter := texts(before), texts(after)
	for _, d := range before {
		d.maskOpaque(!both || inAfter[d.raw], maskBefore)
	}
	for _, d := range after {
		d.maskOpaque(!both || inBefore[d.raw], maskAfter)
	}
}

// twins are the other forms of the values of Secrets, with their masks.
type twins struct {
	forms []string // the longest first
	masks map[string]string
}

func newTwins(old, now []slot) twins {
	before, after := formsOf(old), formsOf(now)
	t := twins{masks: map[string]string{}}
	for form := range before {
		t.masks[form] = maskBefore
		if after[form] {
			t.masks[form] = mask
		}
	}
	for form := range after {
		if !before[form] {
			t.masks[form] = maskAfter
		}
	}
	for form := range t.masks {
		t.forms = append(t.forms, form)
	}
	slices.SortFunc(t.forms, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return t
}

func (t twins) hide(text string) string {
	if len(t.forms) == 0 {
		return text
	}
	pairs := make([]string, 0, 2*len(t.forms))
	for _, form := range t.forms { // of two that begin at one place, Replacer takes the first
		pairs = append(pairs, form, t.masks[form])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// formsOf returns the forms in which values may be found outside of a Secret.
func formsOf(slots []slot) map[string]bool {
	forms := map[string]bool{}
	add := func(form string) {
		if form = strings.TrimSpace(form); len(form) >= leastTwin {
			forms[form] = true
		}
	}
	for _, s := range slots {
		values := []string{s.value}
		if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(s.value), "")); err == nil {
			values = append(values, string(decoded))
		}
		for _, v := range values {
			add(v)
			for _, raw := range []string{v, strings.TrimSpace(v), strings.TrimSpace(v) + "\n"} {
				for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
					add(strings.TrimRight(e.EncodeToString([]byte(raw)), "="))
				}
			}
			// A key or certificate may be indented otherwise.
			if lines := strings.Split(v, "\n"); len(lines) > 1 {
				for _, line := range lines {
					if len(strings.TrimSpace(line)) >= 16 {
						add(line)
					}
				}
			}
		}
	}
	return forms
}
