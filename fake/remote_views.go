package fake

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

var _ gitopsprovider.Differ = (*Remote)(nil)

// Diff makes the remote a gitopsprovider.Differ, so that views of a [Cluster] need no Git server. It differs from that of
// package gitdiff in three ways: it finds no renames, the changes of a file are one hunk from the first line that differs to
// the last, and values of Secrets are shown.
func (r *Remote) Diff(ctx context.Context, q gitopsprovider.DiffQuery) (gitopsprovider.Diff, error) {
	d := gitopsprovider.Diff{Repository: gitref.Redact(q.Repository)}
	repository, folder, err := r.query(ctx, q.Repository, q.Path)
	if err != nil {
		return d, err
	}
	d.Path = folder
	repository.mu.Lock()
	defer repository.mu.Unlock()
	to, err := repository.asked("to", q.To)
	if err != nil {
		return d, err
	}
	from := to.parent
	if q.From != "" {
		if _, err := repository.asked("from", q.From); err != nil {
			return d, err
		}
		from = q.From
	}
	d.From, d.To, d.Commit = from, q.To, to.describe(q.To)
	d.Files = fileDiffs(folder, repository.commits[from].files, to.files)
	switch {
	case len(d.Files) > 0:
	case from == q.To:
		d.Note = "from and to are the same commit"
	default:
		repository.newestTouching(&d)
	}
	return d, nil
}

// newestTouching makes a diff without files that of the newest commit that touched its path.
func (r *Repository) newestTouching(d *gitopsprovider.Diff) {
	for hash := d.To; hash != ""; hash = r.commits[hash].parent {
		commit := r.commits[hash]
		files := fileDiffs(d.Path, r.commits[commit.parent].files, commit.files)
		if len(files) == 0 {
			continue
		}
		d.Note = fmt.Sprintf("%s is the same in both commits; this is commit %s, the newest that touched it", words(d.Path), gitref.Short(hash))
		d.NewestTouching, d.From, d.To, d.Commit, d.Files = true, commit.parent, hash, commit.describe(hash), files
		return
	}
	d.Note = words(d.Path) + " is the same in both commits, and no commit before touched it"
}

// History makes the remote a gitopsprovider.Differ.
func (r *Remote) History(ctx context.Context, q gitopsprovider.HistoryQuery) (gitopsprovider.History, error) {
	var h gitopsprovider.History
	repository, folder, err := r.query(ctx, q.Repository, q.Path)
	if err != nil {
		return h, err
	}
	repository.mu.Lock()
	defer repository.mu.Unlock()
	if _, err := repository.asked("revision", q.Revision); err != nil {
		return h, err
	}
	for hash := q.Revision; hash != ""; hash = repository.commits[hash].parent {
		commit := repository.commits[hash]
		switch {
		case !q.Since.IsZero() && commit.when.Before(q.Since), !q.Until.IsZero() && commit.when.After(q.Until),
			!touches(folder, repository.commits[commit.parent].files, commit.files):
		case q.Limit > 0 && len(h.Commits) == q.Limit:
			h.Cut = true
			h.Note = fmt.Sprintf("the list ends after %d commits, as it was asked to", q.Limit)
			return h, nil
		default:
			h.Commits = append(h.Commits, commit.describe(hash))
		}
	}
	if len(h.Commits) == 0 {
		h.Note = "no commit of this window touched " + words(folder)
	}
	return h, nil
}

