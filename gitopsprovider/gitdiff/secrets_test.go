package gitdiff_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

// secretDiff returns the diff of one file. An empty text is no file.
func secretDiff(t testing.TB, path, before, after string, o gitdiff.Options) gitopsprovider.FileDiff {
	t.Helper()
	return secretDiffs(t, path, [][2]string{{before, after}}, o)[0]
}

// secretDiffs returns the diffs of many files, which are not paired as renames.
func secretDiffs(t testing.TB, path string, sides [][2]string, o gitdiff.Options) []gitopsprovider.FileDiff {
	t.Helper()
	folder := func(side [2]string) string {
		switch {
		case side[0] == "":
			return "added"
		case side[1] == "":
			return "deleted"
		}
		return "modified"
	}
	name := func(i int) string { return fmt.Sprintf("%s/%d/%s", folder(sides[i]), i, path) }
	s := newScenario(t, o, func(h *history) {
		a := h.commit("main", "A")
		h.text("other", "1\n")
		for i, side := range sides {
			if side[0] != "" {
				h.text(name(i), side[0])
			}
		}
		h.commit("main", "B", a)
		for i, side := range sides {
			if side[1] != "" {
				h.text(name(i), side[1])
			} else {
				h.remove(name(i))
			}
		}
	})
	byName := map[string]gitopsprovider.FileDiff{}
	for _, f := range []string{"added", "deleted", "modified"} {
		for _, file := range s.mustDiff("", "main", f).Files {
			file.Patch = strings.ReplaceAll(file.Patch, strings.TrimSuffix(file.Path, path), "")
			byName[file.Path] = file
		}
	}
	files := make([]gitopsprovider.FileDiff, len(sides))
	for i := range sides {
		require.Contains(t, byName, name(i))
		files[i] = byName[name(i)]
		files[i].Path = path
	}
	return files
}

const secretBefore = `# the database
apiVersion: v1
kind: Secret
metadata:
  name: db
  namespace: shop
data:
  user: YWRtaW4tYmVmb3Jl
  password: aHVudGVyMi1iZWZvcmU= # hunter2-before
stringData:
  url: postgres://admin:hunter2-before@db
  same: it-stays-the-same
`

var secretAfter = strings.NewReplacer("aHVudGVyMi1iZWZvcmU=", "aHVudGVyMi1hZnRlcg==", "hunter2-before", "hunter2-after").Replace(secretBefore)

func TestValuesOfSecretsAreHidden(t *testing.T) {
	t.Parallel()
	f := secretDiff(t, "apps/shop/secret.yaml", secretBefore, secretAfter, gitdiff.Options{})
	assert.True(t, f.SecretsHidden)
	assert.Equal(t, `diff --git a/apps/shop/secret.yaml b/apps/shop/secret.yaml
--- a/apps/shop/secret.yaml
+++ b/apps/shop/secret.yaml
@@ -5,7 +5,7 @@
   namespace: shop
 data:
   user: '***'
-  password: '***(before)'
+  password: '***(after)'
 stringData:
-  url: '***(before)'
+  url: '***(after)'
   same: '***'
`, f.Patch)
	assert.Empty(t, f.OldBlob, "a hash of a short value gives it away")
	assert.Empty(t, f.NewBlob)

	f = secretDiff(t, "apps/shop/secret.yaml", secretBefore, secretAfter, gitdiff.Options{ShowSecrets: true})
	assert.False(t, f.SecretsHidden)
	assert.Contains(t, f.Patch, "+  password: aHVudGVyMi1hZnRlcg== # hunter2-after")
	assert.NotEmpty(t, f.OldBlob)

	f = secretDiff(t, "apps/shop/secret.yaml", "", secretAfter, gitdiff.Options{})
	assert.Contains(t, f.Patch, "+  password: '***'\n")
	f = secretDiff(t, "apps/shop/secret.yaml", secretBefore, "", gitdiff.Options{})
	assert.Contains(t, f.Patch, "-  password: '***'\n")
}

