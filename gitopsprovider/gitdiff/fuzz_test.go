package gitdiff

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // Git's
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// What an ordinary decoder takes for values of Secrets is in no output.
func FuzzNoValueOfASecretSurvives(f *testing.F) {
	for _, text := range []string{
		"kind: Secret\nstringData:\n  a: hunter2-one\n",
		"kind: ConfigMap\ndata: {a: hunter2-one}\n---\nkind: Secret\ndata: {b: aHVudGVyMi1vbmU=}\n",
		`{"kind": "Secret", "stringData": {"a": "hunter2-one"}}`,
		"x: &x {stringData: {a: hunter2-one}}\ny: {<<: *x, kind: Secret}\n",
		"kind: List\nitems:\n- kind: Secret\n  data: {a: |\n hunter2-one\n}\n",
		"kind: SecretList\nitems: [{data: {a: hunter2-one}}]\n",
		"? {a: b}\n: {kind: Secret, data: {? c : hunter2-one}}\n",
		"kind: Secret\rdata:\r  a: hunter2-one\r---\rkind: Secret\r",
		"kind: Secret\nstringData: [hunter2-one, {a: hunter2-two}, *b]\n",
	} {
		f.Add(text, strings.ReplaceAll(text, "one", "two"))
	}
	ours := strings.Join([]string{maskBefore, maskAfter, opaqueNotice}, " ")
	f.Fuzz(func(t *testing.T, before, after string) {
		values := append(valuesOf(before), valuesOf(after)...)
		old, now := content{exists: true, text: before}, content{exists: true, text: after}
		hidden := hideSecrets(&old, &now)
		if !hidden && (old.text != before || now.text != after) {
			t.Fatal("what was not hidden was changed")
		}
		for _, v := range values {
			if len(v) < leastTwin || strings.Contains(v, "*") || strings.Contains(ours, v) {
				continue
			}
			if strings.Contains(old.text, v) || strings.Contains(now.text, v) {
				t.Fatalf("%q is in\n%s\nor\n%s", v, old.text, now.text)
			}
		}
		again, also := content{exists: true, text: before}, content{exists: true, text: after}
		hideSecrets(&again, &also)
		if again != old || also != now {
			t.Fatal("another time, another result")
		}
	})
}

// valuesOf decodes the documents of a text in the ordinary way and returns all
// strings in the data of Secrets.
func valuesOf(text string) (values []string) {
	defer func() { _ = recover() }() // the decoder's
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var document any
		if err := decoder.Decode(&document); err != nil {
			return values
		}
		collect(document, &values)
	}
}

func collect(v any, values *[]string) {
	switch v := v.(type) {
	case map[string]any:
		if v["kind"] == "Secret" {
			leaves(v["data"], values)
			leaves(v["stringData"], values)
		}
		for _, child := range v {
			collect(child, values)
		}
	case []any:
		for _, child := range v {
			collect(child, values)
		}
	}
}

func leaves(v any, values *[]string) {
	switch v := v.(type) {
	case string:
		*values = append(*values, strings.TrimSpace(v))
	case map[string]any:
		for child := range maps.Values(v) {
			leaves(child, values)
		}
	case []any:
		for _, child := range v {
			leaves(child, values)
		}
	}
}

// Taken one way, edits give the one text, and the other way the other.
func FuzzEditsLeadFromOneTextToTheOther(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nd")
	f.Add("", "\n\n")
	f.Add("a\r\nb\x00\xff", "b")
	f.Fuzz(func(t *testing.T, before, after string) {
		edits, ok := diffLines(splitLines(before), splitLines(after))
		if !ok {
			t.Fatal("refused")
		}
		var old, now strings.Builder
		for _, e := range edits {
			if e.kind != '+' {
				old.WriteString(strings.Join(e.lines, ""))
			}
			if e.kind != '-' {
				now.WriteString(strings.Join(e.lines, ""))
			}
		}
		if old.String() != before || now.String() != after {
			t.Fatalf("%q", edits)
		}
		var b strings.Builder
		writeHunks(&b, edits, 1<<30)
		if (b.Len() == 0) != (before == after) {
			t.Fatalf("%q", b.String())
		}
	})
}

// Whatever a server says, it is an answer or an error.
func FuzzAnswersOfServers(f *testing.F) {
	f.Add([]byte("0034shallow 1eabc9a41ca088515cab83f1cce49eb43e84b67f0000" + "0008NAK\n" + "0009\x01PACK" + "0000"))
	f.Add([]byte("001e# service=git-upload-pack\n0000003e1eabc9a41ca088515cab83f1cce49eb43e84b67f HEAD\x00shallow\n0000"))
	f.Add([]byte("0008ERR \n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		_, err := readResponse(bytes.NewReader(answer), io.Discard)
		if err == nil && !bytes.Contains(answer, []byte{bandPack}) {
			t.Fatal("an answer without a pack was taken")
		}
		if adv, err := readAdvertised(bytes.NewReader(answer)); err == nil {
			_ = branchesAndTags(adv)
			_ = (&fetcher{branch: "main"}).likelyTips(adv)
		}
	})
}

// Whatever a pack holds, it is kept or refused, and what is kept can be read.
func FuzzPacks(f *testing.F) {
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x01\x35\x78\x9c\xcb\x48\xcd\xc9\xc9\x07\x00\x06\x2c\x02\x15"))
	f.Add([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		packs := filepath.Join(dir, "objects", "pack")
		if err := os.MkdirAll(packs, 0o700); err != nil {
			t.Fatal(err)
		}
		pack, err := newIncomingPack(packs)
		if err != nil {
			t.Fatal(err)
		}
		defer pack.discard()
		sum := sha1.Sum(data) //nolint:gosec // Git's
		if _, err := pack.Write(append(data, sum[:]...)); err != nil {
			t.Fatal(err)
		}
		if pack.keep(t.Context(), 1<<16) != nil {
			return
		}
		s := openStore(dir)
		defer s.close()
		if err := s.reload(); err != nil {
			t.Fatal(err)
		}
	})
}

// An address names a folder inside of the cache, and no error of it holds what
// comes before the host.
func FuzzLocations(f *testing.F) {
	for _, address := range []string{"https://bot:s3cr3t@git.example.com/acme/shop", "git@git.example.com:a/b", "ssh://git@[::1]:22/~a/b", "file:///a/../../b", "/a", "https://a/%2e%2e/b"} {
		f.Add(address)
	}
	plain := regexp.MustCompile(`^[0-9a-f]{40}$`)
	f.Fuzz(func(t *testing.T, address string) {
		l, err := parseLocation(address, true)
		if err != nil {
			return
		}
		if !plain.MatchString(l.key()) {
			t.Fatal(l.key())
		}
		if l.url != nil && (l.url.User != nil || l.url.RawQuery != "" || l.url.Fragment != "") {
			t.Fatalf("%q is asked for", l.url)
		}
		if site := l.site(); strings.Contains(site, "@") || !slices.Contains([]string{"https", "http", "ssh", "file"}, l.scheme) {
			t.Fatal(site)
		}
	})
}
