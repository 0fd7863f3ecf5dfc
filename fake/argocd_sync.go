package fake

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sync brings the operation as far as one pass does: to the end of the next wave.
func (p *pass) sync(ctx context.Context) {
	s, sync := p.state, p.state.Operation.Sync
	if sync == nil {
		s.end(argoError, "Invalid operation request: no operation specified")
		return
	}
	if err := p.argo.faults.step(ctx, ProjectStep, nameOf(p.app)); err != nil {
		s.end(argoError, "InvalidSpecError: %s", err)
		return
	}
	if err := checkDestination(p.app); err != nil {
		s.end(argoError, "%s", err)
		return
	}
	// Source and revision stay what they are at the first pass, whatever becomes of the spec.
	if s.SyncResult == nil {
		s.SyncResult = &argoResult{Revision: sync.Revision, Source: p.source()}
	}
	if p.argo.denies(p.manual()) {
		if s.Phase == argoRunning {
			s.Message = "Sync operation blocked by sync window"
		}
		return
	}
	if s.Phase == argoTerminating {
		p.terminate(ctx)
		return
	}
	targets, err := p.targets(ctx)
	if err != nil {
		s.end(argoError, "ComparisonError: Failed to load target state: %s", err)
		return
	}
	tasks, err := p.tasks(ctx, targets)
	if err != nil {
		s.end(argoError, "ComparisonError: Failed to load live state: %s", err)
		return
	}
	p.wave(ctx, tasks)
	if s.Phase == argoSucceeded && !sync.DryRun && len(sync.Resources) == 0 && ctx.Err() == nil {
		if err := p.record(ctx); err != nil {
			s.end(argoError, "failed to record sync to history: %s", err)
		}
	}
}

// manual reports whether a sync window takes the operation for one that a person asked for: by the record as it stood before
// the pass (3.2.11, controller/sync.go, syncWindowPreventsSync). At the first pass that is the previous operation's, and
// without one it is automated.
func (p *pass) manual() bool {
	before, err := fieldOf[argoState](p.app, "status", "operationState")
	return err == nil && before != nil && !before.Operation.InitiatedBy.Automated
}

// source is what the operation syncs.
func (p *pass) source() map[string]any {
	if source := p.state.Operation.Sync.Source; source != nil {
		return source
	}
	source, _, _ := unstructured.NestedMap(p.app.Object, "spec", "source")
	return source
}

// targets loads what the operation is to apply, and notes the commit.
func (p *pass) targets(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if err := p.argo.faults.step(ctx, LoadStep, nameOf(p.app)); err != nil {
		return nil, err
	}
	if len(p.state.Operation.Sync.Manifests) > 0 || sourcesOf(p.app) > 0 && p.state.Operation.Sync.Source == nil {
		return nil, errors.New("the simulated application-controller supports neither local manifests nor spec.sources")
	}
	result := p.state.SyncResult
	objects, commit, err := p.load(p.app, result.Source, result.Revision)
	result.Revision = commit
	return objects, err
}

func sourcesOf(app *unstructured.Unstructured) int {
	sources, _, _ := unstructured.NestedSlice(app.Object, "spec", "sources")
	return len(sources)
}

// wave does what is to be done next: it looks after running hooks, and applies the next wave. What has a result already, be it
// one that the previous operation left, is not done again.
func (p *pass) wave(ctx context.Context, tasks []task) {
	s := p.state
	if invalid := p.invalid(tasks); len(invalid) > 0 {
		s.SyncResult.Resources = invalid
		s.end(argoFailed, "one or more synchronization tasks are not valid")
		return
	}
	if p.checkHooks(ctx, tasks) {
		return
	}
	if p.anyFailed() {
		s.end(argoFailed, "one or more synchronization tasks completed unsuccessfully")
		return
	}
	pending := p.pending(tasks)
	if len(pending) == 0 {
		s.end(argoSucceeded, "successfully synced (no more tasks)")
		return
	}
	now, later := firstWave(pending)
	if err := p.apply(ctx, now); err != nil {
		s.end(argoFailed, "one or more objects failed to apply, reason: %s", err)
		return
	}
	if later {
		_ = p.argo.faults.step(ctx, WaveStep, nameOf(p.app))
		s.end(argoRunning, "one or more tasks are running")
		return
	}
	s.end(argoSucceeded, "successfully synced (all tasks run)")
}

// checkHooks notes which hooks have ended, and reports whether there is one to wait for.
func (p *pass) checkHooks(ctx context.Context, tasks []task) (running bool) {
	var waiting []task
	for _, t := range tasks {
		result := p.result(t)
		if !t.hook || result == nil || result.HookPhase != argoRunning {
			continue
		}
		if result.HookPhase = p.hookPhase(ctx, t.object); result.HookPhase == argoRunning {
			waiting = append(waiting, t)
		}
	}
	if len(waiting) == 0 {
		return false
	}
	first := entryOf(waiting[0].object)
	p.state.end(argoRunning, "waiting for completion of hook %s/%s/%s", first.group, first.kind, first.name)
	if more := len(waiting) - 1; more > 0 {
		p.state.Message += fmt.Sprintf(" and %d more hooks", more)
	}
	return true
}

