package simulation

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gitops-applier/gitops-applier/applier"
)

// check checks the laws over all that was sent, written and reported. Everything is at rest.
func (w *world) check() {
	w.checkStarts()
	w.checkWrites()
	w.checkRecords()
	w.checkAttempts()
	w.checkHolds()
	w.checkApplied()
}

// isQuiet checks that nothing is asked of the API server while nothing changes.
func (w *world) isQuiet(p *process, quiet time.Duration) {
	p.idle.Store(true)
	w.quiet = time.Now()
	pause(w.ctx(), time.Minute)
	before := len(p.view.Requests())
	pause(w.ctx(), quiet)
	requests := p.view.Requests()[before:]
	watches := 0
	for _, r := range requests {
		if r.Verb == "watch" {
			watches++
			continue
		}
		w.history.breaks(quietWhenIdle, "%s sends %v while nothing changes", p.name, r)
		return
	}
	if watches > 3 {
		w.history.breaks(quietWhenIdle, "%s opens %d watches in %v while nothing changes", p.name, watches, quiet)
	}
}

// landed returns the applier of a record, its versions, and which of them its starting write made; -1 for none.
func (w *world) landed(token string, rec *record) (s *subject, all []version, at int) {
	s = w.subjectOf(rec.first.Applier)
	all = w.versions.all(s.resource(), s.name)
	at = slices.IndexFunc(all, func(v version) bool {
		if s.mode == synced {
			return v.operationToken("operation") == token
		}
		return v.requested() == token
	})
	return s, all, at
}

// checkStarts checks what every starting write was made over: what it was guarded by.
func (w *world) checkStarts() {
	for token, rec := range w.records {
		s, all, at := w.landed(token, rec)
		if at < 0 {
			continue
		}
		if at == 0 || all[at-1].deleted {
			w.history.breaks(nobodysWorkIsOverwritten, "%s created %s", token, s.name)
			continue
		}
		if len(w.starts[token]) == 0 {
			w.history.breaks(recordedFirst, "%s landed on %s and was never sent", token, s.name)
		}
		w.checkDecided(token, rec, s)
		before, after := all[at-1], all[at]
		if before.object.GetUID() != rec.first.Started.UID {
			w.history.breaks(onlyWhatWasAsked, "%s landed on another incarnation of %s", token, s.name)
		}
		if s.mode == synced {
			w.checkSyncOver(token, s, before, after)
		} else {
			w.checkResumeOver(token, rec, s, before)
		}
		if s.mode != synced {
			gone := slices.IndexFunc(all[at:], func(v version) bool { return v.requested() != token })
			if gone > 0 && slices.ContainsFunc(all[at+gone:], func(v version) bool { return !v.deleted && v.requested() == token }) {
				w.history.breaks(oneEnd, "%s landed on %s twice", token, s.name)
			}
		}
	}
}

// checkDecided checks that the source held the commit when the start was decided, and some target stood then.
func (w *world) checkDecided(token string, rec *record, s *subject) {
	for _, sent := range w.starts[token] {
		if s.mode != synced {
			source := sourceOf(w, s, sent.at)
			holds := func(v version) bool {
				return !v.deleted && strings.Contains(v.text("status", "artifact", "revision"), rec.first.Started.Commit)
			}
			if !w.versions.stood(gitRepositories, source, sent.at.Add(-attemptTimeout), sent.at, holds) {
				w.history.breaks(onlyWhatWasAsked, "%s was sent to %s, whose artifact did not hold the commit", token, s.name)
			}
		}
	}
	if !slices.ContainsFunc(rec.first.Targets, func(ref applier.TargetRef) bool { return w.targetStood(ref, rec) }) {
		w.history.breaks(onlyWhatWasAsked, "%s was recorded for the sake of targets none of which stood: %v", token, rec.first.Targets)
	}
}

