package laws

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier"
)

// Violation is a law that was not kept.
type Violation struct {
	// Law is its number.
	Law int
	// Text says what happened.
	Text string
	// Operation is whose operation it happened to, if that is known.
	Operation *Operation
}

func (v Violation) String() string {
	return fmt.Sprintf("law %d: %s", v.Law, v.Text)
}

// Decision is one answer of a worker to whether its decision still holds.
type Decision struct {
	At time.Time
	// Agent is the host's.
	Agent string
	// Trigger is the one that it decides for, as the log names it.
	Trigger Object
	Commit  string
	Holds   bool
}

// Manager is the field manager of the hosts.
const Manager = "lib"

// Check judges every operation that hosts recorded or started, and every write of theirs. Stops are when the API server was
// stopped or killed: what it was just doing then may be made and not in the log.
func (l *Log) Check(decisions []Decision, stops []time.Time) []Violation {
	c := &check{log: l, stops: stops, byObject: make(map[Object][]*Event), unanswered: make(map[Object][]*Event)}
	for _, e := range l.Events {
		switch {
		case e.Made():
			c.byObject[e.Object] = append(c.byObject[e.Object], e)
		case e.Unanswered():
			c.unanswered[e.Object] = append(c.unanswered[e.Object], e)
		}
	}
	for _, events := range c.byObject {
		slices.SortStableFunc(events, byVersion)
	}
	c.decisions = make(map[Object][]Decision)
	for _, d := range decisions {
		c.decisions[d.Trigger] = append(c.decisions[d.Trigger], d)
	}
	c.of = make(map[*Event]*Operation)
	for _, o := range l.Operations() {
		for _, start := range o.Starts {
			c.of[start] = o
		}
		c.asked(o)
		c.recordedFirst(o)
		c.settled(o)
		c.endedOnce(o)
		c.appliedWhatItSays(o)
		c.ranIfItShows(o)
	}
	for _, object := range slices.SortedFunc(maps.Keys(c.byObject), func(a, b Object) int { return strings.Compare(a.String(), b.String()) }) {
		c.suspendedAgain(object)
	}
	for _, e := range l.Events {
		if e.Host && e.Writes() {
			c.guarded(e)
		}
	}
	return c.violations
}

type check struct {
	log   *Log
	stops []time.Time
	// of are the operations of the writes that may start them.
	of map[*Event]*Operation
	// byObject are the writes to each object that were made, by anybody, in order.
	byObject map[Object][]*Event
	// unanswered are those that may have been.
	unanswered map[Object][]*Event
	decisions  map[Object][]Decision
	violations []Violation
}

func (c *check) fail(law int, o *Operation, format string, args ...any) {
	c.violations = append(c.violations, Violation{Law: law, Operation: o, Text: fmt.Sprintf(format, args...)})
}

// asked is law 1: the worker said last that the decision holds, it was for this commit, and the source had it.
func (c *check) asked(o *Operation) {
	commit := o.asked()
	if commit == "" {
		return // which is another law's
	}
	for _, start := range o.Starts {
		var last *Decision
		for i, d := range c.decisions[o.Trigger] {
			if d.Agent == start.Agent && d.At.Before(start.At) && (last == nil || d.At.After(last.At)) {
				last = &c.decisions[o.Trigger][i]
			}
		}
		switch {
		case last == nil || !last.Holds:
			c.fail(1, o, "%s was asked although the decision did not hold any more: %s", o.Applier, start)
		case last.Commit != commit:
			c.fail(1, o, "%s was asked for %s, and not for %s", o.Applier, commit, last.Commit)
		}
		if start.Object.Resource == applications {
			if start.Sent.OperationCommit != commit {
				c.fail(1, o, "%s was asked to sync %q, and not %s", o.Applier, start.Sent.OperationCommit, commit)
			}
		} else if start.Made() && !c.fetched(commit, start) {
			c.fail(1, o, "%s was asked before a source held %s: %s", o.Applier, commit, start)
		}
	}
}

// fetched reports whether a GitRepository held the commit before a start, as far as can be known.
func (c *check) fetched(commit string, start *Event) bool {
	for object, events := range c.byObject {
		if object.Resource == gitRepositories && slices.ContainsFunc(events, func(e *Event) bool {
			return e.Left.Fetched == commit && before(e.Left.Version, start.Left.Version)
		}) {
			return true
		}
	}
	for object := range c.unanswered {
		if object.Resource == gitRepositories && c.blind(object, start.At.Add(-time.Minute), start.At) {
			return true
		}
	}
	return false
}

// blind reports whether a write to an object between two times may have been made without that the log shows what it left:
// it was not answered, or the API server was stopped.
func (c *check) blind(object Object, from, to time.Time) bool {
	between := func(at time.Time) bool { return at.After(from) && at.Before(to) }
	return slices.ContainsFunc(c.stops, between) ||
		slices.ContainsFunc(c.unanswered[object], func(e *Event) bool { return between(e.At) })
}