// query finds the repository that a question is about, and cleans its path.
func (r *Remote) query(ctx context.Context, url, path string) (*Repository, string, error) {
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	if _, err := gitref.Normalize(url); err != nil {
		return nil, "", fmt.Errorf("%w: %w", gitopsprovider.ErrInvalidQuery, err)
	}
	var parts []string
	for part := range strings.SplitSeq(path, "/") {
		if part == ".." {
			return nil, "", fmt.Errorf("path %q leaves the folder it begins in: %w", path, gitopsprovider.ErrInvalidQuery)
		}
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	found, ok := r.find(url)
	if !ok {
		return nil, "", fmt.Errorf("%s: %w", gitref.Redact(url), gitopsprovider.ErrRepositoryNotFound)
	}
	return found, strings.Join(parts, "/"), nil
}

// asked returns the commit that a field of a question names. The lock is held.
func (r *Repository) asked(field, hash string) (gitCommit, error) {
	if !gitref.IsCommit(hash) {
		return gitCommit{}, fmt.Errorf("%s %q is not a full commit hash in lower-case hex: %w", field, hash, gitopsprovider.ErrInvalidQuery)
	}
	commit, ok := r.commits[hash]
	if !ok {
		return commit, fmt.Errorf("commit %s of %s: %w", hash, gitref.Redact(r.url), gitopsprovider.ErrCommitNotFound)
	}
	return commit, nil
}

func (c gitCommit) describe(hash string) gitopsprovider.Commit {
	described := gitopsprovider.Commit{Hash: hash, Subject: c.subject, Author: "fake <fake@localhost>", When: c.when}
	if c.parent != "" {
		described.Parents = []string{c.parent}
	}
	return described
}

// words names a path in a sentence.
func words(path string) string {
	if path == "" {
		return "the repository"
	}
	return path
}

// within reports whether a file is the path, or lies below it.
func within(path, file string) bool {
	return path == "" || file == path || strings.HasPrefix(file, path+"/")
}

// differing lists the files of a path that are not the same on both sides, in the order of their names.
func differing(path string, before, after Files) []string {
	names := map[string]bool{}
	for _, side := range []Files{before, after} {
		for name := range side {
			old, was := before[name]
			now, is := after[name]
			if within(path, name) && (was != is || old != now) {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func touches(path string, before, after Files) bool { return len(differing(path, before, after)) > 0 }

func fileDiffs(path string, before, after Files) []gitopsprovider.FileDiff {
	var diffs []gitopsprovider.FileDiff
	for _, name := range differing(path, before, after) {
		old, was := before[name]
		now, is := after[name]
		diffs = append(diffs, fileDiff(name, blob{old, was}, blob{now, is}))
	}
	return diffs
}

// A blob is one side of a file.
type blob struct {
	content string
	exists  bool
}

// hash is the hash that Git gives the content.
func (b blob) hash() string {
	if !b.exists {
		return ""
	}
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(b.content), b.content))
	return hex.EncodeToString(sum[:])
}

func (b blob) mode() gitopsprovider.FileMode {
	if !b.exists {
		return ""
	}
	return gitopsprovider.ModeRegular
}

func fileDiff(name string, before, after blob) gitopsprovider.FileDiff {
	f := gitopsprovider.FileDiff{
		Path: name, Status: gitopsprovider.FileModified, OldMode: before.mode(), NewMode: after.mode(), OldBlob: before.hash(), NewBlob: after.hash(),
		Binary: strings.Contains(before.content+after.content, "\x00"),
	}
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git a/%s b/%s\n", name, name)
	none := strings.Repeat("0", sha1.Size*2)
	old, now := "a/"+name, "b/"+name
	switch {
	case !before.exists:
		f.Status, old = gitopsprovider.FileAdded, "/dev/null"
		fmt.Fprintf(&b, "new file mode %s\nindex %s..%s\n", f.NewMode, none, f.NewBlob)
	case !after.exists:
		f.Status, now = gitopsprovider.FileDeleted, "/dev/null"
		fmt.Fprintf(&b, "deleted file mode %s\nindex %s..%s\n", f.OldMode, f.OldBlob, none)
	default:
		fmt.Fprintf(&b, "index %s..%s %s\n", f.OldBlob, f.NewBlob, f.NewMode)
	}
	switch {
	case f.Binary:
		fmt.Fprintf(&b, "Binary files %s and %s differ\n", old, now)
	case before.content != after.content:
		fmt.Fprintf(&b, "--- %s\n+++ %s\n", old, now)
		writeHunk(&b, lines(before.content), lines(after.content))
	}
	f.Patch = b.String()
	return f
}

// lines cuts a text after its line feeds.
func lines(text string) []string {
	cut := strings.SplitAfter(text, "\n")
	if cut[len(cut)-1] == "" {
		cut = cut[:len(cut)-1]
	}
	return cut
}

// hunkContext is how many lines a hunk shows before and after what differs.
const hunkContext = 3

// writeHunk writes the one hunk that turns lines into others.
func writeHunk(b *strings.Builder, before, after []string) {
	head := 0
	for head < min(len(before), len(after)) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < min(len(before), len(after))-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	start, end := max(0, head-hunkContext), max(0, tail-hunkContext)
	fmt.Fprintf(b, "@@ -%s +%s @@\n", span(start, len(before)-end), span(start, len(after)-end))
	writeLines(b, ' ', before[start:head])
	writeLines(b, '-', before[head:len(before)-tail])
	writeLines(b, '+', after[head:len(after)-tail])
	writeLines(b, ' ', before[len(before)-tail:len(before)-end])
}

// span is the lines of a side that a hunk covers, in the form of a patch.
func span(start, end int) string {
	switch end - start {
	case 0:
		return fmt.Sprintf("%d,0", start)
	case 1:
		return fmt.Sprint(start + 1)
	default:
		return fmt.Sprintf("%d,%d", start+1, end-start)
	}
}

func writeLines(b *strings.Builder, kind byte, lines []string) {
	for _, line := range lines {
		b.WriteByte(kind)
		b.WriteString(line)
		if !strings.HasSuffix(line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
