package gitopsprovider

import (
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// run is a revision of one source that was applied for a while: consecutive deployments of one revision.
type run struct {
	revision string
	// since is when it was first deployed. Zero if that is not known.
	since time.Time
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
		case n > 0 && revision.Path == last.Path && revision.URL == last.URL && sameRevision(revision.Revision, last.Revision):
			runs[n-1].since = deployment.At
		case n > 0 && (revision.Path != last.Path || !sameURL(revision.URL, last.URL)):
			runs[n-1].moved = true
			runs = append(runs, run{revision: revision.Revision, since: deployment.At})
		default:
			if n > 0 {
				runs[n-1].from = revision.Revision
			}
			runs = append(runs, run{revision: revision.Revision, since: deployment.At})
		}
		last = revision
	}
	return runs
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