// Each case is a file with two values to hide, hunter2-one and hunter2-two, as
// they are or in base64, and something that stays.
func TestNoWayToWriteAValueSurvives(t *testing.T) {
	t.Parallel()
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	one, two := b64("hunter2-one"), b64("hunter2-two")
	tests := map[string]struct{ text, stays string }{
		"plain":                    {"kind: Secret\ndata:\n  a: " + one + "\nstringData:\n  b: hunter2-two\nmetadata: {name: db}\n", "name: db"},
		"quoted":                   {"kind: 'Secret'\n\"stringData\":\n  a: 'hunter2-one'\n  'b': \"hunter2-two\"\nmetadata: {name: db}\n", "name: db"},
		"escaped":                  {"kind: \"\\x53ecret\"\n\"string\\x44ata\":\n  a: \"hunter2\\x2done\"\n  b: hunter2-two\nmetadata: {name: db}\n", "name: db"},
		"blocks":                   {"kind: Secret\nstringData:\n  a: |\n    hunter2-one\n    second\n  b: >-\n    hunter2-two\n    more\nmetadata: {name: db}\n", "name: db"},
		"folded":                   {"kind: Secret\nstringData:\n  a: hunter2-one\n    hunter2-two\n  b: \"x\\\n    hunter2-two\"\nmetadata: {name: db}\n", "name: db"},
		"flow":                     {"{kind: Secret, metadata: {name: db}, data: {a: " + one + ", b: " + two + "}}\n", "name: db"},
		"JSON":                     {`{"kind": "Secret", "metadata": {"name": "db"}, "stringData": {"a": "hunter2-one", "b": "hunter2-two"}}`, `"db"`},
		"indented JSON":            {"{\n\t\"kind\": \"Secret\",\n\t\"stringData\": {\"a\": \"hunter2-one\", \"b\": \"hunter2\\u002dtwo\"}\n}\n", ""},
		"a List":                   {"kind: List\nitems:\n- kind: ConfigMap\n  data: {x: shown}\n- kind: Secret\n  data: {a: " + one + ", b: " + two + "}\n", "shown"},
		"a SecretList":             {"kind: SecretList\nitems:\n- metadata: {name: db}\n  data: {a: " + one + ", b: " + two + "}\n", "name: db"},
		"several documents":        {"kind: ConfigMap\ndata: {x: shown} # as it is\n---\nkind: Secret\ndata: {a: " + one + "}\n---\nkind: Secret\ndata: {b: " + two + "}\n", "shown} # as it is"},
		"a document on its marker": {"kind: ConfigMap\n--- {kind: Secret, data: {a: " + one + ", b: " + two + "}}\n", "ConfigMap"},
		"CRLF":                     {"kind: Secret\r\nmetadata: {name: db}\r\ndata:\r\n  a: " + one + "\r\n  b: " + two + "\r\n---\r\nkind: Secret\r\n", "name: db"},
		"lone CRs":                 {"kind: ConfigMap\r---\rkind: Secret\rstringData:\r  a: hunter2-one\r  b: hunter2-two\r", "ConfigMap"},
		"next lines":               {"kind: ConfigMap\u0085---\u0085kind: Secret\u0085stringData:\u0085  a: hunter2-one\u0085  b: hunter2-two\u0085", ""},
		"a byte order mark":        {"\ufeffkind: Secret\nmetadata: {name: db}\ndata: {a: " + one + ", b: " + two + "}\n", "name: db"},
		"an end of document":       {"kind: ConfigMap\n...\nkind: Secret\nstringData: {a: hunter2-one, b: hunter2-two}\n", ""},
		"anchors":                  {"x: &x hunter2-one\nkind: Secret\nmetadata: {name: db}\nstringData:\n  a: *x\n  b: &b hunter2-two\ny: *b\n", "name: db"},
		"an anchor of all":         {"x: &x {a: hunter2-one, b: hunter2-two}\nkind: Secret\nmetadata: {name: db}\nstringData: *x\n", "name: db"},
		"a merge":                  {"x: &x {stringData: {a: hunter2-one}}\ny: {<<: *x, kind: Secret, data: {b: " + two + "}, metadata: {name: db}}\n", "name: db"},
		"merges":                   {"x: &x {kind: Secret}\ny: &y {stringData: {a: hunter2-one, b: hunter2-two}}\nz: {<<: [*x, *y], metadata: {name: db}}\n", "name: db"},
		"a merge in the values":    {"x: &x {a: hunter2-one}\nkind: Secret\nmetadata: {name: db}\nstringData:\n  <<: *x\n  b: hunter2-two\n", "name: db"},
		"tags":                     {"kind: !!str Secret\nmetadata: {name: db}\nstringData: !!map\n  a: !!str hunter2-one\n  b: !!binary " + two + "\n", "name: db"},
		"twice":                    {"kind: ConfigMap\nkind: Secret\nmetadata: {name: db}\ndata: {a: " + one + "}\ndata: {b: " + two + "}\n", "name: db"},
		"nested":                   {"kind: HelmRelease\nmetadata: {name: db}\nspec: {values: {extra: [{kind: Secret, stringData: {a: hunter2-one, b: {c: [hunter2-two]}}}]}}\n", "name: db"},
		"in a string":              {"kind: ConfigMap\nmetadata: {name: db}\ndata:\n  manifest: |\n    kind: Secret\n    stringData:\n      a: hunter2-one\n      b: hunter2-two\n", "name: db"},
		"what kubectl applied":     {"kind: Secret\nmetadata:\n  name: db\n  annotations:\n    last: |\n      {\"kind\":\"Secret\",\"data\":{\"a\":\"" + one + "\",\"b\":\"" + two + "\"}}\ndata: {a: " + one + "}\n", "name: db"},
		"in comments":              {"# hunter2-one\nkind: Secret # hunter2-two\nmetadata: {name: db}\n# hunter2-one\ndata:\n  # hunter2-two\n  a: aaa\n# hunter2-one\n", "name: db"},
		"commented out":            {"metadata: {name: db}\n---\n# kind: Secret\n# stringData:\n#   a: hunter2-one\n#   b: hunter2-two\n", "name: db"},
		"half commented out":       {"kind: Secret\nstringData: {a: hunter2-one}\n---\nx: 1\n---\n#kind: Secret\n#data: {b: " + two + "}\n", "x: 1"},
		"a template":               {"{{- if .Values.db }}\nkind: Secret\nstringData:\n  a: hunter2-one\n  b: {{ .Values.b | default \"hunter2-two\" }}\n{{- end }}\n---\nx: 1\n", "x: 1"},
		"not YAML":                 {"kind: Secret\n  stringData: [\n a: hunter2-one\nb: hunter2-two\n", ""},
		"its base64 twin":          {"kind: Secret\nmetadata: {name: db}\nstringData: {a: hunter2-one, b: hunter2-two}\n---\nkind: ConfigMap\ndata: {a: " + one + ", b: x" + two + "x, c: hunter2-one}\n", "ConfigMap"},
		"its plain twin":           {"kind: ConfigMap\ndata: {a: hunter2-one}\n---\nkind: Secret\nmetadata: {name: db}\ndata: {a: " + one + ", b: " + two + "}\n---\n# it was hunter2-two\n", "ConfigMap"},
		"its twin in its labels":   {"kind: Secret\nmetadata: {name: db, labels: {a: hunter2-one, b: " + two + "}}\nstringData: {a: hunter2-one, b: hunter2-two}\n", "name: db"},
		"lines of a key":           {"kind: Secret\nmetadata: {name: db}\nstringData:\n  a: |\n    -----BEGIN KEY-----\n    hunter2-one-hunter2-two\n---\nkind: ConfigMap\ndata:\n  a: |\n          hunter2-one-hunter2-two\n", "name: db"},
		"what Kustomize generates": {"kind: Kustomization\nsecretGenerator:\n- name: db\n  literals:\n  - a=hunter2-one\n  - b=hunter2-two\n", "name: db"},
		"a generator of Kustomize": {"apiVersion: builtin\nkind: SecretGenerator\nmetadata: {name: db}\nliterals:\n- a=hunter2-one\n- b=hunter2-two\n", "name: db"},
		"a generator in a string":  {"kind: Kustomization\nnamePrefix: db\ngenerators:\n- |-\n  kind: SecretGenerator\n  literals:\n  - a=hunter2-one\n  - b=hunter2-two\n", "namePrefix: db"},
		"a generator alone":        {"secretGenerator:\n  name: db\n  literals: [a=hunter2-one, b=hunter2-two]\n", "name: db"},
		"literals that are none":   {"kind: SecretGenerator\nmetadata: {name: db}\nliterals: {a: hunter2-one, b: [hunter2-two]}\n", "name: db"},
		"a literal that is a map":  {"secretGenerator:\n- name: db\n  literals:\n  - a: hunter2-one\n  - b: hunter2-two\n", "name: db"},
		"a literal without a key":  {"secretGenerator:\n- name: db\n  literals: [hunter2-one, hunter2-two]\n", "name: db"},
		"one literal":              {"secretGenerator:\n- name: db\n  literals: a=hunter2-one,b=hunter2-two\n", "name: db"},
		"a commented generator":    {"namePrefix: db\n---\n# secretGenerator:\n# - literals: [a=hunter2-one, b=hunter2-two]\n", "namePrefix: db"},
		"a generator in template":  {"{{ if .x }}\nsecretGenerator:\n- literals:\n  - a=hunter2-one\n  - b=hunter2-two\n{{ end }}\n---\nx: 1\n", "x: 1"},
		"an odd key":               {"kind: Secret\nmetadata: {name: db}\nstringData:\n  ? {hunter2-one: x}\n  : hunter2-two\n", ""},
		"kind in other letters":    {"kind: secret\nmetadata: {name: db}\nstringdata: {a: hunter2-one}\nData: {b: " + two + "}\n", "name: db"},
		"deep in strings":          {deep("kind: Secret\nstringData: {a: hunter2-one, b: hunter2-two}\n", 7), ""},
		"a field it has not":       {"kind: Secret\nmetadata: {name: db}\nbinaryData: {a: " + one + ", b: " + two + "}\n", "name: db"},
		"a template of that":       {"{{ if .x }}\nkind: Secret\nbinaryData:\n  a: " + one + "\n  b: " + two + "\n{{ end }}\n", ""},
		"a patch of its fields":    {"patches:\n- target: {kind: Secret, name: db}\n  patch: |\n    - {op: replace, path: /data/a, value: " + one + "}\n    - {op: add, path: /stringData/b, value: hunter2-two}\n", "name: db"},
		"strings in strings":       {deepJSON(`{"kind": "Secret", "stringData": {"a": "hunter2-one", "b": "hunter2-two"}}`, 3), ""},
		"an alias of itself":       {"kind: Secret\nstringData: &x\n  a: hunter2-one\n  b: hunter2-two\n  c: *x\n", ""},
	}
	var names []string
	var sides [][2]string
	for name, test := range tests {
		changed := strings.NewReplacer("hunter2-one", "hunter2-1ne", one, b64("hunter2-1ne")).Replace(test.text)
		if changed == test.text {
			changed = ""
		}
		for _, pair := range [][2]string{{"", test.text}, {test.text, ""}, {test.text, changed}, {changed, test.text}, {test.text, "unlike: it\n"}, {test.text, test.text + "\n\n# more\n"}} {
			names = append(names, name)
			sides = append(sides, pair)
		}
	}
	for i, f := range secretDiffs(t, "it", sides, gitdiff.Options{}) {
		t.Run(names[i], func(t *testing.T) {
			assert.True(t, f.SecretsHidden)
			for _, value := range []string{"hunter2", one, two, strings.TrimRight(one, "="), b64("hunter2-1ne")} {
				assert.NotContains(t, f.Patch, value)
			}
			before, after := sides[i][0], sides[i][1]
			if before == "" {
				assert.Contains(t, f.Patch, tests[names[i]].stays)
			}
			if len(before) == len(after) && before != after && names[i] != "in comments" {
				assert.Contains(t, f.Patch, "***(before)")
				assert.Contains(t, f.Patch, "***(after)")
			}
		})
	}
}

