package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
	"github.com/gitops-applier/gitops-applier/fake"
)

// A hand is something that somebody else does.
type hand struct {
	name  string
	often int
	do    func(w *world, r *rand.Rand)
}

// hands are what other people do: to appliers, to the host's objects, and to the controllers.
var hands = []hand{
	{"commits", 30, func(w *world, r *rand.Rand) {
		one := w.repos[r.IntN(len(w.repos))]
		var broken []*subject
		if r.IntN(6) == 0 {
			broken = append(broken, w.subjects[r.IntN(len(w.subjects))])
		}
		w.commit(one, broken...)
		reason := applier.Commit
		if r.IntN(3) == 0 {
			reason = applier.ForeignCommit
		}
		w.pokeAll(reason)
	}},
	{"asks for a run", 8, func(w *world, r *rand.Rand) {
		names := w.triggerNames()
		reasons := []applier.ApplyReason{applier.Refusal, applier.Repair, applier.CatchUp}
		w.poke(names[r.IntN(len(names))], reasons[r.IntN(len(reasons))])
	}},
	{"decides otherwise", 6, func(w *world, r *rand.Rand) {
		w.eachOut(func(a *attempt) bool { a.revoke(); return r.IntN(2) == 0 })
	}},
	{"abandons", 6, func(w *world, r *rand.Rand) {
		names := w.triggerNames()
		for _, p := range w.alive() {
			p.worker.abandon(names[r.IntN(len(names))])
		}
	}},
	{"prefetches", 4, func(w *world, r *rand.Rand) {
		names := w.triggerNames()
		name := names[r.IntN(len(names))]
		if t, ok := w.targetOf(name); ok {
			for _, p := range w.alive() {
				p.dispatcher.PrefetchSource(applier.PrefetchRequest{Trigger: applier.TriggerRef{Namespace: team, Name: name}, Commit: w.head(t)})
			}
		}
	}},
	{"flux suspend", 4, onKustomization(func(w *world, _ *rand.Rand, s *subject) {
		w.patch(kustomizations, s.name, "flux", `{"spec":{"suspend":true}}`)
		if s.mode == live {
			w.undoes(func() { w.patch(kustomizations, s.name, "flux", `{"spec":{"suspend":null}}`) })
		}
	})},
	{"flux resume", 4, onKustomization(func(w *world, _ *rand.Rand, s *subject) {
		w.patch(kustomizations, s.name, "flux", `{"spec":{"suspend":null}}`)
	})},
	{"flux reconcile", 6, onKustomization(func(w *world, _ *rand.Rand, s *subject) { w.stamp(kustomizations, s.name) })},
	{"flux reconcile source", 4, func(w *world, r *rand.Rand) { w.stamp(gitRepositories, w.repos[r.IntN(len(w.repos))].source) }},
	{"removes the token", 2, onKustomization(func(w *world, _ *rand.Rand, s *subject) {
		w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, fluxmeta.ReconcileRequestAnnotation))
	})},
	{"edits", 6, onKustomization(func(w *world, r *rand.Rand, s *subject) {
		w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"spec":{"interval":"%dm"},"metadata":{"labels":{"edit":"e%d"}}}`, 50+r.IntN(20), r.IntN(1000)))
	})},
	{"applies spec.suspend", 2, onKustomization(func(w *world, r *rand.Rand, s *subject) {
		w.applySuspend(s.name, new(r.IntN(2) == 0))
		w.undoes(func() { w.applySuspend(s.name, nil) })
	})},
	{"points it at another source", 2, onKustomization(func(w *world, r *rand.Rand, s *subject) {
		w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"spec":{"sourceRef":{"name":%q}}}`, w.repos[r.IntN(len(w.repos))].source))
		w.undoes(func() {
			w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"spec":{"sourceRef":{"name":%q}}}`, s.source))
		})
	})},
	{"deletes", 2, func(w *world, r *rand.Rand) {
		s := w.subjects[r.IntN(len(w.subjects))]
		err := w.cluster.Resource(s.resource()).Namespace(team).Delete(w.ctx(), s.name, metav1.DeleteOptions{})
		w.history.note("somebody", "deletes %s: %v", s.name, err)
		w.undoes(func() { w.create(s) })
		if r.IntN(2) == 0 {
			time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			w.create(s)
		}
	}},
	{"deletes the source", 1, func(w *world, r *rand.Rand) {
		one := w.repos[r.IntN(len(w.repos))]
		_ = w.cluster.Resource(gitRepositories).Namespace(team).Delete(w.ctx(), one.source, metav1.DeleteOptions{})
		w.history.note("somebody", "deletes GitRepository %s", one.source)
		w.undoes(func() { w.createSource(one) })
		if r.IntN(2) == 0 {
			w.createSource(one)
		}
	}},
	{"argocd app sync", 6, onApplication(syncTip)},
	{"argocd app terminate-op", 3, onApplication(func(app map[string]any) {
		if _, running, _ := unstructured.NestedMap(app, "status", "operationState"); running && app["operation"] != nil {
			_ = unstructured.SetNestedField(app, "Terminating", "status", "operationState", "phase")
		}
	})},
	{"removes the operation", 2, onApplication(func(app map[string]any) { delete(app, "operation") })},
	{"argocd app get --refresh", 4, onApplication(refresh)},
	{"refuses a target", 7, func(w *world, r *rand.Rand) {
		name := w.targetName(r)
		w.changeTarget(name, func(t *applier.Target) { t.Admission = applier.Admission{State: applier.NotAdmitted, Reason: "Closed"} })
		w.undoes(func() {
			w.changeTarget(name, func(t *applier.Target) { t.Admission = applier.Admission{State: applier.Admitted} })
		})
	}},
	{"takes back its consent", 2, func(w *world, r *rand.Rand) {
		name := w.targetName(r)
		w.changeTarget(name, func(t *applier.Target) { t.RefusalConsent = false })
		w.undoes(func() { w.changeTarget(name, func(t *applier.Target) { t.RefusalConsent = true }) })
	}},
	{"replaces a target", 3, func(w *world, r *rand.Rand) {
		name := w.targetName(r)
		ref := applier.TargetRef{Namespace: team, Name: name}
		t, err := w.store.Process().Target(context.Background(), ref)
		if err != nil {
			return
		}
		w.targetChanged(t, true)
		w.store.DeleteTarget(ref)
		t.Ref.UID = ""
		w.targetChanged(w.store.PutTarget(t), false)
		w.history.note("somebody", "replaces target %s", name)
	}},
	{"names another applier", 2, func(w *world, r *rand.Rand) {
		names := w.triggerNames()
		name, s := names[r.IntN(len(names))], w.subjects[r.IntN(len(w.subjects))]
		w.retarget(name, s)
	}},
	{"deletes a trigger", 1, func(w *world, r *rand.Rand) {
		names := w.triggerNames()
		if len(names) < 2 {
			return
		}
		name := names[r.IntN(len(names))]
		_ = w.store.ChangeTrigger(applier.TriggerRef{Namespace: team, Name: name}, func(t *applier.Trigger) { t.Deleting = true })
		w.history.note("somebody", "deletes trigger %s", name)
	}},
	{"stops a controller", 5, func(w *world, r *rand.Rand) {
		controllers := []*fake.Controller{w.flux.Kustomize, w.flux.Source, w.argo.Controller}
		which := r.IntN(len(controllers))
		c, away := controllers[which], time.Duration(r.IntN(60))*time.Second
		w.history.note("ops", "controller %d is away for %v", which, away)
		c.Stop()
		w.late.Go(func() {
			time.Sleep(away)
			c.Start()
		})
	}},
	{"makes a step slow", 6, func(w *world, r *rand.Rand) {
		fault := fake.StepFault{Step: fake.ApplyStep, Nth: 1, Delay: time.Duration(r.IntN(40)) * time.Second}
		if r.IntN(8) == 0 {
			fault.Delay = 4 * time.Minute
		}
		w.injectStep(fault, fault)
		w.history.note("ops", "an apply takes %v", fault.Delay)
	}},
	{"makes a step fail", 5, func(w *world, r *rand.Rand) {
		steps := []fake.Step{fake.FetchStep, fake.DownloadStep, fake.BuildStep, fake.ApplyStep, fake.PruneStep}
		step := steps[r.IntN(len(steps))]
		w.injectStep(fake.StepFault{Step: step, Nth: 1, Message: "it is not to be"}, fake.StepFault{Step: fake.LoadStep, Nth: 1, Message: "it is not to be"})
		w.history.note("ops", "the next %s fails", step)
	}},
	{"ends watches", 3, func(w *world, _ *rand.Rand) {
		// Those that collect the versions go past this: they are the simulation's own.
		for _, p := range w.alive() {
			p.view.Cut()
			p.view.Mend()
		}
		w.history.note("ops", "ends watches")
	}},
}

// overtake does something to an applier that is about to be written.
func (w *world) overtake(s *subject, roll int) {
	switch {
	case s.mode == synced && roll < 600:
		w.changeApplication(s, syncTip)
	case s.mode == synced:
		w.changeApplication(s, refresh)
	case roll < 400:
		w.stamp(kustomizations, s.name)
	case roll < 600 && s.mode == held:
		w.patch(kustomizations, s.name, "flux", `{"spec":{"suspend":null}}`)
	case roll < 800:
		w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"spec":{"sourceRef":{"name":%q}}}`, w.repos[roll%len(w.repos)].source))
	default:
		w.patch(kustomizations, s.name, "kubectl", fmt.Sprintf(`{"metadata":{"labels":{"edit":"e%d"}}}`, roll))
	}
}

