// Package applier asks a GitOps engine to apply one commit, now, and knows when it is done.
//
// An applier is the object in a cluster that applies a folder of a Git repository: a Flux Kustomization, an Argo CD
// Application, or a kind of the host's own. A host is the program that embeds this package: an operator, a promotion
// tool, a bot that pushed a commit. A backend implements [Client] for one kind of applier; packages flux and argocd are
// backends.
//
// # One apply
//
// [Apply] is the shortest way. It asks, follows the operation that the request started, and returns once the
// applier's own status says how it ended:
//
//	client, err := flux.New("prod", dynamicClient, flux.Options{FieldManager: "my-operator"})
//	if err != nil {
//		return err
//	}
//	app := types.NamespacedName{Namespace: "flux-system", Name: "app"}
//	end, err := applier.Apply(ctx, client, app, applier.Ask{
//		Want:   applier.Binding{Repository: "https://git.example.com/acme/shop", Branch: "main"},
//		Commit: commit,
//		Live:   true, // without it, the Kustomization has to be held: see Holder
//	}, func(p applier.Progress) { log.Info(p.Message, "state", p.State) })
//
// A nil error means that this commit is applied. [ErrAppliedOther] means that another one was, and end names it;
// [ErrFailed] that the applier failed, and end has its reason and message.
//
// # Request and Progress
//
// Apply is two steps that a host with a store of its own takes itself. [Client.Request] makes the request and returns
// the operation as a [Started]. [Client.Progress], or a [Follower] that calls it whenever the applier changes, reports a
// [Progress] until it is an end. Data flows one way: Ask, Started, Progress.
//
// What stands is read from the cluster. The operation is recognised by the request's token, which the applier's own
// status repeats, and never by a time or by a revision that happens to be there.
//
// A decision can get stale while a request waits, so [Ask].Current is asked right before the write. A process can die
// right after the write, so [Ask].Record is called right before it; after a restart, Progress follows the recorded
// Started, which is then Recovered. An answer can get lost, so a write that may have been made is followed like one
// that was, with Started.Unconfirmed set. An error of Request means that nothing was started and nothing will be.
//
// # In an operator
//
// A host with many appliers, leader election and restarts has a [Dispatcher] carry out what its workers decide. Its own object
// that names an applier is a [Trigger], those for whose sake it asks are [Target] values, and both are read through the [Store]
// that it implements. Each operation is recorded on its trigger before it starts, as an [Operation], and a [StatusWriter]
// keeps the record:
//
//	status := applier.NewStatusWriter(store, log)
//	dispatcher := applier.NewDispatcher(store, status, backends, clients)
//	// Start both on the leader, then:
//	dispatcher.RequestApply(ctx, applier.ApplyRequest{
//		Trigger: trigger.Ref, Applier: trigger.Applier, Targets: targets,
//		Want: binding, Commit: head, Reason: applier.Commit,
//		Current: func() bool { return branch.Head() == head },
//		Report:  worker.report,
//	})
//
// It checks again what can have changed since the decision, asks only for what still stands, and reports one end. After a
// restart, [ApplyRequest].Recovered makes it follow what a trigger records. [HeldByAnother] says which of several triggers
// may ask an applier, and [JudgeReferences] which targets speak for a trigger. Package fake has a Store and a Host for
// unit tests, and appliertest.RunStore checks a Store.
//
// # Words
//
//	here             Flux                                        Argo CD
//	applier          Kustomization                               Application
//	token            reconcile.fluxcd.io/requestedAt,            an entry of operation.info
//	                 status.lastHandledReconcileAt
//	request          resume with a token                         .operation, by an update
//	operation        from the resume to the handled suspend      status.operationState
//	hold             spec.suspend between operations             automated sync off
//
// A trigger is the host's record that names one applier, a target the host's object that names a trigger, and an attempt
// one [ApplyRequest] carried out: the request, and the following of its operation.
//
// # Errors
//
// Test with errors.Is for [ErrStale], [ErrNotFetched], [ErrBusy], [ErrNotHeld], [ErrSuspended], [ErrFailed],
// [ErrAppliedOther] and [ErrUnconfirmed], of a [Store] and a [Dispatcher] for [ErrRecordGone] and [ErrOperationOpen]
// as well, with [IsPermanent] for what no retry can mend, and with [VerdictReason] for why a request was refused.
// Not found, not served, forbidden and no answer are four different answers everywhere; [AbsenceOf] tells them apart.
//
// # Writing a backend
//
// Implement [Client], and where the kind allows it [Watcher], [Holder] and [Prefetcher]. Call [Ask.Validate] first,
// return a [Verdict] as an error by [Verdict.AsError], mark a write's error by [WriteError], and build Watch on
// [ObjectWatches]. Then let package appliertest check every sentence of the contract.
package applier
