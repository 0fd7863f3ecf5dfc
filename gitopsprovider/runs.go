package gitopsprovider

import (
	"cmp"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// run is a revision of one source that was applied for a while: consecutive deployments of one revision.
type run struct {
	revision string
	// place is where it was deployed from.
	place place
	// since is when it was first deployed. Zero if that is not known; after may then say when at the earliest.
	since, after time.Time
	// from is the revision of the run before. Empty if that is not known, or was of another source.
	from string
	// moved is whether the run before applied another source.
	moved bool
}

// runs returns what an applier applied of its source number i, newest first.
func runs(o Object, i int) []run {
	var runs []run
	var last DeployedRevision
	for _, deployment := range o.Deployments {
		if i >= len(deployment.Revisions) {
			break
		}
		revision := deployment.Revisions[i]
		n := len(runs)
		switch {
		case n > 0 && revision.Path == last.Path && revision.URL == last.URL && revision.Chart == last.Chart && sameRevision(revision.Revision, last.Revision):
			runs[n-1].since, runs[n-1].after = deployment.At, deployment.After
		case n > 0 && (revision.Path != last.Path || revision.Chart != last.Chart || !sameURL(revision.URL, last.URL)):
			runs[n-1].moved = true
			runs = append(runs, run{revision: revision.Revision, place: placeOf(revision), since: deployment.At, after: deployment.After})
		default:
			if n > 0 {
				runs[n-1].from = revision.Revision
			}
			runs = append(runs, run{revision: revision.Revision, place: placeOf(revision), since: deployment.At, after: deployment.After})
		}
		last = revision
	}
	return runs
}

// place is where a revision was deployed from. Without a URL it is not known; the name of the chart may be.
type place struct {
	kind      SourceType
	url, path string
	chart     string
}

func placeOf(revision DeployedRevision) place {
	return place{revision.Type, revision.URL, revision.Path, revision.Chart}
}

// in reports whether a place is a folder or chart of a source, as far as it is known.
func (p place) in(source Source, path string) bool {
	if p.url == "" {
		return p.chart == "" || source.Chart == "" || p.chart == source.Chart
	}
	return p.path == path && sameURL(p.url, source.URL)
}

// instead returns the source and the path of a place that is not in the source given. Of a chart that is not, nothing but its
// name is known.
func (p place) instead(source Source) (Source, string) {
	if p.url == "" {
		return Source{Chart: p.chart}, p.chart
	}
	return Source{Type: cmp.Or(p.kind, source.Type), URL: p.url, Lends: source.Lends}, p.path
}

// began is when the run began, as far as that is known.
func (r run) began() time.Time {
	if r.since.IsZero() {
		return r.after
	}
	return r.since
}

// sameRevision compares revisions by their commit, where both name one.
func sameRevision(a, b string) bool {
	return a == b || gitref.CommitOf(a) != "" && gitref.CommitOf(a) == gitref.CommitOf(b)
}

func sameURL(a, b string) bool { return a == b || gitref.SameRepository(a, b) }

// applied returns the run of the revision that is applied now, if the history begins with it.
func appliedRun(runs []run, revision string) run {
	if len(runs) == 0 || !sameRevision(runs[0].revision, revision) {
		return run{revision: revision}
	}
	return runs[0]
}