// What the argocd CLI has Argo CD's API server do.
func syncTip(app map[string]any) {
	if app["operation"] == nil {
		app["operation"] = map[string]any{"initiatedBy": map[string]any{"username": "alice"}, "sync": map[string]any{}}
		unstructured.RemoveNestedField(app, "status", "operationState")
	}
}

func refresh(app map[string]any) {
	_ = unstructured.SetNestedField(app, "normal", "metadata", "annotations", "argocd.argoproj.io/refresh")
}

// another does something that somebody else does.
func (w *world) another(r *rand.Rand) {
	sum := 0
	for _, h := range hands {
		sum += h.often
	}
	n := r.IntN(sum)
	for _, h := range hands {
		if n -= h.often; n < 0 {
			w.history.note("somebody", "%s", h.name)
			h.do(w, r)
			return
		}
	}
}

// injectStep makes a step of either engine go wrong, until the chaos is over.
func (w *world) injectStep(ofFlux, ofArgo fake.StepFault) {
	w.undoes(w.flux.Inject(ofFlux))
	w.undoes(w.argo.Inject(ofArgo))
}

// undoes notes what is to be undone when the chaos is over.
func (w *world) undoes(undo func()) { w.undo = append(w.undo, undo) }

func (s *subject) resource() schema.GroupVersionResource {
	if s.mode == synced {
		return applications
	}
	return kustomizations
}

