package gitopsprovider_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func tree(t testing.TB, reader *memory, root gitopsprovider.Workload) *gitopsprovider.DepNode {
	t.Helper()
	node, err := views(t, gitopsprovider.NoDiffer{}, reader).DependencyTree(t.Context(), root)
	require.NoError(t, err)
	return node
}

// shop is an applier of others, among which one fails, one waits for it, two wait for each other, and one is missing.
func shop() *memory {
	return newMemory(
		repo("flux/main", "https://git.example.com/acme/shop"),
		with(repo("flux/charts", "oci://registry.example.com/charts"), func(o *gitopsprovider.Object) {
			o.Source.Type, o.Source.Revision, o.Ready = gitopsprovider.SourceOCI, "latest@sha256:"+strings.Repeat("1", 64), failing("AuthFailed", "401\nUnauthorized")
		}),
		gitopsprovider.Object{
			Workload: workload("Chart", "flux/web"), Ready: progressing,
			Source:  &gitopsprovider.Source{Revision: "1.2.3"},
			Sources: []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{Object: workload("Repo", "flux/charts")}}},
		},
		app("flux/all", applies("Repo flux/main", "apps", "main@sha1:"+commitA),
			made(workload("App", "shop/db"), workload("App", "shop/web"), workload("App", "shop/a"), workload("App", "shop/b"),
				gitopsprovider.Workload{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, workload("App", "flux/all"))),
		app("shop/db", applies("Repo flux/main", "db", "main@sha1:"+commitA), is(failing("BuildFailed", `no such file "kustomization.yaml"`))),
		app("shop/web", applies("Chart flux/web", "", "1.2.3"), dependsOn("shop/db", "shop/queue"), is(failing("DependencyNotReady", "dependency shop/db is not ready"))),
		app("shop/a", dependsOn("shop/b"), is(failing("DependencyNotReady", "dependency shop/b is not ready"))),
		app("shop/b", dependsOn("shop/a"), is(failing("DependencyNotReady", "dependency shop/a is not ready"))),
	)
}

func TestATreeIsRendered(t *testing.T) {
	t.Parallel()
	node := tree(t, shop(), workload("App", "flux/all"))

	golden(t, "tree.txt", node.Text())
	golden(t, "tree.mmd", node.Mermaid())
	data, err := json.MarshalIndent(node, "", "  ")
	require.NoError(t, err)
	golden(t, "tree.json", string(data)+"\n")

	var again gitopsprovider.DepNode
	require.NoError(t, json.Unmarshal(data, &again))
	assert.Equal(t, node.Text(), again.Text(), "JSON holds all that the text shows")
}

// The names in a reference are whatever somebody wrote there.
func TestWhatIsRenderedIsNoMarkupAndNoTerminalSequence(t *testing.T) {
	t.Parallel()
	node := tree(t, newMemory(app("ns/a", dependsOn("ns/\x1b[2J\r\nb\"]<img src=x>;#1"), applies("Repo ns/r", "", "v\x1b[2J"))), workload("App", "ns/a"))
	assert.NotContains(t, node.Text(), "\x1b")
	assert.NotContains(t, node.Text(), "\r")
	assert.Contains(t, node.Text(), `dependsOn App ns/ [2J b"]<img src=x>;#1  Absent`)
	assert.Contains(t, node.Mermaid(), `["App ns/ [2J b#quot;]#lt;img src=x#gt;;#35;1<br/>Absent"]`)
}

func TestATreeIsTheSameInEveryCall(t *testing.T) {
	t.Parallel()
	first := tree(t, shop(), workload("App", "flux/all")).Text()
	for range 20 {
		require.Equal(t, first, tree(t, shop(), workload("App", "flux/all")).Text())
	}
}

