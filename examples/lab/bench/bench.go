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

	"github.com/gitops-applier/gitops-applier/applier"
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

func (s samples) addSince(name string, begin time.Time) { s.add(name, milliseconds(time.Since(begin))) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// figures are what was measured on one engine.
type figures struct {
	engine   string
	rows     []row
	measured samples
	// counted are the rows whose requests were counted, and requests the counts by verb of the operation of each that made the most.
	counted  []string
	requests map[string]map[string]int
	// most is the row whose requests are the engine's figure.
	most string
}

// subject is what the figures of one engine are measured on.
type subject interface {
	// round takes each figure once.
	round(ctx context.Context, measured samples, round int) error
	figures() figures
}

// Run measures rounds operations of each way to apply, by Flux and by Argo CD, and prints a table, and one line for each
// figure: BENCH name value unit.
func Run(ctx context.Context, l *lab.Lab, out io.Writer, rounds int) error {
	flux, err := newFluxSubject(ctx, l)
	if err != nil {
		return err
	}
	argoCD, err := newArgoCDSubject(ctx, l)
	if err != nil {
		return err
	}
	subjects := []subject{flux, argoCD}
	for _, s := range subjects {
		for round := range rounds + 1 {
			measured := samples{} // of the first round, which only warms up
			if round > 0 {
				measured = s.figures().measured
			}
			if err := s.round(ctx, measured, round); err != nil {
				return fmt.Errorf("%s, round %d: %w", s.figures().engine, round, err)
			}
		}
	}
	return print(out, rounds, flux.figures(), argoCD.figures())
}

// row is one line of a table: what it measures, and beside what.
type row struct {
	title, name, beside string
}

// polled hides that a client can watch.
type polled struct{ applier.Client }

// count adds how many requests an operation made.
func (f figures) count(measured samples, name string, transport *lab.Transport) {
	counts := map[string]int{}
	requests := transport.Requests()
	for _, request := range requests {
		counts[request.Verb]++
	}
	measured.add(name+".requests", float64(len(requests)))
	if most := measured[name+".requests"].quantile(1); float64(len(requests)) == most {
		f.requests[name] = counts
	}
}

func print(out io.Writer, rounds int, engines ...figures) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range engines {
		fmt.Fprintf(table, "%s, %d rounds\tmedian ms\tp99 ms\tratio of medians\n", f.engine, rounds)
		for _, r := range f.rows {
			ratio := ""
			if r.beside != "" {
				ratio = fmt.Sprintf("%.2f × %s", f.measured[r.name].median()/f.measured[r.beside].median(), r.beside)
			}
			fmt.Fprintf(table, "%s (%s)\t%.1f\t%.1f\t%s\n", r.title, r.name, f.measured[r.name].median(), f.measured[r.name].quantile(0.99), ratio)
		}
		for _, name := range f.counted {
			fmt.Fprintf(table, "most requests of %s: %.0f\t%s\n", name, f.measured[name+".requests"].quantile(1), byVerb(f.requests[name]))
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, f := range engines {
		for _, r := range f.rows {
			fmt.Fprintf(out, "BENCH %s %.1f ms\n", r.name, f.measured[r.name].median())
		}
		prefix, _, _ := strings.Cut(f.most, ".")
		fmt.Fprintf(out, "BENCH %s.lag.p99 %.1f ms\n", prefix, f.measured[prefix+".lag"].quantile(0.99))
		fmt.Fprintf(out, "BENCH %s.requests %.0f requests\n", prefix, f.measured[f.most+".requests"].quantile(1))
	}
	return nil
}

func byVerb(counts map[string]int) string {
	var parts []string
	for _, verb := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[verb], verb))
	}
	return strings.Join(parts, ", ")
}
