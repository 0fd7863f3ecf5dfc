package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What go test -json says of a suite: one clause that holds, one that does not, and one that cannot be checked.
const suiteEvents = `{"Action":"run","Test":"TestFluxConforms/held/clauses/Request/names_what_it_started"}
{"Action":"output","Test":"TestFluxConforms/held/clauses/Request/names_what_it_started","Output":"=== RUN\n"}
{"Action":"pass","Test":"TestFluxConforms/held/clauses/Request/names_what_it_started","Elapsed":0.25}
{"Action":"output","Test":"TestFluxConforms/held/clauses/Quiet/leaves_no_goroutine","Output":"    this clause is broken\n"}
{"Action":"fail","Test":"TestFluxConforms/held/clauses/Quiet/leaves_no_goroutine","Elapsed":1}
{"Action":"fail","Test":"TestFluxConforms/held/clauses/Quiet","Elapsed":1}
{"Action":"output","Test":"TestFluxConforms/live/clauses/Holder/holds","Output":"    run.go:1: not checked, for want of Holder: it holds\n"}
{"Action":"pass","Test":"TestFluxConforms/live/clauses/Holder/holds","Elapsed":0}
{"Action":"fail","Test":"TestFluxConforms","Elapsed":2}
{"Action":"output","Output":"FAIL\n"}
`

func TestConformanceListsBothRunsSideBySide(t *testing.T) {
	t.Parallel()
	memory, _ := read(strings.NewReader(strings.ReplaceAll(suiteEvents, `"fail"`, `"pass"`)))
	lab, trouble := read(strings.NewReader(suiteEvents))
	assert.Equal(t, []string{"FAIL\n"}, trouble)
	require.Len(t, lab, 3)

	var out strings.Builder
	err := tabulate(&out, []map[string]*checked{memory, lab})
	require.EqualError(t, err, "1 clauses failed, and 0 were checked on one side alone")
	assert.Regexp(t, `flux held: Quiet/leaves no goroutine +pass +1.00s +FAIL +1.00s`, out.String())
	assert.Regexp(t, `flux held: Request/names what it started +pass +0.25s +pass +0.25s`, out.String())
	assert.Regexp(t, `flux live: Holder/holds +lacks +0.00s +lacks +0.00s`, out.String())
	assert.Contains(t, out.String(), "flux held: Quiet/leaves no goroutine, in the lab:\n    this clause is broken\n")
}

// A clause that only one side checks is told apart from one that neither can check.
func TestConformanceFailsWhereTheRunsDiffer(t *testing.T) {
	t.Parallel()
	memory, _ := read(strings.NewReader(strings.ReplaceAll(suiteEvents, `"fail"`, `"pass"`)))
	lab, _ := read(strings.NewReader(strings.ReplaceAll(strings.ReplaceAll(suiteEvents, `"fail"`, `"pass"`), "this clause is broken", "not checked, for want of API")))
	delete(lab, "flux held: Request/names what it started")
	var out strings.Builder
	require.EqualError(t, tabulate(&out, []map[string]*checked{memory, lab}), "0 clauses failed, and 2 were checked on one side alone")
	assert.Regexp(t, `flux held: Quiet/leaves no goroutine +pass +1.00s +lacks +1.00s +differs`, out.String())
	assert.Regexp(t, `flux held: Request/names what it started +pass +0.25s +absent +0.00s +differs`, out.String())
}