func (w *world) some(r *rand.Rand, is func(*subject) bool) *subject {
	var some []*subject
	for _, s := range w.subjects {
		if is(s) {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some[r.IntN(len(some))]
}

func onKustomization(do func(*world, *rand.Rand, *subject)) func(*world, *rand.Rand) {
	return func(w *world, r *rand.Rand) {
		if s := w.some(r, func(s *subject) bool { return s.mode != synced }); s != nil {
			w.history.note("somebody", "  to %s", s.name)
			do(w, r, s)
		}
	}
}

func onApplication(change func(app map[string]any)) func(*world, *rand.Rand) {
	return func(w *world, r *rand.Rand) {
		if s := w.some(r, func(s *subject) bool { return s.mode == synced }); s != nil {
			w.changeApplication(s, change)
		}
	}
}

// changeApplication changes an Application as Argo CD's API server does: as it was read, once more after a conflict.
func (w *world) changeApplication(s *subject, change func(app map[string]any)) {
	w.history.note("somebody", "  to %s", s.name)
	for range 5 {
		app, err := w.cluster.Resource(applications).Namespace(team).Get(w.ctx(), s.name, metav1.GetOptions{})
		if err != nil {
			return
		}
		change(app.Object)
		_, err = w.cluster.Resource(applications).Namespace(team).Update(w.ctx(), app, metav1.UpdateOptions{FieldManager: "argocd-server"})
		if !apierrors.IsConflict(err) {
			return
		}
	}
}

func (w *world) patch(resource schema.GroupVersionResource, name, manager, patch string) {
	_, err := w.cluster.Resource(resource).Namespace(team).Patch(w.ctx(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	w.history.note("somebody", "patches %s: %s: %v", name, patch, err)
}

func (w *world) stamp(resource schema.GroupVersionResource, name string) {
	w.patch(resource, name, "flux", fmt.Sprintf(`{"metadata":{"annotations":{%q:"foreign-%d"}}}`, fluxmeta.ReconcileRequestAnnotation, time.Now().UnixNano()))
}

// applySuspend applies spec.suspend as a parent's manifest does, or takes it back for nil.
func (w *world) applySuspend(name string, suspend *bool) {
	spec := map[string]any{}
	if suspend != nil {
		spec["suspend"] = *suspend
	}
	now, err := w.cluster.Resource(kustomizations).Namespace(team).Get(w.ctx(), name, metav1.GetOptions{})
	if err != nil {
		return
	}
	_, err = w.cluster.Resource(kustomizations).Namespace(team).Apply(w.ctx(), name, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kustomizations.GroupVersion().String(), "kind": "Kustomization",
		"metadata": map[string]any{"name": name, "namespace": team, "uid": string(now.GetUID())}, "spec": spec,
	}}, metav1.ApplyOptions{FieldManager: "parent", Force: true})
	w.history.note("somebody", "applies spec.suspend of %s: %v", name, err)
}

func (w *world) targetName(r *rand.Rand) string {
	names := w.triggerNames()
	return names[r.IntN(len(names))]
}

// retarget makes a trigger name another applier, with what goes with that.
func (w *world) retarget(name string, s *subject) {
	w.history.note("somebody", "makes trigger %s name %s", name, s.name)
	_ = w.store.ChangeTrigger(applier.TriggerRef{Namespace: team, Name: name}, func(t *applier.Trigger) {
		t.Applier, t.Live, t.Holding = s.ref(), s.mode == live, false
		t.Status.Held, t.Status.Source = false, nil
	})
	w.changeTarget(name, func(t *applier.Target) { t.Writes.Repository = s.repo.URL() })
}

func (w *world) alive() (alive []*process) {
	for _, p := range w.processes {
		if !p.dead.Load() && p.stopping().IsZero() {
			alive = append(alive, p)
		}
	}
	return alive
}

func (w *world) poke(name string, reason applier.ApplyReason) {
	for _, p := range w.alive() {
		p.worker.poke(name, reason)
	}
}

func (w *world) pokeAll(reason applier.ApplyReason) {
	for _, p := range w.alive() {
		p.worker.pokeAll(reason)
	}
}

// eachOut calls do for attempts that are on their way, until it returns false.
func (w *world) eachOut(do func(*attempt) bool) {
	w.mu.Lock()
	attempts := w.attempts
	w.mu.Unlock()
	for _, a := range attempts {
		if ended, _ := a.end(); ended == nil && a.recovered == nil && a.process.stopping().IsZero() && !a.process.dead.Load() && !do(a) {
			return
		}
	}
}
