package applier_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gitops-applier/gitops-applier/applier"
)

// holding is a client that can hold.
type holding struct {
	applier.Client
	applier.Holder
}

// watching is a client that can watch.
type watching struct{ applier.Client }

func (watching) Watch(context.Context, types.NamespacedName) <-chan *unstructured.Unstructured {
	return nil
}

// wrapper is a host's own client around another.
type wrapper struct{ applier.Client }

func (w wrapper) Unwrap() applier.Client { return w.Client }

// overriding is a wrapper that holds in a way of its own.
type overriding struct {
	wrapper
	applier.Holder
}

// opaque is a wrapper that does not say what it wraps.
type opaque struct{ applier.Client }

func TestACapabilityIsFoundThroughTheWrappersOfAHost(t *testing.T) {
	t.Parallel()
	inner := &holding{Client: &scripted{}}
	own := &overriding{wrapper: wrapper{inner}}
	for name, test := range map[string]struct {
		client applier.Client
		holder applier.Holder
	}{
		"none":                 {client: &scripted{}},
		"nil":                  {},
		"its own":              {client: inner, holder: inner},
		"of the wrapped":       {client: wrapper{inner}, holder: inner},
		"of the twice wrapped": {client: wrapper{wrapper{inner}}, holder: inner},
		"overridden":           {client: wrapper{own}, holder: own},
		"behind another":       {client: wrapper{watching{inner}}, holder: nil},
		"hidden":               {client: opaque{inner}},
		"around nothing":       {client: wrapper{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder, ok := applier.AsHolder(test.client)
			assert.Equal(t, test.holder != nil, ok)
			if ok {
				assert.Same(t, test.holder, holder)
			}
			_, ok = applier.AsPrefetcher(test.client)
			assert.False(t, ok)
		})
	}
	_, ok := applier.AsWatcher(wrapper{watching{&scripted{}}})
	assert.True(t, ok)
}
