package flux

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/applier"
)

// liveAfter is what happened to a Kustomization that nobody suspends, with A applied and a token of long ago.
func liveAfter(changes ...change) []change {
	ordinary := func(ks *kustomization) { ks.suspended, ks.owners = false, owners{} }
	return append([]change{ordinary}, changes...)
}

func liveRequest(ks *kustomization) { ks.requested, ks.resourceVersion = resume, "2" }

func TestALiveOperationIsFollowedByItsTokenAndNeverSuspended(t *testing.T) {
	t.Parallel()
	const succeeded = "ReconciliationSucceeded"
	for _, row := range []judged{
		{name: "the run waits to begin", since: liveAfter(liveRequest), state: applier.StateRequested, says: "is asked to apply commit bbbbbbbbbbbb"},
		{name: "the run goes on", since: liveAfter(liveRequest, running), state: applier.StateRunning, says: "Building manifests"},
		{name: "the run succeeded", since: liveAfter(liveRequest, ran(commitB), handled(resume)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "the run applied another", since: liveAfter(liveRequest, ran(commitC), handled(resume)),
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC},
		{name: "the run failed", since: liveAfter(liveRequest, failedAt(commitB, "HealthCheckFailed", "timeout"), handled(resume)),
			state: applier.StateFailed, reason: "HealthCheckFailed", says: "timeout"},
		{name: "the run failed as the one before did", since: liveAfter(liveRequest, handled(resume), failedSame),
			state: applier.StateFailed, reason: "DependencyNotReady"},
		{name: "the run failed at another", since: liveAfter(liveRequest, failedAt(commitC, "BuildFailed", "bad"), handled(resume)),
			state: applier.StateFailed, reason: applier.ReasonAttemptedOther},
		{name: "the next run is on: its outcome stands in", since: liveAfter(liveRequest, ran(commitB), handled(resume), running),
			state: applier.StateRunning},
		{name: "the next run applied another", since: liveAfter(liveRequest, ran(commitB), handled(resume), running, ran(commitC)),
			state: applier.StateSucceeded, reason: applier.ReasonAppliedOther, applied: "main@sha1:" + commitC},
		{name: "Ready is known before the token is handled", since: liveAfter(liveRequest, ran(commitB)), state: applier.StateRunning},
		{name: "another run for another reason ended, with the token not handled", since: liveAfter(ran(commitA), liveRequest), state: applier.StateRunning},

		{name: "a token over ours is handled", since: liveAfter(liveRequest, stamped(foreign), ran(commitB), handled(foreign)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "a token over ours is not handled", since: liveAfter(liveRequest, stamped(foreign), running), state: applier.StateRunning},
		{name: "a token in between says nothing", since: liveAfter(liveRequest, stamped("third"), ran(commitC), handled(foreign)), state: applier.StateRunning},
		{name: "the annotation was removed", since: liveAfter(liveRequest, stamped("")), state: applier.StateRequested},
		{name: "the annotation was removed, and it is overdue", started: with(overdue), since: liveAfter(liveRequest, stamped("")),
			state: applier.StateFailed, reason: applier.ReasonNotRun, says: "its token is no longer asked for"},
		{name: "the annotation was removed after a run, and it is overdue", started: with(overdue), since: liveAfter(liveRequest, ran(commitB), stamped("")),
			state: applier.StateFailed, reason: applier.ReasonSuperseded, says: "whether a run since was for it is not known"},
		{name: "the annotation was removed during a run, and it is overdue", started: with(recovered, overdue), since: liveAfter(liveRequest, running, stamped("")),
			state: applier.StateFailed, reason: applier.ReasonSuperseded},

		{name: "suspended before the run began", since: liveAfter(liveRequest, fluxSuspend, handled(resume)),
			state: applier.StateFailed, reason: applier.ReasonNotRun, says: "did not run for this request"},
		{name: "suspended after it", since: liveAfter(liveRequest, ran(commitB), fluxSuspend, handled(resume)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "suspended in the middle of it, and cut off", since: liveAfter(liveRequest, running, fluxSuspend, handled(resume)),
			state: applier.StateFailed, reason: applier.ReasonInterrupted},
		{name: "suspended, and not handled", since: liveAfter(liveRequest, fluxSuspend), state: applier.StateRequested},
		{name: "another manager applies spec.suspend, which we never touch", since: liveAfter(liveRequest, appliedBy("parent"), ran(commitB), handled(resume)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},

		{name: "recovered, and the stamp was made", started: with(recovered), since: liveAfter(liveRequest), state: applier.StateRequested},
		{name: "recovered, and the stamp was not made and may come", started: with(recovered), since: liveAfter(), state: applier.StateRequested},
		{name: "recovered, and the stamp may come that was decided on a later state than the record", started: with(recovered),
			since: liveAfter(func(ks *kustomization) { ks.resourceVersion = "2" }), state: applier.StateRequested},
		{name: "recovered, and overdue", started: with(recovered, overdue), since: liveAfter(), state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "recovered, and what stands may have been stamped before it", started: with(recovered),
			since: liveAfter(stamped(foreign), failedAt(commitB, "BuildFailed", "bad"), handled(foreign)), state: applier.StateRunning},
		{name: "recovered, and overdue: what was stamped since the record stands in for it", started: with(recovered, overdue),
			since: liveAfter(stamped(foreign), failedAt(commitB, "BuildFailed", "bad"), handled(foreign)), state: applier.StateFailed, reason: "BuildFailed"},
		{name: "recovered, and its own token is handled", started: with(recovered), since: liveAfter(liveRequest, ran(commitB), handled(resume)),
			state: applier.StateSucceeded, reason: succeeded, applied: "main@sha1:" + commitB},
		{name: "unconfirmed, and the stamp may come", started: with(unconfirmed), since: liveAfter(), state: applier.StateRequested},
		{name: "unconfirmed, and the stamp can no longer land", started: with(unconfirmed), since: liveAfter(func(ks *kustomization) { ks.resourceVersion = "2" }),
			state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "unconfirmed, and overdue", started: with(unconfirmed, overdue), since: liveAfter(), state: applier.StateFailed, reason: applier.ReasonNotRun},
		{name: "no baseline, and failed", started: with(noBaseline), since: liveAfter(liveRequest, failedAt(commitB, "BuildFailed", "bad"), handled(resume)),
			state: applier.StateFailed, reason: "BuildFailed"},
		{name: "no baseline, and Ready", started: with(noBaseline), since: liveAfter(liveRequest, ran(commitB), handled(resume)),
			state: applier.StateFailed, reason: applier.ReasonInterrupted},
		{name: "new: the pass that adds the finalizer handled it", since: liveAfter(liveRequest, handled(resume), noReady), state: applier.StateRunning},
		{name: "its conditions are gone, and it is overdue", started: with(overdue), since: liveAfter(liveRequest, handled(resume), noReady),
			state: applier.StateFailed, reason: applier.ReasonNotRun},
	} {
		row.check(t, operated(append(row.started, func(s *applier.Started) { s.Outcome = applier.OutcomeStamped })...))
	}
}

func noReady(ks *kustomization) { ks.ready = condition{} }

// failedSame is a failure that leaves Ready as it was: a stamp makes no new generation.
func failedSame(ks *kustomization) {
	ks.ready = condition{status: "False", reason: "DependencyNotReady", message: "dependency not ready", observedGeneration: 1}
}