// hookPhase is how the Job of a hook stands.
func (p *pass) hookPhase(ctx context.Context, hook *unstructured.Unstructured) string {
	job, err := p.client.Resource(jobResource).Namespace(hook.GetNamespace()).Get(ctx, hook.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return argoFailed
	case err != nil:
		return argoRunning
	}
	c := conditionsOf(job)
	switch {
	case c.is("Complete", metav1.ConditionTrue):
		return argoSucceeded
	case c.is("Failed", metav1.ConditionTrue):
		return argoFailed
	}
	return argoRunning
}

// terminate ends the operation, and deletes the hooks that run.
func (p *pass) terminate(ctx context.Context) {
	for i := range p.state.SyncResult.Resources {
		result := &p.state.SyncResult.Resources[i]
		if result.HookType == "" || result.HookPhase != argoRunning {
			continue
		}
		if err := p.delete(ctx, result.entry().object()); err != nil {
			p.state.end(argoError, "Operation termination had errors")
			return
		}
		result.HookPhase, result.Message = argoSucceeded, "Deleted"
	}
	p.state.end(argoFailed, "Operation terminated")
}

// apply applies the tasks of one wave. One that is refused keeps none of the others from being applied.
func (p *pass) apply(ctx context.Context, tasks []task) error {
	if err := p.argo.faults.step(ctx, ApplyStep, nameOf(p.app)); err != nil {
		return err
	}
	var failed []string
	for _, t := range tasks {
		result, err := p.run(ctx, t)
		if err != nil {
			result.HookPhase, result.Message = argoFailed, err.Error()
			if !t.hook {
				result.Status = "SyncFailed"
			}
			failed = append(failed, err.Error())
		}
		p.state.SyncResult.Resources = append(p.state.SyncResult.Resources, result)
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, ","))
	}
	return nil
}

// run does one task.
func (p *pass) run(ctx context.Context, t task) (argoResourceOf, error) {
	result, sync := t.outcome(), p.state.Operation.Sync
	switch {
	case t.prune && !sync.Prune:
		result.Status, result.Message, result.HookPhase = "PruneSkipped", "ignored (requires pruning)", argoSucceeded
		return result, nil
	case t.prune && sync.DryRun:
		result.Status, result.Message, result.HookPhase = "Pruned", "pruned (dry run)", argoSucceeded
		return result, nil
	case t.prune:
		result.Status, result.Message, result.HookPhase = "Pruned", "pruned", argoSucceeded
		return result, p.delete(ctx, t.object)
	case t.hook && !sync.DryRun:
		if err := p.delete(ctx, t.object); err != nil {
			return result, err
		}
	}
	did, err := p.applyOne(ctx, t.object, sync.DryRun)
	gk := t.object.GroupVersionKind().GroupKind()
	result.Message = fmt.Sprintf("%s/%s %s", strings.ToLower(gk.String()), t.object.GetName(), did)
	result.HookPhase = argoRunning
	switch {
	case !t.hook:
		result.Status = "Synced"
	case sync.DryRun:
		result.HookPhase = argoSucceeded
	}
	return result, err
}

// applyOne applies an object, and says what became of it.
func (c *applicationController) applyOne(ctx context.Context, object *unstructured.Unstructured, dryRun bool) (did string, err error) {
	resource, err := c.resourceOf(object)
	if err != nil {
		return "", err
	}
	options := metav1.ApplyOptions{FieldManager: argoManager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	before, _ := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	after, err := resource.Apply(ctx, object.GetName(), object, options)
	switch {
	case err != nil:
		return "", err
	case before == nil:
		did = "created"
	case drifted(before, after):
		did = "configured"
	default:
		did = "unchanged"
	}
	if dryRun {
		did += " (dry run)"
	} else {
		c.argo.mu.Lock()
		c.argo.applied[object.GroupVersionKind()] = true
		c.argo.mu.Unlock()
	}
	return did, nil
}

// record enters the sync into the history, before the operation completes.
func (p *pass) record(ctx context.Context) error {
	const limit = 10
	history, _, err := unstructured.NestedSlice(p.app.Object, "status", "history")
	if err != nil {
		return err
	}
	id := int64(0)
	if len(history) > 0 {
		last, _ := history[len(history)-1].(map[string]any)
		id, _ = last["id"].(int64)
		id++
	}
	history = append(history, map[string]any{
		"id": id, "revision": p.state.SyncResult.Revision, "source": p.state.SyncResult.Source,
		"deployStartedAt": p.state.StartedAt, "deployedAt": argoNow(),
		"initiatedBy": p.state.Operation.InitiatedBy,
	})
	history = history[max(0, len(history)-limit):]
	return p.patch(ctx, nameOf(p.app), map[string]any{"status": map[string]any{"history": history}})
}
