// Package events compares what the simulated controllers say in Events with what the real ones say.
package events

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestMain(m *testing.M) { lab.Main(m, lab.All) }
