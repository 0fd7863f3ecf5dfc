package simulation

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run the simulation of this seed alone, and show its history with -v")
	seeds   = flag.Int("seeds", 0, "how many seeds to run, 0 for 500, or fewer under the race detector")
	shard   = flag.String("shard", "1/1", "which part of the seeds to run, such as 2/4")
)

// Whatever goes wrong, and whoever else acts, the laws hold.
func TestTheLawsHoldForAllSeeds(t *testing.T) {
	t.Parallel()
	runSeeds(t, plan{processes: 1})
}

// runSeeds runs the simulation of each seed that the flags ask for.
func runSeeds(t *testing.T, plan plan) {
	t.Helper()
	if *oneSeed != 0 {
		runSeed(t, *oneSeed, plan)
		return
	}
	part, of := 1, 1
	if _, err := fmt.Sscanf(*shard, "%d/%d", &part, &of); err != nil || part < 1 || part > of {
		t.Fatalf("-shard %q is not like 2/4", *shard)
	}
	n := *seeds
	switch {
	case n != 0:
	case plan.processes > 1 && raceEnabled:
		n = 8
	case plan.processes > 1:
		n = 50
	case raceEnabled:
		n = 50
	default:
		n = 500
	}
	began := time.Now()
	t.Run("seeds", func(t *testing.T) {
		for seed := part; seed <= n; seed += of {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				runSeed(t, uint64(seed), plan)
			})
		}
	})
	t.Logf("%d seeds, part %s, with %d processes at once, in %v", n, *shard, plan.processes, time.Since(began).Round(time.Second))
}

func runSeed(t *testing.T, seed uint64, plan plan) {
	t.Helper()
	h := simulate(t, seed, plan)
	if *oneSeed != 0 && testing.Verbose() {
		fmt.Fprint(os.Stdout, h)
	}
	if broken := h.violations(); len(broken) > 0 {
		fmt.Fprintf(os.Stderr, "seed %d: %s\n", seed, broken[0]) // The test's own output comes when all seeds have run.
		t.Errorf("seed %d breaks\n  %s\n\nThe history:\n%s\nAgain: go test ./fake/internal/simulation -run '^%s$' -seed %d",
			seed, strings.Join(broken, "\n  "), h, strings.Split(t.Name(), "/")[0], seed)
	}
}

func TestMain(m *testing.M) {
	// A cluster in memory makes much garbage and keeps little.
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
