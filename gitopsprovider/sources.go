package gitopsprovider

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// listSources lists the sources that objects use, and those that these are built from, each kind once.
func (s *survey) listSources(ctx context.Context, objects []Object) {
	uses := objects
	for len(uses) > 0 {
		needed := map[Workload]bool{}
		for _, object := range uses {
			for _, use := range object.Sources {
				if !use.Source.Object.IsZero() {
					needed[use.Source.Object] = true
				}
			}
		}
		kinds := map[string]bool{}
		for source := range needed {
			kinds[source.GroupKind().String()] = true
		}
		before := len(s.listed)
		s.list(ctx, func(kind Kind) bool { return kind.Role == RoleSource && kinds[kind.GroupKind.String()] }, func(Object) bool { return true })
		if len(s.listed) == before {
			return
		}
		uses = nil
		for source := range needed {
			if object, ok := s.objects[source]; ok {
				uses = append(uses, object)
			}
		}
	}
}

// failed returns the revision that was attempted and failed. It is empty if that is what is applied: a retry of what was
// well before does not put the blame on it.
func (use SourceUse) failed() string {
	if use.Attempted == "" || sameRevision(use.Attempted, use.Applied) {
		return ""
	}
	return use.Attempted
}

// usedSource is what is known of one source that an applier uses.
type usedSource struct {
	source Source
	path   string
	// applied is the revision in the engine's words, commit its full hash if the source is a Git repository.
	applied, commit string
	notes           []string
}

// used finds out where the content of a use comes from in the end: a chart may be built from a Git repository. What find
// returns in place of an object says why it is not known.
func used(use SourceUse, find func(Workload) (found Object, missing string)) usedSource {
	u := usedSource{source: use.Source, path: use.Path, applied: use.Applied}
	revision, moved, chart := use.Applied, "", use.Source.Chart
	seen := map[Workload]bool{}
	for object := use.Source.Object; !object.IsZero() && !seen[object]; {
		seen[object] = true
		found, missing := find(object)
		if missing == "" && found.Source == nil {
			missing = object.String() + " is no source"
		}
		if missing != "" {
			u.notes = append(u.notes, missing)
			u.source = Source{Object: object, Chart: chart}
			return u
		}
		chart = cmp.Or(chart, found.Source.Chart)
		u.source = *found.Source
		u.source.Object, u.source.Chart = object, chart
		if u.source.Incomplete != "" {
			u.notes = append(u.notes, "the commit does not name the content in full: "+u.source.Incomplete)
		}
		if len(found.Sources) == 0 {
			break
		}
		if revision != "" && revision != found.Source.Revision {
			moved = fmt.Sprintf("the commit of %s is not known: %s now holds %s", revision, object, orNothing(found.Source.Revision))
			revision = ""
		} else if revision != "" {
			revision = found.Source.BuiltFrom
		}
		next := found.Sources[0]
		u.path = next.Path
		if next.Source.Object.IsZero() {
			u.source = next.Source
		}
		object = next.Source.Object
	}
	if u.source.Type == SourceGit {
		u.commit = gitref.CommitOf(revision)
		if moved != "" {
			u.notes = append(u.notes, moved)
		}
	}
	if use.Source.Origin.Revision != "" {
		u.source.Origin.Revision = use.Source.Origin.Revision
	}
	return u
}

// asDeployed sets right where the applied revision of source number i of an object is from: the object may name another
// one since, which was not applied yet.
func (u *usedSource) asDeployed(o Object, i int) {
	if len(o.Deployments) == 0 || i >= len(o.Deployments[0].Revisions) {
		return
	}
	newest := o.Deployments[0].Revisions[i]
	at := placeOf(newest)
	if u.applied == "" || !sameRevision(newest.Revision, u.applied) || at.in(u.source, u.path) {
		return
	}
	u.notes = append(u.notes, fmt.Sprintf("the applier names another source or path now (%s), which was not applied yet",
		strings.TrimSpace(u.source.URL+" "+u.path)))
	u.source, u.path = at.instead(u.source)
	u.commit = commitOf(u.source, u.applied)
}
