package gitopsprovider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
)

// Changes lists what the selected appliers apply, newest first.
//
// Without a window there is one change for each source of an applier that has applied something, or failed to: what is applied
// now, what was before it, and what was attempted since. With one there are the commits made in it that touched the path, up to what is applied now;
// and the deployments made in it that no such commit explains, such as a rollback and what was rolled back, and those of
// sources that are no Git repository or only lend files to others, as far as the applier's history goes. A commit is dated
// by its committer date, as in git log.
//
// A commit explains its own first deployment, whose time it has, unless another commit was applied in between. One of another
// commit it explains by its date, which is a note: the newest commits of a branch need not touch the path. A deployment of
// which only the earliest time is known counts as of that.
//
// What an applier last failed to apply, and of which nothing landed, is one more change of the window, if it was tried in the
// window or a commit of the path that it brings was made in it.
//
// Every kind is listed once, page by page, whatever the selector; no object is read by itself. With a window, every
// repository, path and commit is asked for its history once.
func (v *Views) Changes(ctx context.Context, window TimeWindow, sel Selector) (ChangeList, error) {
	if err := window.validate(); err != nil {
		return ChangeList{}, fmt.Errorf("changes in cluster %s: %w", v.cluster, err)
	}
	s := v.survey(sel.Namespace)
	isApplier := func(kind Kind) bool {
		return kind.Role == RoleApplier && (sel.Kind == "" || strings.EqualFold(sel.Kind, kind.Kind))
	}
	s.list(ctx, isApplier, sel.matches)
	if len(s.reads) == 0 {
		s.reads = []Read{{Kind: sel.Kind, Message: "nothing was read: no engine here has appliers of kind " + cmp.Or(sel.Kind, "any")}}
	}
	appliers := s.sorted()
	s.listSources(ctx, appliers)
	if ctx.Err() != nil {
		return ChangeList{}, context.Cause(ctx)
	}
	c := changes{views: v, survey: s, window: window}
	for _, applier := range appliers {
		c.ofApplier(applier)
	}
	if window.isSet() {
		c.readHistories(ctx)
		if ctx.Err() != nil {
			return ChangeList{}, context.Cause(ctx)
		}
	}
	return c.list(), nil
}

// changes collects the changes of one answer.
type changes struct {
	views  *Views
	survey *survey
	window TimeWindow

	current   []applied
	histories map[HistoryQuery]*historyAnswer
}

// applied is what an applier applies of one source.
type applied struct {
	change Change
	runs   []run
	// query is the history to ask for. It is zero where there is none to ask for.
	query HistoryQuery
	// attempt is what the applier failed to apply since, nil if nothing is.
	attempt *attempt
}

// historyAnswer is what the Differ answered.
type historyAnswer struct {
	history History
	err     error
}

// ofApplier notes what an applier applies.
func (c *changes) ofApplier(o Object) {
	find := func(w Workload) (Object, string) {
		if found, ok := c.survey.objects[w]; ok {
			return found, ""
		}
		return Object{}, w.String() + " is not known: it does not exist, or could not be read"
	}
	managers := c.views.managedBy(o)
	for i, use := range o.Sources {
		source := used(use, find)
		source.asDeployed(o, i)
		if source.applied == "" && use.failed() == "" && !c.window.isSet() {
			continue
		}
		a := applied{runs: runs(o, i)}
		run := appliedRun(a.runs, source.applied)
		a.change = Change{
			Engine: o.Engine, Workload: o.Workload, TargetNamespace: o.TargetNamespace, TargetCluster: o.TargetCluster,
			Source: source.source, Path: source.path, ToRev: source.applied, ToCommit: source.commit,
			FromRev: run.from, FromCommit: commitOf(source.source, run.from),
			Current: source.applied != "", DeployedAt: run.since, DeployedAfter: run.after, ManagedBy: managers, Ready: o.Ready, Notes: source.notes,
		}
		a.note(o)
		a.query = c.query(source)
		if use.failed() != "" {
			a.attempt = c.attempt(use, find, o.InPart)
		}
		c.current = append(c.current, a)
	}
}

// query is the history of a source up to a revision of it, in the window. It is zero where there is none to ask for.
func (c *changes) query(u usedSource) HistoryQuery {
	if !c.window.isSet() || u.commit == "" || u.source.Lends {
		return HistoryQuery{}
	}
	return HistoryQuery{
		Repository: u.source.URL, Path: u.path, Revision: u.commit, Branch: u.source.Branch,
		Since: c.window.Since, Until: c.window.Until, Limit: c.window.limit() + 1,
	}
}

