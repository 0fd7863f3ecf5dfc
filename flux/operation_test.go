package flux

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/gitops-applier/gitops-applier/applier"
)

// The commits and tokens of the tables: A was applied before, B is asked for, C is somebody else's.
const (
	commitA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	commitB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	commitC = "cccccccccccccccccccccccccccccccccccccccc"

	hold    = "2026-01-02T16:00:00Z-hold" // sorts after the request: a clock that was ahead
	resume  = "2026-01-02T15:00:00Z-request"
	settle  = "2026-01-02T15:00:01Z-settle"
	foreign = "2026-01-02T14:00:00Z-foreign"
)

var judging = Options{FieldManager: "lib", FormerFieldManagers: []string{"old"}}

// change is one thing that happened to a Kustomization.
type change func(*kustomization)

// after is a Kustomization that was held with A applied, and what happened to it since.
func after(changes ...change) kustomization {
	ks := kustomization{
		object: object{
			uid: "uid", resourceVersion: "1", suspended: true, requested: hold, handled: hold,
			ready: condition{status: "True", reason: "ReconciliationSucceeded", message: "Applied revision: main@sha1:" + commitA, observedGeneration: 1},
		},
		sourceKind: "GitRepository", lastApplied: "main@sha1:" + commitA, lastAttempted: "main@sha1:" + commitA, lastRun: "first run",
		owners: owners{applied: []string{"lib"}},
	}
	for _, change := range changes {
		change(&ks)
	}
	return ks
}

func resumed(ks *kustomization) { ks.suspended, ks.requested, ks.resourceVersion = false, resume, "2" }

func suspendedBy(token string) change {
	return func(ks *kustomization) {
		ks.suspended, ks.requested, ks.owners = true, token, owners{applied: []string{"lib"}}
	}
}

func stamped(token string) change {
	return func(ks *kustomization) { ks.requested, ks.resourceVersion = token, "3" }
}

func handled(token string) change { return func(ks *kustomization) { ks.handled = token } }

// running is a run that began.
func running(ks *kustomization) {
	ks.ready = condition{status: "Unknown", reason: "Progressing", message: "Building manifests", observedGeneration: 2}
}

// ran is a run that applied a commit.
func ran(commit string) change {
	return func(ks *kustomization) {
		ks.ready = condition{status: "True", reason: "ReconciliationSucceeded", message: "Applied revision: main@sha1:" + commit, observedGeneration: 2}
		ks.lastApplied, ks.lastAttempted = "main@sha1:"+commit, "main@sha1:"+commit
		ks.lastRun += ", then " + commit
	}
}

// failedAt is a run that failed, with lastAttemptedRevision at a commit.
func failedAt(commit, reason, message string) change {
	return func(ks *kustomization) {
		ks.ready = condition{status: "False", reason: reason, message: message, observedGeneration: 2}
		ks.lastAttempted = "main@sha1:" + commit
	}
}

// appliedBy is another manager that applies spec.suspend, alone or beside others.
func appliedBy(names ...string) change {
	return func(ks *kustomization) { ks.owners = owners{applied: names} }
}

// fluxSuspend and fluxResume are what those commands leave.
func fluxSuspend(ks *kustomization) {
	ks.suspended, ks.owners = true, owners{updated: []string{"flux"}}
}
func fluxResume(ks *kustomization) { ks.suspended, ks.owners = false, owners{} }

// settled is a run that ended, and our suspend after it that is handled too.
func settled(run change) []change {
	return []change{resumed, run, handled(resume), suspendedBy(settle), handled(settle)}
}

// operated is an operation that asked for B of the Kustomization that after() returns.
func operated(mutate ...func(*applier.Started)) operation {
	before := baselineOf(after())
	s := applier.Started{Outcome: applier.OutcomeResumed, Token: resume, Commit: commitB, UID: "uid", Baseline: before.String()}
	known := true
	for _, f := range mutate {
		f(&s)
		known = s.Baseline != ""
	}
	if !known {
		before = baseline{}
	}
	return operation{named: "Kustomization ns/app in cluster prod", options: judging, started: s, before: before, known: known}
}

func recovered(s *applier.Started)      { s.Recovered = true }
func unconfirmed(s *applier.Started)    { s.Unconfirmed = applier.ErrUnconfirmed }
func overdue(s *applier.Started)        { s.Overdue = true }
func suspendedAgain(s *applier.Started) { s.SuspendToken = settle }
func noBaseline(s *applier.Started)     { s.Baseline = "" }

