package lab_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestMain(m *testing.M) {
	if os.Getenv(holderVariable) != "" {
		hold()
	}
	lab.Main(m, lab.All)
}

// holderVariable makes this test binary a process that holds a lab until it is
// killed.
const holderVariable = "LAB_TEST_HOLD"

// held is what such a process tells about its lab.
type held struct {
	State     string
	Processes []int
}

func hold() {
	l, err := lab.Up(context.Background(), lab.Options{Parts: lab.Bare})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(held{
		State:     filepath.Dir(l.Kubeconfig()),
		Processes: []int{lab.PID(l.Etcd), lab.PID(l.APIServer)},
	})
	select {}
}
