package simulation

import (
	"k8s.io/client-go/dynamic"

	"github.com/gitops-applier/gitops-applier/applier"
)

// A mutation is a part that is broken, for the simulation to find out.
type mutation struct {
	name    string
	client  func(*process, applier.Client) applier.Client
	store   func(*process) applier.Store
	dynamic func(*process) dynamic.Interface
	// forgetful is a host that does not follow what the records say.
	forgetful bool
}