// Some lines of YAML can merge into billions of fields.
func TestMergesOfMergesEnd(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("x0: &x0 {stringData: {a: hunter2-one}}\n")
	for i := range 30 {
		fmt.Fprintf(&b, "x%d: &x%d {<<: [%s*x%d]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*x%d, ", i), 50), i)
	}
	for range 3000 {
		b.WriteString("- ")
	}
	wide := "x: &x {" + strings.Repeat("k: v, ", 3000) + "kind: Secret, data: {a: hunter2-one}}\ny:\n" + strings.Repeat("- {<<: *x}\n", 3000)
	for _, text := range []string{b.String(), b.String() + "\ny: {<<: *x30, kind: Secret}\n", wide} {
		f := secretDiff(t, "it.yaml", text, text+"# more\n", gitdiff.Options{})
		assert.True(t, f.SecretsHidden || !strings.Contains(text, "kind: Secret"))
		assert.True(t, !f.SecretsHidden || !strings.Contains(f.Patch, "hunter2"))
	}
}

func TestASecretOfVeryManyValuesIsLeftOut(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("kind: Secret\nstringData:\n")
	for i := range 8000 {
		fmt.Fprintf(&b, "  key-%d: hunter2-%d\n", i, i)
	}
	f := secretDiff(t, "it.yaml", b.String(), b.String()+"# more\n", gitdiff.Options{})
	assert.True(t, f.SecretsHidden)
	assert.NotContains(t, f.Patch, "hunter2")
	assert.Contains(t, f.Patch, "-# ***(before): not shown, since it holds too many values of Secrets\n+# ***(after): ")
}

