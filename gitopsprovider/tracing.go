package gitopsprovider

import (
	"context"
	"fmt"
	"slices"
)

// Trace returns what manages any object of the cluster, from the object up: the applier that its labels or annotations
// name, what manages that in turn, and so on; and for each applier its sources: repository, path, revision and commit.
// An object without marks is traced to its owner by ownerReference: a Pod to the Deployment that made it, and from there on.
//
// A mark is a claim. A step is Confirmed if the applier lists the object among what it applied, and Trace.Unknown says where
// it does not, where two engines claim an object, and where something could not be read.
//
// It reads the objects of the chain and their sources, each once. Where a mark names its applier without a namespace, or by a
// Helm release, the appliers of that kind are listed.
func (v *Views) Trace(ctx context.Context, w Workload) (Trace, error) {
	w, _, _, err := v.resolve(w)
	if err != nil {
		return Trace{}, err
	}
	t := tracer{views: v, objects: map[Workload]readObject{}}
	t.follow(ctx, w)
	if ctx.Err() != nil {
		return Trace{}, context.Cause(ctx)
	}
	return t.trace, nil
}

// tracer makes one Trace.
type tracer struct {
	views   *Views
	trace   Trace
	objects map[Workload]readObject
}

func (t *tracer) follow(ctx context.Context, w Workload) {
	step := TraceStep{Workload: w}
	for step.Workload.Name != "" && ctx.Err() == nil {
		read := t.read(ctx, step.Workload)
		step.Engine, step.Answer, step.Ready, step.Message = read.object.Engine, read.answer, read.object.Ready, read.message
		if last := len(t.trace.Steps) - 1; last >= 0 && read.answer == AnswerFound && step.Relation == RelationManagedBy {
			t.confirm(&step, read.object, t.trace.Steps[last].Workload)
		}
		for i := range read.object.Sources {
			step.Sources = append(step.Sources, t.source(ctx, read.object, i))
		}
		t.trace.Steps = append(t.trace.Steps, step)
		if read.message != "" {
			t.unknown("%s", read.message)
		}
		if read.answer != AnswerFound {
			return
		}
		step = t.above(ctx, read.object)
	}
}

func (t *tracer) unknown(format string, args ...any) {
	if message := fmt.Sprintf(format, args...); !slices.Contains(t.trace.Unknown, message) {
		t.trace.Unknown = append(t.trace.Unknown, message)
	}
}

func (t *tracer) read(ctx context.Context, w Workload) readObject {
	if read, known := t.objects[w]; known {
		return read
	}
	read := t.views.readNode(ctx, w)
	t.objects[w] = read
	return read
}

// confirm checks a mark against what the applier lists. One that lists nothing tells nothing, and what one lists that
// deploys elsewhere has only the name of this object.
func (t *tracer) confirm(step *TraceStep, manager Object, managed Workload) {
	if manager.TargetCluster != "" {
		t.unknown("%s deploys into a cluster that it names (%s): whether that is this one is not known, so that the %s which it lists may be another",
			step.Workload, manager.TargetCluster, managed)
		return
	}
	step.Confirmed = slices.Contains(manager.Applies, managed)
	if !step.Confirmed && len(manager.Applies) > 0 {
		t.unknown("%s names %s by %s, which does not list it among what it applied: the mark may have been left behind",
			managed, step.Workload, step.By)
	}
}

// source traces source number i of an object.
func (t *tracer) source(ctx context.Context, o Object, i int) TraceSource {
	source := used(o.Sources[i], func(w Workload) (Object, string) {
		read := t.read(ctx, w)
		if read.answer != AnswerFound {
			return Object{}, read.message
		}
		return read.object, ""
	})
	source.asDeployed(o, i)
	for _, note := range source.notes {
		t.unknown("%s", note)
	}
	return TraceSource{Source: source.source, Path: source.path, Revision: source.applied, Commit: source.commit}
}

