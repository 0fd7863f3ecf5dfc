package gitdiff

import (
	"bytes"
	"context"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

const (
	// mostRenameFiles and mostRenameBytes bound what is compared to find a file
	// that was renamed and changed at once. The work grows with the number of
	// deleted files times that of added ones; beyond the bound only files that
	// moved unchanged are paired.
	mostRenameFiles = 200
	mostRenameBytes = 32 << 20

	// leastSimilarity is from where on a deleted and an added file are taken for
	// one, as in Git, in percent.
	leastSimilarity = 50
)

// pairRenames turns deleted and added files into renamed ones: first those of the
// same content, then the most alike. It reports whether it compared contents.
func (r *repository) pairRenames(ctx context.Context, changes []change) ([]change, bool, error) {
	p := newPairing(changes)
	p.pairEqual()
	whole := true
	if p.deleted() > 0 && p.added() > 0 {
		var err error
		if whole, err = r.pairAlike(ctx, p); err != nil {
			return nil, false, err
		}
	}
	return p.result(), whole, nil
}

// pairing is the state of finding renames: indexes of changes that are still
// deleted or added files.
type pairing struct {
	changes   []change
	from, to  []int
	paired    map[int]bool
	additions []change
}

func newPairing(changes []change) *pairing {
	p := &pairing{changes: changes, paired: map[int]bool{}}
	for i, c := range changes {
		// A submodule has no content to compare, and an empty file is like any
		// other.
		switch {
		case !c.after.exists() && c.before.hasBlob() && c.before.hash != emptyBlob:
			p.from = append(p.from, i)
		case !c.before.exists() && c.after.hasBlob() && c.after.hash != emptyBlob:
			p.to = append(p.to, i)
		}
	}
	return p
}

var emptyBlob = plumbing.ComputeHash(plumbing.BlobObject, nil)

func (p *pairing) deleted() int { return len(p.from) }
func (p *pairing) added() int   { return len(p.to) }

// pair makes a rename of a deleted and an added file.
func (p *pairing) pair(from, to, similarity int) {
	p.paired[from] = true
	p.paired[to] = true
	p.additions = append(p.additions, change{before: p.changes[from].before, after: p.changes[to].after, similarity: similarity})
}

// sameKind reports whether a deleted and an added file may be one file.
func (p *pairing) sameKind(from, to int) bool {
	return (p.changes[from].before.mode == modeSymlink) == (p.changes[to].after.mode == modeSymlink)
}

func (p *pairing) drop() {
	p.from = slices.DeleteFunc(p.from, func(i int) bool { return p.paired[i] })
	p.to = slices.DeleteFunc(p.to, func(i int) bool { return p.paired[i] })
}

// pairEqual pairs files of the same content, those of the same name first.
func (p *pairing) pairEqual() {
	byHash := map[plumbing.Hash][]int{}
	for _, i := range p.from {
		h := p.changes[i].before.hash
		byHash[h] = append(byHash[h], i)
	}
	for _, sameName := range []bool{true, false} {
		for _, to := range p.to {
			after := p.changes[to].after
			for n, from := range byHash[after.hash] {
				if p.paired[to] || !p.sameKind(from, to) || sameName && base(p.changes[from].before.path) != base(after.path) {
					continue
				}
				p.pair(from, to, 100)
				byHash[after.hash] = slices.Delete(byHash[after.hash], n, n+1)
				break
			}
		}
	}
	p.drop()
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

func (p *pairing) result() []change {
	var out []change
	for i, c := range p.changes {
		if !p.paired[i] {
			out = append(out, c)
		}
	}
	out = append(out, p.additions...)
	slices.SortStableFunc(out, func(a, b change) int { return strings.Compare(a.path(), b.path()) })
	return out
}

// pairAlike pairs files by their content, the most alike first. It reports
// whether there were few enough.
func (r *repository) pairAlike(ctx context.Context, p *pairing) (bool, error) {
	if p.deleted() > mostRenameFiles || p.added() > mostRenameFiles {
		return false, nil
	}
	prints, err := r.prints(ctx, p)
	if err != nil || prints == nil {
		return false, err
	}
	type candidate struct{ from, to, similarity int }
	var candidates []candidate
	for _, from := range p.from {
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
		for _, to := range p.to {
			a, b := prints[p.changes[from].before.hash], prints[p.changes[to].after.hash]
			if s := a.similarity(b); s >= leastSimilarity && p.sameKind(from, to) {
				candidates = append(candidates, candidate{from, to, s})
			}
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return b.similarity - a.similarity })
	for _, c := range candidates {
		if !p.paired[c.from] && !p.paired[c.to] {
			p.pair(c.from, c.to, c.similarity)
		}
	}
	p.drop()
	return true, nil
}

// prints reads the files that are still unpaired, or returns nil if they are too
// large together.
func (r *repository) prints(ctx context.Context, p *pairing) (map[plumbing.Hash]print, error) {
	var left int64 = mostRenameBytes
	seed := maphash.MakeSeed()
	out := map[plumbing.Hash]print{}
	var files []plumbing.Hash
	for _, i := range p.from {
		files = append(files, p.changes[i].before.hash)
	}
	for _, i := range p.to {
		files = append(files, p.changes[i].after.hash)
	}
	for _, h := range files {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if _, ok := out[h]; ok || !r.store.has(h) {
			continue
		}
		size, err := r.store.blobSize(h)
		if err != nil {
			return nil, err
		}
		if size > r.call.differ.limits.FileBytes {
			continue // pairs with nothing
		}
		if left -= size; left < 0 {
			return nil, nil
		}
		content, err := r.store.blob(h, size)
		if err != nil {
			return nil, err
		}
		out[h] = newPrint(seed, content)
	}
	return out, nil
}

// print is what a content is compared by: how many bytes it has in each of its
// lines, whatever their order.
type print struct {
	size  int
	lines map[uint64]int
}

// newPrint splits a content into lines, and long ones into pieces of 64 bytes, so
// that binary files have lines as well.
func newPrint(seed maphash.Seed, content []byte) print {
	const longest = 64
	p := print{len(content), map[uint64]int{}}
	for len(content) > 0 {
		n := bytes.IndexByte(content[:min(longest, len(content))], '\n') + 1
		if n == 0 {
			n = min(longest, len(content))
		}
		p.lines[maphash.Bytes(seed, content[:n])] += n
		content = content[n:]
	}
	return p
}

// similarity is how much of the larger content is in the other one, in percent.
func (p print) similarity(other print) int {
	larger, smaller := max(p.size, other.size), min(p.size, other.size)
	if larger == 0 || smaller*100 < larger*leastSimilarity {
		return 0
	}
	shared := 0
	for line, n := range p.lines {
		shared += min(n, other.lines[line])
	}
	return shared * 100 / larger
}