// recordedFirst is law 2.
func (c *check) recordedFirst(o *Operation) {
	for _, start := range o.Starts {
		recorded := slices.ContainsFunc(o.Records, func(r *Event) bool {
			record := r.Left.Record
			return r.Agent == start.Agent && r.At.Before(start.At) &&
				(start.Left == nil || before(r.Left.Version, start.Left.Version)) &&
				!record.Completed() && objectOf(record.Applier) == start.Object && string(record.Started.UID) == start.Sent.UID
		})
		if !recorded {
			c.fail(2, o, "%s was asked before that was recorded: %s", o.Applier, start)
		}
	}
}

// settled is law 3 for one operation: it ends once a suspend that came after its resume is handled.
func (c *check) settled(o *Operation) {
	end, record := o.ended()
	start := o.Started()
	if end == nil || start == nil || record.Started.Outcome != applier.OutcomeResumed {
		return
	}
	suspends := make(map[string]bool)
	for _, e := range c.log.Events {
		if e.Object == o.Applier && e.Host && e.Sent != nil && e.Sent.Suspend != nil && *e.Sent.Suspend && e.At.After(start.At) {
			suspends[e.Sent.Requested] = true
		}
	}
	handled := slices.ContainsFunc(c.byObject[o.Applier], func(e *Event) bool {
		return suspends[e.Left.Handled] && before(e.Left.Version, end.Left.Version)
	})
	if !handled && !c.blind(o.Applier, start.At, end.At) {
		c.fail(3, o, "%s was reported as ended before a suspend was handled: %s", o.Applier, end)
	}
}

// suspendedAgain is law 3 for one Kustomization: after each resume of a host's it is suspended.
func (c *check) suspendedAgain(object Object) {
	if object.Resource != kustomizations {
		return
	}
	var resumed *Event
	for _, e := range c.byObject[object] {
		resumes := e.Host && e.Sent != nil && e.Sent.Suspend != nil && !*e.Sent.Suspend
		switch {
		case e.Left.Suspend != nil && *e.Left.Suspend:
			resumed = nil
		case resumes && resumed != nil:
			if !c.blind(object, resumed.At, e.At) {
				c.fail(3, c.of[resumed], "%s was resumed twice with no suspend between: %s and %s", object, resumed, e)
			}
			resumed = e
		case resumes:
			resumed = e
		}
	}
	if resumed != nil {
		c.fail(3, c.of[resumed], "%s was left resumed: %s", object, resumed)
	}
}

// Everything that a host may state of Flux's objects.
var (
	stated = []string{
		"apiVersion", "kind", "metadata/name", "metadata/namespace", "metadata/uid", "metadata/resourceVersion",
		"metadata/annotations/reconcile.fluxcd.io/requestedAt",
	}
	statedOfKustomizations = append(slices.Clone(stated), "spec/suspend")
)

// guarded is law 4.
func (c *check) guarded(e *Event) {
	if e.Sent == nil && e.Code == http.StatusTooManyRequests {
		return // The API server turned it away unread.
	}
	var may []string
	switch e.Object.Resource {
	case kustomizations:
		may = statedOfKustomizations
	case gitRepositories:
		may = stated
	case applications:
		c.guardedUpdate(e)
		return
	default:
		return // an object of the host's own
	}
	o := c.of[e]
	switch {
	case e.Verb != "patch" || e.Sent == nil || e.Subresource != "":
		c.fail(4, o, "a host made a write that it may not make: %s", e)
		return
	case e.Manager != Manager:
		c.fail(4, o, "a host wrote under the field manager %q: %s", e.Manager, e)
	case e.Sent.UID == "":
		c.fail(4, o, "a write has no UID: %s", e)
	case e.starts() != "" && e.Sent.Version == "":
		c.fail(4, o, "a write that starts an operation has no resourceVersion: %s", e)
	}
	for _, field := range e.Sent.Fields {
		if !slices.Contains(may, field) {
			c.fail(4, o, "a host wrote %s: %s", field, e)
		}
	}
}