// sourceOf is the GitRepository that a Kustomization applied from.
func sourceOf(w *world, s *subject, when time.Time) string {
	name := s.source
	for _, v := range w.versions.all(kustomizations, s.name) {
		if v.at.After(when) {
			break
		}
		name = v.text("spec", "sourceRef", "name")
	}
	return name
}

// targetStood reports whether a target stood at some moment shortly before the record was made.
func (w *world) targetStood(ref applier.TargetRef, rec *record) bool {
	all := w.targets[ref]
	for i, v := range all {
		until := rec.at
		if i+1 < len(all) {
			until = all[i+1].at
		}
		if v.gone || v.at.After(rec.at) || until.Before(rec.at.Add(-8*slowest)) {
			continue
		}
		t := v.target
		if t.Trigger.Name == rec.trigger.Name && t.Writes.Same(rec.first.Want, nil) && t.Admission.State == applier.Admitted &&
			(rec.first.Reason != applier.Refusal || t.RefusalConsent) {
			return true
		}
	}
	return false
}

// checkResumeOver checks what a Kustomization was when it was resumed or stamped.
func (w *world) checkResumeOver(token string, rec *record, s *subject, before version) {
	breaks := func(l law, what string) { w.history.breaks(l, "%s landed on %s, which %s", token, s.name, what) }
	isLive := rec.first.Started.Outcome == applier.OutcomeStamped
	switch {
	case before.object.GetDeletionTimestamp() != nil:
		breaks(onlyWhatWasAsked, "was being deleted")
	case before.text("spec", "sourceRef", "name") != w.sourceFor(rec.first.Want):
		breaks(onlyWhatWasAsked, "applied from another source than was asked for")
	case before.suspendAppliedElsewhere() && !isLive:
		breaks(nobodysWorkIsOverwritten, "another manager suspends and resumes")
	case isLive && before.suspended():
		breaks(nobodysWorkIsOverwritten, "was suspended")
	case !isLive && (!before.suspended() || !slices.Contains(before.suspendApplied(), hostName)):
		breaks(nobodysWorkIsOverwritten, "was not held")
	case before.requested() != before.handled() && before.requested() != "":
		breaks(nobodysWorkIsOverwritten, "had an operation in progress")
	}
}

// sourceFor is the GitRepository of a binding.
func (w *world) sourceFor(want applier.Binding) string {
	for _, r := range w.repos {
		if want.Same(applier.Binding{Repository: r.URL(), Branch: "main"}, nil) {
			return r.source
		}
	}
	return ""
}

// checkSyncOver checks what an Application was when its operation was set.
func (w *world) checkSyncOver(token string, s *subject, before, after version) {
	if before.object.Object["operation"] != nil {
		w.history.breaks(nobodysWorkIsOverwritten, "%s took the place of another operation of %s", token, s.name)
	}
	if phase := before.text("status", "operationState", "phase"); phase == "Running" || phase == "Terminating" {
		if since := w.orphanedSince(s, before); since.IsZero() || after.at.Sub(since) < operationWait {
			w.history.breaks(nobodysWorkIsOverwritten, "%s was set on %s while an operation was %s", token, s.name, phase)
		}
	}
	if what := differ(before, after, func(o map[string]any) {
		delete(o, "operation")
		unstructured.RemoveNestedField(o, "status", "operationState")
	}); what != "" {
		w.history.breaks(nobodysWorkIsOverwritten, "%s changed more of %s than its operation: %s", token, s.name, what)
	}
}

// orphanedSince is since when an Application has no operation, and a record that does not change; zero if it has one.
func (w *world) orphanedSince(s *subject, last version) (since time.Time) {
	all := w.versions.all(applications, s.name)
	state := nested(nested(last.object.Object, "status"), "operationState")
	for i := slices.IndexFunc(all, func(v version) bool { return v.rv == last.rv }); i >= 0; i-- {
		v := all[i]
		if v.object.Object["operation"] != nil || !reflect.DeepEqual(state, nested(nested(v.object.Object, "status"), "operationState")) {
			break
		}
		since = v.at
	}
	return since
}

