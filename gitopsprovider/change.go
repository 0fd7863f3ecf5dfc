package gitopsprovider

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Change is one revision of one source that an applier applies or applied.
type Change struct {
	Engine Engine `json:"engine"`
	// Workload is the applier.
	Workload Workload `json:"workload"`
	// TargetNamespace and TargetCluster are where it deploys to, as in Object.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	TargetCluster   string `json:"targetCluster,omitempty"`
	// Source is where the content comes from, Path the folder within it.
	Source Source `json:"source"`
	Path   string `json:"path,omitempty"`
	// ToRev is what was applied, in the engine's words, and ToCommit its full commit hash, empty for another source than
	// Git. An empty ToRev is that nothing of the change was applied: see Attempted.
	ToRev    string `json:"toRev"`
	ToCommit string `json:"toCommit,omitempty"`
	// FromRev and FromCommit are what was applied before, where the applier's history knows it. Empty means the change
	// that ToRev itself introduced.
	FromRev    string `json:"fromRev,omitempty"`
	FromCommit string `json:"fromCommit,omitempty"`
	// Attempted is the revision that was tried since ToRev and failed, in the engine's words. Empty if none was. It may be
	// applied in part; Notes say so. Without a window it stands beside what is applied; in a window it has a change of its own,
	// without a ToRev, whose FromRev is what is applied still. Ready says why it failed, and Ready.Since when it was last
	// tried.
	Attempted string `json:"attempted,omitempty"`
	// AttemptedCommit is its full commit hash. Empty for another source than Git, and for one of another source or path than
	// Source and Path.
	AttemptedCommit string `json:"attemptedCommit,omitempty"`
	// Current is whether ToRev is what is applied now, or the newest commit of that which touched the path. At most one
	// change of a source is.
	Current bool `json:"current"`
	// DeployedAt is when ToRev was deployed, for the first time if Commit is set. Zero if the applier's history does not tell,
	// and for what was deployed after the window.
	DeployedAt time.Time `json:"deployedAt,omitzero"`
	// DeployedAfter is set instead where the history tells only that it was later than this, as after a rollback.
	DeployedAfter time.Time `json:"deployedAfter,omitzero"`
	// Commit describes ToCommit; of what was attempted, the newest commit of the window that touched the path and is not
	// applied, which may be an older one than AttemptedCommit. Nil unless the repository was asked, for a window.
	Commit *Commit `json:"commit,omitempty"`
	// ManagedBy are the objects that the applier's marks name as its managers. A mark need not tell the namespace.
	ManagedBy []Workload `json:"managedBy,omitempty"`
	// Ready is how the applier is doing now.
	Ready Condition `json:"ready"`
	// Notes say for people what the change does not show.
	Notes []string `json:"notes,omitempty"`
}

// ChangeList is the answer of Changes.
type ChangeList struct {
	// Changes are sorted newest first: by the commit's date in a window, else by the time of deployment or of the attempt;
	// what has none comes last, by name.
	Changes []Change `json:"changes"`
	// Cut is whether there are more than are listed.
	Cut bool `json:"cut,omitempty"`
	// Reads are what the answer rests on: one for each list of a kind, and one for each history of a repository that
	// was asked for. There is at least one: AnswerNone if the selector has a kind of which there are no appliers.
	Reads []Read `json:"reads"`
}

// Read is what one read established.
type Read struct {
	Engine Engine `json:"engine,omitempty"`
	// Group and Kind are the kind that was listed. They are empty for a repository.
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind,omitempty"`
	// Namespace is the one that was listed; empty is the whole cluster.
	Namespace string `json:"namespace,omitempty"`
	// Repository is the URL of a repository whose history was asked for.
	Repository string `json:"repository,omitempty"`
	// Path is the folder that its history was asked for, empty for all of it, and Revision the commit at which that ends.
	Path     string `json:"path,omitempty"`
	Revision string `json:"revision,omitempty"`
	Answer   Answer `json:"answer"`
	// Message says for people what is missing, and what mends it, or why a history is cut. Empty if nothing is.
	Message string `json:"message,omitempty"`
	Err     error  `json:"-"`
}

// Err returns what could not be read, joined, or nil: reads that were forbidden or got no answer. A kind that is not
// served is no error, and neither is a repository that nobody asked.
func (l ChangeList) Err() error {
	var errs []error
	for _, read := range l.Reads {
		if read.Answer == AnswerForbidden || read.Answer == AnswerUnknown {
			errs = append(errs, errors.New(read.Message))
		}
	}
	return errors.Join(errs...)
}

// readOfRepository says what became of reading a repository's history.
func readOfRepository(query HistoryQuery, answer *historyAnswer) Read {
	err := answer.err
	read := Read{Repository: query.Repository, Path: query.Path, Revision: query.Revision, Err: err}
	if err == nil {
		read.Answer = AnswerFound
		if answer.history.Cut {
			read.Message = answer.history.Note
		}
		return read
	}
	read.Answer = AnswerUnknown
	switch {
	case errors.Is(err, ErrNoDiffer):
		read.Answer = AnswerNone
	case errors.Is(err, ErrRepositoryNotFound), errors.Is(err, ErrCommitNotFound):
		read.Answer = AnswerAbsent
	case errors.Is(err, ErrCredentials), errors.Is(err, ErrRepositoryNotAllowed):
		read.Answer = AnswerForbidden
	}
	read.Message = fmt.Sprintf("the history of %s in %s could not be read, so that only deployments are listed: %v",
		cmp.Or(query.Path, "all"), query.Repository, err)
	return read
}
