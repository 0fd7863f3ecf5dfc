package gitopsprovider_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/fake"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// The kind App of these tests: its spec.url is its source, its status is its state.
var (
	apps        = schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: "apps"}
	appInBeta   = gitopsprovider.Kind{GroupKind: appKind.GroupKind, Resource: "apps", Versions: []string{"v2", "v1", "v1beta1"}, Role: gitopsprovider.RoleApplier}
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

const appsYAML = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: apps.delivery.example.com}
spec:
  group: delivery.example.com
  scope: Namespaced
  names: {plural: apps, kind: App}
  versions:
  - {name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// cluster is a cluster with the namespace ns that serves Apps in v1beta1 alone.
func cluster(t testing.TB) *fake.Cluster {
	t.Helper()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"ns", "other"}})
	t.Cleanup(c.Stop)
	define(t, c)
	return c
}

func define(t testing.TB, c *fake.Cluster) {
	t.Helper()
	require.NoError(t, c.Define(fromYAML(t, appsYAML)))
}

func fromYAML(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &u.Object))
	data, err := u.MarshalJSON()
	require.NoError(t, err)
	require.NoError(t, u.UnmarshalJSON(data))
	return u
}

func reader(client dynamic.Interface) *gitopsprovider.ClusterReader {
	return gitopsprovider.NewClusterReader(client, gitopsprovider.Dialect{
		Engine: "Delivery", Kinds: []gitopsprovider.Kind{appInBeta},
		Describe: func(_ gitopsprovider.Kind, u *unstructured.Unstructured, o *gitopsprovider.Object) {
			url, _, _ := unstructured.NestedString(u.Object, "spec", "url")
			path, _, _ := unstructured.NestedString(u.Object, "spec", "path")
			state, _, _ := unstructured.NestedString(u.Object, "status", "state")
			o.Ready.State = gitopsprovider.State(state)
			o.Ready.Message, _, _ = unstructured.NestedString(u.Object, "status", "message")
			o.Sources = []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{URL: url}, Path: path}}
			o.Refer("url", url)
		},
		Managers: func(gitopsprovider.Object) []gitopsprovider.Mark { return nil },
	})
}

// put creates or replaces an App.
func put(t testing.TB, client dynamic.Interface, namespace, name, fields string) {
	t.Helper()
	u := fromYAML(t, fmt.Sprintf("{apiVersion: %s/v1beta1, kind: App, metadata: {namespace: %s, name: %s}%s}", group, namespace, name, fields))
	_, err := client.Resource(apps).Namespace(namespace).Apply(t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	require.NoError(t, err)
}

func requests(view *fake.View) []string {
	var out []string
	for _, r := range view.Requests() {
		out = append(out, fmt.Sprintf("%s %s %s -> %d", r.Verb, r.Version, r.Resource, r.Code))
	}
	view.ResetRequests()
	return out
}

func TestTheVersionThatTheClusterServesIsFoundByTrying(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	put(t, c, "ns", "a", "")
	view := c.As("reader", nil)
	r := reader(view)

	_, err := r.Get(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)
	assert.Equal(t, []string{"get v2 apps -> 404", "get v1 apps -> 404", "get v1beta1 apps -> 200"}, requests(view))

	require.NoError(t, r.List(t.Context(), appInBeta, "", func(gitopsprovider.Object) {}))
	_, err = r.Get(t.Context(), workload("App", "ns/gone"))
	assert.Equal(t, gitopsprovider.AnswerAbsent, gitopsprovider.AnswerOf(err))
	assert.Equal(t, []string{"list v1beta1 apps -> 200", "get v1beta1 apps -> 404"}, requests(view), "it is remembered")
}

func TestThatAKindIsNotServedIsNotRemembered(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"ns"}})
	t.Cleanup(c.Stop)
	r := reader(c)
	for range 2 {
		_, err := r.Get(t.Context(), workload("App", "ns/a"))
		assert.Equal(t, gitopsprovider.AnswerNotServed, gitopsprovider.AnswerOf(err))
		require.EqualError(t, err, "the cluster does not serve apps.delivery.example.com (tried v2, v1, v1beta1)")
		require.Equal(t, gitopsprovider.AnswerNotServed, gitopsprovider.AnswerOf(r.List(t.Context(), appInBeta, "", nil)))
	}
	define(t, c)
	put(t, c, "ns", "a", "")
	_, err := r.Get(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)

	c.Unserve(apps.GroupResource())
	_, err = r.Get(t.Context(), workload("App", "ns/a"))
	assert.Equal(t, gitopsprovider.AnswerNotServed, gitopsprovider.AnswerOf(err))
	c.Serve(apps.GroupResource())
	_, err = r.Get(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)
}