// differ names what differs of two versions, but for what is left out and what the API server counts.
func differ(a, b version, leaveOut func(map[string]any)) string {
	x, y := a.object.DeepCopy().Object, b.object.DeepCopy().Object
	for _, o := range []map[string]any{x, y} {
		leaveOut(o)
		for _, field := range []string{"resourceVersion", "generation", "managedFields"} {
			unstructured.RemoveNestedField(o, "metadata", field)
		}
		for _, field := range []string{"status", "metadata"} {
			for key, value := range nested(o, field) {
				if m, ok := value.(map[string]any); ok && len(m) == 0 {
					delete(nested(o, field), key)
				}
			}
			if len(nested(o, field)) == 0 {
				delete(o, field)
			}
		}
	}
	for key := range x {
		if !reflect.DeepEqual(x[key], y[key]) {
			return key
		}
	}
	for key := range y {
		if x[key] == nil {
			return key
		}
	}
	return ""
}

func nested(o map[string]any, field string) map[string]any {
	m, _ := o[field].(map[string]any)
	return m
}

// checkWrites checks that the host's writes of Kustomizations change nothing but spec.suspend and the token, and nothing that another
// manager applies.
func (w *world) checkWrites() {
	for _, s := range w.subjects {
		if s.mode == synced {
			continue
		}
		all := w.versions.all(kustomizations, s.name)
		for i := 1; i < len(all); i++ {
			before, after := all[i-1], all[i]
			token := after.requested()
			if before.deleted || after.deleted || token == before.requested() || !strings.HasPrefix(token, "P") {
				continue
			}
			suspendChanged := after.suspended() != before.suspended()
			if before.suspendAppliedElsewhere() && suspendChanged {
				w.history.breaks(nobodysWorkIsOverwritten, "%s changed spec.suspend of %s, which another manager applies", token, s.name)
			}
			if what := differ(before, after, func(o map[string]any) {
				unstructured.RemoveNestedField(o, "spec", "suspend")
				unstructured.RemoveNestedField(o, "metadata", "annotations", fluxmeta.ReconcileRequestAnnotation)
			}); what != "" {
				w.history.breaks(nobodysWorkIsOverwritten, "%s changed more of %s than its suspend and token: %s", token, s.name, what)
			}
		}
	}
}

// checkRecords checks what the triggers' statuses went through.
func (w *world) checkRecords() {
	refs := make(map[applier.TriggerRef]bool)
	for _, rec := range w.records {
		refs[rec.trigger] = true
	}
	completions := make(map[string]int)
	for ref := range refs {
		var last *applier.Operation
		before := make(map[string]*applier.Operation) // what each record was made over
		for _, status := range w.store.History(applier.TriggerRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}) {
			next := status.Operation
			if last != nil && next != nil && last.Started.Token == next.Started.Token {
				if !last.Completed() && next.Completed() {
					completions[next.Started.Token]++
				}
				if last.Completed() && !reflect.DeepEqual(last, next) {
					w.history.breaks(oneEnd, "the completed record %s of %s was changed: %+v, then %+v", last.Started.Token, ref, last.Progress, next.Progress)
				}
			} else if !(last == nil && next == nil) {
				w.checkReplaced(ref, last, next, before)
			}
			last = next
		}
		if last != nil && !last.Completed() && w.exists(ref) {
			w.history.breaks(oneEnd, "the record %s of %s is open in the end", last.Started.Token, ref)
		}
	}
	for token, n := range completions {
		if n > 1 {
			w.history.breaks(oneEnd, "the record %s was completed %d times", token, n)
		}
	}
}

func (w *world) exists(ref applier.TriggerRef) bool {
	_, err := w.store.Process().Trigger(context.Background(), ref)
	return err == nil
}

