package gitdiff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// unlimited is the depth of a fetch of the whole history, in the protocol's words.
// Without a depth, a server would leave out what lies below the commits whose
// parents it is told are missing here.
const unlimited = 1<<31 - 1

// branchDepths are the steps by which a branch is searched for a commit that the
// server does not give out by its hash.
var branchDepths = []int{64, 1024, 16384}

// fetcher adds what a call lacks to its repository in the cache.
type fetcher struct {
	remote      remote
	entry       *entry
	branch      string // a hint, perhaps empty
	objectBytes int64
	budget      *budget
	store       *store
}

// fetch adds commits, or tags of commits, and their ancestors to a depth. It does
// nothing if done says that it is not needed. It returns errNotGiven if the server
// gave all it has and done is not satisfied yet; if a server gave the commits to
// the depth, that may be so without an error.
//
// It asks for the commits by their hash first. Servers refuse that for a commit
// that no ref names, unless they are set up to allow it; then the branch that
// was hinted at and the default branch are searched, step by step, and in the
// end all branches and tags are fetched.
func (f *fetcher) fetch(ctx context.Context, wants []plumbing.Hash, depth int, done func() bool) error {
	fetching, err := f.entry.fetching(ctx)
	if err != nil {
		return err
	}
	defer fetching.release()
	if here, err := f.begin(done); here || err != nil {
		return err
	}
	err = f.exchange(ctx, exchange{wants: wants, depth: depth, tips: wants, blobless: true})
	var refused *refusedError
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	if err == nil && (done() || f.store.hasAll(wants)) {
		return nil // in the latter case, it was not deep enough
	}
	adv, err := f.remote.advertised(ctx)
	if err != nil {
		return err
	}
	for _, tip := range f.likelyTips(adv) {
		for _, depth := range branchDepths {
			if err := f.exchange(ctx, exchange{wants: tip, depth: depth, tips: tip, blobless: true}); err != nil {
				return err
			}
			if done() {
				return nil
			}
			if !adv.Capabilities.Supports(capability.Shallow) {
				break // it was the whole history
			}
		}
	}
	if all := branchesAndTags(adv); len(all) > 0 {
		if err := f.exchange(ctx, exchange{wants: all, depth: unlimited, blobless: true}); err != nil {
			return err
		}
	}
	if !done() {
		return errNotGiven
	}
	return nil
}

// begin prepares a fetch, whose lock is held. It reports whether another call has
// just fetched what is needed.
func (f *fetcher) begin(done func() bool) (bool, error) {
	if err := f.store.reload(); err != nil {
		return false, err
	}
	if done() {
		return true, nil
	}
	here, err := f.entry.readState()
	if err != nil {
		return false, fmt.Errorf("%w: %w", errBroken, err)
	}
	if !f.store.hasAll(hashes(here.Tips)) {
		return false, fmt.Errorf("%w: packs are missing", errBroken)
	}
	if len(here.Shallow) > mostShallows {
		return false, fmt.Errorf("%w: its history ends at too many places", errBroken)
	}
	f.entry.removeLeftovers()
	f.entry.grew = true
	return false, nil
}

// errNotGiven is something that a server does not have, or does not give.
var errNotGiven = errors.New("the server does not have it")

// fetchBlobs adds files that a partial repository lacks: by their hash, or else,
// where the server refuses that, with all files of the commits, or else with all
// there is.
func (f *fetcher) fetchBlobs(ctx context.Context, blobs, commits []plumbing.Hash, done func() bool) error {
	fetching, err := f.entry.fetching(ctx)
	if err != nil {
		return err
	}
	defer fetching.release()
	if here, err := f.begin(done); here || err != nil {
		return err
	}
	adv, err := f.remote.advertised(ctx)
	if err != nil {
		return err
	}
	for _, x := range []exchange{{wants: blobs}, {wants: commits, depth: 1}, {wants: branchesAndTags(adv), depth: unlimited}} {
		if len(x.wants) == 0 {
			continue
		}
		err := f.exchange(ctx, x)
		if err == nil && done() {
			return nil
		}
		var refused *refusedError
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return errNotGiven
}

// likelyTips are the tips of the branches to search first.
func (f *fetcher) likelyTips(adv *packp.AdvRefs) [][]plumbing.Hash {
	var tips [][]plumbing.Hash
	if tip, ok := adv.References["refs/heads/"+f.branch]; ok {
		tips = append(tips, []plumbing.Hash{tip})
	}
	if adv.Head != nil && (len(tips) == 0 || tips[0][0] != *adv.Head) {
		tips = append(tips, []plumbing.Hash{*adv.Head})
	}
	return tips
}

func branchesAndTags(adv *packp.AdvRefs) []plumbing.Hash {
	all := map[plumbing.Hash]bool{}
	for name, hash := range adv.References {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/tags/") {
			all[hash] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b plumbing.Hash) int { return strings.Compare(a.String(), b.String()) })
}

// exchange is one request and its answer.
type exchange struct {
	wants    []plumbing.Hash
	depth    int
	tips     []plumbing.Hash // the wants that are commits, to be named in later requests
	blobless bool            // leave files out, where the server can
}

// exchange carries out one request and stores its answer. A server that does not
// want to gives a *refusedError.
func (f *fetcher) exchange(ctx context.Context, x exchange) error {
	adv, err := f.remote.advertised(ctx)
	if err != nil {
		return err
	}
	if len(adv.References) == 0 && adv.Head == nil {
		return &refusedError{"the repository has no commit"}
	}
	before, err := f.entry.readState()
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	request, err := newRequest(adv, x, before)
	if err != nil {
		return err
	}
	pack, err := newIncomingPack(f.entry.packs())
	if err != nil {
		return err
	}
	defer pack.discard()
	shallows, err := f.receive(ctx, request, pack)
	if err != nil {
		return err
	}
	// What is missing is recorded before it can be missed, and what is here only
	// once it is here: a process may die in between.
	during := before.withShallow(shallows.Shallows)
	during.Partial = before.Partial || request.Filter != ""
	if err := f.entry.writeState(during); err != nil {
		return err
	}
	if err := pack.keep(ctx, f.objectBytes); err != nil {
		return err
	}
	if err := f.store.reload(); err != nil {
		return err
	}
	tips := slices.DeleteFunc(slices.Clone(x.tips), func(h plumbing.Hash) bool { return !f.store.has(h) })
	return f.entry.writeState(during.withoutShallow(shallows.Unshallows, tips))
}

func (f *fetcher) receive(ctx context.Context, request *packp.UploadPackRequest, pack *incomingPack) (packp.ShallowUpdate, error) {
	body, err := encodeRequest(request)
	if err != nil {
		return packp.ShallowUpdate{}, err
	}
	response, err := f.remote.request(ctx, body)
	if err != nil {
		return packp.ShallowUpdate{}, err
	}
	defer func() { _ = response.Close() }()
	shallows, err := readResponse(response, pack)
	if err == nil {
		return shallows, nil
	}
	if spent := f.budget.err(); spent != nil {
		err = spent
	}
	return shallows, ofContext(ctx, err)
}

// refusedError is a request that a server refuses, in its words.
type refusedError struct{ words string }

func (e *refusedError) Error() string { return "the server says " + said(e.words) }

// notFound is the error for a commit that a server does not give.
func notFound(commit plumbing.Hash) error {
	return fmt.Errorf("commit %s: %w", commit, gitopsprovider.ErrCommitNotFound)
}
