package differential_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A step is one call, or a few that belong together. What it does depends on what the world answered before, but not
// on any other world: the same steps can be run in both.
type step struct {
	text string
	do   func(w *world)
}

var (
	names    = []string{"a", "a", "a", "b"}
	managers = []string{"m1", "m2", "m3", "m1", ""}
)

// generator makes the steps of one sequence.
type generator struct {
	*rand.Rand
	sample sample
}

func pick[T any](g *rand.Rand, from []T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func sequence(seed uint64, longest int) []step {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	first := pick(g.Rand, samples)
	var steps []step
	for range 2 + g.IntN(longest-1) {
		g.sample = first
		if g.chance(10) {
			g.sample = pick(g.Rand, samples)
		} else if first.kind == widget.kind && g.chance(25) {
			g.sample = pick(g.Rand, []sample{widget, widgetV2})
		}
		steps = append(steps, g.step(len(steps)))
	}
	return steps
}

func (g *generator) step(at int) step {
	makers := []struct {
		weight int
		make   func() step
	}{
		{14, g.create}, {12, g.update}, {18, g.apply}, {10, g.merge}, {8, g.json}, {2, g.strategic}, {10, g.writeStatus}, {7, g.delete}, {5, g.get}, {6, g.list}, {2, g.deleteAll},
	}
	if at == 0 && g.chance(70) {
		return g.create()
	}
	total := 0
	for _, maker := range makers {
		total += maker.weight
	}
	n := g.IntN(total)
	for _, maker := range makers {
		if n -= maker.weight; n < 0 {
			return maker.make()
		}
	}
	panic("unreachable")
}

func (g *generator) fragments(from []fragment, most int) []fragment {
	var out []fragment
	if len(from) == 0 {
		return nil
	}
	for range g.IntN(most + 1) {
		out = append(out, pick(g.Rand, from))
	}
	return out
}

// changes are a few fragments, of metadata and spec, seldom of status.
func (g *generator) changes() []fragment {
	out := g.fragments(g.sample.spec, 2)
	if g.chance(45) {
		out = append(out, g.fragments(metaFragments, 2)...)
	}
	if len(g.sample.statuses) > 0 && g.chance(10) {
		out = append(out, g.fragments(g.sample.statuses, 1)...)
	}
	return out
}

func change(object map[string]any, by []fragment) map[string]any {
	out := runtime.DeepCopyJSON(object)
	for _, f := range by {
		f(out)
	}
	return out
}

func (g *generator) dryRun() []string {
	if g.chance(7) {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func (g *generator) validation() string {
	if g.chance(20) {
		return pick(g.Rand, []string{"Strict", "Ignore", "Warn", "Wrong"})
	}
	return ""
}

func compact(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func key(s sample, name string) string { return s.kind + " " + name }

func (g *generator) create() step {
	s, name := g.sample, pick(g.Rand, names)
	body := s.base
	if g.chance(35) {
		body = change(body, g.changes())
	}
	body = change(body, nil)
	by, on := "name", name
	if g.chance(4) {
		by, on = "generateName", "gen-"
	}
	if text := body["metadata"]; text != nil {
		meta(on, by)(body)
	}
	if g.chance(6) {
		meta("1", "resourceVersion")(body)
	}
	options := metav1.CreateOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("create %s %s %+v", s, compact(body), createText(options))
	return step{text, func(w *world) {
		body := runtime.DeepCopyJSON(body)
		if s.kind == "Event" {
			w.inNamespace(body)
		}
		object, err := w.of(s.resource).Create(w.ctx, &unstructured.Unstructured{Object: body}, options)
		w.answer(text, object, err)
		if err == nil && len(options.DryRun) == 0 {
			w.remember(key(s, object.GetName()), object)
		}
	}}
}

// inNamespace makes an event one of something in the world's namespace, where it belongs.
func (w *world) inNamespace(event map[string]any) {
	if about, ok := event["involvedObject"].(map[string]any); ok {
		if _, named := about["namespace"]; named {
			about["namespace"] = w.namespace
		}
	}
}

func createText(o metav1.CreateOptions) string {
	return fmt.Sprintf("by=%q dry=%v validation=%q", o.FieldManager, len(o.DryRun) > 0, o.FieldValidation)
}

// stale says from which earlier answer a write takes its resourceVersion: 0 is the latest, -1 none, -2 garbage.
func (g *generator) revision() func(w *world, key string) string {
	switch n := g.IntN(100); {
	case n < 70:
		return func(w *world, key string) string { return back(w.versions[key], 0, "") }
	case n < 85:
		return func(w *world, key string) string { return back(w.versions[key], 1, "3") }
	case n < 93:
		return func(*world, string) string { return "" }
	case n < 96:
		return func(*world, string) string { return "0" }
	default:
		return func(*world, string) string { return "garbage" }
	}
}

func (g *generator) uid() func(w *world, key string) string {
	switch n := g.IntN(100); {
	case n < 60:
		return func(w *world, key string) string { return back(w.uids[key], 0, "11111111-0000-0000-0000-000000000000") }
	case n < 80:
		return func(w *world, key string) string { return back(w.uids[key], 1, "22222222-0000-0000-0000-000000000000") }
	default:
		return func(*world, string) string { return "33333333-0000-0000-0000-000000000000" }
	}
}

func (g *generator) update() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(15)
	changes := g.changes()
	if subresource {
		changes = append(changes, g.fragments(s.statuses, 2)...)
	}
	revision := g.revision()
	uid := g.uid()
	withUID := g.chance(15)
	options := metav1.UpdateOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("update %s %s status=%v %s by=%q dry=%v validation=%q", s, name, subresource,
		compact(change(m{}, changes)), options.FieldManager, len(options.DryRun) > 0, options.FieldValidation)
	return step{text, func(w *world) {
		object := &unstructured.Unstructured{Object: change(s.base, nil)}
		if last := w.last[key(s, name)]; last != nil {
			object = last.DeepCopy()
		}
		object.SetName(name)
		object.SetResourceVersion(revision(w, key(s, name)))
		if withUID {
			object.SetUID(types.UID(uid(w, key(s, name))))
		}
		object.Object = change(object.Object, changes)
		// The client takes the name of the URL from the object.
		call := w.of(s.resource).Update
		if subresource {
			updated, err := w.of(s.resource).UpdateStatus(w.ctx, object, options)
			w.written(text, s, updated, err, options.DryRun)
			return
		}
		updated, err := call(w.ctx, object, options)
		w.written(text, s, updated, err, options.DryRun)
	}}
}

func (w *world) written(text string, s sample, object *unstructured.Unstructured, err error, dryRun []string) {
	w.answer(text, object, err)
	if err == nil && len(dryRun) == 0 {
		w.remember(key(s, object.GetName()), object)
	}
}

func (g *generator) apply() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(12)
	body := m{"apiVersion": s.base["apiVersion"], "kind": s.base["kind"], "metadata": m{}}
	if g.chance(25) {
		body = change(s.base, nil)
	}
	body = change(body, g.changes())
	if subresource {
		body = change(body, g.fragments(s.statuses, 2))
	}
	if g.chance(97) && body["metadata"] != nil {
		meta(name, "name")(body)
	}
	revision, withRevision := g.revision(), g.chance(20)
	uid, withUID := g.uid(), g.chance(20)
	force := g.chance(40)
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	if force {
		options.Force = &force
	}
	text := fmt.Sprintf("apply %s %s status=%v %s by=%q force=%v dry=%v validation=%q rv=%v uid=%v", s, name, subresource, compact(body),
		options.FieldManager, force, len(options.DryRun) > 0, options.FieldValidation, withRevision, withUID)
	return step{text, func(w *world) {
		body := change(body, nil)
		if withRevision {
			meta(revision(w, key(s, name)), "resourceVersion")(body)
		}
		if withUID {
			meta(uid(w, key(s, name)), "uid")(body)
		}
		w.patch(text, s, name, types.ApplyPatchType, []byte(compact(body)), options, subresource)
	}}
}

func (w *world) patch(text string, s sample, name string, kind types.PatchType, body []byte, options metav1.PatchOptions, subresource bool) {
	var subresources []string
	if subresource {
		subresources = []string{"status"}
	}
	object, err := w.of(s.resource).Patch(w.ctx, name, kind, body, options, subresources...)
	w.written(text, s, object, err, options.DryRun)
}

func (g *generator) merge() step {
	return g.mergeOf("merge", types.MergePatchType)
}

func (g *generator) strategic() step {
	return g.mergeOf("strategic", types.StrategicMergePatchType)
}

func (g *generator) mergeOf(verb string, kind types.PatchType) step {
	s, name := g.sample, pick(g.Rand, names)
	body := change(m{}, g.changes())
	subresource := s.status && g.chance(15)
	if subresource {
		body = change(body, g.fragments(s.statuses, 2))
	}
	revision, withRevision := g.revision(), g.chance(15)
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("%s %s %s status=%v %s by=%q dry=%v validation=%q rv=%v", verb, s, name, subresource, compact(body),
		options.FieldManager, len(options.DryRun) > 0, options.FieldValidation, withRevision)
	return step{text, func(w *world) {
		body := change(body, nil)
		if withRevision {
			meta(revision(w, key(s, name)), "resourceVersion")(body)
		}
		w.patch(text, s, name, kind, []byte(compact(body)), options, subresource)
	}}
}

func (g *generator) json() step {
	s, name := g.sample, pick(g.Rand, names)
	subresource := s.status && g.chance(15)
	body := "["
	for i := range 1 + g.IntN(2) {
		if i > 0 {
			body += ","
		}
		body += pick(g.Rand, s.jsonPatch)
	}
	body += "]"
	options := metav1.PatchOptions{FieldManager: pick(g.Rand, managers), DryRun: g.dryRun(), FieldValidation: g.validation()}
	text := fmt.Sprintf("json %s %s status=%v %s by=%q dry=%v validation=%q", s, name, subresource, body,
		options.FieldManager, len(options.DryRun) > 0, options.FieldValidation)
	return step{text, func(w *world) {
		w.patch(text, s, name, types.JSONPatchType, []byte(body), options, subresource)
	}}
}

// writeStatus is what a controller does: read, change the status, write it back.
func (g *generator) writeStatus() step {
	s, name := g.sample, pick(g.Rand, names)
	changes := g.fragments(s.statuses, 3)
	merge := g.chance(50)
	manager := pick(g.Rand, managers)
	text := fmt.Sprintf("status %s %s %s merge=%v by=%q", s, name, compact(change(m{}, changes)), merge, manager)
	if !s.status {
		return g.get()
	}
	return step{text, func(w *world) {
		if merge {
			body := []byte(compact(change(m{}, changes)))
			w.patch(text, s, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: manager}, true)
			return
		}
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			w.answer(text, nil, err)
			return
		}
		object.Object = change(object.Object, changes)
		updated, err := w.of(s.resource).UpdateStatus(w.ctx, object, metav1.UpdateOptions{FieldManager: manager})
		w.written(text, s, updated, err, nil)
	}}
}

