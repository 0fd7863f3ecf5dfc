// Package bench measures on the lab what one operation costs beside what the controllers take themselves.
//
// Every figure of a round is taken one after the other on the same object, so that they share whatever else the
// machine is doing, and figures are compared as ratios of medians.
package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

// sample is the figures of one name.
type sample []float64

func (s sample) median() float64 { return s.quantile(0.5) }

// quantile returns the smallest figure that at least a share q of them does not exceed.
func (s sample) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(q*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

// samples are all figures of a run, by name; durations are in milliseconds.
type samples map[string]sample

func (s samples) add(name string, figure float64) { s[name] = append(s[name], figure) }

func (s samples) addSince(name string, begin time.Time) {
	s.add(name, float64(time.Since(begin).Microseconds())/1000)
}

// Flux measures rounds operations of each way to apply by Flux, and prints a table and one line for each figure:
// BENCH name value unit.
func Flux(ctx context.Context, l *lab.Lab, out io.Writer, rounds int) error {
	subject, err := newFluxSubject(ctx, l)
	if err != nil {
		return err
	}
	for round := range rounds + 1 {
		measured := samples{}
		if round > 0 {
			measured = subject.measured
		}
		if err := subject.round(ctx, measured, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return printFlux(out, subject.measured, subject.requests, rounds)
}

// row is one line of a table: what it measures, and beside what.
type row struct {
	title, name, beside string
}

var fluxRows = []row{
	{"the controller alone: resumed, applied, suspended, handled", "flux.controller", ""},
	{"an operation, followed by watching", "flux.op", "flux.controller"},
	{"an operation, polled every 2 s", "flux.op.poll", "flux.controller"},
	{"the controllers alone, with the fetch of a new commit", "flux.controller.fetch", ""},
	{"an operation with the fetch of a new commit", "flux.op.fetch", "flux.controller.fetch"},
	{"from the last status write to the report", "flux.lag", ""},
}

func printFlux(out io.Writer, measured samples, requests map[string]map[string]int, rounds int) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "Flux, %d rounds\tmedian ms\tp99 ms\tratio of medians\n", rounds)
	for _, r := range fluxRows {
		ratio := ""
		if r.beside != "" {
			ratio = fmt.Sprintf("%.2f × %s", measured[r.name].median()/measured[r.beside].median(), r.beside)
		}
		fmt.Fprintf(table, "%s (%s)\t%.1f\t%.1f\t%s\n", r.title, r.name, measured[r.name].median(), measured[r.name].quantile(0.99), ratio)
	}
	for _, name := range []string{"flux.op", "flux.op.fetch", "flux.op.poll"} {
		fmt.Fprintf(table, "most requests of %s: %.0f\t%s\n", name, measured[name+".requests"].quantile(1), byVerb(requests[name]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range fluxRows {
		fmt.Fprintf(out, "BENCH %s %.1f ms\n", r.name, measured[r.name].median())
	}
	fmt.Fprintf(out, "BENCH flux.lag.p99 %.1f ms\n", measured["flux.lag"].quantile(0.99))
	fmt.Fprintf(out, "BENCH flux.requests %.0f requests\n", measured["flux.op.fetch.requests"].quantile(1))
	return nil
}

func byVerb(counts map[string]int) string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[verb], verb))
	}
	return strings.Join(parts, ", ")
}
