package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/argocd"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/flux"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var update = flag.Bool("update", false, "write the golden files")

// folder is where a simulated controller unpacks an artifact. Its name is another one each time.
var folder = regexp.MustCompile(`/tmp/kustomization-[0-9]+`)

func golden(t *testing.T, name, got string) {
	t.Helper()
	got = folder.ReplaceAllString(got, "/tmp/kustomization-1234")
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, name)
}

const (
	shopURL   = "https://git.example.com/acme/shop"
	configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME},\n  data: {text: VALUE}}\n"
)

func manifest(name, value string) string {
	return strings.NewReplacer("NAME", name, "VALUE", value).Replace(configMap)
}

// A world is a cluster with both engines, and the repository that they apply.
type world struct {
	t       *testing.T
	cluster *fake.Cluster
	remote  *fake.Remote
}

// inWorld runs a test in a bubble, where it is always the same time, on a cluster where two commits were applied by Flux and by Argo CD. The
// Kustomization web waits for db, which cannot be built.
func inWorld(t *testing.T, options fake.Options, test func(*testing.T, world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		options.Namespaces = []string{"team-a", "team-b"}
		cluster := fake.NewCluster(options)
		defer cluster.Stop()
		w := world{t: t, cluster: cluster, remote: fake.NewRemote()}
		repository := w.remote.Repository(shopURL)
		repository.Commit(fake.Files{"app/cm.yaml": manifest("app", "first"), "db/broken.yaml": "kind: [\n", "web/cm.yaml": manifest("web", "first")})
		if len(options.Unserved) == 0 {
			w.fill()
		}
		test(t, w)
	})
}

func (w world) fill() {
	fake.StartFlux(w.cluster, fake.FluxOptions{Remote: w.remote})
	fake.StartArgoCD(w.cluster, fake.ArgoCDOptions{Remote: w.remote})
	source := fake.NewGitRepository("team-a", "shop", shopURL)
	w.set(source, "1m", "spec", "interval")
	w.create("source.toolkit.fluxcd.io", "v1", "gitrepositories", source)
	for _, name := range []string{"app", "db", "web"} {
		kustomization := fake.NewKustomization("team-a", name, "shop")
		w.set(kustomization, "./"+name, "spec", "path")
		if name == "web" {
			w.set(kustomization, []any{map[string]any{"name": "db"}}, "spec", "dependsOn")
		}
		w.create("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", kustomization)
	}
	application := fake.NewApplication("team-b", "shop", shopURL)
	w.set(application, "app", "spec", "source", "path")
	w.create("argoproj.io", "v1alpha1", "applications", application)
	w.sync()

	time.Sleep(10*time.Minute + 10*time.Second)
	w.remote.Repository(shopURL).Commit(fake.Files{"README.md": "nobody applies this\n"})
	time.Sleep(10*time.Minute + 10*time.Second)
	w.remote.Repository(shopURL).Commit(fake.Files{"app/cm.yaml": manifest("app", "second")})
	time.Sleep(2 * time.Minute)
	w.sync()
}

func (w world) set(object *unstructured.Unstructured, value any, path ...string) {
	require.NoError(w.t, unstructured.SetNestedField(object.Object, value, path...))
}

func (w world) create(group, version, resource string, object *unstructured.Unstructured) {
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	_, err := w.cluster.Resource(gvr).Namespace(object.GetNamespace()).Create(w.t.Context(), object, metav1.CreateOptions{})
	require.NoError(w.t, err)
	synctest.Wait() // the controllers do one thing after the other
}

// sync asks the Application for the newest commit.
func (w world) sync() {
	client, err := argocd.New("prod", w.cluster, argocd.Options{Initiator: "test"})
	require.NoError(w.t, err)
	_, err = applier.Apply(w.t.Context(), client, types.NamespacedName{Namespace: "team-b", Name: "shop"}, applier.Ask{
		Want: applier.Binding{Repository: shopURL, Branch: "main"}, Commit: w.remote.Repository(shopURL).Head("main"),
	}, nil)
	require.NoError(w.t, err)
	time.Sleep(time.Minute)
}

// views are those of an identity, which may get and list but no more, and not what the function forbids.
func (w world) views(forbidden func(authorizationv1.ResourceAttributes) bool) (gitopsprovider.Provider, *fake.View) {
	reader := w.cluster.As("reader", func(a authorizationv1.ResourceAttributes) bool {
		return (a.Verb == "get" || a.Verb == "list") && (forbidden == nil || !forbidden(a))
	})
	views, err := gitopsprovider.New("prod", w.remote, flux.NewReader(reader), argocd.NewReader(reader))
	require.NoError(w.t, err)
	return views, reader
}