// above finds what manages an object, or owns it. The step names nothing at the end of the chain.
func (t *tracer) above(ctx context.Context, o Object) TraceStep {
	var managers []TraceStep
	marked := false
	for _, mark := range t.views.managers(o) {
		manager, counts := t.manager(ctx, o, mark)
		marked = marked || counts
		known := slices.ContainsFunc(managers, func(s TraceStep) bool { return s.Workload == manager })
		if !manager.IsZero() && !known {
			managers = append(managers, TraceStep{Workload: manager, Relation: RelationManagedBy, By: mark.By})
		}
	}
	for _, owner := range o.Owners {
		managers = append(managers, TraceStep{Workload: owner, Relation: RelationOwnedBy, By: "ownerReference"})
	}
	if len(managers) == 0 {
		if len(t.trace.Steps) == 1 && !marked {
			t.unknown("no label, annotation or owner of %s names what manages it", t.views.named(o.Workload))
		}
		return TraceStep{}
	}
	chosen := managers[0]
	for _, other := range managers[1:] {
		if other.Relation == RelationManagedBy {
			t.unknown("%s is marked as managed by %s as well, by %s", o.Workload, other.Workload, other.By)
		}
	}
	if slices.ContainsFunc(t.trace.Steps, func(s TraceStep) bool { return s.Workload == chosen.Workload }) {
		// A Kustomization that applies itself is how Flux is bootstrapped.
		return TraceStep{}
	}
	return chosen
}

// manager returns the object that a mark names. It is zero where that is not known, which is then said, unless the mark
// does not count: it is about another object, or one that others use and no applier confirms.
func (t *tracer) manager(ctx context.Context, o Object, mark Mark) (manager Workload, counts bool) {
	if mark.Copied != "" {
		t.unknown("%s has %s, which is not about it: %s", o.Workload, mark.By, mark.Copied)
		return Workload{}, false
	}
	if mark.To.Name != "" && mark.To.Namespace != "" && !mark.Shared {
		return mark.To, true
	}
	candidates, read := t.search(ctx, o, mark)
	if len(candidates) > 1 {
		// Of several with that name, the one that lists the object.
		listed := mark
		listed.Shared = true
		if listing, _ := t.search(ctx, o, listed); len(listing) > 0 {
			candidates = listing
		}
	}
	switch {
	case len(candidates) == 1:
		return candidates[0], true
	case len(candidates) > 1:
		t.unknown("%s names its manager by %s, which several have: %v", o.Workload, mark.By, candidates)
	case !read.Established():
		t.unknown("whether a %s manages %s by %s is not known: they could not be listed", mark.To.Kind, o.Workload, mark.By)
	case mark.Shared:
		return Workload{}, false
	case mark.Release != Release{}:
		t.unknown("%s is of the Helm release %s/%s (%s), which no %s of the cluster deploys: it was installed by other means",
			o.Workload, mark.Release.Namespace, mark.Release.Name, mark.By, mark.To.Kind)
	default:
		t.unknown("%s names %s by %s, which does not exist", o.Workload, mark.To, mark.By)
	}
	return Workload{}, true
}

// search lists the appliers of a kind for those that a mark may mean.
func (t *tracer) search(ctx context.Context, o Object, mark Mark) ([]Workload, Answer) {
	s := t.views.survey("")
	s.list(ctx, func(k Kind) bool { return k.GroupKind == mark.To.GroupKind() }, func(candidate Object) bool {
		switch {
		case mark.To.Namespace != "" && candidate.Namespace != mark.To.Namespace,
			mark.To.Name != "" && candidate.Name != mark.To.Name,
			mark.Release != Release{} && candidate.Release != mark.Release:
			return false
		}
		return !mark.Shared || candidate.TargetCluster == "" && slices.Contains(candidate.Applies, o.Workload)
	})
	var found []Workload
	for _, object := range s.sorted() {
		found = append(found, object.Workload)
	}
	answer := AnswerNone
	for _, read := range s.reads {
		answer = read.Answer
	}
	return found, answer
}
