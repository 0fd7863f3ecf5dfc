package appliertest

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestZZ(t *testing.T) {
	for _, m := range strings.Split(os.Getenv("MUTANTS"), ",") {
		for _, synced := range []bool{false, true} {
			for _, c := range clauses {
				done := make(chan string, 1)
				t.Run("x", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						_, err := c.try(t, referenceHarness(synced, mutation(m)).withDefaults())
						if err != nil {
							done <- err.Error()
						}
						<-time.After(5 * time.Minute)
					})
				})
				select {
				case e := <-done:
					t.Logf("MUT %q synced=%v: %s/%s: %s", m, synced, c.group, c.name, e)
				default:
				}
			}
		}
	}
}