// checkReplaced checks that one operation on a status may take another's place: recorded over a completed one, or withdrawn.
func (w *world) checkReplaced(ref applier.TriggerRef, last, next *applier.Operation, before map[string]*applier.Operation) {
	switch {
	case next != nil && before[next.Started.Token] != nil && (last == nil || reflect.DeepEqual(last, before[next.Started.Token])):
		// It was withdrawn, and is followed by who read it before.
	case next != nil && !next.Completed() && (last == nil || last.Completed()) && before[next.Started.Token] == nil:
		if last == nil {
			last = &applier.Operation{}
		}
		before[next.Started.Token] = last
	case last != nil && !last.Completed():
		was := before[last.Started.Token]
		same := next == nil && was != nil && was.Started.Token == "" || next != nil && was != nil && reflect.DeepEqual(was, next)
		if !same {
			w.history.breaks(oneEnd, "the open record %s of %s was written over by %+v", last.Started.Token, ref, next)
		}
		if rec := w.records[last.Started.Token]; rec != nil {
			if _, _, at := w.landed(last.Started.Token, rec); at >= 0 {
				w.history.breaks(neverMoreThanIsKnown, "the record %s of %s was withdrawn, and its start landed", last.Started.Token, ref)
			}
		}
	default:
		w.history.breaks(oneEnd, "the record of %s went from %+v to %+v", ref, last, next)
	}
}

// checkAttempts checks that each attempt has one end, and that each end is true.
func (w *world) checkAttempts() {
	for _, a := range w.attempts {
		end, at := a.end()
		switch {
		case end == nil:
			if !a.process.dead.Load() && a.abandoned.IsZero() && a.process == w.processes[len(w.processes)-1] && a.at.Before(w.quiet) {
				w.history.breaks(oneEnd, "attempt %d has no end", a.number)
			}
		case end.End == applier.EndNotFollowed:
			w.history.breaks(oneEnd, "attempt %d is not followed: %v", a.number, end.Err)
		case end.End != applier.EndCompleted:
			for _, token := range a.tokens {
				rec := w.records[token]
				if rec == nil {
					continue
				}
				if _, _, landed := w.landed(token, rec); landed >= 0 {
					w.history.breaks(neverMoreThanIsKnown, "attempt %d ended %s (%v), and its start %s landed", a.number, end.End, end.Err, token)
				}
			}
		default:
			w.checkEnd(end.Operation, at)
		}
	}
	for _, rec := range w.records {
		if rec.completed != nil {
			w.checkEnd(rec.completed, rec.completedAt)
		}
	}
}

