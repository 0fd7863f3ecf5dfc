// Package viewstest asks the views of package gitopsprovider about what real controllers do: Flux with its helm-controller, and Argo CD with
// its ApplicationSet controller.
package viewstest

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestMain(m *testing.M) { lab.Main(m, lab.All) }
