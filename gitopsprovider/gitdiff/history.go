package gitdiff

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

const (
	// firstDepth and depthFactor are how many commits are fetched when the
	// history is walked, at first and then each time it ends too early.
	firstDepth  = 32
	depthFactor = 8

	// slop is after how many commits in a row that are older than Since the
	// walk ends. Git's own is the same: dates are not always in order.
	slop = 5
)

func (r *repository) history(ctx context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	path, err := parseScope(q.Path)
	if err != nil {
		return gitopsprovider.History{}, err
	}
	revision, err := parseCommit("revision", q.Revision)
	if err != nil {
		return gitopsprovider.History{}, err
	}
	if q.Limit < 0 {
		return gitopsprovider.History{}, fmt.Errorf("the limit is negative: %w", gitopsprovider.ErrInvalidQuery)
	}
	if err := r.need(ctx, 1, revision); err != nil {
		return gitopsprovider.History{}, err
	}
	start, err := r.commitOf(revision)
	if err != nil {
		return gitopsprovider.History{}, err
	}
	w := r.walk(start, revision, path)
	w.since, w.until, w.most = q.Since, q.Until, q.Limit
	if err := w.run(ctx); err != nil {
		return gitopsprovider.History{}, err
	}
	history := gitopsprovider.History{Commits: w.found, Cut: w.cut != "", Note: w.cut}
	if len(w.found) == 0 && w.cut == "" {
		history.Note = fmt.Sprintf("none of the %d commits walked touched %s", w.walked, path.words())
		if !q.Since.IsZero() || !q.Until.IsZero() {
			history.Note += " in this window"
		}
	}
	return history, nil
}

// walk is a walk through the history of a path. It visits what git log visits:
// the newest commit first, and of a merge that took the path as it was from one
// side, that side only.
type walk struct {
	r     *repository
	start plumbing.Hash // what was asked for: perhaps a tag
	path  scope

	since, until time.Time
	most         int // 0: no bound but the Differ's

	queue  byDate
	seen   map[plumbing.Hash]bool
	depth  int
	walked int
	found  []gitopsprovider.Commit
	cut    string // why the walk ended before the history did, for people
}

// node is what a walk keeps of a commit: not its message, which may be long.
type node struct {
	hash, tree plumbing.Hash
	parents    []plumbing.Hash
	when       time.Time
}

func nodeOf(c *object.Commit) node { return node{c.Hash, c.TreeHash, c.ParentHashes, c.Committer.When} }

func (r *repository) walk(start *object.Commit, asked plumbing.Hash, path scope) *walk {
	return &walk{r: r, start: asked, path: path, queue: byDate{nodeOf(start)}, seen: map[plumbing.Hash]bool{start.Hash: true}}
}

func (w *walk) run(ctx context.Context) error {
	old := 0
	for len(w.queue) > 0 && old < slop {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if w.walked == w.r.call.differ.limits.Commits {
			w.cut = fmt.Sprintf("only the newest %d commits were walked", w.walked)
			return nil
		}
		c := heap.Pop(&w.queue).(node)
		w.walked++
		tooOld := !w.since.IsZero() && c.when.Before(w.since)
		if tooOld {
			old++
		} else {
			old = 0
		}
		if !w.r.store.hasAll(c.parents) {
			if tooOld {
				continue // not worth fetching: what is older is not wanted
			}
			if err := w.deepen(ctx, c); err != nil || w.cut != "" {
				return err
			}
		}
		touched, follow, err := w.judge(c)
		if err != nil {
			return err
		}
		if touched && !tooOld && (w.until.IsZero() || !c.when.After(w.until)) {
			full, err := w.r.store.commit(c.hash)
			if err != nil {
				return err
			}
			w.found = append(w.found, describe(full))
		}
		for _, p := range follow {
			if !w.seen[p.hash] {
				w.seen[p.hash] = true
				heap.Push(&w.queue, p)
			}
		}
		if w.most > 0 && len(w.found) == w.most {
			if len(w.queue) > 0 {
				w.cut = fmt.Sprintf("there may be more than the %d commits asked for", w.most)
			}
			return nil
		}
	}
	return nil
}

var emptyTree = plumbing.ComputeHash(plumbing.TreeObject, nil)

// judge reports whether a commit touched the path, and which parents to follow.
func (w *walk) judge(c node) (touched bool, follow []node, err error) {
	here, err := w.r.at(c.tree, w.path)
	if err != nil {
		return false, nil, err
	}
	for _, hash := range c.parents {
		full, err := w.r.store.commit(hash)
		if err != nil {
			return false, nil, err
		}
		parent := nodeOf(full)
		there, err := w.r.at(parent.tree, w.path)
		if err != nil {
			return false, nil, err
		}
		if there == here {
			return false, []node{parent}, nil
		}
		follow = append(follow, parent)
	}
	return len(follow) > 0 || !isNothing(here) && here.Hash != emptyTree, follow, nil
}

// deepen fetches more of the history, until the parents of a commit are here, or
// the walk will not get further anyway.
func (w *walk) deepen(ctx context.Context, c node) error {
	most := w.r.call.differ.limits.Commits
	for !w.r.store.hasAll(c.parents) {
		if w.depth > most {
			w.cut = fmt.Sprintf("only the newest %d commits were fetched", w.depth)
			return nil
		}
		w.depth = max(firstDepth, w.depth*depthFactor, w.walked*2) // the cache may hold more than was fetched now
		err := w.fetch(ctx, c)
		if errors.Is(err, errHistoryEnds) {
			w.cut = fmt.Sprintf("the local repository is shallow: its history ends at commit %s", c.hash)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) fetch(ctx context.Context, c node) error {
	f, err := w.r.fetcher(ctx)
	if err != nil {
		return err
	}
	if f == nil {
		return errHistoryEnds
	}
	err = f.fetch(ctx, []plumbing.Hash{w.start}, w.depth, func() bool { return w.r.store.hasAll(c.parents) })
	if errors.Is(err, errNotGiven) {
		// The server gave its whole history, which does not hold the parents.
		return fmt.Errorf("%w: the parents of commit %s are missing", errBroken, c.hash)
	}
	return err
}

// byDate is a heap of commits, the newest first. Of two with one date, the hash
// decides, so that every walk is the same.
type byDate []node

func (q byDate) Len() int { return len(q) }

func (q byDate) Less(i, j int) bool {
	if c := q[i].when.Compare(q[j].when); c != 0 {
		return c > 0
	}
	return bytes.Compare(q[i].hash[:], q[j].hash[:]) < 0
}

func (q byDate) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *byDate) Push(c any) { *q = append(*q, c.(node)) }

// Pop implements heap.Interface.
func (q *byDate) Pop() any {
	last := len(*q) - 1
	c := (*q)[last]
	*q = (*q)[:last]
	return c
}