// deep puts a manifest into a string of a manifest, again and again.
// deepJSON writes a text into a JSON string of an object, and that into another one.
func deepJSON(text string, times int) string {
	for range times {
		text = fmt.Sprintf(`{"x": %s}`, strconv.Quote(text))
	}
	return text
}

func deep(manifest string, times int) string {
	for range times {
		manifest = "kind: ConfigMap\ndata:\n  m: |\n    " + strings.ReplaceAll(strings.TrimSuffix(manifest, "\n"), "\n", "\n    ") + "\n"
	}
	return manifest
}

func TestOtherManifestsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"a ConfigMap":            "# it\nkind: ConfigMap\ndata: {a: hunter2-one}\n",
		"a ConfigMap generator":  "configMapGenerator:\n- name: x\n  literals: [a=hunter2-one]\n",
		"a generator of files":   "kind: SecretGenerator\nfiles: [a.txt]\nenvs: [b.env]\n",
		"a reference":            "kind: Deployment\nspec: {env: [{valueFrom: {secretKeyRef: {name: db, key: a}}}]}\n",
		"an ExternalSecret":      "kind: ExternalSecret\nspec:\n  data: [{secretKey: a, remoteRef: {key: hunter2-one}}]\n",
		"a target of a patch":    "patches:\n- target: {kind: Secret}\n  path: x.yaml\n",
		"an empty Secret":        "kind: Secret\nmetadata: {name: db}\ntype: Opaque\n",
		"Go":                     "package main\n\nvar secret = \"hunter2-one\" // data: kind of\n",
		"a text about a Secret":  "Make a Secret: with its data.\n",
		"YAML that is not valid": "a: [\nb: hunter2-one\n",
	}
	var sides [][2]string
	names := slices.Sorted(maps.Keys(tests))
	for _, name := range names {
		sides = append(sides, [2]string{tests[name], tests[name] + "more\n"})
	}
	for i, f := range secretDiffs(t, "it", sides, gitdiff.Options{}) {
		assert.False(t, f.SecretsHidden, names[i])
		for line := range strings.Lines(tests[names[i]]) {
			assert.Contains(t, f.Patch, line, names[i])
		}
	}
}