func TestWhatATreeContains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects []gitopsprovider.Object
		root    string
		want    string
	}{
		"an object that is absent": {root: "ns/gone", want: `
			App ns/gone  Absent: App ns/gone in cluster test does not exist
			Root causes:
			App ns/gone  Absent: App ns/gone in cluster test does not exist`},
		"a dependency that is absent is to blame": {
			objects: []gitopsprovider.Object{app("ns/a", dependsOn("ns/gone"), is(failing("DependencyNotReady", "x")))},
			root:    "ns/a", want: `
			App ns/a  Failing: DependencyNotReady: x
			└─ dependsOn App ns/gone  Absent: App ns/gone in cluster test does not exist
			Root causes:
			App ns/gone  Absent: App ns/gone in cluster test does not exist`},
		"a loop is marked, and what lies outside of it is not lost": {
			objects: []gitopsprovider.Object{
				app("ns/all", made(workload("App", "ns/a"), workload("App", "ns/b"), workload("App", "ns/c"))),
				app("ns/a", dependsOn("ns/b"), applies("Repo ns/r", "", "main@sha1:"+commitA)),
				app("ns/b", dependsOn("ns/a"), applies("Repo ns/r", "", "main@sha1:"+commitA)),
				app("ns/c", applies("Repo ns/r", "", "main@sha1:"+commitB)),
				repo("ns/r", "https://git.example.com/r"),
			},
			root: "ns/all", want: `
			App ns/all  Ready
			├─ applies App ns/a  Ready (main@sha1:aaaaaaaaaaaa)
			│  ├─ dependsOn App ns/b  Ready (main@sha1:aaaaaaaaaaaa)
			│  │  ├─ dependsOn App ns/a  (cycle)
			│  │  └─ source Repo ns/r  Ready (main@sha1:bbbbbbbbbbbb)
			│  └─ source Repo ns/r  (seen above)
			├─ applies App ns/b  (seen above)
			└─ applies App ns/c  Ready (main@sha1:bbbbbbbbbbbb)
			   └─ source Repo ns/r  (seen above)`},
		"an object that waits for itself": {
			objects: []gitopsprovider.Object{app("ns/d", dependsOn("ns/d"), is(failing("DependencyNotReady", "itself")))},
			root:    "ns/d", want: `
			App ns/d  Failing: DependencyNotReady: itself
			└─ dependsOn App ns/d  (cycle)
			Root causes:
			App ns/d  Failing: DependencyNotReady: itself`},
		"an applier that applies itself is no loop": {
			objects: []gitopsprovider.Object{app("ns/d", made(workload("App", "ns/d")))},
			root:    "ns/d", want: `
			App ns/d  Ready`},
		"a child's failure is not its parent's": {
			objects: []gitopsprovider.Object{
				app("ns/parent", made(workload("App", "ns/child"))),
				app("ns/child", is(failing("Degraded", "pod crashes"))),
			},
			root: "ns/parent", want: `
			App ns/parent  Ready
			└─ applies App ns/child  Failing: Degraded: pod crashes
			Root causes:
			App ns/child  Failing: Degraded: pod crashes`},
		"what is applied in another cluster is not looked for in this one": {
			objects: []gitopsprovider.Object{app("ns/a", made(workload("App", "ns/b")), func(o *gitopsprovider.Object) { o.TargetCluster = "edge" })},
			root:    "ns/a", want: `
			App ns/a  Ready`},
		"a message cannot write to the terminal": {
			objects: []gitopsprovider.Object{app("ns/a", is(failing("Failed", "red \x1b[31m\r\nalert \a")))},
			root:    "ns/a", want: `
			App ns/a  Failing: Failed: red [31m alert
			Root causes:
			App ns/a  Failing: Failed: red [31m alert`},
		"a manager whose namespace is not told is looked for": {
			objects: []gitopsprovider.Object{
				{Workload: gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "ns", Name: "cm"}, Labels: map[string]string{"Delivery": "App/*/a"}},
				app("somewhere/a"),
			},
			root: "ConfigMap ns/cm", want: `
			ConfigMap ns/cm  Unknown
			└─ managedBy App somewhere/a  Ready`},
		"a manager whose namespace is not told and that is gone": {
			objects: []gitopsprovider.Object{
				{Workload: gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "ns", Name: "cm"}, Labels: map[string]string{"Delivery": "App/*/a"}},
			},
			root: "ConfigMap ns/cm", want: `
			ConfigMap ns/cm  Unknown: ConfigMap ns/cm names App a by label Delivery, which does not exist`},
		"a generator is shown with what it generated": {
			objects: []gitopsprovider.Object{
				with(gitopsprovider.Object{Workload: workload("Family", "ns/all"), Ready: ready}, made(workload("App", "ns/a"), workload("App", "ns/b"))),
				app("ns/a", ownedBy("Family ns/all")), app("ns/b", ownedBy("Family ns/all")),
			},
			root: "Family ns/all", want: `
			Family ns/all  Ready
			├─ generates App ns/a  Ready
			└─ generates App ns/b  Ready`},
		"what a generator owns counts, and not what it says of it": {
			objects: []gitopsprovider.Object{
				with(gitopsprovider.Object{Workload: workload("Family", "ns/all"), Ready: ready}, made(workload("App", "ns/deleted-since"))),
				app("ns/a", ownedBy("Family ns/all"), dependsOn("ns/b")), app("ns/b", ownedBy("Family ns/all")), app("ns/c", ownedBy("Family ns/other")),
			},
			root: "Family ns/all", want: `
			Family ns/all  Ready
			├─ generates App ns/a  Ready
			│  └─ dependsOn App ns/b  Ready
			└─ generates App ns/b  (seen above)`},
		"an owner is shown without the siblings, and is not to blame": {
			objects: []gitopsprovider.Object{
				with(gitopsprovider.Object{Workload: workload("Family", "ns/all"), Ready: failing("Error", "bad template")}, made(workload("App", "ns/a"), workload("App", "ns/b"))),
				app("ns/a", ownedBy("Family ns/all"), is(failing("Failed", "x"))), app("ns/b", ownedBy("Family ns/all")),
			},
			root: "ns/a", want: `
			App ns/a  Failing: Failed: x
			└─ ownedBy Family ns/all  Failing: Error: bad template
			Root causes:
			App ns/a  Failing: Failed: x
			Family ns/all  Failing: Error: bad template`},
		"an object that no engine knows hangs on what manages it": {
			objects: []gitopsprovider.Object{
				{
					Workload: gitopsprovider.Workload{Kind: "ConfigMap", Namespace: "ns", Name: "cm"},
					Labels:   map[string]string{"Delivery": "App/ns/a"},
				},
				app("ns/a", applies("Repo ns/r", "", "main@sha1:"+commitA), made(workload("App", "ns/sibling"))), repo("ns/r", ""),
			},
			root: "ConfigMap ns/cm", want: `
			ConfigMap ns/cm  Unknown
			└─ managedBy App ns/a  Ready (main@sha1:aaaaaaaaaaaa)
			   └─ source Repo ns/r  Ready (main@sha1:bbbbbbbbbbbb)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, root, found := strings.Cut(test.root, " ")
			if !found {
				kind, root = "App", test.root
			}
			w := workload(kind, root)
			if kind == "ConfigMap" {
				w.Group = ""
			}
			assert.Equal(t, unindent(test.want), unindent(tree(t, newMemory(test.objects...), w).Text()))
		})
	}
}

func ownedBy(owner string) func(*gitopsprovider.Object) {
	kind, name, _ := strings.Cut(owner, " ")
	return func(o *gitopsprovider.Object) { o.Owners = append(o.Owners, workload(kind, name)) }
}

// unindent drops empty lines and tabs, and the indent of the root causes.
func unindent(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimPrefix(strings.TrimLeft(line, "\t"), "  "); line != "" && !strings.HasPrefix(line, " └") {
			lines = append(lines, line)
		} else if line != "" {
			lines = append(lines, "  "+line)
		}
	}
	return strings.Join(lines, "\n")
}

// What could not be read is not there, not absent, and not to blame.
func TestATreeSaysWhatEachReadEstablished(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		want   gitopsprovider.Answer
		says   string
		blamed bool
	}{
		"a kind that is not served": {notServed(), gitopsprovider.AnswerNotServed, "does not serve this kind", true},
		"a forbidden read":          {forbidden("Repo"), gitopsprovider.AnswerForbidden, "grant it the verbs get and list", false},
		"no answer":                 {errSilent, gitopsprovider.AnswerUnknown, "connection refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory(app("ns/a", applies("Repo ns/r", "", "main@sha1:"+commitA)))
			m.failing["Repo"] = test.err
			node := tree(t, m, workload("App", "ns/a"))

			require.Len(t, node.Children, 1)
			assert.Equal(t, test.want, node.Children[0].Answer)
			assert.Contains(t, node.Children[0].Message, "Repo ns/r in cluster test")
			assert.Contains(t, node.Children[0].Message, test.says)
			assert.Equal(t, test.blamed, len(node.RootCauses()) > 0)
			assert.Equal(t, gitopsprovider.AnswerFound, node.Answer)
		})
	}
}

// diamonds is a tree of n appliers, each of which waits for the next two and for one before it, on one source.
func diamonds(n int) *memory {
	objects := []gitopsprovider.Object{repo("ns/r", "https://git.example.com/r")}
	for i := range n {
		below := []string{fmt.Sprintf("ns/a%d", min(i+1, n-1)), fmt.Sprintf("ns/a%d", min(i+2, n-1)), fmt.Sprintf("ns/a%d", i/2)}
		objects = append(objects, app(fmt.Sprintf("ns/a%d", i), dependsOn(below...), applies("Repo ns/r", "", "main@sha1:"+commitA),
			is(failing("DependencyNotReady", "x"))))
	}
	return newMemory(objects...)
}

func TestEachObjectOfATreeIsReadOnce(t *testing.T) {
	t.Parallel()
	m := diamonds(1000)
	node := tree(t, m, workload("App", "ns/a0"))

	assert.Len(t, m.gets, 1001, "a thousand appliers and their source")
	for w, gets := range m.gets {
		assert.Equal(t, 1, gets, "reads of %s", w)
	}
	assert.Empty(t, m.lists)
	assert.Len(t, node.RootCauses(), 1000, "they all fail and wait for each other in the end")
}

func TestWhatAGeneratorOwnsIsReadOnce(t *testing.T) {
	t.Parallel()
	m := newMemory(gitopsprovider.Object{Workload: workload("Family", "ns/all")}, app("ns/a", ownedBy("Family ns/all")), app("ns/b", ownedBy("Family ns/all")))
	assert.Len(t, tree(t, m, workload("Family", "ns/all")).Children, 2)
	assert.Equal(t, map[gitopsprovider.Workload]int{workload("Family", "ns/all"): 1}, m.gets)
	assert.Equal(t, map[string]int{"App in ns": 1}, m.lists)
}

func TestWhereAppliersCannotBeListedAGeneratorsWordCounts(t *testing.T) {
	t.Parallel()
	m := newMemory(with(gitopsprovider.Object{Workload: workload("Family", "ns/all")}, made(workload("App", "ns/a"))))
	m.failing["App"] = errSilent
	node := tree(t, m, workload("Family", "ns/all"))
	require.Len(t, node.Children, 1)
	assert.Equal(t, gitopsprovider.AnswerUnknown, node.Children[0].Answer)
}

func TestATreeIsBounded(t *testing.T) {
	t.Parallel()
	m := newMemory(app("ns/all"))
	all := m.objects[workload("App", "ns/all")]
	for i := range gitopsprovider.MaxTreeNodes + 10 {
		child := app(fmt.Sprintf("ns/child-%05d", i))
		m.objects[child.Workload] = child
		all.Applies = append(all.Applies, child.Workload)
	}
	m.objects[all.Workload] = all
	node := tree(t, m, all.Workload)

	assert.Len(t, m.gets, gitopsprovider.MaxTreeNodes)
	require.Len(t, node.Children, gitopsprovider.MaxTreeNodes+10)
	last := node.Children[len(node.Children)-1]
	assert.Equal(t, gitopsprovider.AnswerNone, last.Answer)
	assert.Contains(t, last.Message, "more than 5000 objects")
	assert.Contains(t, node.Text(), "NotRead")
}

func TestATreeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilent)
	_, err := views(t, gitopsprovider.NoDiffer{}, shop()).DependencyTree(ctx, workload("App", "flux/all"))
	require.ErrorIs(t, err, errSilent)
}

func TestAWorkloadHasToBeNamed(t *testing.T) {
	t.Parallel()
	v := views(t, gitopsprovider.NoDiffer{}, shop())
	for _, w := range []gitopsprovider.Workload{{}, {Kind: "App"}, {Name: "a"}} {
		_, err := v.DependencyTree(t.Context(), w)
		require.ErrorContains(t, err, "set both")
		_, err = v.Trace(t.Context(), w)
		require.ErrorContains(t, err, "set both")
		_, err = v.ResourceStatus(t.Context(), w)
		require.ErrorContains(t, err, "set both")
	}
}

func TestAKindThatAReaderKnowsNeedsNoGroup(t *testing.T) {
	t.Parallel()
	node := tree(t, shop(), gitopsprovider.Workload{Kind: "App", Namespace: "flux", Name: "all"})
	assert.Equal(t, workload("App", "flux/all"), node.Workload)
	assert.Equal(t, gitopsprovider.AnswerFound, node.Answer)
}

func BenchmarkDependencyTreeOf1000(b *testing.B) {
	m := diamonds(1000)
	v := views(b, gitopsprovider.NoDiffer{}, m)
	for b.Loop() {
		node, err := v.DependencyTree(b.Context(), workload("App", "ns/a0"))
		require.NoError(b, err)
		require.NotEmpty(b, node.RootCauses())
	}
}