// guardedUpdate is law 4 for an Application: an update changes nothing but the operation and its record, of what
// stands.
func (c *check) guardedUpdate(e *Event) {
	o := c.of[e]
	switch {
	case e.Verb != "update" || e.Sent == nil:
		c.fail(4, o, "a host made a write that it may not make: %s", e)
		return
	case e.Sent.UID == "" || e.Sent.Version == "":
		c.fail(4, o, "an update has no UID or no resourceVersion: %s", e)
		return
	case !e.Made():
		return
	}
	events := c.byObject[e.Object]
	i := slices.IndexFunc(events, func(earlier *Event) bool { return earlier.Left.Version == e.Sent.Version })
	switch {
	case i < 0:
		if !c.blind(e.Object, e.At.Add(-time.Minute), e.At) {
			c.fail(4, o, "an update was made of something that never stood: %s", e)
		}
	case (i+1 == len(events) || events[i+1] != e) && !c.blind(e.Object, events[i].At, e.At):
		c.fail(4, o, "an update was made of something else than what stood before it: %s", e)
	case events[i].Left.Operation != "" && events[i].Left.Operation != e.Sent.Operation:
		c.fail(4, o, "an update replaced the operation %s: %s", events[i].Left.Operation, e)
	case events[i].Left.Rest != e.Sent.Rest:
		c.fail(4, o, "an update changed more than the operation: %s\n%s\n%s", e, events[i].Left.Rest, e.Sent.Rest)
	}
}

// endedOnce is law 5: what was started has one end, which is recorded once and does not change.
func (c *check) endedOnce(o *Operation) {
	end, record := o.ended()
	if end == nil {
		c.perhapsEnded(o)
		return
	}
	for _, e := range o.Records {
		if before(end.Left.Version, e.Left.Version) && textOf(e.Left.Record) != textOf(record) {
			c.fail(5, o, "the end of an operation was recorded twice: %s and %s", end, e)
		}
	}
}

// perhapsEnded is law 5 for an operation of which no end is to be seen: it was not started, or its end was written over
// before it could be seen.
func (c *check) perhapsEnded(o *Operation) {
	start := o.Started()
	if len(o.Records) == 0 {
		if start != nil && start.Made() {
			c.fail(5, o, "%s was asked, and no end of that is recorded: %s", o.Applier, start)
		}
		return
	}
	last := o.Records[len(o.Records)-1]
	events := c.byObject[o.Trigger]
	next := slices.Index(events, last) + 1
	switch {
	case next == len(events):
		c.fail(5, o, "%s still records an open operation: %s", o.Trigger, last)
	case start != nil && start.Made() && !c.blind(o.Trigger, last.At, events[next].At):
		c.fail(5, o, "%s was asked, and no end of that is recorded: %s", o.Applier, start)
	}
}

func textOf(operation *applier.Operation) string {
	text, _ := json.Marshal(operation)
	return string(text)
}

// appliedWhatItSays is law 7: while it ran, the applier's own status showed what the record names.
func (c *check) appliedWhatItSays(o *Operation) {
	end, record := o.ended()
	if end == nil || record.Progress.State != applier.StateSucceeded {
		return
	}
	progress, asked := record.Progress, record.Started.Commit
	if (progress.AppliedCommit == asked) != (progress.Reason != applier.ReasonAppliedOther) {
		c.fail(7, o, "%s was asked for %s, and its end does not say that it applied another: %s", o.Applier, asked, end)
	}
	// A start is made of what it carries the version of, and leaves a newer one. Of one that the log has lost it is known
	// that it came after its record.
	first, version := o.Records[0], o.Records[0].Left.Version
	start := o.Started()
	switch {
	case start != nil:
		version = start.Sent.Version
	case !c.blind(o.Applier, first.At, end.At):
		c.fail(7, o, "%s succeeded and was not asked: %s", o.Applier, end)
		return
	}
	applied := slices.ContainsFunc(c.byObject[o.Applier], func(e *Event) bool {
		if !before(version, e.Left.Version) || !before(e.Left.Version, end.Left.Version) {
			return false
		}
		if o.Applier.Resource == applications {
			return e.Left.Phase == "Succeeded" && e.Left.SyncedToken == o.Token && e.Left.Synced == progress.AppliedCommit
		}
		return e.Left.Applied == progress.AppliedCommit && e != start
	})
	if !applied && !c.blind(o.Applier, first.At, end.At) {
		c.fail(7, o, "%s does not show that it applied %s for the request: %s", o.Applier, progress.AppliedCommit, end)
	}
}

// ranIfItShows is law 6: nothing is said to have not run that the applier shows to have.
func (c *check) ranIfItShows(o *Operation) {
	end, record := o.ended()
	if end == nil || record.Progress.Reason != applier.ReasonNotRun {
		return
	}
	for _, e := range c.byObject[o.Applier] {
		if e.Left.Handled == o.Token || e.Left.SyncedToken == o.Token {
			c.fail(6, o, "%s is said to have not run for the request, and shows that it did: %s", o.Applier, e)
			return
		}
	}
}

// Quiet is law 8: it returns what hosts requested in a time in which nothing happened, the renewal of watches aside.
func (l *Log) Quiet(from, to time.Time) []Violation {
	var violations []Violation
	for _, e := range l.Events {
		if e.Host && e.Verb != "watch" && e.At.After(from) && e.At.Before(to) {
			violations = append(violations, Violation{Law: 8, Text: fmt.Sprintf("a request while nothing changes: %s", e)})
		}
	}
	return violations
}