func TestAForbiddenReadIsNotAKindThatIsNotServed(t *testing.T) {
	t.Parallel()
	view := cluster(t).As("nobody", func(authorizationv1.ResourceAttributes) bool { return false })
	r := reader(view)
	_, err := r.Get(t.Context(), workload("App", "ns/a"))
	assert.Equal(t, gitopsprovider.AnswerForbidden, gitopsprovider.AnswerOf(err))
	assert.Equal(t, []string{"get v2 apps -> 403"}, requests(view), "no other version would be answered")
}

func TestAReadWithoutAnswerIsUnknownAndIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	put(t, c, "ns", "a", "")
	view := c.As("reader", nil)
	view.Inject(fake.Fault{Verb: "get", Nth: 1, Err: errSilent})
	r := reader(view)
	_, err := r.Get(t.Context(), workload("App", "ns/a"))
	assert.Equal(t, gitopsprovider.AnswerUnknown, gitopsprovider.AnswerOf(err))
	_, err = r.Get(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)
}

func TestAListIsReadPageByPage(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for i := range 1201 {
		put(t, c, []string{"ns", "other"}[i%2], fmt.Sprintf("a%04d", i), "")
	}
	view := c.As("reader", nil)
	r := reader(view)
	count := func(namespace string) int {
		seen := map[string]bool{}
		require.NoError(t, r.List(t.Context(), appInBeta, namespace, func(o gitopsprovider.Object) { seen[o.Name] = true }))
		return len(seen)
	}
	assert.Equal(t, 1201, count(""))
	assert.Len(t, slices.DeleteFunc(requests(view), func(line string) bool { return line != "list v1beta1 apps -> 200" }), 3)
	assert.Equal(t, 600, count("other"))

	// The API server forgets the state that the first page showed.
	view.Inject(fake.Fault{Verb: "list", Nth: 1, After: func(fake.Request) {
		put(t, c, "ns", "later", "")
		c.Compact(schema.GroupResource{})
	}})
	assert.Equal(t, 1202, count(""))
}

