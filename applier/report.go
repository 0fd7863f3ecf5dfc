package applier

// Report is what an attempt tells the worker that decided it.
type Report struct {
	// End is how the attempt ended, or "" while it goes on. Each attempt reports one end, last of all, unless it is
	// abandoned or the dispatcher stops: then it reports nothing more.
	End End
	// Operation is the operation as it stands; nil as long as none was started. It is the receiver's own. The first Progress of
	// a new one has no Message: nothing was read of it yet.
	Operation *Operation
	// Err is why nothing was asked (EndAskedNothing; nil if the applier needed nothing), why nothing was started (EndNotStarted), or why this process cannot
	// follow the operation (EndNotFollowed). Test it as an error of [Client].Request.
	Err error
}

// End is how an attempt ended.
type End string

// The ends of an attempt.
const (
	// EndAskedNothing is an attempt that had nothing to ask.
	//
	// With no error, the applier needed no request (OutcomeCurrent): it has applied the commit, and the Reason does not ask for
	// a run; or the Commit was empty, since the branch does not exist, and there is nothing to apply.
	//
	// With ErrStale, the decision no longer held. Decide again, by what stands now. The causes are those that
	// [ErrStale] lists, and these:
	//   - no target is left to ask for: each is gone, being deleted, names another trigger, writes another repository or
	//     branch, is not admitted or not yet, or does not consent to a [Refusal];
	//   - another trigger holds the applier; see [HeldByAnother];
	//   - the trigger is gone, is being deleted, names another applier, or is Live where it was not, or no longer;
	//   - the record that was to be followed as Recovered was withdrawn, has been replaced by that of another operation, or is
	//     followed already.
	//
	// The error is ErrRecordGone as well where the trigger is gone, or where no target is left and at least one is gone. The
	// trigger alone is told by reading it.
	EndAskedNothing End = "AskedNothing"
	// EndNotStarted is an attempt that failed before it started anything, with the error. It may be made again, unless
	// IsPermanent says that something has to change first. A Recovered one that came after the stop ends so, too: its operation
	// is the next process's.
	EndNotStarted End = "NotStarted"
	// EndCompleted is an operation that ended, as Operation.Progress says.
	EndCompleted End = "Completed"
	// EndNotFollowed is a recorded operation that this process cannot follow, because it has no backend for the kind of its
	// applier, its [Clients] say that the cluster is gone for good, or the backend's Progress fails for good ([IsPermanent]). Nothing
	// is known of it, and its record stays open: a host that knows better takes it away by [Store].UpdateStatus. What was handed
	// over as Recovered and has no token or names no applier ends so, too: it is no record.
	EndNotFollowed End = "NotFollowed"
)

// finish reports an end, if the attempt still reports anything.
func (a *attempt) finish(report Report, result AttemptResult) {
	if report.End != "" {
		a.report(report)
	}
	a.d.metrics().AttemptEnded(a.labels, result)
}

func (a *attempt) report(report Report) {
	if a.req.Report == nil || a.abandoned() {
		return
	}
	if a.running != nil && a.stopped() {
		return
	}
	a.req.Report(report)
}
