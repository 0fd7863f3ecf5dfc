package gitopsprovider

import (
	"strings"
	"time"
)

// FailureOptions are the options of WatchFailures. The zero value is good.
type FailureOptions struct {
	// Recoveries also reports what no longer fails: FailureRecovered and FailureDeleted.
	Recoveries bool
}

// FailureType is what a FailureEvent reports.
type FailureType string

// The types of a FailureEvent.
const (
	// FailureBegan is an object that fails, and did not before, or failed for another reason.
	FailureBegan FailureType = "Failed"
	// FailureRecovered is an object that failed and is well again, FailureDeleted one that failed and is gone. Both come on
	// request alone.
	FailureRecovered FailureType = "Recovered"
	FailureDeleted   FailureType = "Deleted"
	// FailureUnwatched is a kind that cannot be watched for now, so that nothing is heard of its objects;
	// FailureWatched is one that can be again. A kind that is not served is not reported: it has no objects.
	FailureUnwatched FailureType = "Unwatched"
	FailureWatched   FailureType = "Watched"
)

// FailureEvent is one change in what fails.
type FailureEvent struct {
	Type   FailureType `json:"type"`
	Engine Engine      `json:"engine,omitempty"`
	// Workload is the object. Of FailureUnwatched and FailureWatched it has the group and kind alone.
	Workload Workload `json:"workload"`
	UID      string   `json:"uid,omitempty"`
	// Key is the same for one failure whenever and by whomever it is reported: it is made of the UID, the start of the
	// operation or the Ready transition, the reason, and the message without numbers and hashes. A host that remembers it
	// reports nothing twice, its own restarts included. What recovered or is gone has the Key of its failure: remember
	// the Type with it.
	Key string `json:"key,omitempty"`
	// Standing is whether the object failed already when the watch first saw it.
	Standing bool `json:"standing,omitempty"`
	// Ready is what the object says of itself now.
	Ready Condition `json:"ready"`
	// Revision is what an applier failed to apply, of the first of its sources where that is another one than what it
	// applies. Empty if it does not say so, and for what fails with a revision that it had applied before.
	Revision string `json:"revision,omitempty"`
	// Failure is what an object that recovered or is gone failed with.
	Failure *Condition `json:"failure,omitempty"`
	// Message says for people why a kind is not watched, and what mends it.
	Message string `json:"message,omitempty"`
	// Observed is when this process saw it.
	Observed time.Time `json:"observed,omitzero"`
}

// String returns the event in one line, its messages folded and whole: "Failed Kustomization team-a/db at main@sha1:1b2c3d4e5f60:
// BuildFailed: no such file", "Recovered Kustomization team-a/db, which failed: BuildFailed: no such file".
func (e FailureEvent) String() string {
	line := string(e.Type)
	if e.Standing {
		line += " (standing)"
	}
	line += " " + strings.TrimSpace(folded(e.Workload.String()))
	switch {
	case e.Failure != nil:
		return line + ", which failed" + e.Failure.why()
	case e.Type == FailureUnwatched && e.Message != "":
		return line + ": " + folded(e.Message)
	case e.Type != FailureBegan:
		return line
	case e.Revision != "":
		line += " at " + folded(shortRevision(e.Revision))
	}
	return line + e.Ready.why()
}