func TestAMaskSaysWhatChangedAndNothingElse(t *testing.T) {
	t.Parallel()
	secret := func(name, a, b string) string {
		return fmt.Sprintf("kind: Secret\nmetadata:\n  name: %s\nstringData:\n  a: %s\n  b: %s\n", name, a, b)
	}
	for name, test := range map[string]struct{ before, after, want string }{
		"values that change places": {
			secret("db", "one", "two"), secret("db", "two", "one"),
			"-  a: '***(before)'\n-  b: '***(before)'\n+  a: '***(after)'\n+  b: '***(after)'\n",
		},
		"documents that change places": {
			secret("x", "one", "two") + "---\n" + secret("y", "three", "four"), secret("y", "three", "four") + "---\n" + secret("x", "one", "five"),
			"'***(after)'\n",
		},
		"two Secrets of one name": {
			secret("db", "one", "two") + "---\n" + secret("db", "three", "four"), secret("db", "one", "two") + "---\n" + secret("db", "three", "five"),
			" data:\n   a: '***'\n-  b: '***(before)'\n+  b: '***(after)'\n",
		},
		"a new name": {secret("x", "one", "two"), secret("y", "one", "two"), "+  name: y\n"},
		"a new key":  {secret("x", "one", "two"), secret("x", "one", "two") + "  c: three\n", "   b: '***'\n+  c: '***(after)'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := secretDiff(t, "it.yaml", test.before, test.after, gitdiff.Options{})
			assert.Contains(t, strings.ReplaceAll(f.Patch, "stringData", "data"), test.want)
		})
	}
	one := secretDiff(t, "it.yaml", secret("x", "one", "two"), secret("x", "other", "two"), gitdiff.Options{})
	other := secretDiff(t, "it.yaml", secret("x", "1", "two"), secret("x", "a much longer value", "two"), gitdiff.Options{})
	assert.Equal(t, one, other, "whatever the values are")
}

func TestAFileRenamedWithASecretIsHidden(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		a := h.commit("main", "A")
		h.text("old.yaml", secretBefore)
		h.text("link", "x")
		h.commit("main", "B", a)
		h.remove("old.yaml")
		h.text("new.yaml", secretAfter)
		fmt.Fprintf(&h.b, "M 120000 inline link\ndata %d\n%s\n", len(secretBefore), secretBefore)
	})
	d := s.mustDiff("", "main", "")
	assert.Equal(t, []string{"TypeChanged link", "Renamed new.yaml from old.yaml"}, summary(d))
	assert.NotContains(t, patchOf(d), "hunter2")
	assert.NotContains(t, patchOf(d), "aHVudGVy")
	assert.Contains(t, d.Files[1].Patch, "+  password: '***(after)'")
}
