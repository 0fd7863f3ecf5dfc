package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// sides are the two runs of the conformance suite: of the backends' own tests on a cluster in memory, and of the lab's on real controllers.
// Their tests have the same names. The folders are those that "go -C examples/lab run ." starts from.
var sides = []struct {
	name     string
	folder   string
	packages []string
}{
	{"in memory", "../..", []string{"./flux", "./argocd"}},
	{"in the lab", ".", []string{"./conformance"}},
}

// A checked is what became of one clause on one side.
type checked struct {
	result string
	took   time.Duration
	said   []string
}

const (
	passed  = "pass"
	failed  = "FAIL"
	lacking = "lacks"
	absent  = "absent"
)

// conformance runs the suite on both sides and prints what became of each clause, side by side.
func conformance(ctx context.Context, out io.Writer, flags *flag.FlagSet, args []string) error {
	clauses := flags.String("run", "Conforms", "run only the tests that match this `pattern`, as in go test -run")
	if err := parse(flags, args); err != nil {
		return err
	}
	var results []map[string]*checked
	var broken []error
	for _, side := range sides {
		began := time.Now()
		found, err := suite(ctx, side.folder, side.packages, *clauses)
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", side.name, err))
		}
		fmt.Fprintf(out, "%s: %d clauses in %v\n", side.name, len(found), time.Since(began).Round(time.Second))
		results = append(results, found)
	}
	return errors.Join(append(broken, tabulate(out, results))...)
}

// suite runs the conformance tests of packages. The error is of a run that says nothing; a clause that fails is in the result.
func suite(ctx context.Context, folder string, packages []string, run string) (map[string]*checked, error) {
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count=1", "-timeout=30m", "-run=" + run}, packages...)...)
	test.Dir = folder
	events, err := test.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := test.Start(); err != nil {
		return nil, err
	}
	found, trouble := read(events)
	err = test.Wait()
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no clause was checked: %w\n%s", errors.Join(err, ctx.Err()), strings.Join(trouble, ""))
	case err != nil && !slices.ContainsFunc(slices.Collect(maps.Values(found)), func(c *checked) bool { return c.result == failed }):
		return found, fmt.Errorf("go test: %w\n%s", err, strings.Join(trouble, ""))
	}
	return found, ctx.Err()
}

// read reads what go test -json says, and keeps what it says of no clause.
func read(events io.Reader) (found map[string]*checked, trouble []string) {
	found = make(map[string]*checked)
	said := make(map[string][]string)
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			trouble = append(trouble, lines.Text()+"\n")
			continue
		}
		clause := clauseOf(event.Test)
		switch {
		case event.Action == "output" && clause == "", event.Action == "build-output":
			trouble = append(trouble, event.Output)
		case event.Action == "output":
			said[clause] = append(said[clause], event.Output)
		case clause != "" && (event.Action == "pass" || event.Action == "fail"):
			c := &checked{result: passed, took: time.Duration(event.Elapsed * float64(time.Second)), said: said[clause]}
			if event.Action == "fail" {
				c.result = failed
			} else if slices.ContainsFunc(c.said, func(line string) bool { return strings.Contains(line, "not checked, for want of") }) {
				c.result = lacking
			}
			found[clause] = c
		}
	}
	return found, trouble
}

// clauseOf returns the clause that a test checks: the backend, its mode, and the clause's group and name. Other tests check none.
func clauseOf(test string) string {
	backend, rest, ok := strings.Cut(test, "Conforms/")
	if !ok {
		return ""
	}
	mode, clause, ok := strings.Cut(rest, "/clauses/")
	if !ok || !strings.Contains(clause, "/") {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(backend, "Test")) + " " + mode + ": " + strings.ReplaceAll(clause, "_", " ")
}

// tabulate prints the results side by side, and what failed. Its error says how many clauses failed, or were checked on one side alone.
func tabulate(out io.Writer, results []map[string]*checked) error {
	var all []string
	for _, found := range results {
		for clause := range found {
			all = append(all, clause)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "clause")
	for _, side := range sides {
		fmt.Fprintf(table, "\t%s\t", side.name)
	}
	fmt.Fprintln(table)
	var failures, differences int
	var words []string
	for _, clause := range all {
		fmt.Fprint(table, clause)
		var checkedOn int
		for i, found := range results {
			c := found[clause]
			if c == nil {
				c = &checked{result: absent}
			}
			fmt.Fprintf(table, "\t%s\t%.2fs", c.result, c.took.Seconds())
			if c.result == passed || c.result == failed {
				checkedOn++
			}
			if c.result == failed {
				failures++
				words = append(words, fmt.Sprintf("\n%s, %s:\n%s", clause, sides[i].name, strings.Join(c.said, "")))
			}
		}
		if checkedOn == 1 {
			differences++
			fmt.Fprint(table, "\tdiffers")
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, said := range words {
		fmt.Fprint(out, said)
	}
	if failures > 0 || differences > 0 {
		return fmt.Errorf("%d clauses failed, and %d were checked on one side alone", failures, differences)
	}
	return nil
}