// output is what a command prints, and the error that it ends with.
func (w world) output(views gitopsprovider.Provider, args ...string) (string, error) {
	o, err := parse(args, io.Discard)
	require.NoError(w.t, err)
	var out bytes.Buffer
	err = show(w.t.Context(), &out, "prod", views, o)
	return out.String(), err
}

func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"changes.txt":     {},
		"namespace.txt":   {"-n", "team-b"},
		"since.txt":       {"-since", "15m"},
		"diff.txt":        {"-since", "15m", "-diff", "-n", "team-a"},
		"changes.json":    {"-n", "team-b", "-diff", "-o", "json"},
		"tree.txt":        {"-tree", "Kustomization/team-a/web"},
		"tree.json":       {"-tree", "Kustomization/team-a/web", "-o", "json"},
		"application.txt": {"-tree", "Application/team-b/shop"},
		"status.txt":      {"-status", "Kustomization/team-a/app"},
		"trace-flux.txt":  {"-trace", "ConfigMap/team-a/app"},
		"trace-argo.txt":  {"-trace", "ConfigMap/team-b/app"},
		"untraced.txt":    {"-trace", "Namespace/team-a"},
	}
	inWorld(t, fake.Options{}, func(t *testing.T, w world) {
		views, reader := w.views(nil)
		for name, args := range cases {
			got, err := w.output(views, args...)
			require.NoError(t, err, name)
			golden(t, name, got)
			assert.Equal(t, strings.HasSuffix(name, ".json"), json.Valid([]byte(got)), name)
		}
		for _, r := range reader.Requests() {
			assert.Contains(t, []string{"get", "list"}, r.Verb, r.String())
		}
	})
}

func TestACommitThatFailedIsShownAlthoughItLandedNowhere(t *testing.T) {
	t.Parallel()
	inWorld(t, fake.Options{}, func(t *testing.T, w world) {
		w.remote.Repository(shopURL).Commit(fake.Files{"app/cm.yaml": "kind: [\n"})
		time.Sleep(2 * time.Minute)
		views, _ := w.views(nil)
		got, err := w.output(views, "-since", "3m", "-diff", "-n", "team-a")
		require.NoError(t, err)
		assert.Contains(t, got, "\nKustomization team-a/app  Failing: BuildFailed: ")
		assert.Contains(t, got, "\n  failed: "+gitref.Short(w.remote.Repository(shopURL).Head("main"))+` "Change 4 of main" by fake`)
		assert.Contains(t, got, "\n  applied still: main@sha1:9fc9aecf80a5\n")
		assert.Contains(t, got, "\n    +kind: [\n")
	})
}

func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	inWorld(t, fake.Options{}, func(t *testing.T, w world) {
		views, _ := w.views(func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "applications" })
		got, err := w.output(views)
		assert.ErrorIs(t, err, errInPart)
		assert.Contains(t, got, "Kustomization team-a/app  Ready")
		assert.Contains(t, got, "\nNot shown: this identity may not read the objects of kind Application in cluster prod: grant it the verbs get and list")

		views, _ = w.views(func(a authorizationv1.ResourceAttributes) bool { return a.Resource == "gitrepositories" })
		got, err = w.output(views, "-tree", "Kustomization/team-a/app")
		assert.ErrorIs(t, err, errInPart)
		assert.Contains(t, got, "source GitRepository team-a/shop  Forbidden")

		views, _ = w.views(func(a authorizationv1.ResourceAttributes) bool { return a.Namespace != "team-a" })
		got, err = w.output(views, "-n", "team-a")
		assert.NoError(t, err, "who may list in the namespace alone")
		assert.Contains(t, got, "Kustomization team-a/app  Ready")
		assert.Contains(t, got, "Not shown: this identity may list the objects of kind Kustomization in namespace team-a alone")
	})
}

func TestAnEngineThatIsNotInstalledIsSaidToBe(t *testing.T) {
	t.Parallel()
	unserved := []schema.GroupResource{{Group: "argoproj.io", Resource: "applications"}}
	inWorld(t, fake.Options{Unserved: unserved}, func(t *testing.T, w world) {
		views, _ := w.views(nil)
		got, err := w.output(views)
		require.NoError(t, err)
		assert.Equal(t, "What is applied in cluster prod:\n  nothing\n\nArgoCD is not installed: the cluster serves none of its kinds.\n", got)
	})
}