// judged is one row: how an operation stands on a Kustomization.
type judged struct {
	name    string
	started []func(*applier.Started)
	since   []change
	suspend bool // it is to be suspended now, and nothing else counts
	state   applier.State
	reason  string
	applied string
	says    string
}

func (row judged) check(t *testing.T, o operation) {
	t.Run(row.name, func(t *testing.T) {
		t.Parallel()
		p, suspend := o.where(after(row.since...))
		assert.Equal(t, row.suspend, suspend, "suspend now")
		assert.Equal(t, row.state, p.State)
		assert.Equal(t, row.reason, p.Reason)
		assert.Equal(t, row.applied, p.AppliedRevision)
		assert.Contains(t, p.Message, row.says)
		if !suspend {
			assert.NotEmpty(t, p.Message)
			assert.Equal(t, o.started.SuspendToken, p.SuspendToken)
			assert.Equal(t, p.State.Ended(), p.Reason != "", "every end has a reason")
		}
	})
}

func checkHeld(t *testing.T, rows []judged) {
	t.Helper()
	t.Parallel()
	for _, row := range rows {
		row.check(t, operated(row.started...))
	}
}

// Law 3.
func TestEveryResumeIsFollowedByASuspend(t *testing.T) {
	checkHeld(t, []judged{
		{name: "the run waits to begin", since: []change{resumed}, state: applier.StateRequested, says: "is asked to apply commit bbbbbbbbbbbb"},
		{name: "the run goes on", since: []change{resumed, running}, state: applier.StateRunning, says: "Building manifests"},
		{name: "Ready is known before the token is handled", since: []change{resumed, ran(commitB)}, state: applier.StateRunning},
		{name: "the run has ended", since: []change{resumed, ran(commitB), handled(resume)}, suspend: true},
		{name: "the run has failed", since: []change{resumed, failedAt(commitB, "BuildFailed", "bad"), handled(resume)}, suspend: true},
		{name: "the next run is on already", since: []change{resumed, running, handled(resume)}, suspend: true},
		{name: "the token that was stamped over ours is handled", since: []change{resumed, stamped(foreign), ran(commitC), handled(foreign)}, suspend: true},
		{name: "a token in between is handled, and another is asked for", since: []change{resumed, stamped("third"), ran(commitC), handled(foreign)}, suspend: true},
		{name: "another token is asked for", since: []change{resumed, stamped(foreign)}, state: applier.StateRequested},
		{name: "the annotation was removed", since: []change{resumed, stamped("")}, suspend: true},
		{name: "it is overdue", started: with(overdue), since: []change{resumed}, suspend: true},
		{name: "it is overdue, and its run goes on", started: with(overdue), since: []change{resumed, running}, suspend: true},
		{name: "somebody suspended it, and its run goes on", since: []change{resumed, fluxSuspend, running}, state: applier.StateRunning},
		{name: "somebody suspended it, and its run ended", since: []change{resumed, fluxSuspend, ran(commitB), handled(resume)}, suspend: true},
		{name: "somebody resumed it after our suspend", started: with(suspendedAgain), since: []change{resumed, suspendedBy(settle), fluxResume}, suspend: true},
		{name: "somebody took the suspend over after ours", started: with(suspendedAgain), since: []change{resumed, suspendedBy(settle), fluxSuspend}, suspend: true},
		{name: "the annotation was removed after our suspend", started: with(suspendedAgain), since: []change{resumed, suspendedBy(settle), stamped("")}, suspend: true},
		{name: "our suspend is not handled", started: with(suspendedAgain), since: []change{resumed, running, suspendedBy(settle)}, state: applier.StateSettling},
		{name: "our suspend is not handled, the token is", started: with(suspendedAgain), since: []change{resumed, ran(commitB), handled(resume), suspendedBy(settle)}, state: applier.StateSettling},
		{name: "a token over our suspend is not handled", started: with(suspendedAgain), since: []change{resumed, running, suspendedBy(settle), stamped(foreign)}, state: applier.StateSettling},

		{name: "recovered: the resume was never made", started: with(recovered), suspend: true},
		{name: "recovered: the resume was made", started: with(recovered), since: []change{resumed}, state: applier.StateRequested},
		{name: "recovered: the token was stamped over", started: with(recovered), since: []change{resumed, stamped(foreign)}, suspend: true},
		{name: "recovered: somebody suspended it for us, before the record or after", started: with(recovered), since: []change{resumed, suspendedBy("unknown")}, suspend: true},
		{name: "recovered: stamped between the record and the resume, which may be on its way", started: with(recovered), since: []change{stamped(foreign), handled(foreign)}, suspend: true},
		{name: "unconfirmed: the resume was not made yet", started: with(unconfirmed), suspend: true},
		{name: "unconfirmed: the resume was made", started: with(unconfirmed), since: []change{resumed, running}, state: applier.StateRunning},
		{name: "unconfirmed: a stamp since, after which it cannot land", started: with(unconfirmed), since: []change{stamped(foreign)}, state: applier.StateSettling},
		{name: "no baseline: the run has ended", started: with(noBaseline), since: []change{resumed, ran(commitB), handled(resume)}, suspend: true},
		{name: "no baseline: the run goes on", started: with(noBaseline), since: []change{resumed, running}, state: applier.StateRunning},
		{name: "no baseline: a token over ours is handled", started: with(noBaseline), since: []change{resumed, stamped(foreign), handled(foreign)}, suspend: true},
	})
}

