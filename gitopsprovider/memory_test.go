package gitopsprovider_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// The kinds of the engine of these tests, which is neither of the real ones.
const group = "delivery.example.com"

var (
	appKind    = kind("App", gitopsprovider.RoleApplier)
	repoKind   = kind("Repo", gitopsprovider.RoleSource)
	chartKind  = kind("Chart", gitopsprovider.RoleSource)
	familyKind = kind("Family", gitopsprovider.RoleGenerator)
)

func kind(name string, role gitopsprovider.Role) gitopsprovider.Kind {
	return gitopsprovider.Kind{
		GroupKind: schema.GroupKind{Group: group, Kind: name}, Resource: strings.ToLower(name) + "s", Versions: []string{"v1"}, Role: role,
	}
}

func workload(kind, name string) gitopsprovider.Workload {
	namespace, name, _ := strings.Cut(name, "/")
	return gitopsprovider.Workload{Group: group, Kind: kind, Namespace: namespace, Name: name}
}

// memory is a Reader of objects that a test writes, and counts its reads.
type memory struct {
	engine  gitopsprovider.Engine
	objects map[gitopsprovider.Workload]gitopsprovider.Object
	// forbidden, unserved and broken are the kinds that cannot be read; each has its own error.
	failing map[string]error
	events  []gitopsprovider.Event
	// sightings is what its watches show, by kind.
	sightings map[string]chan gitopsprovider.Sighting

	mu    sync.Mutex
	gets  map[gitopsprovider.Workload]int
	lists map[string]int
}

func newMemory(objects ...gitopsprovider.Object) *memory {
	m := &memory{
		engine: "Delivery", objects: map[gitopsprovider.Workload]gitopsprovider.Object{}, failing: map[string]error{},
		gets: map[gitopsprovider.Workload]int{}, lists: map[string]int{},
		sightings: map[string]chan gitopsprovider.Sighting{},
	}
	for _, object := range objects {
		object.Engine = m.engine
		object.UID = cmp.Or(object.UID, "uid of "+object.Workload.String())
		m.objects[object.Workload] = object
	}
	for _, kind := range m.Kinds() {
		m.sightings[kind.Kind] = make(chan gitopsprovider.Sighting)
	}
	return m
}

func (m *memory) Engine() gitopsprovider.Engine { return m.engine }

func (m *memory) Kinds() []gitopsprovider.Kind {
	if m.engine != "Delivery" {
		return nil
	}
	return []gitopsprovider.Kind{appKind, repoKind, chartKind, familyKind}
}

func (m *memory) Get(_ context.Context, w gitopsprovider.Workload) (gitopsprovider.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets[w]++
	if err := m.failing[w.Kind]; err != nil {
		return gitopsprovider.Object{}, err
	}
	object, ok := m.objects[w]
	if !ok {
		return gitopsprovider.Object{}, apierrors.NewNotFound(schema.GroupResource{Group: w.Group, Resource: w.Kind}, w.Name)
	}
	return object, nil
}

func (m *memory) List(_ context.Context, kind gitopsprovider.Kind, namespace string, each func(gitopsprovider.Object)) error {
	m.mu.Lock()
	m.lists[kind.Kind+" in "+cmp.Or(namespace, "all")]++
	err := m.failing[kind.Kind]
	m.mu.Unlock()
	if err != nil && (namespace == "" || gitopsprovider.AnswerOf(err) != gitopsprovider.AnswerForbidden) {
		return err
	}
	for w, object := range m.objects {
		if w.GroupKind() == kind.GroupKind && (namespace == "" || namespace == w.Namespace) {
			each(object)
		}
	}
	return nil
}

func (m *memory) Watch(ctx context.Context, kind gitopsprovider.Kind, show func(gitopsprovider.Sighting)) {
	for {
		select {
		case <-ctx.Done():
			return
		case sighting := <-m.sightings[kind.Kind]:
			show(sighting)
		}
	}
}

func (m *memory) Events(context.Context, gitopsprovider.Object) ([]gitopsprovider.Event, error) {
	return m.events, m.failing["Event"]
}