func (g *generator) delete() step {
	s, name := g.sample, pick(g.Rand, names)
	var options metav1.DeleteOptions
	uid, withUID := g.uid(), g.chance(25)
	revision, withRevision := g.revision(), g.chance(20)
	options.DryRun = g.dryRun()
	if g.chance(25) {
		policy := pick(g.Rand, []metav1.DeletionPropagation{
			metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan, "Wrong",
		})
		options.PropagationPolicy = &policy
	}
	text := fmt.Sprintf("delete %s %s uid=%v rv=%v policy=%v dry=%v", s, name, withUID, withRevision, compact(options.PropagationPolicy), len(options.DryRun) > 0)
	return step{text, func(w *world) {
		options := options
		if withUID || withRevision {
			options.Preconditions = &metav1.Preconditions{}
		}
		if withUID {
			want := types.UID(uid(w, key(s, name)))
			options.Preconditions.UID = &want
		}
		if withRevision {
			want := revision(w, key(s, name))
			options.Preconditions.ResourceVersion = &want
		}
		err := w.of(s.resource).Delete(w.ctx, name, options)
		w.answer(text, nil, err)
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{})
		w.answer("  get after delete", object, err)
	}}
}

func (g *generator) get() step {
	s, name := g.sample, pick(g.Rand, names)
	var subresources []string
	if g.chance(20) {
		subresources = []string{"status"}
	}
	if g.chance(3) {
		subresources = []string{"nothing"}
	}
	text := fmt.Sprintf("get %s %s %v", s, name, subresources)
	return step{text, func(w *world) {
		object, err := w.of(s.resource).Get(w.ctx, name, metav1.GetOptions{}, subresources...)
		w.answer(text, object, err)
		if err == nil {
			w.remember(key(s, name), object)
		}
	}}
}