// resumedByAnother is another request of this host, which found the Kustomization held.
func resumedByAnother(ks *kustomization) {
	ks.suspended, ks.requested, ks.owners, ks.stampers = false, "another", owners{applied: []string{"lib"}}, owners{applied: []string{"lib"}}
}

// Law 4: another request of the same host is not cut short by one that is over.
func TestAnotherRequestsRunIsNotSuspended(t *testing.T) {
	const says = "was resumed by another request before the end of this one was read"
	over := append(settled(ran(commitB)), resumedByAnother)
	checkHeld(t, []judged{
		{name: "its run has not ended", started: with(suspendedAgain), since: over,
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded", applied: "main@sha1:" + commitB},
		{name: "its run goes on", started: with(suspendedAgain), since: append(over, running),
			state: applier.StateFailed, reason: applier.ReasonSuperseded, says: says},
		{name: "its run has ended", started: with(suspendedAgain), since: append(over, ran(commitC), handled("another")),
			state: applier.StateFailed, reason: applier.ReasonSuperseded, says: says},
		{name: "this one is overdue", started: with(suspendedAgain, overdue), since: append(over, running),
			state: applier.StateFailed, reason: applier.ReasonSuperseded, says: says},
		{name: "recovered: this one was never started, or is over", started: with(recovered), since: []change{resumedByAnother},
			state: applier.StateFailed, reason: applier.ReasonSuperseded, says: says},
	})
}

// Law 4: what somebody else applies is left to them, and the report says so.
func TestASuspendThatAnotherManagerAppliesIsLeftToIt(t *testing.T) {
	const note = "Kustomization ns/app in cluster prod is not suspended again: field manager parent applies its spec.suspend"
	checkHeld(t, []judged{
		{name: "the run waits to begin", since: []change{resumed, appliedBy("parent")}, state: applier.StateRequested, says: note},
		{name: "the run goes on", since: []change{resumed, running, appliedBy("lib", "parent")}, state: applier.StateRunning, says: note},
		{name: "the run succeeded", since: []change{resumed, ran(commitB), handled(resume), appliedBy("parent")},
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded", applied: "main@sha1:" + commitB, says: note},
		{name: "the run applied another", since: []change{resumed, ran(commitC), handled(resume), appliedBy("parent")},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC, says: note},
		{name: "the run failed", since: []change{resumed, failedAt(commitB, "BuildFailed", "bad"), handled(resume), appliedBy("parent")},
			state: applier.StateFailed, reason: "BuildFailed", says: note},
		{name: "the next run goes on", since: []change{resumed, running, handled(resume), appliedBy("parent")}, state: applier.StateRunning, says: note},
		{name: "the run never ends, and is overdue", started: with(overdue), since: []change{resumed, running, appliedBy("parent")},
			state: applier.StateFailed, reason: applier.ReasonSuspendOwnedElsewhere, says: "what was applied for this request is not known"},
		{name: "the resume may not have been made", started: with(recovered), since: []change{appliedBy("parent")},
			state: applier.StateFailed, reason: applier.ReasonSuspendOwnedElsewhere, says: note},
		{name: "it suspended what we resumed before the run began", since: []change{resumed, appliedBy("parent"), handled(resume), func(ks *kustomization) { ks.suspended = true }},
			state: applier.StateFailed, reason: applier.ReasonNotRun, says: note},
		{name: "a former name of ours is not another", since: []change{resumed, ran(commitB), handled(resume), appliedBy("lib", "old")}, suspend: true},
	})
}

// Law 7, and law 6: the outcome is what the applier says of a run since the request, and no more than is known.
func TestTheOutcomeIsWhatTheRunSinceTheRequestDid(t *testing.T) {
	const succeeded = "ReconciliationSucceeded"
	checkHeld(t, []judged{
		{name: "it applied the commit", started: with(suspendedAgain), since: settled(ran(commitB)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB, says: "Applied revision"},
		{name: "it applied the commit again", started: with(suspendedAgain, asked(commitA)), since: settled(ran(commitA)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitA},
		{name: "it applied another", started: with(suspendedAgain), since: settled(ran(commitC)),
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC,
			says: "applied main@sha1:" + commitC + " instead of commit bbbbbbbbbbbb"},
		{name: "the foreign token over our suspend is handled", started: with(suspendedAgain),
			since: append(settled(ran(commitB)), stamped(foreign), handled(foreign)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "our suspend is handled, a foreign token over it not yet", started: with(suspendedAgain),
			since: append(settled(ran(commitB)), stamped(foreign)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "the annotation was removed after our suspend was handled", started: with(suspendedAgain),
			since: append(settled(ran(commitB)), stamped("")),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "unconfirmed, and it applied the commit", started: with(suspendedAgain, unconfirmed), since: settled(ran(commitB)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "recovered, and it applied the commit", started: with(suspendedAgain, recovered), since: settled(ran(commitB)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},

		{name: "nothing ran", started: with(suspendedAgain), since: []change{resumed, suspendedBy(settle), handled(settle)},
			state: applier.StateFailed, reason: applier.ReasonNotRun, says: "did not run for this request"},
		{name: "nothing ran, and the commit stood there before", started: with(suspendedAgain, asked(commitA)), since: []change{suspendedBy(settle), handled(settle)},
			state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "it was cut off", started: with(suspendedAgain), since: settled(running),
			state: applier.StateFailed, reason: applier.ReasonInterrupted, says: "what it applied is not known"},
		{name: "it was cut off after an apply", started: with(suspendedAgain), since: append(settled(ran(commitB)), running),
			state: applier.StateFailed, reason: applier.ReasonInterrupted},
		{name: "it was cut off between Ready True and the revision", started: with(suspendedAgain), since: settled(func(ks *kustomization) { ks.ready.observedGeneration = 2 }),
			state: applier.StateFailed, reason: applier.ReasonInterrupted},
		{name: "nothing is left of its conditions", started: with(suspendedAgain), since: settled(func(ks *kustomization) { ks.ready = condition{} }),
			state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "no baseline, and Ready", started: with(suspendedAgain, noBaseline), since: settled(ran(commitB)),
			state: applier.StateFailed, reason: applier.ReasonInterrupted, says: "whether it was applied for this request is not known"},
		{name: "no baseline, and failed", started: with(suspendedAgain, noBaseline), since: settled(failedAt(commitB, "BuildFailed", "bad")),
			state: applier.StateFailed, reason: "BuildFailed", says: "bad"},

		{name: "it failed at the commit", started: with(suspendedAgain), since: settled(failedAt(commitB, "HealthCheckFailed", "timeout waiting for Deployment")),
			state: applier.StateFailed, reason: "HealthCheckFailed", says: "timeout waiting for Deployment"},
		{name: "it failed at another", started: with(suspendedAgain), since: settled(failedAt(commitC, "BuildFailed", "bad")),
			state: applier.StateFailed, reason: applier.ReasonAttemptedOther, says: "ran at main@sha1:" + commitC + " instead of commit bbbbbbbbbbbb, and failed: BuildFailed: bad"},
		{name: "it waited for a dependency, before it attempted anything", started: with(suspendedAgain), since: settled(failedAt(commitA, "DependencyNotReady", "dependency not ready")),
			state: applier.StateFailed, reason: "DependencyNotReady", says: "dependency not ready"},
		{name: "it failed as it did before", started: with(suspendedAgain), since: settled(failedAt(commitB, "BuildFailed", "bad in /tmp/kustomization-1")),
			state: applier.StateFailed, reason: "BuildFailed"},
	})
}

// The public cases, by their names.
func TestCasesThatWentWrongElsewhere(t *testing.T) {
	checkHeld(t, []judged{
		{name: "a suspended pass handles the token and applies nothing", started: with(recovered, suspendedAgain),
			since: []change{stamped(resume), handled(resume), suspendedBy(settle), handled(settle)},
			state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "a suspend does not end a run", started: with(overdue, suspendedAgain), since: []change{resumed, running, suspendedBy(settle)},
			state: applier.StateSettling, says: "is suspended again; that is not handled yet"},
		{name: "what that run then applied", started: with(overdue, suspendedAgain), since: settled(ran(commitB)),
			state: applier.StateSucceeded, reason: "ReconciliationSucceeded", applied: "main@sha1:" + commitB},
		{name: "another token stands in for ours", started: with(suspendedAgain),
			since: []change{resumed, stamped(foreign), ran(commitC), handled(foreign), suspendedBy(settle), handled(settle)},
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC},
		{name: "an older token that sorts after ours", since: []change{resumed, running, handled(hold)}, state: applier.StateRunning},
		{name: "a cancelled health check", started: with(suspendedAgain),
			since: settled(failedAt(commitB, "HealthCheckCanceled", "New reconciliation triggered by GitRepository/team-a/repo")),
			state: applier.StateFailed, reason: applier.ReasonHealthCheckCanceled, says: "GitRepository/team-a/repo"},
		{name: "and a later run before the suspend", started: with(suspendedAgain), since: settled(ran(commitC)),
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC, says: "instead of commit bbbbbbbbbbbb"},
		{name: "the artifact was not there yet", started: with(suspendedAgain), since: settled(failedAt(commitA, "ArtifactFailed", "artifact not found, retrying in 30s")),
			state: applier.StateFailed, reason: "ArtifactFailed", says: "artifact not found"},
		{name: "a source that is forbidden", started: with(suspendedAgain), since: settled(failedAt(commitA, "AccessDenied", "can't access other/app, cross-namespace references have been blocked")),
			state: applier.StateFailed, reason: "AccessDenied", says: "cross-namespace"},
		{name: "is not waited for", since: []change{resumed, failedAt(commitA, "AccessDenied", "blocked"), handled(resume)}, suspend: true},
	})
	t.Run("a Kustomization that was created suspended", func(t *testing.T) {
		t.Parallel()
		ks := after(func(ks *kustomization) {
			ks.ready, ks.lastApplied, ks.lastAttempted, ks.lastRun = condition{}, "", "", ""
		})
		assert.True(t, judging.holds(ks))
		assert.True(t, ks.handledLatest())
		assert.Zero(t, ks.lastApply())
		assert.False(t, ks.hasApplied(commitA))
	})
}

// A Kustomization is judged by equality alone: no order of tokens, times or revisions.
func TestNoTokenIsComparedByOrder(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"0", "zzzz", strings.Repeat("9", 100), "2006-01-02T15:04:05Z", "2126-01-02T15:04:05Z"} {
		p, suspend := operated().where(after(resumed, stamped(token)))
		assert.False(t, suspend)
		assert.Equal(t, applier.StateRequested, p.State, token)
		_, suspend = operated().where(after(resumed, stamped(token), handled(token)))
		assert.True(t, suspend, token)
	}
}

func TestTheLastApplyIsReadWhoeverAskedForIt(t *testing.T) {
	t.Parallel()
	assert.Equal(t, applier.Progress{
		State: applier.StateSucceeded, Reason: "ReconciliationSucceeded", Message: "Applied revision: main@sha1:" + commitA,
		AppliedRevision: "main@sha1:" + commitA, AppliedCommit: commitA,
	}, after().lastApply())
	assert.Equal(t, applier.Progress{State: applier.StateFailed, Reason: "BuildFailed", Message: "bad"},
		after(failedAt(commitB, "BuildFailed", "bad")).lastApply())
	assert.Equal(t, applier.Progress{State: applier.StateRunning, Reason: "Progressing", Message: "Building manifests"}, after(running).lastApply())
}

func with(mutate ...func(*applier.Started)) []func(*applier.Started) { return mutate }

func asked(commit string) func(*applier.Started) {
	return func(s *applier.Started) { s.Commit = commit }
}