// checkEnd checks that an end of an operation is true.
func (w *world) checkEnd(o *applier.Operation, at time.Time) {
	token, p := o.Started.Token, o.Progress
	rec := w.records[token]
	if rec == nil {
		w.history.breaks(recordedFirst, "%s ended and was never recorded", token)
		return
	}
	s, all, landed := w.landed(token, rec)
	breaks := func(l law, what string) {
		w.history.breaks(l, "%s of %s ended %s %s %s (%s), and %s", token, s.name, p.State, p.Reason, p.AppliedRevision, p.Message, what)
	}
	if p.Reason == "" {
		breaks(theAppliersOwnWord, "gives no reason")
	}
	from := rec.at
	if landed >= 0 {
		from = all[landed].at
	}
	stood := func(is func(version) bool) bool { return w.versions.stood(s.resource(), s.name, from, at, is) }
	switch {
	case p.State == applier.StateSucceeded:
		value := w.valueOf(p.AppliedCommit)
		applied := w.versions.stood(configMaps, s.name, from, at, func(v version) bool { return !v.deleted && v.text("data", "key") == value })
		switch {
		case value == "" || !applied:
			breaks(theAppliersOwnWord, "the cluster did not hold that")
		case !stood(func(v version) bool { return ran(token, before(all, landed, rec.at), v) }):
			breaks(theAppliersOwnWord, "nothing ran for it")
		case p.AppliedCommit != o.Started.Commit && p.Reason != applier.ReasonAppliedOther:
			breaks(theAppliersOwnWord, "was asked for another commit")
		}
	case p.Reason == applier.ReasonNotRun:
		if landed > 0 && stood(func(v version) bool { return tookUp(token, all[landed-1], v) }) {
			breaks(theAppliersOwnWord, "it did run")
		}
	case p.Reason == applier.ReasonGone, p.Reason == applier.ReasonDeleting, p.Reason == applier.ReasonReplaced:
		if !stood(func(v version) bool {
			return v.deleted || v.object.GetDeletionTimestamp() != nil || v.object.GetUID() != o.Started.UID
		}) {
			breaks(neverMoreThanIsKnown, "it was there")
		}
		return
	}
	if rec.first.Started.Outcome != applier.OutcomeResumed {
		return
	}
	settled := slices.ContainsFunc(all[max(landed, 0):], func(v version) bool {
		return !v.at.After(at) && (landed >= 0 || !v.at.Before(from)) && (v.settled() || v.suspendAppliedElsewhere() || v.suspended() && v.requested() == "")
	})
	if !settled && p.Reason != applier.ReasonSuperseded {
		breaks(neverLeftResumed, "no suspend of it was handled")
	}
}

// tookUp reports whether an applier shows that it ran for the token. A suspended Kustomization handles a token and does not run.
func tookUp(token string, before, v version) bool {
	if v.object.GetKind() == "Application" {
		return v.operationToken("status", "operationState", "operation") == token
	}
	return v.handled() == token && ran(token, before, v)
}

// before is what stood before a start landed, or, where it never did, when it was recorded: somebody else may have made the applier run
// since, and nobody can tell whose run it was.
func before(all []version, landed int, recorded time.Time) (last version) {
	if landed > 0 {
		return all[landed-1]
	}
	for _, v := range all {
		if !v.at.After(recorded) {
			last = v
		}
	}
	return last
}

// ran reports whether an applier, as it stands, has run since it stood as before: for the token, where it says so.
func ran(token string, before, v version) bool {
	if v.object.GetKind() == "Application" {
		return v.operationToken("status", "operationState", "operation") == token && v.text("status", "operationState", "phase") == "Succeeded"
	}
	return !reflect.DeepEqual(nested(before.object.Object, "status")["history"], nested(v.object.Object, "status")["history"])
}

// checkHolds checks that nothing is left resumed.
func (w *world) checkHolds() {
	for _, s := range w.subjects {
		if s.mode != held {
			continue
		}
		all := w.versions.all(kustomizations, s.name)
		last := all[len(all)-1]
		// A suspended one whose token somebody removed is not resumed either.
		removed := last.suspended() && last.requested() == ""
		if !last.deleted && slices.Contains(last.suspendApplied(), hostName) && !last.settled() && !removed {
			w.history.breaks(neverLeftResumed, "%s is left suspended=%t, asked %s, handled %s", s.name, last.suspended(), last.requested(), last.handled())
		}
	}
}

// checkApplied checks that what was decided last is applied, wherever a trigger can have it applied.
func (w *world) checkApplied() {
	for _, name := range w.triggerNames() {
		t, err := w.store.Process().Trigger(context.Background(), applier.TriggerRef{Namespace: team, Name: name})
		s := w.subjectOf(t.Applier)
		if err != nil || w.waits(name) || s.repo.broken[s.repo.Head("main")] == s.name {
			continue
		}
		want := w.valueOf(s.repo.Head("main"))
		all := w.versions.all(configMaps, s.name)
		if len(all) == 0 || all[len(all)-1].deleted || all[len(all)-1].text("data", "key") != want {
			w.history.breaks(noneLost, "%s of trigger %s does not hold %s in the end", s.name, name, want)
		}
	}
}
