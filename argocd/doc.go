// Package argocd asks Argo CD Applications to sync: a backend of package applier.
//
//	client, err := argocd.New("prod", dynamicClient, argocd.Options{Initiator: "my-operator"})
//
// A [Client] reaches the Applications of one cluster over client-go's dynamic client, which is all it needs. What is
// said here of the controller was measured on application-controller 3.2.11, and tried on a build of 3.6.
//
// # What is asked
//
// An Application is asked by the operation that Argo CD's own automated sync would set, with the revision pinned to
// the commit: its source, its syncOptions and its retry are taken over from the spec, because nothing of
// spec.syncPolicy applies to an operation by itself. The retry's refresh is left out, since it would sync whatever
// the branch leads to by then. Nobody's operation is replaced: one in progress is waited for.
//
// It can be asked if it follows one branch of one Git repository in spec.source, and does not sync on its own:
// automated sync would undo a sync of an older commit within the second. [Client.Validate] gives the reason
// otherwise: UnsupportedSource, AutomatedSyncEnabled, ReconcileSkipped, Deleting, Forbidden, ApplierNotFound. Set
// spec.syncPolicy.automated.enabled to false rather than remove automated, and its prune still says whether to prune.
//
// Pruning has no guard here: Argo CD refuses to prune everything (allowEmpty) in its automated syncs alone. With
// prune, a commit without any manifest deletes all that the Application has. Without it, what the commit no longer
// has stays, and the message names it.
//
// # What tells that a commit is synced
//
// A Succeeded status.operationState with the token of the request, and the commit in its syncResult.revision. Neither
// is enough alone. status.sync and health are not read for it: they speak of what the branch leads to, minutes late
// after a sync that counts as automated, and Argo CD does not wait for the health of the last wave. Times are not
// compared.
//
// An end that is a failure has Argo CD's own phase for a reason, and its message with the first resources that failed and what
// was said of them: Failed for a sync that ran and failed, which may be applied in part, also when somebody terminated it, and Error for one that could not run. Or
// one of these. Progress.AskAgain tells under which the same request may be made anew:
//
//	Interrupted    the controller had not read the project yet, as happens right after its start (3.2.11), somebody removed
//	               the operation while it ran, or it succeeded and names no revision
//	Swallowed      a pass in flight for the previous operation dropped this one
//	Superseded     its record was removed, or another's stands in its place
//	NotRun         nothing ran for this request
//	Gone           the Application no longer exists
//	Replaced       another object has its name
//
// A success at another revision than the commit is Succeeded with applier.ReasonAppliedOther.
//
// An operation has no timeout in Argo CD. It runs for as long as a sync window forbids it, a hook does not end, or an
// earlier wave is not healthy, and says so in its message. Where the controller does not watch the Application's
// namespace, or does not run, it stays Requested.
//
// An operation whose update got no answer (Started.Unconfirmed) and of which nothing is to be seen stays Requested until the
// Application changes: the update can no longer be made then, and it is NotRun. The controller changes an Application at each
// resync, every two to three minutes by default. One that is known from its record alone (Started.Recovered) stays Requested
// until it is Overdue, whatever changes: the process that recorded it may live, and decide afresh.
//
// # What is written
//
// One update of the Application, guarded by the resourceVersion read, that sets .operation and removes
// status.operationState, as Argo CD's API server does. Without the removal a controller before 3.3.15, 3.4.9 and
// 3.5.3 merges the new operation into the record of the previous one: it can then apply what that one asked for, and
// report Succeeded at the new commit.
//
// The spec is written back as it was read.
//
// # Access
//
//	argoproj.io  applications  get, watch, update
//
// Without watch, Applications are polled.
package argocd
