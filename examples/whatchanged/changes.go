package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gitops-applier/gitops-applier/applier/gitref"
	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// changeReport is what -o json prints of the changes.
type changeReport struct {
	Cluster string    `json:"cluster"`
	Since   time.Time `json:"since,omitzero"`
	// Changes, Cut and Reads are those of a gitopsprovider.ChangeList.
	Changes []shownChange         `json:"changes"`
	Cut     bool                  `json:"cut,omitempty"`
	Reads   []gitopsprovider.Read `json:"reads"`
}

// shownChange is a change and, if it was asked for, its diff, or why there is none.
type shownChange struct {
	gitopsprovider.Change
	Diff      *gitopsprovider.Diff `json:"diff,omitempty"`
	DiffError string               `json:"diffError,omitempty"`
}

func (p printer) changes(ctx context.Context, cluster string, views gitopsprovider.Provider, o options) error {
	var window gitopsprovider.TimeWindow
	if o.since > 0 {
		window.Since = time.Now().Add(-o.since)
	}
	list, err := views.Changes(ctx, window, gitopsprovider.Selector{Namespace: o.namespace})
	if err != nil {
		return err
	}
	if err := unanswered(cluster, list.Reads); err != nil {
		return err
	}
	r := changeReport{Cluster: cluster, Since: window.Since, Changes: []shownChange{}, Cut: list.Cut, Reads: list.Reads}
	whole := list.Err() == nil
	for _, change := range list.Changes {
		shown := shownChange{Change: change}
		if o.diff {
			whole = shown.read(ctx, views) && whole
		}
		r.Changes = append(r.Changes, shown)
	}
	if p.json {
		err = p.encode(r)
	} else {
		p.changeReport(r, o)
	}
	if err == nil && !whole {
		err = errInPart
	}
	return err
}

// errInPart ends a command whose answer says what is missing from it.
var errInPart = errors.New("not everything could be read")

// unanswered returns an error if no read of the cluster was answered.
func unanswered(cluster string, reads []gitopsprovider.Read) error {
	if len(reads) == 0 || slices.ContainsFunc(reads, func(r gitopsprovider.Read) bool { return r.Answer != gitopsprovider.AnswerUnknown }) {
		return nil
	}
	return fmt.Errorf("cluster %s does not answer: %w", cluster, reads[0].Err)
}

// read reads the diff, and reports whether that went well.
func (c *shownChange) read(ctx context.Context, views gitopsprovider.Provider) bool {
	diff, err := views.Diff(ctx, c.Change)
	if err != nil {
		c.DiffError = err.Error()
		return false
	}
	c.Diff = &diff
	return true
}

func (p printer) changeReport(r changeReport, o options) {
	what := "What is applied in cluster " + r.Cluster
	if o.since > 0 {
		what = fmt.Sprintf("What landed in cluster %s since %s", r.Cluster, stamp(r.Since))
	}
	if o.namespace != "" {
		what += ", in or into namespace " + o.namespace
	}
	p.line("%s:", what)
	for _, change := range r.Changes {
		p.line("")
		p.change(change)
	}
	if len(r.Changes) == 0 {
		p.line("  nothing")
	}
	if r.Cut {
		p.line("\nThere is more than is shown.")
	}
	p.reads(r.Reads)
}

func (p printer) change(c shownChange) {
	p.line("%s  %s", c.Workload, c.Ready)
	revision, before := short(c.ToRev), "before it"
	if c.ToRev == "" {
		revision, before = short(c.Attempted), "applied still"
	}
	if c.Commit != nil {
		revision = fmt.Sprintf("%s %q by %s, %s", gitref.Short(c.Commit.Hash), c.Commit.Subject, c.Commit.Author, stamp(c.Commit.When))
	}
	if c.ToRev == "" {
		revision = "failed: " + revision
	}
	if !c.DeployedAt.IsZero() {
		revision += ", deployed " + stamp(c.DeployedAt)
	} else if !c.DeployedAfter.IsZero() {
		revision += ", deployed after " + stamp(c.DeployedAfter)
	}
	p.line("  %s", revision)
	if c.FromRev != "" {
		p.line("  %s: %s", before, short(c.FromRev))
	}
	p.line("  from %s", source(c.Source, c.Path))
	for _, manager := range c.ManagedBy {
		p.line("  managed by %s", manager)
	}
	for _, note := range c.Notes {
		p.line("  note: %s", note)
	}
	if c.DiffError != "" {
		p.line("  no diff: %s", c.DiffError)
	}
	if c.Diff != nil {
		p.diff(*c.Diff)
	}
}

func (p printer) diff(d gitopsprovider.Diff) {
	if d.Note != "" {
		p.line("  diff: %s", d.Note)
	}
	for _, file := range d.Files {
		if file.SecretsHidden {
			p.line("  values of Secrets are hidden in %s:", file.Path)
		}
		for line := range strings.Lines(file.Patch) {
			p.line("    %s", strings.TrimRight(line, "\r\n"))
		}
		if file.Cut {
			p.line("    (cut)")
		}
	}
}

// reads says what the answer does not rest on: engines that are not installed, and what could not be read.
func (p printer) reads(reads []gitopsprovider.Read) {
	var engines []gitopsprovider.Engine
	served := map[gitopsprovider.Engine]bool{}
	for _, read := range reads {
		if read.Engine != "" && !slices.Contains(engines, read.Engine) {
			engines = append(engines, read.Engine)
		}
		served[read.Engine] = served[read.Engine] || read.Answer != gitopsprovider.AnswerNotServed
	}
	for _, engine := range engines {
		if !served[engine] {
			p.line("\n%s is not installed: the cluster serves none of its kinds.", engine)
		}
	}
	for _, read := range reads {
		if read.Message != "" && served[read.Engine] {
			p.line("\nNot shown: %s", read.Message)
		}
	}
}