func TestAnObjectThatIsNotThere(t *testing.T) {
	t.Parallel()
	inWorld(t, fake.Options{}, func(t *testing.T, w world) {
		views, _ := w.views(nil)
		for _, question := range []string{"-tree", "-trace", "-status"} {
			got, err := w.output(views, question, "Kustomization/team-a/absent")
			assert.EqualError(t, err, "Kustomization team-a/absent in cluster prod does not exist")
			assert.NotContains(t, got, "absent")
			got, _ = w.output(views, question, "Kustomization/team-a/absent", "-o", "json")
			assert.True(t, json.Valid([]byte(got)), got)
		}
	})
}

func TestADiffThatCannotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	inWorld(t, fake.Options{}, func(t *testing.T, w world) {
		w.remote.Remove(shopURL)
		views, _ := w.views(nil)
		got, err := w.output(views, "-diff", "-n", "team-b")
		assert.ErrorIs(t, err, errInPart)
		assert.Contains(t, got, "no diff: the diff of Application team-b/shop in cluster prod: "+shopURL+": repository not found")
		got, err = w.output(views, "-since", "24h", "-n", "team-b")
		assert.NoError(t, err)
		assert.Contains(t, got, "Not shown: the history of app in "+shopURL+" could not be read, so that only deployments are listed")
	})
}

// what a cluster says cannot control the terminal.
func TestNoControlCharacterIsPrinted(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	printer{out: &out}.line("\n%s", "a\x1b[2Jb\nc\td")
	assert.Equal(t, "\na [2Jb c\td\n", out.String())
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"more":                     `unexpected argument "more"`,
		"-o yaml":                  "neither text nor json",
		"-since -1h":               "cannot be negative",
		"-since soon":              "invalid value",
		"-tree a/b/c -trace a/b/c": "choose one",
		"-tree a/b/c -n x":         "go with none",
		"-tree a":                  "not KIND/NAMESPACE/NAME",
		"-tree a//c":               "not KIND/NAMESPACE/NAME",
		"-tree a/b/c/d":            "not KIND/NAMESPACE/NAME",
		"-unknown":                 "flag provided but not defined",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			_, err := parse(strings.Fields(args), io.Discard)
			assert.ErrorContains(t, err, want)
			assert.Equal(t, 2, report(&bytes.Buffer{}, err))
		})
	}
	_, err := parse([]string{"-help"}, io.Discard)
	assert.Equal(t, 0, report(&bytes.Buffer{}, err))

	o, err := parse([]string{"-trace", "Deployment.apps/team-a/web"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.Workload{Group: "apps", Kind: "Deployment", Namespace: "team-a", Name: "web"}, o.object)
	o, err = parse([]string{"-tree", "ClusterRole.rbac.authorization.k8s.io/reader"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.Workload{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"}, o.object)
}

func TestClustersThatCannotBeRead(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: edge,
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u}], contexts: [{name: edge, context: {cluster: c, user: u}}]}`), 0o600))
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no kubeconfig":     {nil, "no kubeconfig names a cluster: pass -kubeconfig FILE, or set KUBECONFIG"},
		"a missing file":    {[]string{"-kubeconfig", "/nowhere/config"}, "no such file or directory"},
		"a missing context": {[]string{"-kubeconfig", kubeconfig, "-context", "other"}, `context "other" does not exist`},
		"no answer":         {[]string{"-kubeconfig", kubeconfig}, "cluster edge does not answer: "},
		"no tree":           {[]string{"-kubeconfig", kubeconfig, "-tree", "Kustomization/a/b"}, "Kustomization a/b in cluster edge could not be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST"} {
				t.Setenv(variable, "")
			}
			t.Setenv("HOME", t.TempDir())
			var out, complaint bytes.Buffer
			err := run(t.Context(), &out, test.args)
			assert.ErrorContains(t, err, test.want)
			assert.Empty(t, out.String())
			assert.Equal(t, 1, report(&complaint, err))
			assert.Contains(t, complaint.String(), test.want)
		})
	}
}

func TestCredentialsGoToTheirSiteAlone(t *testing.T) {
	t.Setenv("WHATCHANGED_GIT_SITE", "https://Git.example.com/")
	t.Setenv("WHATCHANGED_GIT_USERNAME", "bot")
	t.Setenv("WHATCHANGED_GIT_PASSWORD", "s3cret")
	for _, site := range []string{"http://git.example.com", "https://git.example.com.evil.example", "https://git.example.com:8443", "ssh://git.example.com"} {
		got, err := credentials(t.Context(), site)
		require.NoError(t, err)
		assert.Zero(t, got, site)
	}
	got, err := credentials(t.Context(), "https://git.example.com")
	require.NoError(t, err)
	assert.Equal(t, []string{"bot", "s3cret"}, []string{got.Username, got.Password})
}
