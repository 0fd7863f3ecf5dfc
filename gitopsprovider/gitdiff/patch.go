package gitdiff

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// binaryHead is how far Git looks for a NUL byte to tell a binary file.
const binaryHead = 8000

// patches adds the files to a diff, with their patches.
func (r *repository) patches(ctx context.Context, changes []change, d *gitopsprovider.Diff) error {
	left := r.call.differ.limits.PatchBytes
	cut := 0
	for _, c := range changes {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		f, err := r.patch(c, left)
		if err != nil {
			return err
		}
		if f.Cut {
			cut++
		}
		left = max(0, left-int64(len(f.Patch)))
		d.Files = append(d.Files, f)
	}
	if cut > 0 {
		d.Cut = true
		d.Note = joinNotes(d.Note, fmt.Sprintf("the patches of %d files are cut: they are too large", cut))
	}
	return nil
}

// content is what one side of a file holds.
type content struct {
	exists bool
	text   string
	binary bool
	cut    bool // too large, or not here
}

func (r *repository) content(s side) (content, error) {
	c := content{exists: s.exists()}
	if !c.exists {
		return c, nil
	}
	if s.mode == modeSubmodule {
		c.text = fmt.Sprintf("Subproject commit %s\n", s.hash)
		return c, nil
	}
	if !r.store.has(s.hash) {
		c.cut = true
		return c, nil
	}
	size, err := r.store.blobSize(s.hash)
	if err != nil {
		return c, err
	}
	most := r.call.differ.limits.FileBytes
	c.cut = size > most
	read := size
	if c.cut {
		read = binaryHead
	}
	data, err := r.store.blob(s.hash, read)
	if err != nil {
		return c, err
	}
	c.binary = bytes.IndexByte(data[:min(len(data), binaryHead)], 0) >= 0
	if !c.cut {
		c.text = string(data)
	}
	return c, nil
}

// patch returns what differs in one file. Its hunks have most bytes at most.
func (r *repository) patch(c change, most int64) (gitopsprovider.FileDiff, error) {
	f := gitopsprovider.FileDiff{Path: c.path(), Status: c.status()}
	f.OldMode, f.OldBlob = describeSide(c.before)
	f.NewMode, f.NewBlob = describeSide(c.after)
	if c.renamed() {
		f.OldPath = c.before.path
	}
	before, err := r.content(c.before)
	if err != nil {
		return f, err
	}
	after, err := r.content(c.after)
	if err != nil {
		return f, err
	}
	if !r.call.differ.options.ShowSecrets && !before.binary && !after.binary {
		f.SecretsHidden = hideSecrets(&before, &after)
	}
	if f.SecretsHidden {
		// All of the file but a short value may be known. Then its hash gives the
		// value away.
		f.OldBlob, f.NewBlob = "", ""
	}
	if !c.typeChanged() {
		r.section(c, before, after, most, &f)
		return f, nil
	}
	// Git writes this as a file that is deleted and another that is added.
	r.section(change{before: c.before}, before, content{}, most, &f)
	r.section(change{after: c.after}, content{}, after, most-int64(len(f.Patch)), &f)
	return f, nil
}

func describeSide(s side) (gitopsprovider.FileMode, string) {
	if !s.exists() {
		return "", ""
	}
	return octal(s.mode), s.hash.String()
}

func octal(m filemode.FileMode) gitopsprovider.FileMode {
	return gitopsprovider.FileMode(fmt.Sprintf("%06o", uint32(m)))
}

// section writes a part of a patch that begins with diff --git. If there is no
// room left, not even a header is written: with long paths, those of many files
// are long as well.
func (r *repository) section(c change, before, after content, most int64, f *gitopsprovider.FileDiff) {
	if most <= 0 {
		f.Cut = true
		return
	}
	var b strings.Builder
	c.writeHeader(&b, f.SecretsHidden)
	old, now := "/dev/null", "/dev/null"
	if c.before.exists() {
		old = "a/" + c.before.path
	}
	if c.after.exists() {
		now = "b/" + c.after.path
	}
	switch {
	case c.before.hash == c.after.hash:
	case before.binary || after.binary:
		f.Binary = true
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", quotePath(old), quotePath(now))
	case before.cut || after.cut:
		f.Cut = true
	default:
		edits, ok := diffLines(splitLines(before.text), splitLines(after.text))
		var body strings.Builder
		if !ok || !writeHunks(&body, edits, most) {
			f.Cut = true
		}
		if body.Len() > 0 {
			fmt.Fprintf(&b, "--- %s\n+++ %s\n%s", nameLine(old), nameLine(now), body.String())
		}
	}
	f.Patch += b.String()
}

// writeHeader writes the lines before the hunks. If the hashes are not to be
// shown, there is no index line.
func (c change) writeHeader(b *strings.Builder, hideHashes bool) {
	from, to := c.before, c.after
	if !from.exists() {
		from.path = to.path
	}
	if !to.exists() {
		to.path = from.path
	}
	fmt.Fprintf(b, "diff --git %s %s\n", quotePath("a/"+from.path), quotePath("b/"+to.path))
	mode := ""
	switch {
	case !from.exists():
		fmt.Fprintf(b, "new file mode %s\n", octal(to.mode))
	case !to.exists():
		fmt.Fprintf(b, "deleted file mode %s\n", octal(from.mode))
	case from.mode != to.mode:
		fmt.Fprintf(b, "old mode %s\nnew mode %s\n", octal(from.mode), octal(to.mode))
	default:
		mode = " " + string(octal(to.mode))
	}
	if c.renamed() {
		fmt.Fprintf(b, "similarity index %d%%\nrename from %s\nrename to %s\n", c.similarity, quotePath(from.path), quotePath(to.path))
	}
	if from.hash != to.hash && !hideHashes {
		fmt.Fprintf(b, "index %s..%s%s\n", orZero(from), orZero(to), mode)
	}
}

func orZero(s side) plumbing.Hash {
	if !s.exists() {
		return plumbing.ZeroHash
	}
	return s.hash
}