func TestAnObjectHasItsMetadata(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	_, err := c.Resource(apps).Namespace("ns").Create(t.Context(), fromYAML(t, `
apiVersion: delivery.example.com/v1beta1
kind: App
metadata:
  namespace: ns
  name: a
  labels: {l: v}
  annotations: {a: v, kubectl.kubernetes.io/last-applied-configuration: '{"data":{"password":"s3cret"}}'}
  finalizers: [example.com/keep]
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: other, uid: u2}
  - {apiVersion: apps/v1, kind: Deployment, name: web, uid: u1, controller: true}
spec: {url: "https://git.example.com/a", path: ./apps/shop/}
`), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Resource(apps).Namespace("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))

	o, err := reader(c).Get(t.Context(), workload("App", "ns/a"))
	require.NoError(t, err)
	assert.NotEmpty(t, o.UID)
	o.UID = ""
	assert.Equal(t, gitopsprovider.Object{
		Workload: workload("App", "ns/a"), Engine: "Delivery", Deleting: true,
		Labels: map[string]string{"l": "v"}, Annotations: map[string]string{"a": "v"},
		Owners: []gitopsprovider.Workload{
			{Group: "apps", Kind: "Deployment", Namespace: "ns", Name: "web"}, {Kind: "ConfigMap", Namespace: "ns", Name: "other"},
		},
		Sources:    []gitopsprovider.SourceUse{{Source: gitopsprovider.Source{URL: "https://git.example.com/a"}, Path: "apps/shop"}},
		References: []gitopsprovider.Reference{{Field: "url", Value: "https://git.example.com/a"}},
	}, o)
}

func TestAnObjectOfAnyKindIsReadByItsUsualPlural(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	_, err := c.Resource(configMaps).Namespace("ns").Create(t.Context(), fromYAML(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: ns, name: cm, labels: {l: v}}}"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Resource(deployments).Namespace("ns").Create(t.Context(), fromYAML(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: ns, name: web}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}`), metav1.CreateOptions{})
	require.NoError(t, err)
	r := reader(c)
	for _, w := range []gitopsprovider.Workload{
		{Kind: "ConfigMap", Namespace: "ns", Name: "cm"}, {Group: "apps", Kind: "Deployment", Namespace: "ns", Name: "web"}, {Kind: "Namespace", Name: "ns"},
	} {
		o, err := r.Get(t.Context(), w)
		require.NoError(t, err, w.String())
		assert.Equal(t, w, o.Workload)
		assert.Empty(t, o.Engine)
		assert.NotEmpty(t, o.UID)
	}
}

// Whoever names a kind may form its plural in another way, and serve another version.
func TestAKindWhosePluralIsGuessedIsNeverSaidNotToBeServed(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"ns"}})
	t.Cleanup(c.Stop)
	for kind, plural := range map[string]string{
		"Gateway": "gateways", "Key": "keys", "Policy": "policies", "Mesh": "meshes", "Batch": "batches", "Box": "boxes", "GatewayClass": "gatewayclasses",
		"Widget": "widgets",
	} {
		require.NoError(t, c.Define(fromYAML(t, strings.NewReplacer("apps", plural, "kind: App", "kind: "+kind).Replace(appsYAML))))
		_, err := c.Resource(schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: plural}).Namespace("ns").Create(t.Context(),
			fromYAML(t, "{apiVersion: delivery.example.com/v1beta1, kind: "+kind+", metadata: {namespace: ns, name: x}}"), metav1.CreateOptions{})
		require.NoError(t, err)
		o, err := reader(c).Get(t.Context(), workload(kind, "ns/x"))
		require.NoError(t, err, kind)
		assert.Equal(t, workload(kind, "ns/x"), o.Workload)
	}

	require.NoError(t, c.Define(fromYAML(t, strings.NewReplacer("apps", "redis", "kind: App", "kind: Redis", "v1beta1", "v7").Replace(appsYAML))))
	v := views(t, gitopsprovider.NoDiffer{}, reader(c))
	const tried = "the cluster does not serve redises.delivery.example.com (tried v1, v1beta1, v1alpha1, v2, v1beta2, v2beta1, v1alpha2): " +
		"the plural and the versions were guessed, and it may serve the kind by others"
	_, err := reader(c).Get(t.Context(), workload("Redis", "ns/x"))
	require.EqualError(t, err, tried)
	status, err := v.ResourceStatus(t.Context(), workload("Redis", "ns/x"))
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.AnswerUnknown, status.Answer)
	assert.Equal(t, "Redis ns/x in cluster test could not be read: "+tried, status.Message)
	trace, err := v.Trace(t.Context(), workload("Redis", "ns/x"))
	require.NoError(t, err)
	assert.Equal(t, gitopsprovider.AnswerUnknown, trace.Steps[0].Answer)
}

