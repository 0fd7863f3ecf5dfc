package hoststore_test

import (
	"testing"

	"github.com/gitops-applier/gitops-applier/examples/lab/lab"
)

func TestMain(m *testing.M) { lab.Main(m) }
