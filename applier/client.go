package applier

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Client asks one kind of applier, in one cluster, to apply.
//
// It is what a backend implements; flux.Client and argocd.Client are two. Apply and every
// other part of this module use nothing else of a backend, except for the capabilities that
// [AsHolder], [AsPrefetcher] and [AsWatcher] find. Package appliertest checks every sentence
// of this contract.
//
// A Client keeps no state between calls: what it needs to know it reads from the cluster or
// from the [Started] it is handed. It is safe for concurrent use, also for one applier. It
// starts no goroutine that outlives a call, a channel of [Watcher] aside.
//
// Every error names the applier and its cluster and holds no secret. An error of the API
// server stays reachable by errors.As, but for that of a read which is a [VerdictError] with a reason, such as ReasonForbidden:
// its message says what the API server answered (see Verdict.Err).
type Client interface {
	// Validate says whether the applier exists, applies a source that can be driven, and may be
	// asked by this identity. It writes nothing to the applier. It reports the source it read,
	// whatever the verdict. A read that failed is a verdict with ReasonCheckFailed, which says
	// nothing about the applier.
	Validate(ctx context.Context, ref types.NamespacedName) Verdict

	// Request starts one apply of ask.Commit and returns once the API server has stored the
	// write that starts it, or may have: then Started.Unconfirmed says why that is not known.
	//
	// Before it writes, it checks that the applier still applies ask.Want and asks ask.Current; it calls ask.Record
	// once, before the first write that may start the apply, and checks and asks again after it. Nothing is sent
	// between the last ask.Current and that write. Nor is a write that may start the apply sent later than 30 seconds after
	// ask.Record was called, whatever that and the API server took of them. An operation in progress is waited for as long as ask.Wait says;
	// whatever else is waited for (a fetch), as long as ctx allows. With a nil error, the caller follows the
	// operation by Progress, unless the outcome is OutcomeCurrent.
	//
	// An error means that nothing was started, now or later:
	//   - IsPermanent: a configuration that no retry can mend. A [VerdictError] carries the
	//     reason that Validate would give.
	//   - ErrStale: the decision no longer holds. Decide again.
	//   - ErrNotFetched: the applier's source does not lead to the commit. No retry helps where a newer one is pushed.
	//   - ErrBusy: an operation in progress did not end while the request waited.
	//   - ErrNotHeld, ErrSuspended: the applier is to be held before it is asked, or not to be (Flux alone). Permanent.
	//   - any other: what failed may be mended by itself. Decide again, then retry with a new token.
	//
	// Request returns soon after ctx ends.
	Request(ctx context.Context, ref types.NamespacedName, ask Ask) (Started, error)

	// Progress reports how far the operation s has come, and takes its next step when that is
	// the client's to take (a Flux Kustomization is suspended again after its apply), so it is to
	// be called until it reports an end, in this process or the next. An operation whose starting write is not known
	// to have been made may stay StateRequested until the applier changes; it ends at the latest when it is Overdue.
	//
	// It reads what s.Observed shows, and clears it; without one it reads the applier. It writes into s what the
	// next call or a record needs (SuspendToken). One s is not to be used by two calls at once.
	//
	// An error is a read or a write that failed: call again; or it is permanent, and s is none of this backend's. It says
	// nothing about the operation, and the Progress beside it is empty. An applier that is gone is no error but an end. One whose
	// kind is not served, or which may not be read, is an error and never an end: it may be there, and go on. [AbsenceOf] tells
	// them apart.
	Progress(ctx context.Context, ref types.NamespacedName, s *Started) (Progress, error)
}

// Source is what an applier applies from.
type Source struct {
	// GitRepository is the source object of a Flux Kustomization; zero for other appliers.
	GitRepository types.NamespacedName `json:"gitRepository,omitzero"`
	// URL is the repository as the cluster's object spells it, without user info.
	URL string `json:"url,omitempty"`
	// Revision is the branch that is followed, or an Application's targetRevision as written.
	Revision string `json:"revision,omitempty"`
}