// Managers reads the label "managed-by" as kind/namespace/name, with "*" for a namespace that is not told.
func (m *memory) Managers(o gitopsprovider.Object) []gitopsprovider.Mark {
	var marks []gitopsprovider.Mark
	for label, value := range o.Labels {
		parts := strings.Split(value, "/")
		mark := gitopsprovider.Mark{By: "label " + label}
		switch {
		case !strings.HasPrefix(label, string(m.engine)):
			continue
		case parts[0] == "release":
			mark.To = gitopsprovider.Workload{Group: group, Kind: "App"}
			mark.Release = gitopsprovider.Release{Namespace: parts[1], Name: parts[2]}
		default:
			mark.To = gitopsprovider.Workload{Group: group, Kind: parts[0], Namespace: strings.Trim(parts[1], "*"), Name: parts[2]}
			mark.Shared = strings.HasSuffix(label, "shared")
			if strings.HasSuffix(label, "copied") {
				mark.Copied = "it names another object"
			}
		}
		marks = append(marks, mark)
	}
	slices.SortFunc(marks, func(a, b gitopsprovider.Mark) int { return strings.Compare(a.By, b.By) })
	return marks
}

var (
	_ gitopsprovider.Reader = (*memory)(nil)

	errSilent = errors.New("connection refused")
)

func forbidden(kind string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: kind}, "", errors.New("no rule allows it"))
}

func notServed() error {
	return &gitopsprovider.AnswerError{Answer: gitopsprovider.AnswerNotServed, Err: errors.New("the cluster does not serve it")}
}

// views are the views of the cluster "test" over readers.
func views(t testing.TB, differ gitopsprovider.Differ, readers ...gitopsprovider.Reader) *gitopsprovider.Views {
	t.Helper()
	v, err := gitopsprovider.New("test", differ, readers...)
	require.NoError(t, err)
	return v
}

var (
	ready       = gitopsprovider.Condition{State: gitopsprovider.StateReady, Reason: "Done"}
	progressing = gitopsprovider.Condition{State: gitopsprovider.StateProgressing, Reason: "Working"}
)

func failing(reason, message string) gitopsprovider.Condition {
	return gitopsprovider.Condition{State: gitopsprovider.StateFailing, Reason: reason, Message: message}
}

const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	commitC = "cccccccccccccccccccccccccccccccccccccccc"
	commitD = "dddddddddddddddddddddddddddddddddddddddd"
)

// repo is a Git source.
func repo(name, url string, set ...func(*gitopsprovider.Object)) gitopsprovider.Object {
	o := gitopsprovider.Object{
		Workload: workload("Repo", name), Ready: ready,
		Source: &gitopsprovider.Source{Type: gitopsprovider.SourceGit, URL: url, Ref: "main", Branch: "main", Revision: "main@sha1:" + commitB},
	}
	return with(o, set...)
}

// app is an applier.
func app(name string, set ...func(*gitopsprovider.Object)) gitopsprovider.Object {
	return with(gitopsprovider.Object{Workload: workload("App", name), Ready: ready}, set...)
}

func with(o gitopsprovider.Object, set ...func(*gitopsprovider.Object)) gitopsprovider.Object {
	for _, set := range set {
		set(&o)
	}
	return o
}

// applies makes an applier apply a revision of a source's folder.
func applies(source, path, revision string) func(*gitopsprovider.Object) {
	kind, name, _ := strings.Cut(source, " ")
	return func(o *gitopsprovider.Object) {
		o.Sources = append(o.Sources, gitopsprovider.SourceUse{
			Relation: gitopsprovider.RelationSource, Path: path, Applied: revision,
			Source: gitopsprovider.Source{Object: workload(kind, name)},
		})
	}
}

// dependsOn makes an applier wait for others.
func dependsOn(names ...string) func(*gitopsprovider.Object) {
	return func(o *gitopsprovider.Object) {
		for _, name := range names {
			o.Links = append(o.Links, gitopsprovider.Link{Relation: gitopsprovider.RelationDependsOn, To: workload("App", name)})
		}
	}
}

// made is what an applier applied, or a generator generated.
func made(what ...gitopsprovider.Workload) func(*gitopsprovider.Object) {
	return func(o *gitopsprovider.Object) { o.Applies = append(o.Applies, what...) }
}

func is(condition gitopsprovider.Condition) func(*gitopsprovider.Object) {
	return func(o *gitopsprovider.Object) { o.Ready = condition }
}

func labelled(name, value string) func(*gitopsprovider.Object) {
	return func(o *gitopsprovider.Object) {
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[name] = value
	}
}