// note says what no change of the source shows.
func (a *applied) note(o Object) {
	notes := a.change.Notes
	if o.Err != nil {
		notes = append(notes, "the applier could not be read in full: "+o.Err.Error())
	}
	if a.change.Source.Lends {
		notes = append(notes, "nothing of it is applied by itself: the other sources draw files from it, and it may have many others")
	}
	a.change.Notes = notes
}

// elsewhereBefore is a note of what replaced the content of another source.
const elsewhereBefore = "another source or path was applied before"

// noted returns notes with more of them. It leaves the array of the notes alone, which changes share.
func noted(notes []string, more ...string) []string { return append(slices.Clip(notes), more...) }

// now is the change without a window: what is applied, and what was attempted since.
func (a applied) now() Change {
	change := a.change
	if a.attempt != nil {
		change = a.attempt.beside(change)
	}
	if appliedRun(a.runs, change.ToRev).moved {
		change.Notes = noted(change.Notes, elsewhereBefore)
	}
	return change
}

// commitOf returns the commit of a revision of a source, or "" if it is no Git repository.
func commitOf(source Source, revision string) string {
	if source.Type != SourceGit {
		return ""
	}
	return gitref.CommitOf(revision)
}

// managedBy returns the managers that an object's marks name for certain, without a look at them.
func (v *Views) managedBy(o Object) []Workload {
	var managers []Workload
	for _, mark := range v.managers(o) {
		if mark.Copied == "" && !mark.Shared && mark.To.Name != "" && !slices.Contains(managers, mark.To) {
			managers = append(managers, mark.To)
		}
	}
	return managers
}

// readHistories asks the Differ for each history once.
func (c *changes) readHistories(ctx context.Context) {
	c.histories = map[HistoryQuery]*historyAnswer{}
	var reads []func()
	ask := func(query HistoryQuery) {
		if query == (HistoryQuery{}) || c.histories[query] != nil {
			return
		}
		answer := &historyAnswer{}
		c.histories[query] = answer
		reads = append(reads, func() { answer.history, answer.err = c.views.differ.History(ctx, query) })
	}
	for _, a := range c.current {
		ask(a.query)
		if a.attempt != nil {
			ask(a.attempt.query)
		}
	}
	inParallel(reads)
}

// commits are those that the history of a query has, and whether it is known. One that there is none to ask for is known.
func (c *changes) commits(query HistoryQuery) (commits []Commit, known bool) {
	answer := c.histories[query]
	if answer == nil {
		return nil, true
	}
	return answer.history.Commits, answer.err == nil
}

// inWindow are the changes of a source in the window.
func (c *changes) inWindow(a applied) []Change {
	commits, known := c.commits(a.query)
	if !known {
		commits = nil
	}
	landed := a.landed(c.window, commits)
	if a.attempt == nil {
		return landed
	}
	tried, triedKnown := c.commits(a.attempt.query)
	if !known || !triedKnown {
		tried = nil
	}
	return append(landed, a.tried(c.window, commits, tried)...)
}

// list returns the answer.
func (c *changes) list() ChangeList {
	list := ChangeList{Changes: []Change{}, Reads: c.survey.reads}
	for _, a := range c.current {
		if !c.window.isSet() {
			list.Changes = append(list.Changes, a.now())
			continue
		}
		answer := c.histories[a.query]
		list.Cut = list.Cut || answer != nil && answer.err == nil && answer.history.Cut
		list.Changes = append(list.Changes, c.inWindow(a)...)
	}
	for query, answer := range c.histories {
		list.Reads = append(list.Reads, readOfRepository(query, answer))
	}
	slices.SortFunc(list.Reads, compareReads)
	slices.SortStableFunc(list.Changes, func(a, b Change) int { return b.when().Compare(a.when()) })
	if limit := c.window.limit(); limit > 0 && len(list.Changes) > limit {
		list.Changes, list.Cut = list.Changes[:limit], true
	}
	return list
}

// when is the time that a change is sorted by.
func (c Change) when() time.Time {
	if c.Commit != nil {
		return c.Commit.When
	}
	switch {
	case c.isAttempt():
		return c.Ready.Since
	case c.DeployedAt.IsZero():
		return c.DeployedAfter
	default:
		return c.DeployedAt
	}
}

func compareReads(a, b Read) int {
	return cmp.Or(cmp.Compare(a.Repository, b.Repository), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Engine, b.Engine),
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Message, b.Message))
}
