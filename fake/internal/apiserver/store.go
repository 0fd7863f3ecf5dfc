package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// historyLimit is how many changes of one kind are kept for watches and paged lists that go on from a revision.
const historyLimit = 10_000

// A store keeps the objects of one kind with their recent history. The server's lock guards it.
type store struct {
	kind    *kind
	objects map[string]*entry
	// keys are the keys of objects in order.
	keys    []string
	history []*event
	// compacted is the revision up to which history was dropped.
	compacted uint64
	watchers  map[*watcher]struct{}
}

// An entry is one object as it was stored at one revision. It never changes.
type entry struct {
	key      string
	revision uint64
	// data is what was written, without resourceVersion. A write of the same data is no change.
	data []byte
	// object is what reading the data gives: with defaults, resourceVersion set, in the storage version.
	object map[string]any
	// served has the object's JSON in the versions asked for so far.
	served map[*version][]byte
}

type event struct {
	kind     watch.EventType
	revision uint64
	// object is the object after the change; after a deletion its last state, at the revision of the deletion.
	object *entry
	// old is the object before the change, nil for one that was added.
	old *entry
}

func newStore(k *kind) *store {
	return &store{kind: k, objects: map[string]*entry{}, watchers: map[*watcher]struct{}{}}
}

// objectKey orders objects as the real server's storage does: by namespace, then name.
func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// registryKey is how the real server's messages name an object's place in etcd. A dry run names it differently.
func (st *store) registryKey(key string, dryRun bool) string {
	key = st.kind.names.Plural + "/" + key
	if _, custom := st.kind.rules.(*customRules); custom {
		key = st.kind.group + "/" + key
	}
	if dryRun {
		return "/" + key
	}
	return "/registry/" + key
}

// stored gives the bytes that keep an object, and what reading them gives.
func (st *store) stored(object map[string]any) (map[string]any, []byte, error) {
	out := maps.Clone(object)
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		delete(meta, "resourceVersion")
		delete(meta, "selfLink")
		out["metadata"] = meta
	}
	if out["apiVersion"] != st.kind.storage.apiVersion() {
		out = runtime.DeepCopyJSON(out)
		if err := st.kind.rules.convert(st.kind.storage, out); err != nil {
			return nil, nil, err
		}
	}
	return st.kind.rules.persist(st.kind.storage, out)
}

// read is the entry that reading back what was written gives. It takes over the object.
func (st *store) read(key string, object map[string]any, data []byte, revision uint64) *entry {
	st.kind.rules.setDefaults(st.kind.storage, object)
	if revision > 0 {
		(&unstructured.Unstructured{Object: object}).SetResourceVersion(strconv.FormatUint(revision, 10))
	}
	return &entry{key: key, revision: revision, data: data, object: object, served: map[*version][]byte{}}
}

// as gives a copy of the object in one of its kind's versions.
func (e *entry) as(v *version) (*unstructured.Unstructured, error) {
	object := runtime.DeepCopyJSON(e.object)
	if err := v.kind.rules.convert(v, object); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: object}, nil
}

// json is the object's JSON in one of its kind's versions.
func (e *entry) json(v *version) ([]byte, error) {
	if data, ok := e.served[v]; ok {
		return data, nil
	}
	object := e.object
	if v != v.kind.store().storage {
		u, err := e.as(v)
		if err != nil {
			return nil, err
		}
		object = u.Object
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", v.kind.names.Kind, e.key, err)
	}
	e.served[v] = data
	return data, nil
}

// at is the same object at a later revision.
func (e *entry) at(revision uint64) *entry {
	object := runtime.DeepCopyJSON(e.object)
	(&unstructured.Unstructured{Object: object}).SetResourceVersion(strconv.FormatUint(revision, 10))
	return &entry{key: e.key, revision: revision, data: e.data, object: object, served: map[*version][]byte{}}
}

func (e *entry) meta() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: e.object}
}

func (e *entry) labels() labels.Set { return e.meta().GetLabels() }

// put writes an object. Where that changes nothing, nothing is written and the entry is the old one. A dry run gives
// the entry that would have been written, at the revision that was sent.
func (s *Server) put(st *store, key string, object map[string]any, dryRun bool) (*entry, error) {
	form, data, err := st.stored(object)
	if err != nil {
		return nil, err
	}
	old := st.objects[key]
	if dryRun {
		e := st.read(key, form, data, 0)
		if sent := (&unstructured.Unstructured{Object: object}).GetResourceVersion(); sent != "" {
			e.meta().SetResourceVersion(sent)
		}
		return e, nil
	}
	if old != nil && bytes.Equal(old.data, data) {
		return old, nil
	}
	s.revision++
	e := st.read(key, form, data, s.revision)
	change := &event{kind: watch.Modified, revision: s.revision, object: e, old: old}
	if old == nil {
		change.kind = watch.Added
		at, _ := slices.BinarySearch(st.keys, key)
		st.keys = slices.Insert(st.keys, at, key)
	}
	st.objects[key] = e
	st.publish(change)
	return e, nil
}

// remove deletes an object. The entry it returns is the object's last state.
func (s *Server) remove(st *store, key string, dryRun bool) *entry {
	old := st.objects[key]
	if dryRun {
		return old
	}
	s.revision++
	delete(st.objects, key)
	at, _ := slices.BinarySearch(st.keys, key)
	st.keys = slices.Delete(st.keys, at, at+1)
	last := old.at(s.revision)
	st.publish(&event{kind: watch.Deleted, revision: s.revision, object: last, old: old})
	return last
}

func (st *store) publish(change *event) {
	if len(st.history) >= historyLimit {
		st.compact(st.history[len(st.history)/2].revision)
	}
	st.history = append(st.history, change)
	for w := range st.watchers {
		w.add(change)
	}
}

// compact forgets the history up to a revision.
func (st *store) compact(revision uint64) {
	if revision <= st.compacted {
		return
	}
	st.compacted = revision
	st.history = slices.Clone(st.since(revision))
}

// since gives the changes after a revision.
func (st *store) since(revision uint64) []*event {
	at := sort.Search(len(st.history), func(i int) bool { return st.history[i].revision > revision })
	return st.history[at:]
}

// current gives the objects of a namespace, or of all, in order.
func (st *store) current(namespace string) []*entry {
	from, to := 0, len(st.keys)
	if namespace != "" {
		from = sort.SearchStrings(st.keys, namespace+"/")
		to = from + sort.Search(len(st.keys)-from, func(i int) bool { return !strings.HasPrefix(st.keys[from+i], namespace+"/") })
	}
	out := make([]*entry, 0, to-from)
	for _, key := range st.keys[from:to] {
		out = append(out, st.objects[key])
	}
	return out
}

// past gives the objects as they were at an earlier revision, by undoing what came after it. It reports false where
// the history does not reach back so far.
func (st *store) past(namespace string, revision uint64) ([]*entry, bool) {
	if revision < st.compacted {
		return nil, false
	}
	changes := st.since(revision)
	if len(changes) == 0 {
		return st.current(namespace), true
	}
	byKey := make(map[string]*entry, len(st.objects))
	for key, e := range st.objects {
		byKey[key] = e
	}
	for _, change := range slices.Backward(changes) {
		if change.old == nil {
			delete(byKey, change.object.key)
		} else {
			byKey[change.old.key] = change.old
		}
	}
	out := make([]*entry, 0, len(byKey))
	for key, e := range byKey {
		if namespace == "" || strings.HasPrefix(key, namespace+"/") {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b *entry) int { return strings.Compare(a.key, b.key) })
	return out, true
}