func (g *generator) list() step {
	s := g.sample
	options := metav1.ListOptions{
		LabelSelector: pick(g.Rand, []string{"", "", "", "l1=x", "l1", "!l1", "l1 in (x,y)", "l1=="}),
		FieldSelector: pick(g.Rand, []string{"", "", "", "metadata.name=a", "metadata.name!=a", "spec.path=./x", "metadata.namespace=elsewhere"}),
		Limit:         pick(g.Rand, []int64{0, 0, 1}),
	}
	text := fmt.Sprintf("list %s labels=%q fields=%q limit=%d", s, options.LabelSelector, options.FieldSelector, options.Limit)
	return step{text, func(w *world) {
		options := options
		for page := 1; ; page++ {
			list, err := w.of(s.resource).List(w.ctx, options)
			a := answer{call: fmt.Sprintf("%s page %d", text, page), err: err}
			if err == nil {
				for i := range list.Items {
					a.objects = append(a.objects, &list.Items[i])
				}
				a.note = fmt.Sprintf("%s %s remaining=%v", list.GetAPIVersion(), list.GetKind(), compact(list.GetRemainingItemCount()))
			}
			w.answers = append(w.answers, a)
			if err != nil || list.GetContinue() == "" || page == 5 {
				return
			}
			options.Continue = list.GetContinue()
		}
	}}
}

func (g *generator) deleteAll() step {
	s := g.sample
	selector := pick(g.Rand, []string{"", "l1=x", "l1=x"})
	text := fmt.Sprintf("deletecollection %s labels=%q", s, selector)
	return step{text, func(w *world) {
		err := w.of(s.resource).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
		w.answer(text, nil, err)
	}}
}