// By Kubernetes' conventions the condition Ready means the same everywhere.
func TestAnObjectOfAnyKindMayHaveTheConditionReady(t *testing.T) {
	t.Parallel()
	c := fake.NewCluster(fake.Options{Namespaces: []string{"ns"}})
	t.Cleanup(c.Stop)
	require.NoError(t, c.Define(fromYAML(t, strings.ReplaceAll(strings.ReplaceAll(appsYAML, "apps", "widgets"), "App", "Widget"))))
	for status, want := range map[string]gitopsprovider.State{
		`{}`: gitopsprovider.StateUnknown,
		`{conditions: [{type: Other, status: "False"}]}`:                      gitopsprovider.StateUnknown,
		`{conditions: [{type: Ready, status: "True"}]}`:                       gitopsprovider.StateReady,
		`{conditions: [{type: Ready, status: "False", reason: R}]}`:           gitopsprovider.StateFailing,
		`{conditions: [odd, {type: Ready, status: Unknown, message: m}]}`:     gitopsprovider.StateProgressing,
		`{conditions: [{type: Ready, status: 1, lastTransitionTime: never}]}`: gitopsprovider.StateUnknown,
		`{conditions: {}}`: gitopsprovider.StateUnknown,
	} {
		widgets := c.Resource(schema.GroupVersionResource{Group: group, Version: "v1beta1", Resource: "widgets"}).Namespace("ns")
		u := fromYAML(t, "{apiVersion: delivery.example.com/v1beta1, kind: Widget, metadata: {namespace: ns, name: w}, status: "+status+"}")
		_, err := widgets.Apply(t.Context(), "w", u, metav1.ApplyOptions{FieldManager: "test", Force: true})
		require.NoError(t, err)
		o, err := reader(c).Get(t.Context(), workload("Widget", "ns/w"))
		require.NoError(t, err)
		assert.Equal(t, want, o.Ready.State, status)
	}
}

func TestNoPasswordLeavesAReader(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for name, test := range map[string]struct{ url, want string }{
		"https":    {"https://bot:s3cr3t-tok@git.example.com/acme/shop.git", "https://git.example.com/acme/shop.git"},
		"token":    {"https://s3cr3t-tok@git.example.com/acme/shop.git", "https://git.example.com/acme/shop.git"},
		"escaped":  {"https://bot:s3cr3t-tok%40x@git.example.com/acme", "https://git.example.com/acme"},
		"query":    {"https://git.example.com/acme?token=s3cr3t-tok", "https://git.example.com/acme?redacted"},
		"ssh":      {"ssh://git@git.example.com:2222/acme/shop.git", "ssh://git@git.example.com:2222/acme/shop.git"},
		"scp":      {"git@git.example.com:acme/shop.git", "git@git.example.com:acme/shop.git"},
		"ssh-pass": {"ssh://git:s3cr3t-tok@git.example.com/acme/shop.git", "ssh://git.example.com/acme/shop.git"},
		"local":    {"/srv/git/shop.git", "/srv/git/shop.git"},
	} {
		put(t, c, "ns", name, fmt.Sprintf(`, spec: {url: %q}, status: {message: "cannot fetch '%s': %s refused, see https://x:s3cr3t-tok@git.example.com"}`, test.url, test.url, test.url))
		o, err := reader(c).Get(t.Context(), workload("App", "ns/"+name))
		require.NoError(t, err)
		assert.Equal(t, test.want, o.Sources[0].Source.URL)
		assert.NotContains(t, fmt.Sprintf("%+v", o), "s3cr3t-tok", name)
		assert.Contains(t, o.Ready.Message, gitref.Redact(test.url))
	}
}

// Without what may be a password, such an address would be one of another host.
func TestAnAddressThatNamesNoHostForCertainIsNotFetchedFrom(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	for name, url := range map[string]string{
		"path": "https://git.example.com/acme/shop@elsewhere.example.com/shop", "password": "https://bot:s3cr3t/tok@elsewhere.example.com/shop",
	} {
		put(t, c, "ns", name, fmt.Sprintf(", spec: {url: %q}", url))
		o, err := reader(c).Get(t.Context(), workload("App", "ns/"+name))
		require.NoError(t, err)
		shown := o.Sources[0].Source.URL
		assert.Equal(t, "https://redacted", shown)
		_, err = gitref.Normalize(shown)
		assert.Error(t, err)
	}
}
